//! The process tree of a program, and how to end all of it.
//!
//! A guardian is the subreaper of its program. A process that loses its parent becomes the guardian's child, so none
//! leaves the tree. With a PID namespace or a control group, the kernel ends all processes at once. Otherwise,
//! descendants are killed until none is left.
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// The longest pause between two attempts to kill the rest.
const PAUSE_MOST: Duration = Duration::from_millis(100);

/// How often to kill children before searching for all descendants.
const CHILD_KILL_ROUNDS: usize = 1_000;

/// The mechanism that holds the processes of a program together.
pub(super) enum ProcessContainment {
    /// A PID namespace, held by its first process.
    Namespace(Child),
    /// A control group.
    Cgroup(Cgroup),
    /// Only their ancestry.
    Descendants,
}

impl ProcessContainment {
    /// Creates a control group if possible.
    pub(super) fn new() -> Self {
        Cgroup::create().ok().flatten().map_or(Self::Descendants, Self::Cgroup)
    }

    /// Calls `start` with the calling process as a member, so that its child processes are members too.
    pub(super) fn inside<T>(&self, start: impl FnOnce() -> T) -> T {
        let Self::Cgroup(cgroup) = self else { return start() };
        // If the group cannot be entered it stays empty, and descendants are killed one by one.
        let entered = cgroup.enter();
        let started = start();
        if entered.is_ok() {
            cgroup.leave();
        }
        started
    }

    /// Kills all remaining processes and waits until they are gone.
    pub(super) fn end(self) {
        match self {
            Self::Namespace(mut init) => {
                // The kernel kills all others with it.
                let _killed = init.kill();
                while wait(WaitOptions::empty()).is_ok_and(|found| found.is_some()) {}
            }
            Self::Cgroup(cgroup) => {
                cgroup.kill();
                kill_descendants();
                drop(cgroup);
            }
            Self::Descendants => kill_descendants(),
        }
    }
}

/// Kills all descendants of this process until none is left. Descendants of another user that may not be killed remain.
fn kill_descendants() {
    let mut pause = Duration::from_millis(1);
    loop {
        kill_children();
        let found = descendants();
        let mut refused = 0;
        for process in &found {
            refused += usize::from(kill_process(*process, Signal::KILL) == Err(Errno::PERM));
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // No child is left, so there is no descendant either.
                Err(_) => return,
            }
        }
        if !found.is_empty() && refused == found.len() {
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MOST);
    }
}

/// Kills the children of this process in a quick loop. A chain of processes that fork and exit changes faster than
/// `/proc` can be read in full. Each link becomes a child of this process when the one before it exits.
fn kill_children() {
    for _ in 0..CHILD_KILL_ROUNDS {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _killed = kill_process(child, Signal::KILL);
        }
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// Returns the children of this process, if the kernel lists them.
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let ids = |list: String| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<i32>>();
    lists.flat_map(ids).filter_map(Pid::from_raw).collect()
}

/// Returns the descendants of this process.
fn descendants() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = open.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend(below.iter().copied().filter_map(Pid::from_raw));
        open.extend(below);
    }
    found
}

/// Parses the parent's id from `/proc/ID/stat`: the second word after the name, which may contain any characters.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A control group (version 2), which is removed when this is dropped.
pub(super) struct Cgroup {
    path: PathBuf,
    parent: PathBuf,
    /// Whether this process is still a member and would be killed with the group.
    is_member: Cell<bool>,
}

impl Cgroup {
    /// Creates a group below that of this process. Returns `None` if groups are missing or cannot be killed at once.
    pub(super) fn create() -> io::Result<Option<Self>> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let Some(above) = own_group(&own, &mounts) else { return Ok(None) };
        let place = above.join(format!("outlast-{}", getpid().as_raw_nonzero()));
        fs::create_dir(&place)?;
        let made = Self { path: place, parent: above, is_member: Cell::new(false) };
        Ok(made.path.join("cgroup.kill").exists().then_some(made))
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), "0")
    }

    fn leave(&self) {
        self.is_member.set(fs::write(self.parent.join("cgroup.procs"), "0").is_err());
    }

    fn kill(&self) {
        // If this process could not leave, descendants are killed one by one.
        if !self.is_member.get() {
            let _killed = fs::write(self.path.join("cgroup.kill"), "1");
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _removed = fs::remove_dir(&self.path);
    }
}

