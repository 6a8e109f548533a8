//! Tests that no process started by a tool outlives the call, its timeout, or the server.
use crate::mcp::{accept, plain};
use crate::place::Place;
use crate::shell::{Runner, is_root};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long the kernel may take to reap killed processes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ways to leave a process behind. `MARK` is a number of seconds to sleep, unique per test.
const DAEMONS: [&str; 4] = [
    "(sleep MARK & sleep MARK &) > /dev/null 2>&1 < /dev/null",
    "setsid sh -c 'sleep MARK & sleep MARK' > /dev/null 2>&1 < /dev/null &",
    "(setsid sh -c 'trap : HUP TERM INT; (while sleep MARK; do :; done) & exec sleep MARK' &) > /dev/null 2>&1 < /dev/null",
    // Holds a read end of its standard error, so that the pipe always has a reader.
    "(sleep MARK 5< /proc/self/fd/2 > /dev/null < /dev/null &)",
];

/// Returns how many processes sleep for this duration.
fn sleeping(mark: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        command.starts_with(b"sleep\0") && String::from_utf8_lossy(&command).contains(mark)
    });
    processes.count()
}

/// Waits until no process sleeps for this duration.
#[track_caller]
pub(crate) fn all_end(mark: &str) {
    let began = Instant::now();
    while sleeping(mark) > 0 {
        assert!(began.elapsed() < PATIENCE, "{} processes are left", sleeping(mark));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a number that is unique per test.
fn mark(test: u32) -> String {
    format!("{}{test}", 40_000 + std::process::id() % 10_000)
}

/// Writes an agent with a shell and a tool `work` that runs this script.
fn agent(place: &Place, script: &str) {
    place.write_program("work.sh", script);
    let tool = "[[tools]]\nname = \"work\"\ndescription = \"x\"\ncommand = [\"./work.sh\"]\ndeadline_s = 3\n";
    let rule = "[[rules]]\nname = \"all\"\ntool = \"*\"\nthen = \"allow\"\n";
    place.write(
        "agent.toml",
        &format!("name = \"a\"\nfiles = \"work\"\n[shell]\ndeadline_s = 3\n{tool}{rule}"),
    );
}

const RUN: [&str; 6] = ["run", "go", "--agent", "agent.toml", "--script", "script.txt"];

/// Returns a tool call and a shell call that leave processes behind and then run `then`.
fn both(place: &Place, mark: &str, then: &str) -> [String; 2] {
    let script: String = DAEMONS.map(|daemon| daemon.replace("MARK", mark) + "\n").concat();
    agent(place, &format!("cat > /dev/null\n{script}{then}"));
    let command = serde_json::json!({ "command": format!("{script}{then}") });
    ["call work {}".to_owned(), format!("call shell {command}")]
}

#[test]
fn background_processes_end_with_their_call() {
    let place = Place::new();
    let mark = mark(1);
    for call in both(&place, &mark, "echo 1") {
        place.set_script(&format!("{call}\n---\nsay {{{{result 0}}}}"));
        let began = Instant::now();
        let output = place.output(&RUN);
        assert!(output.status.success() && place.show(&output).contains('1'), "{}", place.show(&output));
        assert!(began.elapsed() < PATIENCE, "the call waited for what it started");
        all_end(&mark);
    }
}

#[test]
fn background_processes_end_at_the_deadline() {
    let place = Place::new();
    let mark = mark(2);
    for call in both(&place, &mark, &format!("sleep {mark}")) {
        place.set_script(&format!("{call}\n---\nsay {{{{result 0}}}}"));
        let output = place.output(&RUN);
        assert!(place.show(&output).contains("tool.timed_out"), "{}", place.show(&output));
        all_end(&mark);
    }
}

#[test]
fn background_processes_end_when_the_server_is_killed() {
    let place = Place::new();
    let mark = mark(3);
    for call in both(&place, &mark, &format!("touch started\nsleep {mark}")) {
        place.set_script(&format!("{call}\n---\nsay done"));
        let started = if call.contains("shell") {
            place.path().join("work/started")
        } else {
            place.path().join("started")
        };
        let mut server = place.command(&RUN).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while !started.exists() {
            assert!(began.elapsed() < PATIENCE, "it did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(sleeping(&mark) > 0);
        server.kill().unwrap();
        server.wait().unwrap();
        all_end(&mark);
    }
}

#[test]
fn mcp_server_ends_with_everything_it_started() {
    let mark = mark(4);
    for sandbox in ["", "sandbox = true\nread = [\"plain.py\"]\nenv = []\n"] {
        let place = plain("good", sandbox);
        accept(&place);
        place.write("plain.py", &daemonized(&place, &mark));
        place.set_script("call plain.echo {\"text\": \"x\"}\n---\nsay done");
        let output = place.output(&RUN);
        assert!(output.status.success(), "{}", place.show(&output));
        all_end(&mark);
    }
}

/// Returns the MCP server's source, changed to first start a daemon.
fn daemonized(place: &Place, mark: &str) -> String {
    let server = fs::read_to_string(place.path().join("plain.py")).unwrap();
    format!(
        "import os\nif os.fork() == 0:\n  try: os.setsid()\n  except OSError: pass\n  os.execvp('sleep', ['sleep', '{mark}'])\n{server}"
    )
}

#[test]
fn programs_cannot_read_the_servers_environment() {
    const CANARY: &str = "canary-environment-51c3";
    let mut runners = vec![Runner::Tester];
    if is_root() {
        runners.push(Runner::Nobody);
    }
    for runner in runners {
        let place = Place::new();
        // Reads all accessible environments. Its own environment does not contain the text.
        let script =
            "cat > /dev/null; cat /proc/[0-9]*/environ 2> /dev/null | grep -a -c canary-environment; exit 0";
        agent(&place, script);
        place.set_script("call work {}\n---\nsay {{result 0}}");
        runner.own(&place);
        let mut outlast = runner.command(&place, &RUN);
        let output = outlast.env("OUTLAST_TEST_SECRET", CANARY).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), "0", "{runner:?}: {}", place.show(&output));
    }
}
