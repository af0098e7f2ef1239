//! Test-only backend that does what a test scripts: it starts, stalls, ends, fails and drains
//! transfers on command, and objects when the transport breaks the contract of [`Backend`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Backend, ConnId, Direction, Event, Kind, MAX_MESSAGE, Message, OpId, Start, Stop};
use crate::error::{Error, Result, Status};
use crate::extents::Runs;
use crate::layout::Layout;

/// The test's side of a [`Sim`].
#[derive(Clone, Default)]
pub struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What the next calls of `connect` and `start` answer; `Ok` when nothing is scripted.
    connects: VecDeque<Error>,
    starts: VecDeque<Error>,
    /// What the next calls of `send` answer.
    sends: VecDeque<Error>,
    sent: Vec<(u64, Vec<u8>)>,
    /// What `receive` has to give.
    inbox: VecDeque<Message>,
    /// While it is not 0, `stop` answers `Draining`, and counts it down.
    stubborn: u64,
    /// While set, transfers are done as soon as they start.
    inline: bool,
    conns: BTreeSet<ConnId>,
    /// What can touch memory, and over which connection (also one that was given up).
    ops: BTreeMap<OpId, ConnId>,
    events: Vec<Event>,
    close: CloseState,
    log: Vec<String>,
}

#[derive(Default, PartialEq, Eq)]
enum CloseState {
    #[default]
    Open,
    /// `try_close` says that something touches memory.
    Held,
    Closed,
}

impl Script {
    /// A backend that follows this script.
    pub fn backend(&self) -> Box<dyn Backend> {
        Box::new(Sim(self.clone()))
    }

    /// The next `connect` fails.
    pub fn fail_connect(&self, status: Status) {
        self.0
            .lock()
            .connects
            .push_back(Error::new(status, "scripted connect"));
    }

    /// The next `start` fails.
    pub fn fail_start(&self, status: Status) {
        self.0
            .lock()
            .starts
            .push_back(Error::new(status, "scripted start"));
    }

    /// The next `send` fails.
    pub fn fail_send(&self, status: Status) {
        self.0
            .lock()
            .sends
            .push_back(Error::new(status, "scripted send"));
    }

    /// The messages that were sent, and over which connections.
    pub fn sent(&self) -> Vec<(u64, Vec<u8>)> {
        self.0.lock().sent.clone()
    }

    /// A message comes.
    pub fn deliver(&self, sender: &str, bytes: &[u8]) {
        self.0.lock().inbox.push_back(Message {
            sender: sender.into(),
            bytes: bytes.to_vec(),
        });
    }

    /// How many messages nobody has received.
    pub fn undelivered(&self) -> usize {
        self.0.lock().inbox.len()
    }

    /// From now on transfers cannot (or can) be stopped.
    pub fn set_stubborn(&self, stubborn: bool) {
        self.set_stubborn_for(if stubborn { u64::MAX } else { 0 });
    }

    /// The next so many transfers that are asked to stop cannot.
    pub fn set_stubborn_for(&self, answers: u64) {
        self.0.lock().stubborn = answers;
    }

    /// From now on transfers are done (or not) as soon as they start.
    pub fn set_inline(&self, inline: bool) {
        self.0.lock().inline = inline;
    }

    /// `try_close` fails until this is lifted.
    pub fn hold_close(&self, held: bool) {
        self.0.lock().close = if held {
            CloseState::Held
        } else {
            CloseState::Open
        };
    }

    /// `op` ends; the next `progress` says so. False if it does not run.
    pub fn end(&self, op: u64, result: std::result::Result<(), Status>) -> bool {
        let mut state = self.0.lock();
        if state.ops.remove(&OpId(op)).is_none() {
            return false;
        }
        let result = result.map_err(|status| Error::new(status, "scripted end"));
        state.events.push(Event::Ended {
            op: OpId(op),
            result,
        });
        true
    }

    /// The peer of `conn` is gone.
    pub fn lose(&self, conn: u64) {
        let error = Error::new(Status::PeerLost, "scripted loss");
        self.0.lock().events.push(Event::Lost {
            conn: ConnId(conn),
            error,
        });
    }

    /// What could touch memory.
    pub fn touching(&self) -> Vec<u64> {
        self.0.lock().ops.keys().map(|op| op.0).collect()
    }

