//! NIXL: transfers between processes of one host or many, over UCX or another of NIXL's plugins.
//!
//! - `life`: making the agent, going into NIXL and out of it, giving everything back.
//! - `place`, `elf`, `library`, `ucx`, `config_file`, `room`, `signals`, `users`, `exit`: what that takes, without harm to the process.
//! - `metadata`, `address`: the peer's blob, checked before NIXL sees it.
//! - `coverage`: which memory the blob speaks of.
//! - `engine`: the few calls of NIXL that are needed, and what must be known about them.
//! - `lane`: connections and transfers as they are kept here.
//! - `mail`: messages.
//! - `work`: what is posted when, and what an answer means.
//! - `piece`: how much is posted at once.
//! - `pace`: how often the engine is driven while nothing is known to move.
//! - `silence`, `listeners`: what nobody would notice, for the log.
//! - `unsent`: what must not wait any more when the engine goes.
//! - this file: the backend's calls.
//!
//! Without NIXL's progress thread nothing moves but inside [`Backend::progress`]. Over shared memory
//! NIXL copies inside its post call, and no request can be stopped once it was posted. So a transfer
//! is posted in pieces, as many as a poll has time for.
//!
//! Every connection is loaded under a name of its own. NIXL knows peers by the name in their
//! metadata, refuses a second incarnation of a name, and may lock a name out for good after a load
//! that failed. With private names a restarted peer and a second id for one peer have nothing to do with
//! each other, and what an impostor's blob did is gone with its registration.

mod address;
mod config_file;
mod coverage;
mod elf;
mod engine;
mod exit;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    pub use super::metadata::fuzz::nixl_metadata;
}
mod lane;
mod library;
mod life;
mod listeners;
mod mail;
mod metadata;
mod pace;
mod piece;
mod place;
mod room;
mod signals;
mod silence;
mod ucx;
mod unsent;
mod users;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use self::address::Form;
use self::engine::{Engine, State};
use self::lane::{Lane, Op, Purpose};
use self::listeners::Listeners;
use self::mail::{Inbox, Outbox};
use self::metadata::Metadata;
use self::pace::{Pace, Task};
use self::piece::{Size, Speed, gather};
pub use self::place::Place;
use self::signals::LargeFilesFail;
use self::silence::Silence;
use super::{Backend, ConnId, Direction, Event, Kind, Message, OpId, Start, Stop};
use crate::error::{Error, Quoted, Result, Status, fail};
use crate::extents::{Piece, Runs, Spare};
use crate::kept::{relax_list, relax_map};
use crate::layout::Layout;
use crate::log::log;
use crate::process::Home;
use crate::region::Region;

/// How to find and run NIXL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NixlConfig {
    /// Folder of `libnixl_capi.so`, or the file; `None` or empty: `$DT_NIXL_LIB_DIR`, else the loader's
    /// path.
    pub lib_dir: Option<String>,
    /// NIXL's plugin; `None`: "UCX".
    pub plugin: Option<String>,
    /// Worker threads of the plugin; 0: none.
    pub num_threads: u32,
    /// NIXL's progress thread.
    pub progress_thread: bool,
}

impl NixlConfig {
    fn plugin(&self) -> &str {
        self.plugin.as_deref().unwrap_or("UCX")
    }

    /// Where somebody has said that NIXL is.
    pub fn place(&self) -> Option<Place> {
        Place::named(self.lib_dir.as_deref())
    }
}

/// A transfer up to this size, in up to so many runs, is posted by the call that submits it: that
/// costs less than to remember it.
const INLINE_BYTES: u64 = 64 << 10;
const INLINE_RUNS: usize = 16;

/// So many probes that fail, with so much time between, say that a peer cannot be reached any more.
const MAX_PROBES: u32 = 3;
const PROBE_EVERY: Duration = Duration::from_millis(5);

/// The NIXL backend.
pub struct Nixl {
    name: String,
    plugin: String,
    region: Region,
    metadata: Vec<u8>,
    /// What the addresses of UCX look like; other plugins check their own.
    form: Option<Form>,
    listeners: Listeners,
    home: Home,
    lanes: BTreeMap<ConnId, Lane>,
    /// `None` when closed. Dropped after the lanes, whose requests belong to it.
    engine: Option<Engine>,
    ops: FxHashMap<OpId, Op>,
    /// Lanes with work, in turn.
    rotation: VecDeque<ConnId>,
    /// What happened outside `progress`.
    pending: Vec<Event>,
    /// Memory for the runs of transfers.
    spare: Spare,
    /// Reused by every post.
    pieces: Vec<Piece>,
    pace: Pace,
    /// A transfer has ended when it was started, since the last poll.
    ended_at_once: bool,
    inbox: Inbox,
    /// All requests of a connection take the endpoint that its messages take.
    one_endpoint: bool,
}

