//! Messages: what was sent and may not have arrived yet, and what came in.
//!
//! NIXL takes any number of messages and keeps those that its network has no room for, so a peer that
//! reads nothing would fill this process. And what NIXL keeps is lost when the process ends. So there is
//! only ever sent what the kernel's buffers have room for: [`MOST_UNPROVEN`] bytes. A message has
//! arrived, and made room, when a request that was posted after it has ended: each request flushes the
//! endpoint, and UCX's sockets answer a flush when the peer's UCX has taken what was before it.
//!
//! Before anything arrived over an endpoint, nothing leaves it: UCX waits for the peer's part of the
//! connection. So the first message waits for a request of which nothing is wanted but the answer.
//!
//! All messages of a connection take one endpoint, which keeps their order. Two connections to one peer
//! have an endpoint each: a message over one waits until those over the other have arrived.
//!
//! Closing loses nothing. A process that is killed, or ends without closing, leaves what was taken in
//! the kernel, from where its receiver reads it. But UCX at the receiver closes all sockets of a peer as
//! soon as it finds that one of them is dead, read or not. So what the receiver had not read by then
//! can be lost
//! - when there is more than one socket between the two: with sockets alone (UCX_TLS=tcp, other hosts)
//!   there is one for each network interface. Seen with 64 KiB, not with short messages;
//! - behind a request of the sender's that was still running, which the receiver cannot answer any more;
//!   that is why none is sent behind a probe;
//! - beyond the 64 KiB or so that the receiver's kernel has taken, when the sender left bytes unread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::engine::State;
use super::lane::Purpose;
use super::*;
use crate::backend::{MAX_MESSAGE, MAX_NAME, check_message};

/// What sockets hold for a peer that does not read: more than 5 MB over the loopback, and twice a window
/// of 64 KiB elsewhere. It lets 1,000 messages of 50 bytes wait.
const MOST_UNPROVEN: u64 = 192 << 10;

/// Of a probe only the end is of interest.
const PROBE: Piece = Piece {
    local: 0,
    remote: 0,
    len: 1,
};

/// What a message costs besides its bytes and the sender's name: NIXL's records and UCX's headers.
const FRAME: u64 = 64;

const _: () = assert!(
    1000 * (50 + 64 + FRAME) <= MOST_UNPROVEN
        && (MAX_MESSAGE + MAX_NAME) as u64 + FRAME <= MOST_UNPROVEN
);

/// What the caller has not asked for yet is kept up to here. NIXL cannot be told to wait.
const MOST_MESSAGES: usize = 65_536;
const MOST_BYTES: usize = 64 << 20;

/// The messages that one connection has sent.
#[derive(Default)]
pub struct Outbox {
    /// Bytes of all messages so far, and of those that have arrived.
    sent: u64,
    arrived: u64,
    /// Something has arrived: the endpoint is connected.
    connected: bool,
    /// There is reason to ask what has arrived.
    asked: bool,
    /// A probe is among the posted requests.
    probing: bool,
    /// No probe before this, after one that failed.
    next: Option<Instant>,
    /// Probes that failed.
    failures: u32,
}

impl Outbox {
    /// Bytes that may still be on this side.
    pub fn unproven(&self) -> u64 {
        self.sent - self.arrived
    }

    /// What has arrived when a request that is posted now has ended.
    pub fn mark(&self) -> u64 {
        self.sent
    }

    /// A request has ended for which [`mark`](Outbox::mark) gave `mark`.
    pub fn prove(&mut self, mark: u64) {
        self.arrived = self.arrived.max(mark);
        self.connected = true;
        self.failures = 0;
        self.next = None;
        self.asked &= self.unproven() > 0;
    }

    /// There is reason to ask what has arrived, if that is unknown.
    fn ask(&mut self) {
        self.asked |= !self.connected || self.unproven() > 0;
    }

    /// A probe is wanted, now or later.
    pub fn is_owed(&self) -> bool {
        self.asked
    }

    fn has_room(&self, cost: u64) -> bool {
        !self.asked && !self.probing && self.unproven() + cost <= MOST_UNPROVEN
    }

    fn took(&mut self, cost: u64) {
        self.sent += cost;
    }

    /// The peer is gone: nothing is waited for.
    pub fn give_up(&mut self) {
        self.arrived = self.sent;
        self.asked = false;
    }
}

/// The messages that have come, those of one sender in their order.
#[derive(Default)]
pub struct Inbox {
    waiting: VecDeque<Message>,
    bytes: usize,
    arrived: u64,
    refused: u64,
}

