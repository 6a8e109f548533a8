//! One run: processes on one machine, their users, and faults, all on one thread. The same plan gives the same run,
//! action by action.
use crate::oracle::{self, SessionEndState};
use crate::plan::{Fault, FaultKind, FaultTime, SimPlan};
use crate::sim_process::{self, SimProcess, SimSharedState};
use crate::sim_user::SimUser;
use crate::task_scheduler::{SimProcessNo, TaskNo, TaskScheduler};
use outlast_disk::{ChangeFailure, CrashMode, Disk, DiskSnapshot, Mount, PowerLossEffect};
use outlast_random::SeededRandom;
use outlast_vocab::Kind;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A run with more actions than this is considered endless.
const ACTIONS: u64 = 100_000;
/// A run that takes longer than this in virtual milliseconds is considered endless too.
const LONGEST: u64 = 12 * 3_600_000;
/// The delay in milliseconds after which an operator kills a process whose disk failed.
const OPERATOR: u64 = 5_000;

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct SimOutcome {
    /// A fingerprint of all events, in order.
    pub(crate) trace: u64,
    /// The number of actions of the world.
    pub(crate) actions: u64,
    /// The actions before which the first process was alive and could have died.
    pub(crate) killable_actions: Vec<u64>,
    /// The disk changes of each transaction.
    pub(crate) writes: Vec<u64>,
    /// The disk changes while each life opened the database.
    pub(crate) openings: Vec<u64>,
    /// The number of process lives.
    pub(crate) lives: u32,
    /// The faults that really happened, by name.
    pub(crate) hits: BTreeMap<&'static str, u64>,
    /// The number of turns that ended.
    pub(crate) turns: u64,
    /// The end state of each scenario.
    pub(crate) end_states: Vec<Vec<SessionEndState>>,
    /// The broken promises.
    pub(crate) broken: Vec<String>,
}

/// Plays a plan and judges the result.
pub(crate) fn run(plan: &SimPlan) -> SimOutcome {
    let mut world = Simulation::new(plan);
    let lived = world.run_until_users_done();
    world.close(lived)
}

/// Plays a plan again and returns its trace, without judging the result, which was judged before.
pub(crate) fn run_again(plan: &SimPlan) -> u64 {
    let mut world = Simulation::new(plan);
    // A failure of the first run happens again; the trace shows it.
    let _ = world.run_until_users_done();
    world.end_all();
    world.outcome.trace
}

struct Simulation<'a> {
    plan: &'a SimPlan,
    random: SeededRandom,
    origin: SimSharedState,
    schedule: TaskScheduler,
    disk: Disk,
    slots: Vec<ProcessSlot>,
    clients: Vec<SimUser>,
    faults: Vec<Fault>,
    disk_full_until: Option<u64>,
    outcome: SimOutcome,
}

/// A slot for a process.
#[derive(Default)]
struct ProcessSlot {
    life: Option<SimProcess>,
    /// When the next process starts.
    restart_at: u64,
    /// The clock offset of this slot.
    ahead: i64,
    /// Set when a process has finished shutting down.
    shutdown_finished: Option<Arc<AtomicBool>>,
    /// When an operator kills the process, because its disk failed.
    kill_at: Option<u64>,
    /// The fault to report if the disk kills the process.
    planned_disk_kill: Option<(FaultKind, &'static str)>,
}

/// A possible next event.
enum NextSimStep {
    Task(TaskNo, SimProcessNo),
    Serve(usize),
}

/// Returns a disk with an empty database, with which every run starts.
fn empty_database_disk() -> DiskSnapshot {
    static FRESH: OnceLock<DiskSnapshot> = OnceLock::new();
    let made = FRESH.get_or_init(|| {
        let disk = Disk::new();
        let mount = disk.mount();
        let (store, writer) = sim_process::open(&mount, None, sim_process::DeadWorkers::default())
            .expect("an empty disk takes a database");
        writer.close();
        drop(store);
        disk.snapshot()
    });
    made.clone()
}

impl<'a> Simulation<'a> {
    fn new(plan: &'a SimPlan) -> Self {
        Self {
            plan,
            random: SeededRandom::new(plan.schedule, 0),
            origin: SimSharedState::new(plan),
            schedule: TaskScheduler::default(),
            disk: Disk::from(empty_database_disk()),
            slots: (0..plan.workers).map(|_| ProcessSlot::default()).collect(),
            clients: (0..plan.session_scenarios.len())
                .map(|no| SimUser::new(no, plan.scenario(no)))
                .collect(),
            faults: plan.faults.clone(),
            disk_full_until: None,
            outcome: SimOutcome { trace: 0xcbf2_9ce4_8422_2325, ..SimOutcome::default() },
        }
    }

