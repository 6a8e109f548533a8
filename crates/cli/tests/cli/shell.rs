//! Tests of the `shell` tool: what commands can do, and what the sandbox prevents.
use crate::place::Place;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Attempts to escape that must fail.
const ESCAPES: &str = include_str!("escapes.txt");

/// Text that no command may see.
const CANARY: &str = "canary-7d1f";

/// The id of an unprivileged user.
const NOBODY: u32 = 65_534;

/// The user that runs the binary, and whether namespaces are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// The user that runs the tests.
    Tester,
    /// The user that runs the tests, without namespaces.
    TesterWithoutNamespaces,
    Nobody,
    NobodyWithoutNamespaces,
}

impl Runner {
    fn is_unprivileged(self) -> bool {
        matches!(self, Self::Nobody | Self::NobodyWithoutNamespaces)
    }

    fn has_namespaces(self) -> bool {
        matches!(self, Self::Tester | Self::Nobody)
    }

    /// Returns the binary with these arguments, to be run by this user.
    pub(crate) fn command(self, place: &Place, args: &[&str]) -> Command {
        let inner = place.command(args);
        let mut words: Vec<&OsStr> = Vec::new();
        if self.is_unprivileged() {
            words.extend(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"].map(OsStr::new),
            );
        }
        if !self.has_namespaces() {
            let without = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin -- \"$@\"";
            words.extend(["unshare", "--user", "--map-root-user", "sh", "-c", without, "sh"].map(OsStr::new));
        }
        let binary = place.path().join("outlast-binary");
        words.push(if self.is_unprivileged() { binary.as_os_str() } else { inner.get_program() });
        words.extend(inner.get_args());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(place.path());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Makes the user the owner of everything in the place.
    pub(crate) fn own(self, place: &Place) {
        if !self.is_unprivileged() {
            return;
        }
        let binary = place.path().join("outlast-binary");
        if !binary.exists() {
            let built = env!("CARGO_BIN_EXE_outlast");
            fs::hard_link(built, &binary).or_else(|_| fs::copy(built, &binary).map(drop)).unwrap();
        }
        let mut open = vec![place.path().to_owned()];
        while let Some(path) = open.pop() {
            if path == binary {
                continue;
            }
            std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            if path.symlink_metadata().unwrap().is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
}

/// Returns whether the tests can switch to another user. If not, tells that a part of the test is skipped.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: not root");
    }
    is_root
}

/// Runs commands as calls of one reply, in the directory `work`, and returns their results.
fn run(place: &Place, settings: &str, commands: &[String]) -> Vec<Value> {
    run_as(Runner::Tester, place, settings, commands)
}

fn run_as(runner: Runner, place: &Place, settings: &str, commands: &[String]) -> Vec<Value> {
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
    runner.own(place);
    let mut outlast =
        runner.command(place, &["run", "go", "--agent", "agent.toml", "--script", "script.txt"]);
    let output = outlast.env("OUTLAST_TEST_SECRET", CANARY).output().unwrap();
    assert!(output.status.success(), "{runner:?}\n{}", place.show(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))).collect()
}