impl Nixl {
    /// Two agents that call themselves the same cannot both be healthy peers.
    fn check_name(&self, metadata: &Metadata, replaces: Option<ConnId>) -> Result<()> {
        let agent = metadata.agent;
        if agent == self.name {
            fail!(
                InvalidArg,
                "the agent metadata is that of {}, which is this transport's own name: NIXL reaches other agents only, and each needs a name of its own",
                Quoted(agent)
            );
        }
        let rival = self.lanes.iter().find(|(conn, lane)| {
            lane.registered
                && lane.lost.is_none()
                && Some(**conn) != replaces
                && lane.agent == agent
                && lane.address != metadata.address
        });
        if rival.is_some() {
            fail!(
                Incompatible,
                "another peer with the agent name {} is registered and has another address; if that agent was restarted, remove the peer first",
                Quoted(agent)
            );
        }
        Ok(())
    }

    /// The transfer has ended. Says how it was.
    fn forget_op(&mut self, op_id: OpId) -> Option<Op> {
        let op = self.ops.remove(&op_id);
        relax_map(&mut self.ops);
        op
    }

    fn put_in_rotation(&mut self, conn: ConnId) {
        if let Some(lane) = self.lanes.get_mut(&conn)
            && !lane.in_rotation
            && lane.is_busy()
        {
            lane.in_rotation = true;
            self.rotation.push_back(conn);
        }
    }

    /// Lets the engine see to incoming work, unless it did a moment ago.
    fn drive(&mut self, now: Instant) {
        let ended_at_once = std::mem::take(&mut self.ended_at_once);
        let task = match self.rotation.is_empty() {
            false => Task::Work,
            true if ended_at_once => Task::Tell,
            true => Task::None,
        };
        if self.pace.wants_drive(now, task) {
            self.drive_now(now);
        }
    }

    fn drive_now(&mut self, start: Instant) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        let messages = self.inbox.arrived();
        let before = self.pace.wants_work().then(processor_time);
        if let Err(error) = engine.drive(&mut self.inbox) {
            log!(Debug, "{error}");
        }
        let work = before.map(|before| processor_time().saturating_sub(before));
        let now = Instant::now();
        self.listeners.look(now);
        self.pace.drove(now, now - start, work);
        if self.inbox.arrived() > messages {
            self.pace.news(now);
        }
    }
}

/// Says whether a transfer waits in the queue of its lane.
fn is_queued(ops: &FxHashMap<OpId, Op>) -> impl Fn(u64) -> bool {
    |op| ops.get(&OpId(op)).is_some_and(|op| op.queued)
}