    /// Runs until every user is content.
    fn run_until_users_done(&mut self) -> Result<(), String> {
        loop {
            self.outcome.actions += 1;
            let now = self.origin.time.now();
            if self.outcome.actions > ACTIONS || now > LONGEST {
                let stands: Vec<String> = self.clients.iter().map(SimUser::describe_progress).collect();
                return Err(format!("liveness: still not done after {now} ms: {}", stands.join("; ")));
            }
            if self.slots[0].life.is_some() {
                self.outcome.killable_actions.push(self.outcome.actions);
            }
            self.apply_due_faults();
            self.update_processes(now)?;
            let alive: Vec<SimProcessNo> =
                self.slots.iter().filter_map(|slot| Some(slot.life.as_ref()?.no)).collect();
            for client in &mut self.clients {
                client.collect_acks(now, |life| alive.contains(&life))?;
            }
            let strict = self.plan.is_strict();
            let witness = &self.origin.witness;
            if self
                .clients
                .iter()
                .all(|client| client.is_content() || (!strict && client.gave_up(now, witness)))
            {
                return Ok(());
            }
            self.send_user_actions(now);
            match self.choose(now) {
                Some(NextSimStep::Task(task, life)) => {
                    self.note(&[1, u64::from(life), task]);
                    self.schedule.poll(task);
                }
                Some(NextSimStep::Serve(slot)) => self.serve(slot),
                None => self.sleep(now)?,
            }
        }
    }