impl Inbox {
    /// Keeps a message of `sender`, unless there is no room for it or no sender of this library would
    /// send it.
    pub fn put(&mut self, sender: &Arc<str>, bytes: Vec<u8>) {
        let cost = sender.len() + bytes.len();
        let valid = !bytes.is_empty() && (1..=MAX_NAME).contains(&sender.len());
        if !valid || self.waiting.len() == MOST_MESSAGES || self.bytes + cost > MOST_BYTES {
            return self.refuse(1);
        }
        self.arrived += 1;
        self.bytes += cost;
        let sender = Arc::clone(sender);
        self.waiting.push_back(Message { sender, bytes });
    }

    /// Counts what was thrown away.
    pub fn refuse(&mut self, count: usize) {
        self.refused += count as u64;
    }

    /// How many have come so far.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// How many were thrown away so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn take(&mut self, most: usize, messages: &mut Vec<Message>) {
        let count = most.min(self.waiting.len());
        for message in self.waiting.drain(..count) {
            self.bytes -= message.sender.len() + message.bytes.len();
            messages.push(message);
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }
}

impl Nixl {
    pub(super) fn send_message(&mut self, conn: ConnId, message: &[u8]) -> Result<()> {
        check_message(message)?;
        // A peer that is gone shows when its socket is looked at, and so does the end of a probe.
        self.drive_now(Instant::now());
        self.attend(conn);
        self.check_lane(conn)?;
        let cost = message.len() as u64 + self.name.len() as u64 + FRAME;
        if let Some(obstacle) = self.obstacle(conn, cost) {
            self.ask(conn);
            // A probe that could not even be posted says more.
            self.check_lane(conn)?;
            fail!(
                Busy,
                "no message can be sent to the NIXL agent {} now: {obstacle}; poll and try again",
                Quoted(&self.lanes[&conn].agent)
            );
        }
        let (Some(engine), Some(lane)) = (&self.engine, self.lanes.get_mut(&conn)) else {
            fail!(Internal, "connection {} does not exist", conn.0);
        };
        if let Err(reason) = engine.notify(&lane.alias, message) {
            // NIXL does not say why. Probes find out whether the peer is gone.
            lane.outbox.asked = true;
            self.ask(conn);
            self.check_lane(conn)?;
            fail!(
                Busy,
                "NIXL does not take the message now ({reason}); poll and try again"
            );
        }
        lane.outbox.took(cost);
        // UCX sends the rest of what is longer than one of its segments when it is driven.
        self.drive_now(Instant::now());
        self.put_in_rotation(conn);
        Ok(())
    }

    fn check_lane(&self, conn: ConnId) -> Result<()> {
        match self.lanes.get(&conn).map(|lane| &lane.lost) {
            Some(None) => Ok(()),
            Some(Some(error)) => Err(error.clone()),
            None => fail!(Internal, "connection {} does not exist", conn.0),
        }
    }