/// What this thread has worked so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Backend for Nixl {
    fn kind(&self) -> Kind {
        Kind::Nixl
    }

    fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    fn agent_name(&self, metadata: &[u8]) -> Result<String> {
        Ok(Metadata::parse(metadata, &self.plugin)?.agent.to_owned())
    }

    fn connect(
        &mut self,
        conn: ConnId,
        metadata: &[u8],
        remote: &Layout,
        replaces: Option<ConnId>,
    ) -> Result<()> {
        let _inside = self.enter_open()?;
        let _files = LargeFilesFail::hold();
        let metadata = Metadata::parse(metadata, &self.plugin)?;
        let remote = metadata.check_covers(remote)?;
        if let Some(form) = &self.form
            && !form.fits(metadata.address)
        {
            fail!(
                InvalidArg,
                "agent metadata of {}: its UCX address is malformed, of another UCX version's form, or of a network that this process does not see",
                Quoted(metadata.agent)
            );
        }
        self.check_name(&metadata, replaces)?;
        room::for_peer()?;
        // Longer than our own name, and different for every connection: it is no other agent's.
        let alias = format!("{}>{}", self.name, conn.0);
        let (bare, whole) = (metadata.without_memory(&alias), metadata.renamed(&alias));
        let engine = self.engine.as_mut().expect("it was looked at");
        engine.know(metadata.address);
        engine
            .load(&bare, &whole, &alias)
            .map_err(|error| error.context(format_args!("agent {}", Quoted(metadata.agent))))?;
        log!(
            Info,
            "NIXL agent {} is known to NIXL as {alias:?}",
            Quoted(metadata.agent)
        );
        let lane = Lane {
            alias,
            agent: metadata.agent.to_owned(),
            address: metadata.address.to_vec(),
            remote,
            registered: true,
            lost: None,
            queue: Default::default(),
            posted: VecDeque::new(),
            posted_bytes: 0,
            speed: Speed::unknown(),
            doubt: None,
            silence: Silence::default(),
            in_rotation: false,
            outbox: Outbox::default(),
        };
        self.lanes.insert(conn, lane);
        Ok(())
    }

    fn disconnect(&mut self, conn: ConnId) {
        let _inside = self.enter();
        if let Some(lane) = self.lanes.get_mut(&conn) {
            lane.registered = false;
            if lane.outbox.unproven() > 0 {
                self.ask(conn);
            }
            self.unload_if_done(conn);
        }
    }

    fn start(
        &mut self,
        conn: ConnId,
        op_id: OpId,
        direction: Direction,
        runs: &mut Runs,
    ) -> Result<Start> {
        let _inside = self.enter_open()?;
        let (Some(engine), Some(lane)) = (&mut self.engine, self.lanes.get_mut(&conn)) else {
            fail!(Internal, "connection {} does not exist", conn.0);
        };
        if let Some(error) = &lane.lost {
            return Err(error.clone());
        }
        let few_runs = runs.as_slice().len() <= INLINE_RUNS;
        let mut op = Op {
            conn,
            direction,
            cursor: self.spare.cursor(runs)?,
            queued: false,
            posted: 0,
            error: None,
            stopping: false,
            doubted: false,
        };
        let at_once = few_runs
            && op.cursor.total_bytes() <= INLINE_BYTES.min(lane.room())
            && lane.queue.is_empty()
            && lane.doubt.is_none();
        let mut failure = None;
        if at_once {
            let size = Size::of(INLINE_BYTES, INLINE_BYTES);
            gather(&mut op.cursor, size, &lane.remote, &mut self.pieces);
            let first = self.pieces[0];
            match engine.post(
                direction,
                &lane.alias,
                &self.region,
                &lane.remote,
                &self.pieces,
            ) {
                State::Done => {
                    lane.prove_if(self.one_endpoint);
                    if op.cursor.is_done() {
                        self.spare.take_back(op.cursor);
                        self.ended_at_once = true;
                        return Ok(Start::Done);
                    }
                }
                State::Running(request) => {
                    op.posted = 1;
                    lane.keep(request, Purpose::Piece(op_id), &self.pieces);
                }
                State::Failed(reason) => failure = Some((first, reason)),
            }
        }
        // Where the peer has many small registrations, one request does not take all of it.
        let queued = !at_once || !op.cursor.is_done();
        op.queued = queued;
        self.ops.insert(op_id, op);
        if queued {
            lane.queue.push(op_id.0, is_queued(&self.ops));
        }
        if let Some((first, reason)) = failure {
            self.failed(conn, op_id, first, reason, Instant::now());
            if let Some(error) = self.lanes.get(&conn).and_then(|lane| lane.lost.clone()) {
                // Nothing of it runs: then it has not started.
                self.forget_op(op_id);
                return Err(error);
            }
        }
        self.put_in_rotation(conn);
        Ok(Start::Running)
    }

    fn stop(&mut self, op_id: OpId) -> Stop {
        let Some(op) = self.ops.get_mut(&op_id) else {
            // Its event waits to be given out.
            return Stop::Draining;
        };
        op.stopping = true;
        let ended = op.posted == 0 && !op.doubted;
        if let Some(lane) = self.lanes.get_mut(&op.conn) {
            lane.dequeue(op);
        }
        if ended {
            self.forget_op(op_id);
            return Stop::Stopped;
        }
        Stop::Draining
    }

    fn send(&mut self, conn: ConnId, message: &[u8]) -> Result<()> {
        let _inside = self.enter_open()?;
        self.send_message(conn, message)
    }

    fn receive(&mut self, most: usize, messages: &mut Vec<Message>) {
        let _inside = self.enter();
        self.take_messages(most, messages);
    }

    fn refused_messages(&self) -> u64 {
        self.inbox.refused()
    }

    fn progress(&mut self, deadline: Instant, events: &mut Vec<Event>) {
        let _inside = self.enter();
        let before = events.len();
        let mut now = Instant::now();
        self.drive(now);
        // Nothing is begun in the last part: what is worth a post takes longer.
        let enough = deadline - deadline.saturating_duration_since(now) / 4;
        loop {
            let mut moved = false;
            for _ in 0..self.rotation.len() {
                let Some(conn) = self.rotation.pop_front() else {
                    break;
                };
                if let Some(lane) = self.lanes.get_mut(&conn) {
                    lane.in_rotation = false;
                }
                moved |= self.serve(conn, now, deadline, events);
                self.put_in_rotation(conn);
                now = Instant::now();
                if now >= enough {
                    break;
                }
            }
            if moved {
                self.pace.news(now);
            }
            if !moved || now >= enough {
                break;
            }
        }
        events.append(&mut self.pending);
        relax_list(&mut self.pending);
        if events.len() > before {
            self.pace.news(now);
        }
    }

    fn idle_for(&self) -> Option<Duration> {
        if !self.pending.is_empty() {
            return None;
        }
        self.pace.nap(Instant::now(), !self.rotation.is_empty())
    }

    fn try_close(&mut self) -> Result<()> {
        self.leave_if_quiet()
    }

    fn force_close(&mut self) {
        self.leave();
    }
}
