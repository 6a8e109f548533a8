//! Everything that a program started, and how all of it is ended.
//!
//! A guardian is the subreaper of its program: whatever loses its parent becomes the guardian's child, so nothing leaves the tree.
//! In a PID namespace the kernel ends all processes at once; in a control group likewise. Without either, descendants are killed
//! until none is left.
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// The longest pause between two attempts to kill what is left.
const PAUSE_MOST: Duration = Duration::from_millis(100);

/// How often children are killed before all descendants are looked for.
const CHASES: usize = 1_000;

/// What holds the processes of a program together.
pub(super) enum Tree {
    /// A PID namespace, by its first process.
    Namespace(Child),
    /// A control group.
    Cgroup(Cgroup),
    /// Nothing but their descent.
    Descendants,
}

impl Tree {
    /// A control group where one can be made.
    pub(super) fn new() -> Self {
        Cgroup::create().ok().flatten().map_or(Self::Descendants, Self::Cgroup)
    }

    /// Does this with the calling process as a member, so that what it starts is born as one.
    pub(super) fn inside<T>(&self, start: impl FnOnce() -> T) -> T {
        let Self::Cgroup(cgroup) = self else { return start() };
        // A group that cannot be entered is an empty one; descendants are killed one by one then.
        let entered = cgroup.enter();
        let started = start();
        if entered.is_ok() {
            cgroup.leave();
        }
        started
    }

    /// Kills everything that is left, and waits until it is gone.
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

/// Kills all descendants of this process until there are none. Those of another user that may not be killed are left.
fn kill_descendants() {
    let mut pause = Duration::from_millis(1);
    loop {
        chase_children();
        let found = descendants();
        let mut refused = 0;
        for process in &found {
            refused += usize::from(kill_process(*process, Signal::KILL) == Err(Errno::PERM));
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // No child is left, and so no descendant.
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

/// Kills the children of this process, quickly and often: a chain of processes that fork and end at once changes its number faster
/// than all of `/proc` can be read, and each link is a child of this process when the one before it has ended.
fn chase_children() {
    for _ in 0..CHASES {
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

/// The children of this process, where the kernel lists them.
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let ids = |list: String| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<i32>>();
    lists.flat_map(ids).filter_map(Pid::from_raw).collect()
}

/// The processes below this one.
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

/// The parent's id in `/proc/ID/stat`: the second word behind the name, which may itself contain anything.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A control group (version 2) of its own, which is removed with this value.
pub(super) struct Cgroup {
    place: PathBuf,
    above: PathBuf,
    /// Whether this process is still inside, and would be killed with the group.
    is_member: Cell<bool>,
}

impl Cgroup {
    /// Makes a group below the one of this process. Nothing, if groups are not there or cannot be killed at once.
    pub(super) fn create() -> io::Result<Option<Self>> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let Some(above) = own_group(&own, &mounts) else { return Ok(None) };
        let place = above.join(format!("outlast-{}", getpid().as_raw_nonzero()));
        fs::create_dir(&place)?;
        let made = Self { place, above, is_member: Cell::new(false) };
        Ok(made.place.join("cgroup.kill").exists().then_some(made))
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.place.join("cgroup.procs"), "0")
    }

    fn leave(&self) {
        self.is_member.set(fs::write(self.above.join("cgroup.procs"), "0").is_err());
    }

    fn kill(&self) {
        // Descendants are killed one by one where this process could not leave.
        if !self.is_member.get() {
            let _killed = fs::write(self.place.join("cgroup.kill"), "1");
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _removed = fs::remove_dir(&self.place);
    }
}

/// The directory of this process's group.
fn own_group(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let words: Vec<&str> = mount.split(' ').collect();
    // A mount that shows only a part of the hierarchy does not say where this group is in it.
    (words.get(3) == Some(&"/")).then(|| PathBuf::from(words[4]).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_found_behind_any_name() {
        assert_eq!(parent("12 (a) b (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 no name"), None);
    }

    #[test]
    fn own_group_is_found_below_the_mount() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = own_group("1:name=systemd:/\n0::/user.slice/a\n", mounts);
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/unified/user.slice/a")));
        assert_eq!(own_group("1:name=systemd:/\n", mounts), None);
        assert_eq!(own_group("0::/a\n", &mounts.replace(" / /sys", " /part /sys")), None);
    }
}