/// Returns the directory of this process's group.
fn own_group(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let words: Vec<&str> = mount.split(' ').collect();
    // A partial mount of the hierarchy does not show where this group is.
    (words.get(3) == Some(&"/")).then(|| PathBuf::from(words[4]).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::set_child_subreaper;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Instant;

    /// Set in the process of a test that runs alone.
    const ALONE: &str = "OUTLAST_TEST_ALONE";

    /// How long killing all descendants may take on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A process that forks and exits again and again, for much longer than the patience of a test. Only its newest
    /// link is alive.
    const FORKING_CHAIN: &str = "\
import os, time
end = time.time() + 60
while time.time() < end:
    if os.fork():
        os._exit(0)
";

    /// Calls `test` in a separate process, because it kills all descendants of its process.
    fn alone(name: &str, test: impl FnOnce()) {
        if std::env::var_os(ALONE).is_some() {
            set_child_subreaper(Some(getpid())).unwrap();
            return test();
        }
        let path = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args([&path, "--exact", "--nocapture"]).env(ALONE, "1").spawn().unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            if began.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("descendants are left after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a chain of processes, which become children of this process. The first link has exited when this returns.
    fn start_chain(mark: &str) {
        let mut first = Command::new("python3").args(["-c", FORKING_CHAIN, mark]).spawn().unwrap();
        first.wait().unwrap();
    }

    /// Returns how many processes have this argument.
    fn marked(mark: &str) -> usize {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let commands = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        commands
            .filter(|command| command.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
            .count()
    }

    #[test]
    fn child_that_keeps_forking_is_killed() {
        alone("child_that_keeps_forking_is_killed", || {
            let mark = format!("chain-{}", getpid().as_raw_nonzero());
            start_chain(&mark);
            ProcessContainment::Descendants.end();
            assert_eq!(marked(&mark), 0);
        });
    }

    /// A control group in a temporary directory. `leaves` is whether its members can leave it.
    fn group(directory: &tempfile::TempDir, leaves: bool) -> Cgroup {
        let [path, parent] = ["group", "parent"].map(|name| directory.path().join(name));
        fs::create_dir(&path).unwrap();
        if leaves {
            fs::create_dir(&parent).unwrap();
        }
        Cgroup { path, parent, is_member: Cell::new(false) }
    }

    #[test]
    fn group_with_guardian_is_not_killed_immediately() {
        for leaves in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let tree = ProcessContainment::Cgroup(group(&directory, leaves));
            tree.inside(|| ());
            let ProcessContainment::Cgroup(group) = &tree else { unreachable!("it was just made") };
            group.kill();
            let killed = fs::read_to_string(directory.path().join("group/cgroup.kill")).ok();
            assert_eq!(killed.as_deref(), leaves.then_some("1"));
        }
    }

    #[test]
    fn real_control_group_is_killed_at_once() {
        alone("real_control_group_is_killed_at_once", || {
            let Ok(Some(group)) = Cgroup::create() else {
                return eprintln!("skipped: this process cannot create a control group");
            };
            let path = group.path.clone();
            let tree = ProcessContainment::Cgroup(group);
            let mut sleep = tree.inside(|| Command::new("sleep").arg("1000").spawn()).unwrap();
            let ProcessContainment::Cgroup(group) = &tree else { unreachable!("it was just made") };
            let members = fs::read_to_string(path.join("cgroup.procs")).unwrap();
            assert_eq!(members.trim(), sleep.id().to_string());
            group.kill();
            assert_eq!(sleep.wait().unwrap().signal(), Some(9));
            tree.end();
            assert!(!path.exists());
        });
    }

    #[test]
    fn processes_end_if_the_guardian_cannot_leave() {
        alone("processes_end_if_the_guardian_cannot_leave", || {
            let directory = tempfile::tempdir().unwrap();
            let tree = ProcessContainment::Cgroup(group(&directory, false));
            let mark = format!("60.{}", getpid().as_raw_nonzero());
            let mut sleep = tree.inside(|| Command::new("sleep").arg(&mark).spawn()).unwrap();
            // Its arguments appear in `/proc` a moment after it has started.
            while marked(&mark) == 0 {
                std::thread::yield_now();
            }
            tree.end();
            assert_eq!(marked(&mark), 0);
            // `end` has already collected it, so this returns at once, with an error.
            let _collected = sleep.wait();
        });
    }

    #[test]
    fn parent_pid_is_parsed_after_any_name() {
        assert_eq!(parent("12 (a) b (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 no name"), None);
    }

    #[test]
    fn own_cgroup_is_found_below_the_mount() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = own_group("1:name=systemd:/\n0::/user.slice/a\n", mounts);
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/unified/user.slice/a")));
        assert_eq!(own_group("1:name=systemd:/\n", mounts), None);
        assert_eq!(own_group("0::/a\n", &mounts.replace(" / /sys", " /part /sys")), None);
    }
}
