//! The file that a mailbox is: a directory of words, which both sides map, and the lanes behind it,
//! which nobody maps. They are read and written by the kernel, so that running out of memory is an
//! error and no signal, and so that what was checked is not changed afterwards.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::frames::{RING, stretches};
use crate::backend::local::errno::{failed, of_io};
use crate::backend::local::foreign::Kind;
use crate::backend::local::locks::{is_locked, lock, unlock};
use crate::backend::local::memory_file;
use crate::backend::local::program::Program;
use crate::backend::local::words::{Words, sealed_size};
use crate::error::{Result, fail};

/// Bytes of the directory: lines of 64 bytes, so that senders do not share cache lines. Line 0 is the
/// header, lines 1 and 2 are the bells, each other line is that of a lane.
const DIRECTORY: u64 = 64 << 10;
const LINE: usize = 8;
const FIRST_LANE: usize = 3;
/// Senders at a time.
pub(super) const LANES: usize = DIRECTORY as usize / 64 - FIRST_LANE;

const MAGIC_AT: usize = 0;
const INCARNATION_AT: usize = 1;
/// Says what the file is and which version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"DTMAIL\0\x01");
/// One bit for each lane, set by its sender after it has written.
const BELLS: Range<usize> = LINE..FIRST_LANE * LINE;
/// In the line of a lane: where the sender writes next.
const TAIL: usize = 0;
/// In the line of a lane: where the owner reads next.
const HEAD: usize = 1;
/// In the line of a lane: 1 while a sender has it. One with 0 is probably free; who holds its lock
/// decides.
const TAKEN: usize = 2;

/// Byte of the file that its owner has locked.
const OWNER_BYTE: i64 = 0;

/// In messages.
const WHAT: &str = "cannot make the mailbox of a LOCAL transport";
const FOREIGN: &str = "the peer's mailbox";

/// Byte of the file that the sender in this lane has locked.
fn byte_of(lane: usize) -> i64 {
    lane as i64 + 1
}

/// Where the ring of a lane begins.
fn ring_of(lane: usize) -> u64 {
    DIRECTORY + lane as u64 * RING
}

/// A mailbox, as its owner or a sender has it.
#[derive(Debug)]
pub(in crate::backend::local) struct MailFile {
    directory: Words,
    file: File,
    lanes: usize,
    /// Whose it is, where that is another process.
    reader: Option<Arc<Program>>,
}