    /// Connections that were made and not given up.
    pub fn conns(&self) -> Vec<u64> {
        self.0.lock().conns.iter().map(|conn| conn.0).collect()
    }

    /// The order of teardown and the like: "disconnect 1", "force_close", ...
    pub fn calls(&self) -> Vec<String> {
        self.0.lock().log.clone()
    }
}

struct Sim(Script);

impl Backend for Sim {
    fn kind(&self) -> Kind {
        Kind::Local
    }

    fn metadata(&self) -> &[u8] {
        b"sim"
    }

    /// The metadata as text.
    fn agent_name(&self, metadata: &[u8]) -> Result<String> {
        String::from_utf8(metadata.to_vec())
            .map_err(|_| Error::new(Status::InvalidArg, "scripted metadata is a name"))
    }

    fn connect(
        &mut self,
        conn: ConnId,
        _metadata: &[u8],
        _remote: &Layout,
        replaces: Option<ConnId>,
    ) -> Result<()> {
        let mut state = self.0.0.lock();
        assert!(
            replaces.is_none_or(|old| state.conns.contains(&old)),
            "in place of a connection that does not exist"
        );
        if let Some(error) = state.connects.pop_front() {
            return Err(error);
        }
        state.log.push(format!("connect {}", conn.0));
        assert!(state.conns.insert(conn), "connection ids are never reused");
        Ok(())
    }

    fn disconnect(&mut self, conn: ConnId) {
        let mut state = self.0.0.lock();
        state.log.push(format!("disconnect {}", conn.0));
        assert!(
            state.conns.remove(&conn),
            "disconnect of a connection that does not exist"
        );
    }

    fn start(
        &mut self,
        conn: ConnId,
        op: OpId,
        _direction: Direction,
        runs: &mut Runs,
    ) -> Result<Start> {
        let mut state = self.0.0.lock();
        assert!(
            state.conns.contains(&conn),
            "start over a connection that does not exist"
        );
        assert!(runs.bytes() > 0);
        if let Some(error) = state.starts.pop_front() {
            return Err(error);
        }
        if state.inline {
            return Ok(Start::Done);
        }
        assert_eq!(state.ops.insert(op, conn), None, "op ids are never reused");
        Ok(Start::Running)
    }

    fn stop(&mut self, op: OpId) -> Stop {
        let mut state = self.0.0.lock();
        let pending = state
            .events
            .iter()
            .any(|event| matches!(event, Event::Ended { op: ended, .. } if *ended == op));
        assert!(
            state.ops.contains_key(&op) || pending,
            "stop of a transfer that has ended"
        );
        if state.stubborn > 0 || pending {
            state.stubborn = state.stubborn.saturating_sub(1);
            return Stop::Draining;
        }
        state.ops.remove(&op);
        Stop::Stopped
    }

    fn send(&mut self, conn: ConnId, message: &[u8]) -> Result<()> {
        let mut state = self.0.0.lock();
        assert!(
            state.conns.contains(&conn),
            "send over a connection that does not exist"
        );
        assert!((1..=MAX_MESSAGE).contains(&message.len()));
        if let Some(error) = state.sends.pop_front() {
            return Err(error);
        }
        state.sent.push((conn.0, message.to_vec()));
        Ok(())
    }

    fn receive(&mut self, most: usize, messages: &mut Vec<Message>) {
        let mut state = self.0.0.lock();
        let count = most.min(state.inbox.len());
        messages.extend(state.inbox.drain(..count));
    }

    fn refused_messages(&self) -> u64 {
        0
    }

    fn progress(&mut self, _deadline: Instant, events: &mut Vec<Event>) {
        events.append(&mut self.0.0.lock().events);
    }

    fn idle_for(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn try_close(&mut self) -> Result<()> {
        let mut state = self.0.0.lock();
        assert!(state.ops.is_empty(), "close while transfers touch memory");
        if state.close == CloseState::Held {
            return Err(Error::new(Status::Timeout, "scripted hold"));
        }
        state.close = CloseState::Closed;
        state.log.push("close".into());
        Ok(())
    }

    fn force_close(&mut self) {
        let mut state = self.0.0.lock();
        state.close = CloseState::Closed;
        state.ops.clear();
        state.log.push("force_close".into());
    }
}
