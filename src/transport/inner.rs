//! What a transport keeps behind its lock: every method here runs with the lock held, and none of them
//! waits.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::{Backend, ConnId, Event, Message, OpId, Stop};
use crate::clock::Clock;
use crate::error::{Error, Quoted, Result, Status, fail};
use crate::kept::relax_list;
use crate::ledger::{Completion, Ledger, Standing, XferId};
use crate::log::log;
use crate::outgoing::Outgoing;
use crate::peers::{PeerKey, Peers, Remark};
use crate::transport::{CancelMode, MessageCounts, is_name};

/// Messages that are fetched, or sent over one connection, in one go.
const MESSAGES_AT_ONCE: usize = 64;

/// A caller that waits looks so often whether a peer has room for a message.
const ROOM_NAP: Duration = Duration::from_micros(500);

/// Peers, transfers and the backend of one transport.
pub(super) struct Inner {
    pub(super) backend: Box<dyn Backend>,
    clock: Clock,
    pub(super) peers: Peers,
    pub(super) ledger: Ledger,
    /// Reused by every progress call.
    events: Vec<Event>,
    /// The same for the connections that messages wait for.
    conns: Vec<ConnId>,
    /// Messages of reads.
    pub(super) outgoing: Outgoing,
    /// Messages that have come and did not fit into what the caller had for them.
    pub(super) inbox: VecDeque<Message>,
    pub(super) messages: MessageCounts,
    /// Messages that found no room at their peer.
    pub(super) no_room: u64,
    /// Messages that came from a sender without a name.
    nameless: u64,
    pub(super) last_conn: u64,
    pub(super) polls: u64,
    /// `close` has dropped peers and transfers.
    abandoned: bool,
    /// `close` has ended, well or by force.
    pub(super) closed: bool,
}

