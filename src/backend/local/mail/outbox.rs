//! The sender's side: a lane in the mailbox of a peer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::file::MailFile;
use super::frames::{self, Checked, Frame, GIVEN_UP, RING};
use crate::backend::local::errno::failed;
use crate::error::{Result, fail};

/// A lane that this transport has.
#[derive(Debug)]
struct Outbox {
    mail: MailFile,
    lane: usize,
    /// Nobody else's word is needed for where we write.
    tail: u64,
    /// The owner of the mailbox was told our name.
    introduced: bool,
}

impl Outbox {
    fn claim(mail: MailFile) -> Result<Outbox> {
        let lane = lock_free_lane(&mail)?;
        Ok(Outbox {
            lane,
            tail: mail.tail(lane).load(Ordering::Acquire),
            introduced: false,
            mail,
        })
    }

    /// Bytes that the owner has not read.
    fn waiting(&self) -> Checked<u64> {
        frames::waiting(self.tail, self.mail.head(self.lane).load(Ordering::Acquire))
    }

    /// `bytes` is memory to put the frames together in.
    fn send(&mut self, sender: &str, message: &[u8], bytes: &mut Vec<u8>) -> Result<()> {
        let Ok(waiting) = self.waiting() else {
            fail!(Busy, "the peer has given up this lane of its mailbox");
        };
        bytes.clear();
        if !self.introduced {
            frames::append(bytes, Frame::Name(sender));
        }
        frames::append(bytes, Frame::Message(message));
        if bytes.len() as u64 > RING - waiting {
            fail!(
                Busy,
                "the peer's mailbox is full: {waiting} bytes wait to be read"
            );
        }
        self.mail.write(self.lane, self.tail, bytes)?;
        self.introduced = true;
        self.tail = self.tail.wrapping_add(bytes.len() as u64);
        self.mail
            .tail(self.lane)
            .store(self.tail, Ordering::Release);
        self.mail.ring_bell(self.lane);
        Ok(())
    }

    /// True when there is a reader who may still come to what was sent.
    fn is_awaited(&self) -> bool {
        // A forked child awaits nothing.
        self.mail.is_here() && self.waiting().is_ok_and(|bytes| bytes > 0) && self.mail.is_owned()
    }
}

/// Takes a lane that is free and empty: so every sender has a whole ring to fill.
fn lock_free_lane(mail: &MailFile) -> Result<usize> {
    for lane in mail.likely_lanes() {
        let locked = mail
            .lock_lane(lane)
            .map_err(|errno| failed("locking a lane of the peer's mailbox", errno))?;
        if !locked {
            continue;
        }
        let head = mail.head(lane).load(Ordering::Acquire);
        if head == mail.tail(lane).load(Ordering::Acquire) && head != GIVEN_UP {
            return Ok(lane);
        }
        mail.unlock_lane(lane);
        // Whoever left something here may have ended before it could say so: then the lane is read,
        // or made new, now.
        mail.ring_bell(lane);
    }
    fail!(
        Busy,
        "all {} lanes of the peer's mailbox are taken: it has so many senders, or has not read what former ones left",
        mail.lanes()
    );
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // A forked child has a copy of this value, but neither the directory nor a right to the lane.
        if self.mail.is_here() {
            // Closing the file would not be enough while such a child has it.
            self.mail.unlock_lane(self.lane);
            // So that the owner gives the memory back.
            self.mail.ring_bell(self.lane);
        }
    }
}

/// The lanes of one transport, one for each peer that it has sent to. What it sends to a peer stays
/// in one lane, whichever connection it goes over: two lanes have no order. So a lane outlives its
/// connections, until all has been read or nobody is there to read it.
#[derive(Debug, Default)]
pub(in crate::backend::local) struct Outboxes {
    peers: BTreeMap<u128, Entry>,
    /// Those without a connection.
    orphans: BTreeSet<u128>,
    /// The orphan that was looked at last.
    watched: u128,
    /// When `sweep` looked at one.
    swept: Option<Instant>,
    /// Reused by every message.
    buffer: Vec<u8>,
}

/// Memory for so long a message is kept.
const KEPT: usize = 16 << 10;

/// How many orphans are looked at when there may be one more: those of the past do not pile up, and
/// however many there are, it takes no longer.
const LOOKS: usize = 2;

/// Time between two looks at orphans: each costs a system call.
const SWEEP_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct Entry {
    connections: usize,
    outbox: Option<Outbox>,
}

impl Entry {
    fn is_needed(&self) -> bool {
        self.connections > 0 || self.outbox.as_ref().is_some_and(Outbox::is_awaited)
    }
}

impl Outboxes {
    /// There is one more connection to the peer `incarnation`.
    pub(in crate::backend::local) fn join(&mut self, incarnation: u128) {
        self.peers.entry(incarnation).or_default().connections += 1;
        self.orphans.remove(&incarnation);
    }

    /// There is one less.
    pub(in crate::backend::local) fn leave(&mut self, incarnation: u128) {
        if let Some(entry) = self.peers.get_mut(&incarnation) {
            entry.connections -= 1;
            if entry.connections == 0 {
                self.orphans.insert(incarnation);
            }
        }
        self.look_at(incarnation);
        for _ in 0..LOOKS {
            self.look_at_next();
        }
    }

    /// Looks at one lane that has outlived its connections, and gives it up if it is of no use any
    /// more. Called again and again: no other connection may ever end.
    pub(in crate::backend::local) fn sweep(&mut self, now: impl FnOnce() -> Instant) {
        if self.orphans.is_empty() {
            return;
        }
        let now = now();
        if self
            .swept
            .is_none_or(|then| now.saturating_duration_since(then) >= SWEEP_EVERY)
        {
            self.swept = Some(now);
            self.look_at_next();
        }
    }

    fn look_at_next(&mut self) {
        let after = self.orphans.range((Excluded(self.watched), Unbounded));
        if let Some(&orphan) = after.chain(self.orphans.first()).next() {
            self.watched = orphan;
            self.look_at(orphan);
        }
    }

    fn look_at(&mut self, peer: u128) {
        if self.peers.get(&peer).is_none_or(|entry| !entry.is_needed()) {
            self.peers.remove(&peer);
            self.orphans.remove(&peer);
        }
    }

    /// Sends a message to a peer that has a connection. `open` opens its mailbox.
    pub(in crate::backend::local) fn send(
        &mut self,
        incarnation: u128,
        sender: &str,
        message: &[u8],
        open: impl FnOnce() -> Result<MailFile>,
    ) -> Result<()> {
        let entry = self.peers.entry(incarnation).or_default();
        let outbox = match &mut entry.outbox {
            Some(outbox) if outbox.waiting().is_ok() => outbox,
            // The owner of a damaged lane reads it no more.
            outbox => {
                *outbox = None;
                outbox.insert(Outbox::claim(open()?)?)
            }
        };
        let sent = outbox.send(sender, message, &mut self.buffer);
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
        sent
    }
}
