//! The gate of a transport's memory: how it takes back what peers may do, without their help.
//!
//! Every transport owns a control page, a small shared file that its peers map. Before a peer
//! touches the transport's memory it raises its flag there and then looks whether the gate is open;
//! the owner shuts the gate and then looks at the flags. Both do so in one total order, so either
//! the peer sees a shut gate, or the owner sees the flag and knows whom it waits for.
//!
//! What keeps a flag up is not always a copy: its process may have died in the middle, or started
//! another program, which keeps pid and start time. So each side holds a lock on a byte of the file,
//! of its own open file description, which the kernel drops with the last descriptor and mapping of
//! it: the owner on byte 0, a peer on that of its slot. A flag whose lock is gone means nothing, and
//! an owner whose lock is gone is none any more.
//!
//! A forked child that has not called `exec` keeps the descriptor, and the lock with it. A dead
//! peer's lock is therefore not believed; but a peer that forks, is in the middle of a copy, and
//! starts another program is waited for until that child is gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::errno::failed;
use super::identity::ProcessId;
use super::locks::{is_locked, lock, unlock};
use super::memory_file;
use super::words::{Words, sealed_size};
use crate::error::{Error, Result, Status, fail};

/// Bytes of the page. The layout is 64-bit words: line 0 is the header, each other line of 64 bytes
/// one peer's slot, so that peers do not share cache lines.
const BYTES: usize = 64 << 10;
const LINE: usize = 8;
const SLOTS: usize = BYTES / 64 - 1;

/// In messages.
const WHAT: &str = "cannot make the control page of a LOCAL transport";

const MAGIC_AT: usize = 0;
const INCARNATION_AT: usize = 1;
const STATE_AT: usize = 3;
const DIGEST_AT: usize = 4;
/// Says what the page is and which version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"DTGATE\0\x01");
const OPEN: u64 = 1;
const CLOSED: u64 = 2;

/// In a slot: word of the process that has it. A slot with 0 is probably free; who holds its lock
/// decides.
const OWNER: usize = 0;
/// In a slot: 1 while its process is inside a copy.
const ACTIVE: usize = 1;

/// Byte of the file that the owner of the page has locked.
const OWNER_BYTE: i64 = 0;

/// Byte of the file that the peer with this slot has locked.
fn byte_of(index: usize) -> i64 {
    index as i64 + 1
}

/// A mapped control page.
#[derive(Debug)]
pub(super) struct Page {
    words: Words,
}

impl Page {
    fn map(file: impl AsFd) -> rustix::io::Result<Page> {
        Ok(Page {
            words: Words::map(file, BYTES)?,
        })
    }

    fn slot(&self, index: usize) -> &[AtomicU64] {
        &self.words[LINE * (index + 1)..][..LINE]
    }

    /// False as soon as the owner has shut its gate.
    pub(super) fn is_open(&self) -> bool {
        self.words[STATE_AT].load(Ordering::SeqCst) == OPEN
    }
}

/// The owner's side.
#[derive(Debug)]
pub(super) struct Gate {
    page: Page,
    file: OwnedFd,
    incarnation: u128,
}

impl Gate {
    /// A new page with an open gate and a new incarnation.
    pub(super) fn create() -> Result<Gate> {
        let refused =
            |step: &'static str| move |errno: Errno| failed(format!("{WHAT}: {step}"), errno);
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| {
            Error::new(
                Status::Unavailable,
                format!("no random numbers for the transport's identity: {error}"),
            )
        })?;
        let incarnation = u128::from_ne_bytes(random);
        let file = memory_file::create(WHAT, "dt-control", BYTES as u64)?;
        // Nobody else knows the file yet.
        lock(&file, OWNER_BYTE).map_err(refused("locking it"))?;
        let page = Page::map(&file).map_err(refused("mmap"))?;
        page.words.set_pair(INCARNATION_AT, incarnation);
        let words = &page.words;
        words[STATE_AT].store(OPEN, Ordering::Relaxed);
        words[MAGIC_AT].store(MAGIC, Ordering::Release);
        Ok(Gate {
            page,
            file,
            incarnation,
        })
    }

    /// Tells peers what the metadata of this transport is. They believe no other: an address in it
    /// that somebody changed on the way would lead them to other memory of this process.
    pub(super) fn publish(&self, digest: u128) {
        self.page.words.set_pair(DIGEST_AT, digest);
    }

    /// The file that peers map.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The random number of this transport.
    pub(super) fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// False in a forked child, where the gate must not be touched.
    pub(super) fn is_here(&self) -> bool {
        self.page.words.is_here()
    }

    /// Shuts the gate: from now on nobody new comes in.
    pub(super) fn close(&self) {
        self.page.words[STATE_AT].store(CLOSED, Ordering::SeqCst);
    }

    /// After [`close`](Gate::close): the pid of a process that is still inside a copy, if any is.
    pub(super) fn still_inside(&self) -> Option<u32> {
        (0..SLOTS).find_map(|index| {
            let slot = self.page.slot(index);
            if slot[ACTIVE].load(Ordering::SeqCst) == 0 || !self.may_be_held(index) {
                return None;
            }
            let id = ProcessId::from_word(slot[OWNER].load(Ordering::SeqCst))?;
            (!id.is_dead()).then_some(id.pid())
        })
    }

    /// A doubt is a yes.
    fn may_be_held(&self, index: usize) -> bool {
        is_locked(&self.file, byte_of(index)).unwrap_or(true)
    }
}

