//! Words of a memory file that several processes have mapped: how transports leave each other signs
//! without system calls.

use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};

use super::errno::failed;
use super::mapping::Mapping;
use crate::error::{Result, fail};

/// The first words of a file. The other processes that map it may write anything anywhere in it.
#[derive(Debug)]
pub(super) struct Words {
    mapping: Mapping,
    count: usize,
}

impl Words {
    /// Maps the first `bytes` bytes of `file`, which has at least as many, and whose size is sealed.
    pub(super) fn map(file: impl AsFd, bytes: usize) -> rustix::io::Result<Words> {
        Ok(Words {
            mapping: Mapping::anywhere(file, 0, bytes)?,
            count: bytes / size_of::<AtomicU64>(),
        })
    }

    /// False in a forked child, where the words must not be touched.
    pub(super) fn is_here(&self) -> bool {
        self.mapping.is_here()
    }

    /// A number of two words.
    pub(super) fn pair(&self, at: usize) -> u128 {
        let word = |at: usize| u128::from(self[at].load(Ordering::Acquire));
        word(at) << 64 | word(at + 1)
    }

    /// Writes a number of two words.
    pub(super) fn set_pair(&self, at: usize, number: u128) {
        self[at].store((number >> 64) as u64, Ordering::Release);
        self[at + 1].store(number as u64, Ordering::Release);
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        let start = self.mapping.address() as *const AtomicU64;
        // SAFETY: the mapping has this many words, starts at a page, lives as long as `self`, and
        // the size of its file is sealed, so that no access can fail. Others change it, hence
        // atomics. Nothing calls this in a forked child, where the mapping does not exist.
        unsafe { std::slice::from_raw_parts(start, self.count) }
    }
}

/// The size of a foreign file, which nobody can cut short: with a mapping of one that its owner can,
/// this process would get SIGBUS. `what` it is goes into the error.
pub(super) fn sealed_size(file: impl AsFd, what: &str) -> Result<u64> {
    let seals = match fcntl_get_seals(&file) {
        Ok(seals) => seals,
        Err(_) => fail!(PeerLost, "{what} is not a sealed file"),
    };
    if !seals.contains(SealFlags::SHRINK) {
        fail!(PeerLost, "{what} is not sealed: its size could change");
    }
    match fstat(&file) {
        Ok(stat) => Ok(stat.st_size as u64),
        Err(errno) => Err(failed(format!("looking at {what}"), errno)),
    }
}
