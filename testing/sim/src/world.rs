//! One run: processes on one machine, their users, and faults, all on one thread. The same plan gives the same run,
//! action by action.
use crate::client::Client;
use crate::dice::Dice;
use crate::life::{self, Life, Origin};
use crate::oracle::{self, Left};
use crate::plan::{At, Blow, Fault, Plan};
use crate::schedule::{LifeNo, Schedule, TaskNo};
use outlast_disk::{Death, Disk, Failure, Fate, Mount, Snapshot};
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
pub(crate) struct Outcome {
    /// A fingerprint of all events, in order.
    pub(crate) trace: u64,
    /// The number of actions of the world.
    pub(crate) actions: u64,
    /// The actions before which the first process was alive and could have died.
    pub(crate) mortal: Vec<u64>,
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
    pub(crate) left: Vec<Vec<Left>>,
    /// The broken promises.
    pub(crate) broken: Vec<String>,
}

/// Plays a plan and judges the result.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let mut world = World::new(plan);
    let lived = world.live();
    world.close(lived)
}

/// Plays a plan again and returns its trace, without judging the result, which was judged before.
pub(crate) fn run_again(plan: &Plan) -> u64 {
    let mut world = World::new(plan);
    // A failure of the first run happens again; the trace shows it.
    let _ = world.live();
    world.end_all();
    world.outcome.trace
}

struct World<'a> {
    plan: &'a Plan,
    dice: Dice,
    origin: Origin,
    schedule: Schedule,
    disk: Disk,
    slots: Vec<Slot>,
    clients: Vec<Client>,
    faults: Vec<Fault>,
    room_until: Option<u64>,
    outcome: Outcome,
}