/// A message that could not be sent may find room later.
pub(super) fn lacks_room(error: &Error) -> bool {
    matches!(error.status, Status::Busy | Status::NoMemory)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GivenUp {
    /// Forgotten; it will not surface.
    Yes,
    /// It stays in flight and surfaces when it has ended.
    No,
}

impl Inner {
    /// No peers and no transfers yet.
    pub(super) fn new(backend: Box<dyn Backend>, clock: Clock) -> Inner {
        Inner {
            backend,
            clock,
            peers: Peers::default(),
            ledger: Ledger::default(),
            events: Vec::new(),
            conns: Vec::new(),
            outgoing: Outgoing::default(),
            inbox: VecDeque::new(),
            messages: MessageCounts::default(),
            no_room: 0,
            nameless: 0,
            last_conn: 0,
            polls: 0,
            abandoned: false,
            closed: false,
        }
    }

    /// Lets the backend work and enters what happened. True if anything did.
    pub(super) fn pump(&mut self, budget: Duration) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.backend
            .progress(self.clock.now() + budget, &mut events);
        let mut news = !events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::Ended { op, result } => self.settle(op, result),
                Event::Lost { conn, error } => self.judge(conn, &Err(error)),
            }
        }
        relax_list(&mut events);
        self.events = events;
        if self.outgoing.is_busy() {
            let mut conns = std::mem::take(&mut self.conns);
            self.outgoing.conns(&mut conns);
            for conn in conns.drain(..) {
                news |= self.send_waiting(conn);
            }
            self.conns = conns;
        }
        news
    }

    /// How long a waiting caller may sleep.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let nap = self.backend.idle_for()?;
        Some(match self.outgoing.is_busy() {
            true => nap.min(ROOM_NAP),
            false => nap,
        })
    }

    /// The backend is done with a transfer. It has ended, unless a message is to go first: see
    /// [`send_waiting`](Self::send_waiting).
    pub(super) fn settle(&mut self, op: OpId, result: Result<()>) {
        // Told once more: it is known how the bytes fared.
        if self.outgoing.is_waiting(op.0) {
            return;
        }
        if result.is_ok()
            && let Some(conn) = self.ledger.conn(op.0)
            && self.outgoing.arrived(op.0, conn)
        {
            return;
        }
        self.outgoing.forget(op.0);
        self.end(op.0, result);
    }

    /// Sends what there is room for. True if a transfer has ended by it.
    pub(super) fn send_waiting(&mut self, conn: ConnId) -> bool {
        let mut news = false;
        for _ in 0..MESSAGES_AT_ONCE {
            let Some((id, message)) = self.outgoing.first(conn) else {
                break;
            };
            let result = match self.backend.send(conn, message) {
                Err(error) if lacks_room(&error) => {
                    self.no_room += u64::from(self.outgoing.refused(id));
                    break;
                }
                result => result,
            };
            self.messages.sent += u64::from(result.is_ok());
            self.outgoing.forget(id);
            self.end(id, result);
            news = true;
        }
        news
    }

    /// Enters the end of a transfer.
    fn end(&mut self, id: XferId, result: Result<()>) {
        match &result {
            Ok(()) => log!(Debug, "transfer {id} is done"),
            Err(error) => log!(Debug, "transfer {id} ended: {error}"),
        }
        let outcome = result.as_ref().copied().map_err(|error| error.status);
        if let Some(conn) = self.ledger.end(id, outcome) {
            self.judge(conn, &result);
        }
    }

    /// What an outcome means for the peer.
    pub(super) fn judge(&mut self, conn: ConnId, result: &Result<()>) {
        match self.peers.record(conn, result) {
            None => {}
            Some(Remark::FirstFailure(name, error)) => {
                log!(Warn, "peer {}: a transfer failed: {error}", Quoted(name))
            }
            Some(Remark::Faulted(name, fault)) => {
                log!(Warn, "peer {} is faulted: {fault}", Quoted(name))
            }
        }
    }

    pub(super) fn report(
        &mut self,
        peer_id: Option<&str>,
        cap: usize,
        sink: &mut dyn FnMut(Completion),
    ) -> usize {
        let Ok(scope) = self.scope(peer_id) else {
            return 0;
        };
        let mut count = 0;
        while count < cap {
            let Some((key, completion)) = self.ledger.take(scope) else {
                break;
            };
            sink(completion);
            count += 1;
            self.forget_name(key);
        }
        count
    }

    pub(super) fn has_ready(&self, peer_id: Option<&str>) -> bool {
        self.scope(peer_id)
            .is_ok_and(|scope| self.ledger.has_ready(scope))
    }

    /// Whose completions are meant; `Err` for a name that nothing can surface under.
    fn scope(&self, peer_id: Option<&str>) -> std::result::Result<Option<PeerKey>, ()> {
        match peer_id {
            None => Ok(None),
            Some(name) => self.peers.key(name).map(Some).ok_or(()),
        }
    }

    /// Names live while something can surface under them.
    fn forget_name(&mut self, key: PeerKey) {
        if !self.ledger.uses(key) && self.peers.sweep(key) {
            self.ledger.close_account(key);
        }
    }

    /// False if the id is not registered.
    pub(super) fn remove_peer(&mut self, peer_id: &str) -> bool {
        let Some(old) = self.peers.remove(peer_id) else {
            return false;
        };
        for id in self.ledger.running(Some(old.conn)) {
            match self.stop(id) {
                Stop::Stopped => {
                    self.ledger.end(id, Err(Status::Cancelled));
                }
                Stop::Draining => self.ledger.condemn(id),
            }
            self.outgoing.forget(id);
        }
        self.backend.disconnect(old.conn);
        self.forget_name(old.key);
        true
    }

    /// A read whose bytes have arrived and whose message waits touches no memory any more.
    fn stop(&mut self, id: XferId) -> Stop {
        if self.outgoing.is_waiting(id) {
            return Stop::Stopped;
        }
        self.backend.stop(OpId(id))
    }

    pub(super) fn give_up(&mut self, id: XferId, mode: CancelMode) -> GivenUp {
        match self.ledger.standing(id) {
            Standing::Unknown => {}
            Standing::Ended => self.forget(id, Ledger::forget_ended),
            Standing::Running => match (self.stop(id), mode) {
                (Stop::Stopped, _) => self.forget(id, Ledger::forget_stopped),
                (Stop::Draining, CancelMode::Immediate) => self.forget(id, Ledger::forget_draining),
                (Stop::Draining, CancelMode::Wait) => return GivenUp::No,
            },
        }
        GivenUp::Yes
    }

    fn forget(&mut self, id: XferId, how: fn(&mut Ledger, XferId) -> Option<PeerKey>) {
        self.outgoing.forget(id);
        if let Some(key) = how(&mut self.ledger, id) {
            self.forget_name(key);
        }
    }

    /// A closed backend is not asked any more.
    pub(super) fn count_refused(&mut self) {
        if !self.closed {
            self.messages.refused = self.no_room + self.nameless + self.backend.refused_messages();
        }
    }

    /// The next message that has come.
    pub(super) fn next_message(&mut self, most: usize) -> Option<Message> {
        if self.inbox.is_empty() {
            // Few at a time: what the caller has no room for keeps its sender waiting, not our memory
            // filled.
            let mut come = Vec::new();
            self.backend.receive(most.min(MESSAGES_AT_ONCE), &mut come);
            let all = come.len();
            // Other engines take any bytes for a name; C does not.
            come.retain(|message| is_name(&message.sender));
            self.nameless += (all - come.len()) as u64;
            self.inbox.extend(come);
        }
        self.inbox.pop_front()
    }

    /// One attempt to be done with everything.
    pub(super) fn close_step(&mut self, budget: Duration) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        if !self.abandoned {
            let running = self.ledger.running(None);
            if !running.is_empty() {
                // Who never polls has not moved a byte of them, and would wonder.
                log!(
                    Warn,
                    "{} transfer(s) had not ended when the transport was closed, and are given up; what is to arrive \
                     has to be polled for until it is reported",
                    running.len()
                );
            }
            for id in running {
                self.give_up(id, CancelMode::Immediate);
            }
            self.ledger.forget_ready();
            for name in self.peers.registered_names() {
                self.remove_peer(&name);
            }
            self.abandoned = true;
        }
        if self.ledger.counts().draining > 0 {
            self.pump(budget);
            let draining = self.ledger.counts().draining;
            if draining > 0 {
                fail!(
                    Timeout,
                    "{draining} transfer(s) can still touch memory, until their peers answer: with NIXL these must poll, too"
                );
            }
        }
        self.count_refused();
        if self.backend.try_close().is_err() {
            // It may have things to end that are no transfers.
            self.pump(budget);
            self.backend.try_close()?;
        }
        self.closed = true;
        Ok(())
    }
}
