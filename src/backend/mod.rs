//! The contract between the transport and what really moves bytes.
//!
//! A backend is told what to move and says when it ended. It knows nothing of peers' names, or of who
//! asks for a result; the ids that it gets mean nothing to it. No call waits for a peer. The transport
//! calls it under its own lock, one call at a time. In a forked child it is dropped and never called:
//! dropping gives back what belongs to the child and touches nothing that is shared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, fail};
use crate::extents::Runs;
use crate::layout::Layout;

pub mod local;
pub mod nixl;
pub mod open;
#[cfg(test)]
pub mod sim;

/// Which backend serves a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Copies between processes of one host.
    Local,
    /// NIXL over UCX.
    Nixl,
}

/// One registration of one peer. Chosen by the transport, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// One transfer. Chosen by the transport, never reused; the transport takes the number that the
/// caller knows it by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// Which way the bytes go, seen from this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Local blocks into the peer's.
    Write,
    /// The peer's blocks into local ones.
    Read,
}

/// What a backend has to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The transfer ended and touches no memory any more, on either side. Exactly once for every
    /// running transfer, except one that [`Backend::stop`] answered with [`Stop::Stopped`].
    Ended {
        /// Which one.
        op: OpId,
        /// How: `Ok` when the bytes have arrived.
        result: Result<()>,
    },
    /// The peer is gone for good. At most once for a connection, and possibly after the connection was
    /// given up. Its transfers end by their own events, before or after this one.
    Lost {
        /// Whose registration.
        conn: ConnId,
        /// Why, with status `PeerLost`.
        error: Error,
    },
}

/// The longest name of a peer or an agent, in bytes.
pub const MAX_NAME: usize = 1000;

/// The longest message that is sent.
pub const MAX_MESSAGE: usize = 64 << 10;

/// Refuses what is no message: it is never cut, and never empty.
pub fn check_message(message: &[u8]) -> Result<()> {
    if !(1..=MAX_MESSAGE).contains(&message.len()) {
        fail!(
            InvalidArg,
            "the message has {} bytes, but a message has 1 to {MAX_MESSAGE}",
            message.len()
        );
    }
    Ok(())
}

/// A message from a transport that has this one as a peer; this one need not know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The name that the sender gave itself.
    pub sender: Arc<str>,
    /// What it sent.
    pub bytes: Vec<u8>,
}

/// How far a transfer got when it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// An [`Event::Ended`] follows.
    Running,
    /// The bytes have arrived; no event will follow.
    Done,
}

/// What became of a transfer that should stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It touches no memory any more and no event will follow.
    Stopped,
    /// It cannot be stopped now. An [`Event::Ended`] follows when it has ended, with the real
    /// outcome, or with status `Cancelled`.
    Draining,
}

/// What moves bytes.
pub trait Backend: Send {
    /// Which one this is.
    fn kind(&self) -> Kind;

    /// What a peer needs to reach this transport. The same bytes on every call.
    fn metadata(&self) -> &[u8];

    /// The name that the peer with this metadata (untrusted) gave itself.
    fn agent_name(&self, metadata: &[u8]) -> Result<String>;

    /// Prepares access to `remote`, blocks of the peer that `metadata` (untrusted) describes: each must
    /// lie in memory that the metadata speaks of. Other connections, also to the same peer, stay as
    /// they are. On failure nothing is left behind.
    ///
    /// `replaces` is the connection that the caller gives up next if this one succeeds: the same
    /// peer, perhaps restarted.
    fn connect(
        &mut self,
        conn: ConnId,
        metadata: &[u8],
        remote: &Layout,
        replaces: Option<ConnId>,
    ) -> Result<()>;

    /// Gives up a connection. Every transfer of it has ended or answered `stop`; what still drains
    /// keeps what it needs until it ends.
    fn disconnect(&mut self, conn: ConnId);

    /// Takes on a transfer, whose runs are blocks of this side and of the connection's `remote`; what is left of
    /// them is of no meaning. It never waits, and copies at most a few small blocks itself. `Err` means that
    /// nothing runs; status `PeerLost` means that the connection is of no use any more.
    fn start(
        &mut self,
        conn: ConnId,
        op: OpId,
        direction: Direction,
        runs: &mut Runs,
    ) -> Result<Start>;

    /// Stops a running transfer, one for which no event was given out yet. May be asked again.
    fn stop(&mut self, op: OpId) -> Stop;

    /// Hands a message of 1 to [`MAX_MESSAGE`] bytes to the peer of `conn`. It never waits.
    ///
    /// `Ok`: the message reaches the peer, once, after all that were sent to it before, even if
    /// nothing of this backend is called any more and the process ends. (What a NIXL process that is
    /// killed can lose stands in `nixl::mail`.) `Err` means that nothing was
    /// sent. Status `Busy` or `NoMemory`: there is no room for it now, so try again later, and before
    /// any later message. `PeerLost`: the connection is of no use any more.
    fn send(&mut self, conn: ConnId, message: &[u8]) -> Result<()>;

    /// Appends up to `most` messages that have come, those of one sender in their order. What is not
    /// asked for stays where it is, and when too much does, its senders have no room.
    fn receive(&mut self, most: usize, messages: &mut Vec<Message>);

    /// How many messages had no room here where they could not be kept away, and how often something
    /// was thrown away that no sender of this library would send.
    fn refused_messages(&self) -> u64;

    /// Does work until `deadline` (exceeded by one small piece at most), fairly between connections,
    /// and appends what happened.
    fn progress(&mut self, deadline: Instant, events: &mut Vec<Event>);

    /// How long a waiting caller may sleep before the next `progress`; `None`: there is work now.
    fn idle_for(&self) -> Option<Duration>;

    /// Gives up the transport's memory: no new access by peers, registrations and handles released.
    /// Every transfer has ended or answered `stop`; messages that were sent are not lost by it. `Err`
    /// (status `Timeout`) says what could still
    /// touch the memory: call again later. After `Ok` only `metadata` and `kind` may be called.
    fn try_close(&mut self) -> Result<()>;

    /// Ends `try_close` by force.
    fn force_close(&mut self);
}