/// The peer's side: its slot in the owner's page.
#[derive(Debug)]
pub(super) struct Slot {
    page: Page,
    /// The description that has the lock, and that the page is mapped from. Nobody else has it.
    file: OwnedFd,
    index: usize,
}

impl Slot {
    /// Takes a slot for the process `own` in the control page `file`, an open file description of
    /// its own, which must be that of the transport `incarnation` whose metadata has this digest.
    pub(super) fn claim(
        file: OwnedFd,
        incarnation: u128,
        digest: u128,
        own: ProcessId,
    ) -> Result<Slot> {
        let page = map_foreign(&file, incarnation)?;
        if page.words.pair(DIGEST_AT) != digest {
            fail!(
                InvalidArg,
                "agent_metadata is not what the peer gave out: something was changed on the way"
            );
        }
        let unowned = |index: &usize| page.slot(*index)[OWNER].load(Ordering::SeqCst) == 0;
        // What ended without a word has left its name, but not its lock: after the likely ones, all.
        for index in (0..SLOTS).filter(unowned).chain(0..SLOTS) {
            let locked = lock(&file, byte_of(index))
                .map_err(|errno| failed("locking a slot of the peer's control page", errno))?;
            if locked {
                let slot = page.slot(index);
                slot[ACTIVE].store(0, Ordering::SeqCst);
                slot[OWNER].store(own.to_word(), Ordering::SeqCst);
                return Ok(Slot { page, file, index });
            }
        }
        fail!(
            NoMemory,
            "the peer has {SLOTS} connections, which is the limit: some of its other peers must remove it first"
        );
    }

    /// True when the owner of the page still has it open.
    pub(super) fn is_owned(&self) -> bool {
        // The kernel needs memory to answer. Without an answer nothing has changed.
        is_locked(&self.file, OWNER_BYTE).unwrap_or(true)
    }

    /// False as soon as the owner has shut its gate.
    pub(super) fn is_open(&self) -> bool {
        self.page.is_open()
    }

    /// Goes in: while the result lives, the owner's memory stays. `None` when the gate is shut.
    pub(super) fn enter(&self) -> Option<Pass<'_>> {
        let active = &self.page.slot(self.index)[ACTIVE];
        active.store(1, Ordering::SeqCst);
        let pass = Pass(active);
        self.page.is_open().then_some(pass)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A forked child has a copy of this value, but neither the page nor a right to the slot.
        if self.page.words.is_here() {
            self.page.slot(self.index)[OWNER].store(0, Ordering::SeqCst);
            // Closing the file would not be enough while such a child has it.
            unlock(&self.file, byte_of(self.index));
        }
    }
}

/// The right to touch the owner's memory, until dropped.
#[derive(Debug)]
pub(super) struct Pass<'a>(&'a AtomicU64);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // Release: whoever sees the flag down, or learns of the copies later, sees their bytes.
        self.0.store(0, Ordering::Release);
    }
}

/// Maps the control page that a peer's `file` is, and checks that it is one, of `incarnation`.
fn map_foreign(file: impl AsFd, incarnation: u128) -> Result<Page> {
    let not_one = |what: &str| {
        Error::new(
            Status::PeerLost,
            format!("the peer's control page is {what}"),
        )
    };
    if sealed_size(&file, "the peer's control page")? != BYTES as u64 {
        return Err(not_one("not of the right size"));
    }
    let page =
        Page::map(&file).map_err(|errno| failed("mapping the peer's control page", errno))?;
    if page.words[MAGIC_AT].load(Ordering::Acquire) != MAGIC {
        return Err(not_one("not one of this version of the library"));
    }
    if page.words.pair(INCARNATION_AT) != incarnation {
        return Err(not_one("that of another transport: the peer has restarted"));
    }
    Ok(page)
}

#[cfg(test)]
mod tests;