/// A process that commands may try to reach. It ends with the test.
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
fn shell_commands_run_in_the_files_directory() {
    let place = Place::new();
    let results = run(
        &place,
        "",
        &all(&[
            "echo hello; echo oops >&2; exit 3",
            "mkdir d && printf 'b\\na\\n' > d/f && sort d/f && rm -r d",
            "echo $HOME:$PATH; env | cut -d= -f1 | sort | tr '\\n' ' '",
            "echo x > $TMPDIR/a && cat $TMPDIR/a",
            "seq 1 100000 | tail -1",
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
    assert_eq!(results[4]["stdout"], "100000");
    assert_eq!((&results[5]["exit_code"], &results[5]["signal"]), (&Value::Null, &Value::from(9)));
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
}

#[test]
fn long_output_of_commands_is_cut() {
    let results = run(&Place::new(), "", &all(&["yes a | head -c 200000"]));
    // The rest still exceeds the window of the model, so the model sees only its beginning, which is not JSON.
    let shown = results[0].as_str().unwrap();
    assert!(shown.starts_with(r#"{"cut":true,"exit_code":0,"signal":null,"#), "{shown}");
}

#[test]
fn shell_command_needs_approval_unless_a_rule_allows() {
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
fn no_command_escapes_the_sandbox() {
    no_escape_works(Runner::Tester);
}

#[test]
fn no_command_escapes_without_namespaces() {
    no_escape_works(Runner::TesterWithoutNamespaces);
}

#[test]
fn no_unprivileged_command_escapes_the_sandbox() {
    // The tests above cover an unprivileged tester.
    if is_root() {
        no_escape_works(Runner::Nobody);
    }
}

#[test]
fn no_unprivileged_command_escapes_without_namespaces() {
    if is_root() {
        no_escape_works(Runner::NobodyWithoutNamespaces);
    }
}

/// A shared memory segment outside the sandbox. It is removed with the test.
struct SharedMemory(String);

impl SharedMemory {
    fn make(user: Option<u32>) -> Self {
        let make = "my $id = shmget(0, 64, 01666); shmwrite($id, q(canary-7d1f), 0, 11); print $id";
        let mut perl = Command::new("/usr/bin/perl");
        perl.args(["-e", make]);
        if let Some(user) = user {
            perl.uid(user).gid(user);
        }
        Self(String::from_utf8(perl.output().unwrap().stdout).unwrap())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let remove = format!("shmctl({}, 0, 0)", self.0);
        let _removed = Command::new("perl").args(["-e", &remove]).status();
    }
}

/// Returns the metadata of a file or process.
fn metadata(path: &Path) -> String {
    let found = fs::metadata(path).unwrap();
    let attributes = Command::new("perl")
        .args(["-e", "print syscall(191, $ARGV[0], q(user.x), 0, 0)"])
        .arg(path)
        .output()
        .unwrap();
    let attributes = if cfg!(target_arch = "x86_64") { attributes.stdout } else { Vec::new() };
    format!(
        "{:o} {}:{} {}.{} {attributes:?}",
        found.mode(),
        found.uid(),
        found.gid(),
        found.mtime(),
        found.mtime_nsec()
    )
}

fn process_state(id: u32) -> String {
    let read = |file: &str| fs::read_to_string(format!("/proc/{id}/{file}")).unwrap();
    let affinity = read("status").lines().filter(|line| line.starts_with("Cpus_allowed")).collect::<String>();
    // State, priority, nice value and scheduling policy.
    let stat = read("stat");
    let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    format!("{} {} {} {} {}\n{affinity}", read("limits"), words[0], words[15], words[16], words[38])
}

fn no_escape_works(runner: Runner) {
    let place = Place::new();
    let dir = place.path().canonicalize().unwrap();
    let outside = dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(dir.join("work")).unwrap();
    fs::write(outside.join("secret"), CANARY).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("work/link")).unwrap();
    fs::hard_link(outside.join("secret"), outside.join("other")).unwrap();
    runner.own(&place);
    let user = runner.is_unprivileged().then_some(NOBODY);
    let mut sleeps = Command::new("/bin/sleep");
    if let Some(user) = user {
        sleeps.uid(user).gid(user);
    }
    let mut victim = Victim(sleeps.arg("1000").env("OUTLAST_TEST_SECRET", CANARY).spawn().unwrap());
    let memory = SharedMemory::make(user);
    let (out, victim_id) = (outside.display().to_string(), victim.0.id());

    let escapes: Vec<String> = ESCAPES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| match line.strip_prefix("x86_64: ") {
            Some(_) if !cfg!(target_arch = "x86_64") => None,
            special => Some(special.unwrap_or(line)),
        })
        .map(|line| line.replace("OUT/", &format!("{out}/")).replace("OUT ", &format!("{out} ")))
        .map(|line| line.replace("VICTIM", &victim_id.to_string()).replace("SHM", &memory.0))
        .collect();
    // Escapes with x86 system calls are left out on other architectures.
    let least = if cfg!(target_arch = "x86_64") { 121 } else { 60 };
    assert!(escapes.len() >= least, "{}", escapes.len());
    // The first run creates the database.
    run_as(runner, &place, "", &all(&["true"]));
    let watched =
        [outside.join("secret"), outside.clone(), dir.join("outlast.db"), "/bin/sh".into(), "/usr".into()];
    let state = |path: &PathBuf| metadata(path).split(' ').take(2).collect::<Vec<_>>().join(" ");
    let before = (watched.each_ref().map(state), metadata(&watched[0]), process_state(victim_id));
    // The maximum number of calls per reply.
    for some in escapes.chunks(50) {
        for (command, result) in some.iter().zip(run_as(runner, &place, "", some)) {
            let said = result.to_string();
            assert!(!said.contains("ESCAPED") && !said.contains(CANARY), "{runner:?}: {command}\n{said}");
        }
    }
    let after = (watched.each_ref().map(state), metadata(&watched[0]), process_state(victim_id));
    assert_eq!(after, before, "{runner:?}");
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), CANARY);
    let mut left: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["other", "secret"]);
    for entry in fs::read_dir(dir.join("work")).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().mode();
        assert_eq!(mode & 0o6000, 0, "{runner:?}: {} runs as its owner", entry.file_name().display());
    }
    assert!(victim.0.try_wait().unwrap().is_none(), "a process outside was ended");
}