    /// Adds values to the fingerprint of the run.
    fn note(&mut self, what: &[u64]) {
        for word in what {
            self.outcome.trace = (self.outcome.trace ^ word).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn hit(&mut self, name: &'static str) {
        *self.outcome.hits.entry(name).or_default() += 1;
    }

    /// Chooses one of the ready tasks and writers.
    fn choose(&mut self, now: u64) -> Option<NextSimStep> {
        let stands = |slot: &ProcessSlot, life: SimProcessNo| {
            slot.life.as_ref().is_some_and(|one| one.no == life && one.paused_until > now)
        };
        let mut could: Vec<NextSimStep> = Vec::new();
        for (task, life) in self.schedule.ready() {
            if !self.slots.iter().any(|slot| stands(slot, life)) {
                could.push(NextSimStep::Task(task, life));
            }
        }
        for (no, slot) in self.slots.iter_mut().enumerate() {
            if slot.life.as_mut().is_some_and(|life| life.paused_until <= now && life.writer.has_work()) {
                could.push(NextSimStep::Serve(no));
            }
        }
        if could.is_empty() {
            return None;
        }
        let chosen = self.random.index(could.len());
        could.into_iter().nth(chosen)
    }

    /// Makes the writer of a process execute a transaction.
    fn serve(&mut self, no: usize) {
        let number = self.outcome.writes.len() as u64;
        if let Some(fault) = self.take(|at| at == FaultTime::BeforeWrite(number)) {
            self.outcome.writes.push(0);
            self.apply_fault(fault, no);
            return;
        }
        if let Some(fault) = self.take(|at| matches!(at, FaultTime::InWrite(write, _) if write == number))
            && let FaultTime::InWrite(_, change) = fault.at
            && let Some(life) = &self.slots[no].life
        {
            // Tear some changes, so that half of a page is written.
            let death = if change % 3 == 2 { CrashMode::Torn { sectors: 1 } } else { CrashMode::Before };
            life.mount.crash_at_change(life.mount.changes() + change, death);
            self.slots[no].planned_disk_kill = Some((fault.fault_kind, fault.fault_kind.name(fault.at)));
        }
        let Some(life) = self.slots[no].life.as_mut() else { return };
        let before = life.mount.changes();
        life.writer.step();
        let (changes, is_dead, life) = (life.mount.changes() - before, life.mount.is_dead(), life.no);
        self.outcome.writes.push(changes);
        self.note(&[2, u64::from(life), changes]);
        if is_dead {
            self.handle_disk_kill(no);
        } else if let Some(fault) = self.take(|at| at == FaultTime::AfterWrite(number)) {
            self.apply_fault(fault, no);
        }
    }

    /// Handles a process that the disk killed.
    fn handle_disk_kill(&mut self, no: usize) {
        let (blow, name) = self.slots[no]
            .planned_disk_kill
            .take()
            .unwrap_or((FaultKind::Kill(0), "crash inside a transaction"));
        self.hit(name);
        match blow {
            FaultKind::PowerLoss(pattern) => self.lose_power(pattern),
            FaultKind::Kill(back) => self.kill(no, back),
            _ => self.kill(no, 0),
        }
    }

    fn take(&mut self, fits: impl Fn(FaultTime) -> bool) -> Option<Fault> {
        let found = self.faults.iter().position(|fault| fits(fault.at))?;
        Some(self.faults.remove(found))
    }

    fn apply_due_faults(&mut self) {
        let now = self.outcome.actions;
        while let Some(fault) = self.take(|at| matches!(at, FaultTime::Action(action, _) if action <= now)) {
            let FaultTime::Action(_, place) = fault.at else { continue };
            self.apply_fault(fault, place % self.slots.len());
        }
    }

    /// Applies a fault to a process, if there is one.
    fn apply_fault(&mut self, fault: Fault, no: usize) {
        let Fault { at, fault_kind: blow } = fault;
        let now = self.origin.time.now();
        let slot = &mut self.slots[no];
        let Some(life) = slot.life.as_mut() else { return };
        match blow {
            FaultKind::Kill(back) => self.kill(no, back),
            FaultKind::PowerLoss(pattern) => self.lose_power(pattern),
            FaultKind::SyncFails => {
                life.mount.fail_once_at(life.mount.changes(), ChangeFailure::SyncError);
                slot.kill_at = Some(now + OPERATOR);
            }
            FaultKind::WriteFails => {
                life.mount.fail_once_at(life.mount.changes(), ChangeFailure::WriteError);
                slot.kill_at = Some(now + OPERATOR);
            }
            FaultKind::Full(millis) => {
                self.disk.set_size_limit(Some(self.disk.used()));
                self.disk_full_until = Some(now + millis);
            }
            FaultKind::Pause(millis) => life.paused_until = now + millis,
            FaultKind::Jump(by) => {
                slot.ahead += by;
                life.clock.jump(by);
            }
            FaultKind::CheckpointLog => {
                life.writer.checkpoint();
                if life.mount.is_dead() {
                    self.handle_disk_kill(no);
                }
            }
            FaultKind::ShutDown => {
                let Some(runtime) = life.runtime() else { return };
                let left = Arc::new(AtomicBool::new(false));
                slot.shutdown_finished = Some(left.clone());
                self.schedule.spawner(life.no).spawn(Box::pin(async move {
                    runtime.shut_down(Duration::from_secs(2)).await;
                    left.store(true, Ordering::SeqCst);
                }));
            }
            // On a full disk, no newer program can have written.
            FaultKind::NewerSchema if self.disk_full_until.is_none() => self.simulate_newer_schema(),
            FaultKind::NewerSchema => return,
        }
        self.hit(blow.name(at));
    }

    /// Kills a process. Another starts in its slot later.
    fn kill(&mut self, no: usize, back: u64) {
        let back_at = self.origin.time.now() + back;
        let slot = &mut self.slots[no];
        let Some(life) = slot.life.take() else { return };
        let ahead = slot.ahead;
        *slot = ProcessSlot { restart_at: back_at, ahead, ..ProcessSlot::default() };
        self.note(&[3, u64::from(life.no)]);
        self.schedule.kill(life.no);
        if self.plan.deaths_visible {
            self.origin.dead.mark_dead(life.worker);
        }
        life.die();
    }

    fn lose_power(&mut self, pattern: u64) {
        let mut random = SeededRandom::new(pattern, 2);
        self.disk.lose_power(&mut |_| match random.below(3) {
            0 => PowerLossEffect::Kept,
            1 => PowerLossEffect::Dropped,
            _ => PowerLossEffect::Torn { sectors: random.below(u64::MAX) },
        });
        for no in 0..self.slots.len() {
            self.kill(no, 100);
        }
    }

    /// Simulates that a newer program used the file while no process was running. Ours must refuse the file without
    /// changing it.
    fn simulate_newer_schema(&mut self) {
        for no in 0..self.slots.len() {
            self.kill(no, 0);
        }
        let mount = self.disk.mount();
        let ours = set_version(&mount, 99);
        drop(mount);
        let ours = match ours {
            Ok(ours) => ours,
            Err(error) => {
                self.outcome.broken.push(format!("no other program can write the file: {error}"));
                return;
            }
        };
        let before: Vec<_> = self.disk.names().iter().map(|name| self.disk.read(name)).collect();
        let mount = self.disk.mount();
        match sim_process::open(&mount, None, self.origin.dead.clone()) {
            Err(refused) if refused.kind() == Kind::StoreTooNew => {}
            Err(other) => self.outcome.broken.push(format!("a newer schema was refused as {other}")),
            Ok(_) => self.outcome.broken.push("a newer schema was opened".into()),
        }
        drop(mount);
        let after: Vec<_> = self.disk.names().iter().map(|name| self.disk.read(name)).collect();
        if before != after {
            self.outcome.broken.push("a file with a newer schema was changed".into());
        }
        let mount = self.disk.mount();
        if let Err(error) = set_version(&mount, ours) {
            self.outcome.broken.push(format!("the schema could not be set back: {error}"));
        }
    }

    /// Starts, ends and repairs what is due.
    fn update_processes(&mut self, now: u64) -> Result<(), String> {
        if self.disk_full_until.is_some_and(|until| until <= now) {
            self.disk_full_until = None;
            self.disk.set_size_limit(None);
        }
        let taken_down = std::mem::take(&mut self.origin.witness.seen().processes_killed_by_tools);
        for no in 0..self.slots.len() {
            let slot = &self.slots[no];
            let life = slot.life.as_ref().map(|life| life.no);
            if life.is_some_and(|life| taken_down.contains(&life)) || slot.kill_at.is_some_and(|at| at <= now)
            {
                self.kill(no, 0);
            } else if slot.shutdown_finished.as_ref().is_some_and(|left| left.load(Ordering::SeqCst)) {
                self.end(no);
            } else if slot.life.is_none() && slot.restart_at <= now {
                self.start(no, now)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, no: usize) {
        let slot = &mut self.slots[no];
        let Some(life) = slot.life.take() else { return };
        *slot =
            ProcessSlot { restart_at: self.origin.time.now(), ahead: slot.ahead, ..ProcessSlot::default() };
        self.note(&[4, u64::from(life.no)]);
        self.schedule.kill(life.no);
        self.origin.dead.mark_dead(life.worker);
        life.end();
    }

    fn start(&mut self, no: usize, now: u64) -> Result<(), String> {
        let life_no = self.outcome.lives;
        self.outcome.lives += 1;
        let mount = self.disk.mount();
        let dies = self.take(|at| matches!(at, FaultTime::InOpening(life, _) if life == u64::from(life_no)));
        if let Some(Fault { at: FaultTime::InOpening(_, change), .. }) = dies {
            mount.crash_at_change(change, CrashMode::Before);
        }
        self.note(&[5, u64::from(life_no)]);
        let ahead = self.slots[no].ahead;
        match SimProcess::start(life_no, mount, ahead, &self.origin, &self.schedule) {
            Ok(life) => {
                self.outcome.openings.push(life.mount.changes());
                self.slots[no].life = Some(life);
                if let Some(fault) = dies {
                    // Opening needed fewer changes than planned, so the process dies in one of its writes.
                    self.slots[no].planned_disk_kill = Some((fault.fault_kind, "crash inside a transaction"));
                }
                Ok(())
            }
            Err(_) if dies.is_some() => {
                self.hit("crash during recovery");
                self.outcome.openings.push(0);
                self.slots[no].restart_at = now + 10;
                Ok(())
            }
            Err(_) if self.disk_full_until.is_some() => {
                self.outcome.openings.push(0);
                self.slots[no].restart_at = now + 100;
                Ok(())
            }
            Err(error) => Err(format!("the database does not open any more: {error}")),
        }
    }

    /// Lets users send through any live process.
    fn send_user_actions(&mut self, now: u64) {
        let ready: Vec<usize> = (0..self.slots.len())
            .filter(|no| {
                let slot = &self.slots[*no];
                slot.shutdown_finished.is_none()
                    && slot.life.as_ref().is_some_and(|life| life.paused_until <= now)
            })
            .collect();
        if ready.is_empty() {
            return;
        }
        let through = ready[self.random.index(ready.len())];
        let Some(life) = &self.slots[through].life else { return };
        for client in &mut self.clients {
            client.send_due_actions(now, life, &self.schedule, &self.origin.witness);
        }
    }

    /// Nothing can run: advances the time to the next event.
    fn sleep(&mut self, now: u64) -> Result<(), String> {
        let mut times: Vec<u64> = self.origin.time.next().into_iter().chain(self.disk_full_until).collect();
        for slot in &self.slots {
            match &slot.life {
                Some(life) => times.extend([life.paused_until].into_iter().chain(slot.kill_at)),
                None => times.push(slot.restart_at),
            }
        }
        times.extend(self.clients.iter().filter_map(|client| client.next_time(now)));
        if self.slots.iter().any(|slot| slot.life.is_none() && slot.restart_at <= now) {
            // A process died at this time; start another before the time advances.
            return Ok(());
        }
        // Acts that are due but blocked wait for the next event.
        let Some(next) = times.into_iter().filter(|at| *at > now).min() else {
            let stands: Vec<String> = self.clients.iter().map(SimUser::describe_progress).collect();
            return Err(format!("liveness: nothing can happen any more: {}", stands.join("; ")));
        };
        self.note(&[6, next]);
        self.origin.time.move_to(next);
        Ok(())
    }

    /// Ends all processes.
    fn end_all(&mut self) {
        self.disk.set_size_limit(None);
        for no in 0..self.slots.len() {
            self.kill(no, 0);
        }
    }

    /// Ends all processes and judges the end state.
    fn close(mut self, lived: Result<(), String>) -> SimOutcome {
        self.end_all();
        self.outcome.broken.extend(lived.err());
        if self.outcome.broken.is_empty() {
            let found = oracle::check_end_state(
                self.plan,
                &self.disk,
                &self.origin,
                &self.clients,
                self.outcome.lives,
            );
            self.outcome.end_states = found.found_end_states;
            self.outcome.turns = found.turns;
            self.outcome.broken = found.broken;
        }
        self.outcome
    }
}

/// Sets the schema version, as another program would. Returns the old one.
fn set_version(mount: &Mount, version: u32) -> rusqlite::Result<u32> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let conn = rusqlite::Connection::open_with_flags_and_vfs(sim_process::DATABASE, flags, mount.vfs())?;
    let before = conn.query_one("PRAGMA user_version", [], |row| row.get(0))?;
    conn.pragma_update(None, "user_version", version)?;
    Ok(before)
}