impl MailFile {
    /// A new one, locked by its owner. Pages come into being when they are first written.
    pub(super) fn create(incarnation: u128) -> Result<MailFile> {
        // Where files may not be so large there is room for fewer senders.
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let lanes = (limit.saturating_sub(DIRECTORY) / RING).clamp(1, LANES as u64);
        let refused =
            |step: &'static str| move |errno: Errno| failed(format!("{WHAT}: {step}"), errno);
        let file = memory_file::create(WHAT, "dt-mail", DIRECTORY + lanes * RING)?;
        // A signal that comes at the wrong moment ends it.
        retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, DIRECTORY))
            .map_err(refused("memory for it"))?;
        // Nobody else knows the file yet.
        lock(&file, OWNER_BYTE).map_err(refused("locking it"))?;
        let directory = Words::map(&file, DIRECTORY as usize).map_err(refused("mmap"))?;
        directory.set_pair(INCARNATION_AT, incarnation);
        directory[MAGIC_AT].store(MAGIC, Ordering::Release);
        Ok(MailFile {
            directory,
            file: file.into(),
            lanes: lanes as usize,
            reader: None,
        })
    }

    /// The mailbox of the transport `incarnation`, which `file`, a description of its own, must be.
    pub(in crate::backend::local) fn of_peer(
        file: OwnedFd,
        kind: Kind,
        incarnation: u128,
    ) -> Result<MailFile> {
        let rings = sealed_size(&file, FOREIGN)?.checked_sub(DIRECTORY);
        let lanes = rings.map_or(0, |bytes| bytes / RING);
        let size_fits = rings.is_some_and(|bytes| bytes.is_multiple_of(RING))
            && (1..=LANES as u64).contains(&lanes);
        if kind != Kind::Plain || !size_fits {
            fail!(PeerLost, "{FOREIGN} is not of the right kind or size");
        }
        let directory = Words::map(&file, DIRECTORY as usize)
            .map_err(|errno| failed(format!("mapping {FOREIGN}"), errno))?;
        if directory[MAGIC_AT].load(Ordering::Acquire) != MAGIC {
            fail!(
                PeerLost,
                "{FOREIGN} is not one of this version of the library"
            );
        }
        if directory.pair(INCARNATION_AT) != incarnation {
            fail!(
                PeerLost,
                "{FOREIGN} is that of another transport: the peer has restarted"
            );
        }
        Ok(MailFile {
            directory,
            file: file.into(),
            lanes: lanes as usize,
            reader: None,
        })
    }

    /// Says what program it is that reads it.
    pub(in crate::backend::local) fn read_by(self, reader: Option<Arc<Program>>) -> MailFile {
        MailFile { reader, ..self }
    }

    /// What senders open.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// False in a forked child, which has no part in it.
    pub(super) fn is_here(&self) -> bool {
        self.directory.is_here()
    }

    /// How many there are.
    pub(super) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Where the sender writes next.
    pub(super) fn tail(&self, lane: usize) -> &AtomicU64 {
        self.word(lane, TAIL)
    }

    /// Where the owner reads next.
    pub(super) fn head(&self, lane: usize) -> &AtomicU64 {
        self.word(lane, HEAD)
    }

    fn word(&self, lane: usize, which: usize) -> &AtomicU64 {
        &self.directory[(FIRST_LANE + lane) * LINE + which]
    }

    /// The lanes, those first that seem to be free: to ask for a lock costs the more the more there are.
    pub(super) fn likely_lanes(&self) -> impl Iterator<Item = usize> {
        let seems_free = |lane: &usize| self.word(*lane, TAKEN).load(Ordering::Relaxed) == 0;
        // A sender that was killed has left its sign, but not its lock.
        (0..self.lanes).filter(seems_free).chain(0..self.lanes)
    }

    /// Tells the owner to look at a lane. What was written before is seen then.
    pub(super) fn ring_bell(&self, lane: usize) {
        let bells = &self.directory[BELLS];
        bells[lane / 64].fetch_or(1 << (lane % 64), Ordering::AcqRel);
    }

    /// The lanes whose bells were rung since the last call.
    pub(super) fn answer_bells(&self, mut rung: impl FnMut(usize)) {
        for (word, bells) in self.directory[BELLS].iter().enumerate() {
            // Mostly there is nothing, and then the line stays where it is.
            if bells.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = bells.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let lane = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if lane < self.lanes {
                    rung(lane);
                }
            }
        }
    }

    /// Has a lane to oneself; false when somebody else has it.
    pub(super) fn lock_lane(&self, lane: usize) -> rustix::io::Result<bool> {
        let locked = lock(&self.file, byte_of(lane))?;
        if locked {
            self.word(lane, TAKEN).store(1, Ordering::Relaxed);
        }
        Ok(locked)
    }

    /// Gives a lane back.
    pub(super) fn unlock_lane(&self, lane: usize) {
        self.word(lane, TAKEN).store(0, Ordering::Relaxed);
        unlock(&self.file, byte_of(lane));
    }

    /// True when the owner of the file still has it.
    pub(super) fn is_owned(&self) -> bool {
        // The kernel needs memory to answer. Without an answer nothing has changed.
        let locked = is_locked(&self.file, OWNER_BYTE).unwrap_or(true);
        // A child that the owner has forked has the lock, too.
        let runs = |program: &Arc<Program>| {
            !program.has_ended() && program.has_its_memory().unwrap_or(true)
        };
        locked && self.reader.as_ref().is_none_or(runs)
    }

    /// The owner's last word.
    pub(super) fn give_up(&self) {
        unlock(&self.file, OWNER_BYTE);
    }

    /// Writes into the ring of a lane, from `position` on.
    pub(super) fn write(&self, lane: usize, position: u64, bytes: &[u8]) -> Result<()> {
        let end = ring_of(lane) + RING;
        // Beyond this limit the kernel does not refuse, it sends SIGXFSZ.
        if let Some(limit) = getrlimit(Resource::Fsize).current
            && end > limit
        {
            fail!(
                NoMemory,
                "writing to {FOREIGN}: the limit for file sizes (RLIMIT_FSIZE, ulimit -f) is {limit} bytes, but {end} \
                 are needed"
            );
        }
        let [(at, first), (then, _)] = stretches(position, bytes.len());
        let (one, two) = bytes.split_at(first);
        self.file
            .write_all_at(one, ring_of(lane) + at)
            .and_then(|()| self.file.write_all_at(two, ring_of(lane) + then))
            .map_err(|error| failed(format!("writing to {FOREIGN}"), of_io(&error)))
    }

    /// Reads `bytes` bytes of the ring of a lane into `buffer`, from `position` on.
    pub(super) fn read(
        &self,
        lane: usize,
        position: u64,
        bytes: usize,
        buffer: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        buffer.clear();
        buffer.resize(bytes, 0);
        let [(at, first), (then, _)] = stretches(position, bytes);
        let (one, two) = buffer.split_at_mut(first);
        self.file.read_exact_at(one, ring_of(lane) + at)?;
        self.file.read_exact_at(two, ring_of(lane) + then)
    }

    /// Makes a lane new, which nobody else has.
    pub(super) fn empty_lane(&self, lane: usize) {
        // It only costs memory when this does not work.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.file, hole, ring_of(lane), RING);
        self.head(lane).store(0, Ordering::Release);
        self.tail(lane).store(0, Ordering::Release);
    }
}