#[test]
fn doctor_reports_active_protections() {
    let place = Place::new();
    place.output(&["run", "hi"]);
    for (runner, namespaces) in [
        (Runner::Tester, "commands see other files read-only, and no processes or shared memory outside"),
        (Runner::TesterWithoutNamespaces, "missing (the kernel does not allow namespaces: "),
    ] {
        let output = runner.command(&place, &["doctor", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", place.show(&output));
        let facts: BTreeMap<String, String> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter_map(|fact| Some((fact["name"].as_str()?.to_owned(), fact["value"].as_str()?.to_owned())))
            .collect();
        assert!(facts["landlock"].starts_with("commands are restricted to their directories"), "{facts:?}");
        assert_eq!(facts["environment"], "hidden from other processes of this user");
        assert!(facts["namespaces"].starts_with(namespaces), "{runner:?}: {facts:?}");
        assert!(facts.contains_key("cgroup"), "{facts:?}");
    }
}

#[test]
fn doctor_reports_capabilities_that_cannot_be_dropped() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.output(&["run", "hi"]);
    let doctor = place.command(&["doctor", "--json"]);
    let mut limited = Command::new("setpriv");
    limited.args(["--bounding-set=-setpcap", "--"]).arg(doctor.get_program()).args(doctor.get_args());
    limited.envs(doctor.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.current_dir(place.path()).output().unwrap();
    let shown = place.show(&output);
    assert!(shown.contains("readable for programs without a sandbox"), "{shown}");
}

#[test]
fn honest_commands_work_with_and_without_namespaces() {
    let mut runners = vec![Runner::Tester, Runner::TesterWithoutNamespaces];
    if is_root() {
        runners.extend([Runner::Nobody, Runner::NobodyWithoutNamespaces]);
    }
    for runner in runners {
        let place = Place::new();
        let commands = all(&[
            "printf '#!/bin/sh\necho ran\n' > run.sh && sh run.sh",
            "mkdir -p a/b && echo x > a/b/c && cp -r a d && mv d e && cat e/b/c && rm -r e",
            "touch new && echo y >> new && cat new",
            "tar cf a.tar a && tar tf a.tar | tail -1",
            "perl -e 'print `echo child`'",
            "sleep 0.05 & wait; echo waited",
            "nice -n 3 echo nice; ulimit -n 100 && ulimit -n",
            "(exit 7)",
            "chmod +x run.sh && ./run.sh",
            "touch -d 2001-01-01 new && date -u -r new +%Y",
        ]);
        let results = run_as(runner, &place, "", &commands);
        let said: Vec<&str> = results.iter().map(|result| result["stdout"].as_str().unwrap_or("?")).collect();
        let everywhere = ["ran", "x", "y", "a/b/c", "child", "waited", "nice\n100", ""];
        assert_eq!(said[..8], everywhere, "{runner:?}: {results:?}");
        assert_eq!(results[7]["exit_code"], 7);
        // Without namespaces, the sandbox cannot tell its own files from others, so it denies metadata changes.
        let own_metadata = if runner.has_namespaces() { ["ran", "2001"] } else { ["", ""] };
        assert_eq!(said[8..], own_metadata, "{runner:?}: {results:?}");
    }
}

#[test]
fn timed_out_command_ends_with_its_child_processes() {
    let place = Place::new();
    let mark = format!("4{}", std::process::id());
    let commands = all(&[&format!(
        "for i in 1 2 3; do (sleep {mark} &) ; (nohup sleep {mark} > /dev/null 2>&1 &); done; sleep {mark}"
    )]);
    let results = run(&place, "deadline_s = 1", &commands);
    assert_eq!(results, ["error tool.timed_out: the tool did not finish within 1000 ms"]);
    crate::guardian::all_end(&mark);
}

#[test]
fn temporary_files_are_removed_after_timeout() {
    let place = Place::new();
    let temporary = place.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    place.set("TMPDIR", temporary.to_str().unwrap());
    let fill = "mkdir -p $TMPDIR/a/b; i=0; while :; do i=$((i + 1)); echo x > $TMPDIR/a/b/$i; done";
    let commands = all(&["echo x > $TMPDIR/file; mkdir $TMPDIR/dir; echo done", fill, "echo after"]);
    let results = run(&place, "deadline_s = 1", &commands);
    assert_eq!(results[0]["stdout"], "done");
    assert!(results[1].to_string().contains("tool.timed_out"), "{results:?}");
    let began = std::time::Instant::now();
    let left = || fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    // Only the empty directory of the timed out command may stay, if the program ended before its guardian.
    let is_empty = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    while !(left().len() <= 1 && left().iter().all(is_empty)) {
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", left());
        std::thread::yield_now();
    }
}

#[test]
fn command_resources_are_limited() {
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
fn shell_settings_grant_more_paths_and_variables() {
    let place = Place::new();
    let dir = place.path().canonicalize().unwrap();
    fs::create_dir(dir.join("shared")).unwrap();
    place.write("shared/a", "shared");
    let settings = format!("read = [\"{}\"]\nenv = [\"OUTLAST_TEST_SECRET\"]", dir.join("shared").display());
    let commands = [
        "cat ../shared/a",
        "echo x > ../shared/a; cat ../shared/a",
        "echo ${#OUTLAST_TEST_SECRET} $OUTLAST_TEST_SECRET",
    ];
    let said: Vec<Value> =
        run(&place, &settings, &all(&commands)).into_iter().map(|result| result["stdout"].clone()).collect();
    // The command sees the variable, but its value is redacted for the model.
    assert_eq!(said, ["shared", "shared", &format!("{} [redacted]", CANARY.len())]);
}
