//! The tool `shell`: what commands can do, and what they cannot get at from behind the walls.
use crate::place::Place;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command};

/// Ways out that do not work.
const ESCAPES: &str = include_str!("escapes.txt");

/// What must never be seen by a command.
const CANARY: &str = "canary-7d1f";

/// Runs commands as calls of one reply, in the directory `work`; gives the result of each.
fn run(place: &Place, settings: &str, commands: &[String]) -> Vec<Value> {
    let mut script = String::new();
    for command in commands {
        writeln!(script, "call shell {}", serde_json::json!({ "command": command })).unwrap();
    }
    script += "---\n";
    for index in 0..commands.len() {
        writeln!(script, "say {{{{result {index}}}}}").unwrap();
    }
    place.set_script(&script);
    let allowed = "[[rules]]\nname = \"walls\"\ntool = \"shell\"\nthen = \"allow\"\n";
    let agent = format!("name = \"walled\"\nfiles = \"work\"\n[shell]\n{settings}\n{allowed}");
    place.write("agent.toml", &agent);
    let mut outlast = place.command(&["run", "go", "--agent", "agent.toml", "--script", "script.txt"]);
    let output = outlast.env("OUTLAST_TEST_SECRET", CANARY).output().unwrap();
    assert!(output.status.success(), "{}", place.show(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))).collect()
}

/// A process that commands may try to reach; it ends with the test.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

fn all(commands: &[&str]) -> Vec<String> {
    commands.iter().map(|command| (*command).to_owned()).collect()
}

#[test]
fn a_command_works_in_the_directory_for_files() {
    let place = Place::new();
    let results = run(
        &place,
        "",
        &all(&[
            "echo hello; echo oops >&2; exit 3",
            "mkdir d && printf 'b\\na\\n' > d/f && sort d/f && rm -r d",
            "echo $HOME:$PATH; env | cut -d= -f1 | sort | tr '\\n' ' '",
            "echo x > $TMPDIR/a && cat $TMPDIR/a",
            "seq 1 100000 | tail -1; yes a | head -c 200000",
            "kill -9 $$",
        ]),
    );
    let work = place.path().canonicalize().unwrap().join("work");
    assert_eq!(
        results[0],
        serde_json::json!({"exit_code": 3, "signal": null, "stdout": "hello", "stderr": "oops", "cut": false})
    );
    assert_eq!(results[1]["stdout"], "a\nb");
    let variables = format!("{}:/usr/local/bin:/usr/bin:/bin\nHOME LANG PATH PWD TMPDIR", work.display());
    assert_eq!(results[2]["stdout"], variables);
    assert_eq!(results[3]["stdout"], "x");
    assert_eq!((results[4]["exit_code"].as_i64(), &results[4]["cut"]), (Some(0), &Value::Bool(true)));
    assert_eq!((&results[5]["exit_code"], &results[5]["signal"]), (&Value::Null, &Value::from(9)));
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
}

#[test]
fn a_command_runs_only_when_somebody_says_so_unless_a_rule_does() {
    let place = Place::new();
    place.set_script("call shell {\"command\": \"echo x > ran\"}\n---\nsay done");
    place.write("agent.toml", "name = \"walled\"\nfiles = \"work\"\n[shell]\n");
    let words = ["run", "go", "--agent", "agent.toml", "--script", "script.txt"];
    let waits = place.output(&words);
    assert!(place.show(&waits).contains("waits for an approval"), "{}", place.show(&waits));
    let questions = place.output(&["approvals", "list", "--json"]);
    let question: Value = serde_json::from_slice(&questions.stdout).unwrap();
    assert_eq!(question["rule"], "tool.approval", "{question}");
    assert!(!place.path().join("work/ran").exists());
    let id = question["id"].as_str().unwrap();
    let approved = place.output(&["approvals", "approve", id, "--by", "ann"]);
    assert!(approved.status.success(), "{}", place.show(&approved));
    let done = place.output(&["work", "--agent", "agent.toml", "--script", "script.txt"]);
    assert!(done.status.success(), "{}", place.show(&done));
    assert!(place.path().join("work/ran").exists());
}

#[test]
fn no_command_gets_out_s51() {
    let place = Place::new();
    let dir = place.path().canonicalize().unwrap();
    let outside = dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(dir.join("work")).unwrap();
    fs::write(outside.join("secret"), CANARY).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("work/link")).unwrap();
    fs::hard_link(outside.join("secret"), outside.join("other")).unwrap();
    let mut victim = Victim(Command::new("sleep").arg("1000").spawn().unwrap());
    let (out, victim_id) = (outside.display().to_string(), victim.0.id());

    let escapes: Vec<String> = ESCAPES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| match line.strip_prefix("x86_64: ") {
            Some(_) if !cfg!(target_arch = "x86_64") => None,
            special => Some(special.unwrap_or(line)),
        })
        .map(|line| line.replace("OUT/", &format!("{out}/")).replace("OUT ", &format!("{out} ")))
        .map(|line| line.replace("VICTIM", &victim_id.to_string()))
        .collect();
    assert!(escapes.len() > 60, "{}", escapes.len());
    // A reply has room for so many calls.
    for some in escapes.chunks(50) {
        for (command, result) in some.iter().zip(run(&place, "", some)) {
            let said = result.to_string();
            assert!(!said.contains("ESCAPED") && !said.contains(CANARY), "{command}\n{said}");
        }
    }
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), CANARY);
    let mut left: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["other", "secret"]);
    assert!(victim.0.try_wait().unwrap().is_none(), "a process outside was ended");
}

#[test]
fn a_command_over_its_deadline_ends_with_everything_it_started() {
    let place = Place::new();
    let mark = format!("4{}", std::process::id());
    let commands = all(&[&format!(
        "for i in 1 2 3; do (sleep {mark} &) ; (nohup sleep {mark} > /dev/null 2>&1 &); done; sleep {mark}"
    )]);
    let results = run(&place, "deadline_s = 1", &commands);
    assert_eq!(results, ["error tool.timed_out: the tool did not finish within 1000 ms"]);
    let alive = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&mark) && command.starts_with(b"sleep")
    });
    assert_eq!(alive.count(), 0);
}

#[test]
fn what_a_command_takes_is_bounded() {
    let place = Place::new();
    let results = run(
        &place,
        "deadline_s = 20",
        &all(&[
            "head -c 300000000 /dev/zero > big; stat -c %s big; rm big",
            "command -v perl > /dev/null && perl -e 'my $x = q(a) x (5 << 30); print q(ESCAPED)'",
            "ulimit -c; ulimit -n; ulimit -t",
        ]),
    );
    assert_eq!(results[0]["stdout"], (256 << 20).to_string());
    assert!(!results[1].to_string().contains("ESCAPED"), "{}", results[1]);
    assert_eq!(results[2]["stdout"], "0\n256\n21");
}

#[test]
fn a_shell_reads_more_and_sees_more_when_it_is_told_to() {
    let place = Place::new();
    let dir = place.path().canonicalize().unwrap();
    fs::create_dir(dir.join("shared")).unwrap();
    place.write("shared/a", "shared");
    let settings = format!("read = [\"{}\"]\nenv = [\"OUTLAST_TEST_SECRET\"]", dir.join("shared").display());
    let commands = ["cat ../shared/a", "echo x > ../shared/a; cat ../shared/a", "echo $OUTLAST_TEST_SECRET"];
    let said: Vec<Value> =
        run(&place, &settings, &all(&commands)).into_iter().map(|result| result["stdout"].clone()).collect();
    assert_eq!(said, ["shared", "shared", CANARY]);
}