/// A slot for a process.
#[derive(Default)]
struct Slot {
    life: Option<Life>,
    /// When the next process starts.
    back_at: u64,
    /// The clock offset of this slot.
    ahead: i64,
    /// Set when a process has finished shutting down.
    left: Option<Arc<AtomicBool>>,
    /// When an operator kills the process, because its disk failed.
    kill_at: Option<u64>,
    /// The fault to report if the disk kills the process.
    doom: Option<(Blow, &'static str)>,
}

/// A possible next event.
enum Next {
    Task(TaskNo, LifeNo),
    Serve(usize),
}

/// Returns a disk with an empty database, with which every run starts.
fn fresh() -> Snapshot {
    static FRESH: OnceLock<Snapshot> = OnceLock::new();
    let made = FRESH.get_or_init(|| {
        let disk = Disk::new();
        let mount = disk.mount();
        let (store, writer) =
            life::open(&mount, None, life::Graveyard::default()).expect("an empty disk takes a database");
        writer.close();
        drop(store);
        disk.snapshot()
    });
    made.clone()
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            dice: Dice::new(plan.schedule, 0),
            origin: Origin::new(plan),
            schedule: Schedule::default(),
            disk: Disk::from(fresh()),
            slots: (0..plan.workers).map(|_| Slot::default()).collect(),
            clients: (0..plan.plays.len()).map(|no| Client::new(no, plan.scenario(no))).collect(),
            faults: plan.faults.clone(),
            room_until: None,
            outcome: Outcome { trace: 0xcbf2_9ce4_8422_2325, ..Outcome::default() },
        }
    }

    /// Runs until every user is content.
    fn live(&mut self) -> Result<(), String> {
        loop {
            self.outcome.actions += 1;
            let now = self.origin.time.now();
            if self.outcome.actions > ACTIONS || now > LONGEST {
                let stands: Vec<String> = self.clients.iter().map(Client::stand).collect();
                return Err(format!("liveness: still not done after {now} ms: {}", stands.join("; ")));
            }
            if self.slots[0].life.is_some() {
                self.outcome.mortal.push(self.outcome.actions);
            }
            self.blows_that_are_due();
            self.what_is_due(now)?;
            let alive: Vec<LifeNo> =
                self.slots.iter().filter_map(|slot| Some(slot.life.as_ref()?.no)).collect();
            for client in &mut self.clients {
                client.hear(now, |life| alive.contains(&life))?;
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
            self.users_speak(now);
            match self.choose(now) {
                Some(Next::Task(task, life)) => {
                    self.note(&[1, u64::from(life), task]);
                    self.schedule.poll(task);
                }
                Some(Next::Serve(slot)) => self.serve(slot),
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
    fn choose(&mut self, now: u64) -> Option<Next> {
        let stands = |slot: &Slot, life: LifeNo| {
            slot.life.as_ref().is_some_and(|one| one.no == life && one.paused_until > now)
        };
        let mut could: Vec<Next> = Vec::new();
        for (task, life) in self.schedule.ready() {
            if !self.slots.iter().any(|slot| stands(slot, life)) {
                could.push(Next::Task(task, life));
            }
        }
        for (no, slot) in self.slots.iter_mut().enumerate() {
            if slot.life.as_mut().is_some_and(|life| life.paused_until <= now && life.writer.has_work()) {
                could.push(Next::Serve(no));
            }
        }
        if could.is_empty() {
            return None;
        }
        let chosen = self.dice.index(could.len());
        could.into_iter().nth(chosen)
    }

    /// Makes the writer of a process execute a transaction.
    fn serve(&mut self, no: usize) {
        let number = self.outcome.writes.len() as u64;
        if let Some(fault) = self.take(|at| at == At::BeforeWrite(number)) {
            self.outcome.writes.push(0);
            self.strike(fault, no);
            return;
        }
        if let Some(fault) = self.take(|at| matches!(at, At::InWrite(write, _) if write == number))
            && let At::InWrite(_, change) = fault.at
            && let Some(life) = &self.slots[no].life
        {
            // Tear some changes, so that half of a page is written.
            let death = if change % 3 == 2 { Death::Torn { sectors: 1 } } else { Death::Before };
            life.mount.die_at(life.mount.changes() + change, death);
            self.slots[no].doom = Some((fault.blow, fault.blow.name(fault.at)));
        }
        let Some(life) = self.slots[no].life.as_mut() else { return };
        let before = life.mount.changes();
        life.writer.step();
        let (changes, is_dead, life) = (life.mount.changes() - before, life.mount.is_dead(), life.no);
        self.outcome.writes.push(changes);
        self.note(&[2, u64::from(life), changes]);
        if is_dead {
            self.meet_doom(no);
        } else if let Some(fault) = self.take(|at| at == At::AfterWrite(number)) {
            self.strike(fault, no);
        }
    }

    /// Handles a process that the disk killed.
    fn meet_doom(&mut self, no: usize) {
        let (blow, name) =
            self.slots[no].doom.take().unwrap_or((Blow::Kill(0), "crash inside a transaction"));
        self.hit(name);
        match blow {
            Blow::PowerLoss(pattern) => self.lose_power(pattern),
            Blow::Kill(back) => self.kill(no, back),
            _ => self.kill(no, 0),
        }
    }

    fn take(&mut self, fits: impl Fn(At) -> bool) -> Option<Fault> {
        let found = self.faults.iter().position(|fault| fits(fault.at))?;
        Some(self.faults.remove(found))
    }

    fn blows_that_are_due(&mut self) {
        let now = self.outcome.actions;
        while let Some(fault) = self.take(|at| matches!(at, At::Action(action, _) if action <= now)) {
            let At::Action(_, place) = fault.at else { continue };
            self.strike(fault, place % self.slots.len());
        }
    }

    /// Applies a fault to a process, if there is one.
    fn strike(&mut self, fault: Fault, no: usize) {
        let Fault { at, blow } = fault;
        let now = self.origin.time.now();
        let slot = &mut self.slots[no];
        let Some(life) = slot.life.as_mut() else { return };
        match blow {
            Blow::Kill(back) => self.kill(no, back),
            Blow::PowerLoss(pattern) => self.lose_power(pattern),
            Blow::SyncFails => {
                life.mount.fail(life.mount.changes(), Failure::SyncError);
                slot.kill_at = Some(now + OPERATOR);
            }
            Blow::WriteFails => {
                life.mount.fail(life.mount.changes(), Failure::WriteError);
                slot.kill_at = Some(now + OPERATOR);
            }
            Blow::Full(millis) => {
                self.disk.set_room(Some(self.disk.used()));
                self.room_until = Some(now + millis);
            }
            Blow::Pause(millis) => life.paused_until = now + millis,
            Blow::Jump(by) => {
                slot.ahead += by;
                life.clock.jump(by);
            }
            Blow::Rest => {
                life.writer.rest();
                if life.mount.is_dead() {
                    self.meet_doom(no);
                }
            }
            Blow::ShutDown => {
                let Some(runtime) = life.runtime() else { return };
                let left = Arc::new(AtomicBool::new(false));
                slot.left = Some(left.clone());
                self.schedule.spawner(life.no).spawn(Box::pin(async move {
                    runtime.shut_down(Duration::from_secs(2)).await;
                    left.store(true, Ordering::SeqCst);
                }));
            }
            // On a full disk, no newer program can have written.
            Blow::NewerSchema if self.room_until.is_none() => self.meet_a_newer_schema(),
            Blow::NewerSchema => return,
        }
        self.hit(blow.name(at));
    }

    /// Kills a process. Another starts in its slot later.
    fn kill(&mut self, no: usize, back: u64) {
        let back_at = self.origin.time.now() + back;
        let slot = &mut self.slots[no];
        let Some(life) = slot.life.take() else { return };
        let ahead = slot.ahead;
        *slot = Slot { back_at, ahead, ..Slot::default() };
        self.note(&[3, u64::from(life.no)]);
        self.schedule.kill(life.no);
        if self.plan.deaths_show {
            self.origin.dead.bury(life.worker);
        }
        life.die();
    }

    fn lose_power(&mut self, pattern: u64) {
        let mut dice = Dice::new(pattern, 2);
        self.disk.lose_power(&mut |_| match dice.below(3) {
            0 => Fate::Kept,
            1 => Fate::Dropped,
            _ => Fate::Torn { sectors: dice.below(u64::MAX) },
        });
        for no in 0..self.slots.len() {
            self.kill(no, 100);
        }
    }

    /// Simulates that a newer program used the file while no process was running. Ours must refuse the file without
    /// changing it.
    fn meet_a_newer_schema(&mut self) {
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
        match life::open(&mount, None, self.origin.dead.clone()) {
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
    fn what_is_due(&mut self, now: u64) -> Result<(), String> {
        if self.room_until.is_some_and(|until| until <= now) {
            self.room_until = None;
            self.disk.set_room(None);
        }
        let taken_down = std::mem::take(&mut self.origin.witness.seen().taken_down);
        for no in 0..self.slots.len() {
            let slot = &self.slots[no];
            let life = slot.life.as_ref().map(|life| life.no);
            if life.is_some_and(|life| taken_down.contains(&life)) || slot.kill_at.is_some_and(|at| at <= now)
            {
                self.kill(no, 0);
            } else if slot.left.as_ref().is_some_and(|left| left.load(Ordering::SeqCst)) {
                self.end(no);
            } else if slot.life.is_none() && slot.back_at <= now {
                self.start(no, now)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, no: usize) {
        let slot = &mut self.slots[no];
        let Some(life) = slot.life.take() else { return };
        *slot = Slot { back_at: self.origin.time.now(), ahead: slot.ahead, ..Slot::default() };
        self.note(&[4, u64::from(life.no)]);
        self.schedule.kill(life.no);
        self.origin.dead.bury(life.worker);
        life.end();
    }

    fn start(&mut self, no: usize, now: u64) -> Result<(), String> {
        let life_no = self.outcome.lives;
        self.outcome.lives += 1;
        let mount = self.disk.mount();
        let dies = self.take(|at| matches!(at, At::InOpening(life, _) if life == u64::from(life_no)));
        if let Some(Fault { at: At::InOpening(_, change), .. }) = dies {
            mount.die_at(change, Death::Before);
        }
        self.note(&[5, u64::from(life_no)]);
        let ahead = self.slots[no].ahead;
        match Life::start(life_no, mount, ahead, &self.origin, &self.schedule) {
            Ok(life) => {
                self.outcome.openings.push(life.mount.changes());
                self.slots[no].life = Some(life);
                if let Some(fault) = dies {
                    // Opening needed fewer changes than planned, so the process dies in one of its writes.
                    self.slots[no].doom = Some((fault.blow, "crash inside a transaction"));
                }
                Ok(())
            }
            Err(_) if dies.is_some() => {
                self.hit("crash during recovery");
                self.outcome.openings.push(0);
                self.slots[no].back_at = now + 10;
                Ok(())
            }
            Err(_) if self.room_until.is_some() => {
                self.outcome.openings.push(0);
                self.slots[no].back_at = now + 100;
                Ok(())
            }
            Err(error) => Err(format!("the database does not open any more: {error}")),
        }
    }

    /// Lets users send through any live process.
    fn users_speak(&mut self, now: u64) {
        let ready: Vec<usize> = (0..self.slots.len())
            .filter(|no| {
                let slot = &self.slots[*no];
                slot.left.is_none() && slot.life.as_ref().is_some_and(|life| life.paused_until <= now)
            })
            .collect();
        if ready.is_empty() {
            return;
        }
        let through = ready[self.dice.index(ready.len())];
        let Some(life) = &self.slots[through].life else { return };
        for client in &mut self.clients {
            client.speak(now, life, &self.schedule, &self.origin.witness);
        }
    }

    /// Nothing can run: advances the time to the next event.
    fn sleep(&mut self, now: u64) -> Result<(), String> {
        let mut times: Vec<u64> = self.origin.time.next().into_iter().chain(self.room_until).collect();
        for slot in &self.slots {
            match &slot.life {
                Some(life) => times.extend([life.paused_until].into_iter().chain(slot.kill_at)),
                None => times.push(slot.back_at),
            }
        }
        times.extend(self.clients.iter().filter_map(|client| client.next_time(now)));
        if self.slots.iter().any(|slot| slot.life.is_none() && slot.back_at <= now) {
            // A process died at this time; start another before the time advances.
            return Ok(());
        }
        // Acts that are due but blocked wait for the next event.
        let Some(next) = times.into_iter().filter(|at| *at > now).min() else {
            let stands: Vec<String> = self.clients.iter().map(Client::stand).collect();
            return Err(format!("liveness: nothing can happen any more: {}", stands.join("; ")));
        };
        self.note(&[6, next]);
        self.origin.time.move_to(next);
        Ok(())
    }

    /// Ends all processes.
    fn end_all(&mut self) {
        self.disk.set_room(None);
        for no in 0..self.slots.len() {
            self.kill(no, 0);
        }
    }

    /// Ends all processes and judges the end state.
    fn close(mut self, lived: Result<(), String>) -> Outcome {
        self.end_all();
        self.outcome.broken.extend(lived.err());
        if self.outcome.broken.is_empty() {
            let found = oracle::judge(self.plan, &self.disk, &self.origin, &self.clients, self.outcome.lives);
            self.outcome.left = found.left;
            self.outcome.turns = found.turns;
            self.outcome.broken = found.broken;
        }
        self.outcome
    }
}

/// Sets the schema version, as another program would. Returns the old one.
fn set_version(mount: &Mount, version: u32) -> rusqlite::Result<u32> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let conn = rusqlite::Connection::open_with_flags_and_vfs(life::DATABASE, flags, mount.vfs())?;
    let before = conn.query_one("PRAGMA user_version", [], |row| row.get(0))?;
    conn.pragma_update(None, "user_version", version)?;
    Ok(before)
}
