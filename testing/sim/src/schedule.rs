//! Runs the tasks of all processes on one thread. The caller chooses, by a seed, which of the ready tasks runs next.
use outlast_ports::BoxFuture;
use outlast_ports::task::Spawner;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// The number of a process life. Each restart of a process gets a new number.
pub(crate) type LifeNo = u32;
/// The number of a task.
pub(crate) type TaskNo = u64;

/// The tasks of the world.
#[derive(Default)]
pub(crate) struct Schedule {
    tasks: BTreeMap<TaskNo, (LifeNo, BoxFuture<'static, ()>)>,
    shared: Arc<Shared>,
}

/// The state that wakers and spawners share.
#[derive(Default)]
struct Shared {
    // Ordered, so that the order in which tasks were woken does not matter.
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
    /// Returns the spawner for the tasks of a life.
    pub(crate) fn spawner(&self, life: LifeNo) -> Arc<dyn Spawner> {
        Arc::new(LifeTasks { life, shared: self.shared.clone() })
    }

    /// Returns the ready tasks in the order of their numbers, each with its life.
    pub(crate) fn ready(&mut self) -> Vec<(TaskNo, LifeNo)> {
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