    /// Why a message of `cost` bytes would not leave at once, behind all that was sent before it.
    fn obstacle(&mut self, conn: ConnId, cost: u64) -> Option<&'static str> {
        let lane = &self.lanes[&conn];
        if !lane.outbox.connected {
            return Some("the connection is being made");
        }
        if !lane.outbox.has_room(cost) {
            return Some("it has not taken in what was sent to it before");
        }
        let others = self.lanes.iter().filter(|(other, rival)| {
            rival.outbox.unproven() > 0
                && **other != conn
                && rival.agent == lane.agent
                && rival.address == lane.address
        });
        let others: Vec<ConnId> = others.map(|(other, _)| *other).collect();
        if others.is_empty() {
            return None;
        }
        for other in others {
            self.ask(other);
        }
        Some("what was sent to it over another connection has not arrived")
    }

    /// Sees to it that it becomes known what has arrived.
    pub(super) fn ask(&mut self, conn: ConnId) {
        if let Some(lane) = self.lanes.get_mut(&conn) {
            lane.outbox.ask();
        }
        self.attend(conn);
        self.put_in_rotation(conn);
    }

    /// Takes what has ended, and posts the probe that is owed.
    fn attend(&mut self, conn: ConnId) {
        let now = Instant::now();
        let mut events = Vec::new();
        self.reap(conn, now, &mut events);
        self.post_probe(conn, now);
        self.pending.append(&mut events);
    }

    /// Posts the probe that is owed. True if it did.
    pub(super) fn post_probe(&mut self, conn: ConnId, now: Instant) -> bool {
        let (Some(engine), Some(lane)) = (&mut self.engine, self.lanes.get_mut(&conn)) else {
            return false;
        };
        let outbox = &mut lane.outbox;
        if !outbox.asked || outbox.probing || outbox.next.is_some_and(|next| now < next) {
            return false;
        }
        match engine.probe(&lane.alias, &lane.remote) {
            State::Done => outbox.prove(outbox.mark()),
            State::Running(request) => {
                outbox.probing = true;
                lane.keep(request, Purpose::Mail, &[PROBE]);
            }
            State::Failed(_) => self.mail_probe_failed(conn, now),
        }
        true
    }

    /// The probe that was posted has ended.
    pub(super) fn probe_ended(&mut self, conn: ConnId, failed: bool, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(&conn) {
            lane.outbox.probing = false;
        }
        if failed {
            self.mail_probe_failed(conn, now);
        }
    }

    fn mail_probe_failed(&mut self, conn: ConnId, now: Instant) {
        if self.check_lost(conn) {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&conn) else {
            return;
        };
        lane.outbox.next = Some(now + PROBE_EVERY);
        lane.outbox.failures += 1;
        if lane.outbox.failures >= MAX_PROBES {
            self.lose(conn);
        }
    }

    pub(super) fn take_messages(&mut self, most: usize, messages: &mut Vec<Message>) {
        let now = Instant::now();
        let task = match self.inbox.waiting.is_empty() {
            true => Task::None,
            false => Task::Tell,
        };
        if self.pace.wants_drive(now, task) {
            self.drive_now(now);
        }
        self.inbox.take(most, messages);
    }

    /// Works on what keeps messages from having arrived, and says what is left of that.
    pub(super) fn settle_mail(&mut self, budget: Duration) -> Result<()> {
        let waiting = |lane: &Lane| lane.outbox.unproven() > 0;
        let lanes = self.lanes.iter().filter(|(_, lane)| waiting(lane));
        let lanes: Vec<ConnId> = lanes.map(|(conn, _)| *conn).collect();
        if lanes.is_empty() {
            return Ok(());
        }
        for conn in lanes {
            self.ask(conn);
        }
        let mut events = std::mem::take(&mut self.pending);
        self.progress(Instant::now() + budget, &mut events);
        self.pending = events;
        let mut lanes = self.lanes.values().filter(|lane| waiting(lane));
        let Some(first) = lanes.next() else {
            return Ok(());
        };
        let more = match lanes.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        fail!(
            Timeout,
            "messages to the NIXL agent {}{more} have not arrived yet, or their arrival is not confirmed",
            Quoted(&first.agent)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_has_bounds_and_counts_what_is_beyond() {
        let (some, name): (Arc<str>, Arc<str>) = ("some".into(), "n".repeat(MAX_NAME).into());
        let mut inbox = Inbox::default();
        for n in 0..MOST_MESSAGES + 3 {
            inbox.put(&some, n.to_le_bytes().to_vec());
        }
        assert_eq!(
            (inbox.arrived(), inbox.refused()),
            (MOST_MESSAGES as u64, 3)
        );
        let mut messages = Vec::new();
        inbox.take(10, &mut messages);
        inbox.take(usize::MAX, &mut messages);
        assert_eq!(messages.len(), MOST_MESSAGES);
        for (n, message) in messages.iter().enumerate() {
            assert_eq!(
                (&*message.sender, &*message.bytes),
                ("some", &n.to_le_bytes()[..])
            );
        }
        // Names count.
        let count = MOST_BYTES / (2 * MAX_NAME);
        for _ in 0..count + 1 {
            inbox.put(&name, vec![0; MAX_NAME]);
        }
        assert_eq!(inbox.refused(), 4);
        messages.clear();
        inbox.take(usize::MAX, &mut messages);
        assert_eq!((messages.len(), inbox.bytes), (count, 0));
    }

    #[test]
    fn what_no_sender_of_ours_would_send_is_no_message() {
        let mut inbox = Inbox::default();
        inbox.put(&"".into(), vec![1]);
        inbox.put(&"n".repeat(MAX_NAME + 1).into(), vec![1]);
        inbox.put(&"n".into(), Vec::new());
        assert_eq!((inbox.arrived(), inbox.refused()), (0, 3));
        // Foreign senders know no limit of a message's length.
        inbox.put(&"n".into(), vec![1; 10 * MAX_MESSAGE]);
        assert_eq!((inbox.arrived(), inbox.refused()), (1, 3));
    }

    #[test]
    fn room_comes_back_with_what_has_arrived() {
        let mut outbox = Outbox::default();
        outbox.ask();
        assert!(outbox.is_owed() && !outbox.connected);
        outbox.prove(outbox.mark());
        assert!(!outbox.is_owed() && outbox.connected);
        let early = outbox.mark();
        let mut taken = 0;
        while outbox.has_room(1000) {
            outbox.took(1000);
            taken += 1000;
        }
        assert_eq!(taken, MOST_UNPROVEN / 1000 * 1000);
        assert_eq!(outbox.unproven(), taken);
        outbox.ask();
        let mark = outbox.mark();
        // A request from before the messages says nothing of them.
        outbox.prove(early);
        assert!(outbox.is_owed() && !outbox.has_room(1));
        outbox.prove(mark);
        assert!(!outbox.is_owed() && outbox.has_room(1000));
        outbox.took(1000);
        outbox.give_up();
        assert_eq!(outbox.unproven(), 0);
    }
}
