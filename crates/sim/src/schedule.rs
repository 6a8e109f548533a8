//! Tasks of all processes on one thread. Which of those that could go on does so is decided outside, by a seed.
use outlast_ports::BoxFuture;
use outlast_ports::task::Spawner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// A process over all its lives: each life has a number of its own.
pub(crate) type LifeNo = u32;
/// A task.
pub(crate) type TaskNo = u64;

/// The tasks of the world.
#[derive(Default)]
pub(crate) struct Schedule {
    tasks: BTreeMap<TaskNo, (LifeNo, BoxFuture<'static, ()>)>,
    shared: Arc<Shared>,
}

/// What wakers and spawners reach.
#[derive(Default)]
struct Shared {
    // Ordered, so that it does not matter in which order tasks were woken.
    ready: Mutex<BTreeSet<TaskNo>>,
    fresh: Mutex<Fresh>,
}

#[derive(Default)]
struct Fresh {
    next: TaskNo,
    tasks: Vec<(TaskNo, LifeNo, BoxFuture<'static, ()>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Schedule {
    /// Where the tasks of a life are spawned.
    pub(crate) fn spawner(&self, life: LifeNo) -> Arc<dyn Spawner> {
        Arc::new(LifeTasks { life, shared: self.shared.clone() })
    }

    /// Tasks that can go on, in the order of their numbers, each with its life.
    pub(crate) fn ready(&mut self) -> Vec<(TaskNo, LifeNo)> {
        for (no, life, task) in std::mem::take(&mut lock(&self.shared.fresh).tasks) {
            self.tasks.insert(no, (life, task));
            lock(&self.shared.ready).insert(no);
        }
        let mut ready = lock(&self.shared.ready);
        ready.retain(|no| self.tasks.contains_key(no));
        ready.iter().map(|no| (*no, self.tasks[no].0)).collect()
    }

    /// Lets a task go on until it waits or ends.
    pub(crate) fn poll(&mut self, no: TaskNo) {
        lock(&self.shared.ready).remove(&no);
        let Some((life, mut task)) = self.tasks.remove(&no) else { return };
        let waker = Waker::from(Arc::new(TaskWaker { no, shared: self.shared.clone() }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks.insert(no, (life, task));
        }
    }

    /// Drops every task of a life where it stands.
    pub(crate) fn kill(&mut self, life: LifeNo) {
        lock(&self.shared.fresh).tasks.retain(|(_, of, _)| *of != life);
        let dead: Vec<TaskNo> =
            self.tasks.iter().filter(|(_, (of, _))| *of == life).map(|(no, _)| *no).collect();
        for no in dead {
            self.tasks.remove(&no);
        }
    }
}

struct LifeTasks {
    life: LifeNo,
    shared: Arc<Shared>,
}

impl Spawner for LifeTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut fresh = lock(&self.shared.fresh);
        fresh.next += 1;
        let no = fresh.next;
        fresh.tasks.push((no, self.life, task));
    }
}

struct TaskWaker {
    no: TaskNo,
    shared: Arc<Shared>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.shared.ready).insert(self.no);
    }
}
