//! Runs the tasks of all processes on one thread. The caller chooses, by a seed, which of the ready tasks runs next.
use outlast_ports::BoxFuture;
use outlast_ports::spawner::Spawner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// The number of a process life. Each restart of a process gets a new number.
pub(crate) type SimProcessNo = u32;
/// The number of a task.
pub(crate) type TaskNo = u64;

/// The tasks of the world.
#[derive(Default)]
pub(crate) struct TaskScheduler {
    tasks: BTreeMap<TaskNo, (SimProcessNo, BoxFuture<'static, ()>)>,
    shared: Arc<TaskQueues>,
}

/// The state that wakers and spawners share.
#[derive(Default)]
struct TaskQueues {
    // Ordered, so that the order in which tasks were woken does not matter.
    ready: Mutex<BTreeSet<TaskNo>>,
    fresh: Mutex<SpawnQueue>,
}

#[derive(Default)]
struct SpawnQueue {
    next: TaskNo,
    tasks: Vec<(TaskNo, SimProcessNo, BoxFuture<'static, ()>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TaskScheduler {
    /// Returns the spawner for the tasks of a life.
    pub(crate) fn spawner(&self, life: SimProcessNo) -> Arc<dyn Spawner> {
        Arc::new(ProcessSpawner { life, shared: self.shared.clone() })
    }

    /// Returns the ready tasks in the order of their numbers, each with its life.
    pub(crate) fn ready(&mut self) -> Vec<(TaskNo, SimProcessNo)> {
        for (no, life, task) in std::mem::take(&mut lock(&self.shared.fresh).tasks) {
            self.tasks.insert(no, (life, task));
            lock(&self.shared.ready).insert(no);
        }
        let mut ready = lock(&self.shared.ready);
        ready.retain(|no| self.tasks.contains_key(no));
        ready.iter().map(|no| (*no, self.tasks[no].0)).collect()
    }

    /// Polls a task.
    pub(crate) fn poll(&mut self, no: TaskNo) {
        lock(&self.shared.ready).remove(&no);
        let Some((life, mut task)) = self.tasks.remove(&no) else { return };
        let waker = Waker::from(Arc::new(TaskWaker { no, shared: self.shared.clone() }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks.insert(no, (life, task));
        }
    }

    /// Drops every task of a life.
    pub(crate) fn kill(&mut self, life: SimProcessNo) {
        lock(&self.shared.fresh).tasks.retain(|(_, of, _)| *of != life);
        let dead: Vec<TaskNo> =
            self.tasks.iter().filter(|(_, (of, _))| *of == life).map(|(no, _)| *no).collect();
        for no in dead {
            self.tasks.remove(&no);
        }
    }
}

struct ProcessSpawner {
    life: SimProcessNo,
    shared: Arc<TaskQueues>,
}

impl Spawner for ProcessSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut fresh = lock(&self.shared.fresh);
        fresh.next += 1;
        let no = fresh.next;
        fresh.tasks.push((no, self.life, task));
    }
}

struct TaskWaker {
    no: TaskNo,
    shared: Arc<TaskQueues>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.shared.ready).insert(self.no);
    }
}
