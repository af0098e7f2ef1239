//! Memory mappings as values: mapped when made, unmapped when dropped.

use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

use rustix::io::{self, Errno};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::memory_file::FIRST_FD;
use crate::log::log;
use crate::process::Home;

/// Mappings start on this boundary of their file, so that the kernel may use huge pages for them.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Bytes of one page.
pub(super) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// `bytes` rounded up to whole pages, if there is such a number.
pub(super) fn whole_pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(page_size())
}

/// A second descriptor for what `fd` (any number a caller may have passed) stands for, closed on exec.
pub(super) fn duplicate(fd: RawFd) -> std::io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes any integer and answers EBADF to one that is not a descriptor.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, FIRST_FD) };
    if copy < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Part of a file in this process's address space, shared, readable and writable.
#[derive(Debug)]
pub(super) struct Mapping {
    address: usize,
    len: usize,
    home: Home,
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on, wherever the kernel likes. Forked children do
    /// not get the mapping: they have no use for it, and would keep its memory alive. Both numbers
    /// are multiples of the page size of the file where its pages are huge: such a mapping can be
    /// removed only as a whole.
    pub(super) fn anywhere(file: impl AsFd, offset: u64, len: usize) -> io::Result<Mapping> {
        // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
        let address = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, file, offset)? };
        Mapping {
            address: address as usize,
            len,
            home: Home::here(),
        }
        .without_fork()
    }

    /// As [`Mapping::anywhere`], at an address that equals `offset` modulo 2 MiB. `offset` is a
    /// multiple of the page size.
    pub(super) fn for_huge_pages(file: impl AsFd, offset: u64, len: usize) -> io::Result<Mapping> {
        let address = map_aligned(file, offset, len)?;
        Mapping {
            address,
            len,
            home: Home::here(),
        }
        .without_fork()
    }

    fn without_fork(self) -> io::Result<Mapping> {
        // SAFETY: this advice changes nothing in this process, and the range is our own mapping.
        unsafe { madvise(self.address as *mut _, self.len, Advice::LinuxDontFork)? };
        Ok(self)
    }

    /// First address.
    pub(super) fn address(&self) -> usize {
        self.address
    }

    /// False in a forked child, where nothing, or something else, is mapped at the address.
    pub(super) fn is_here(&self) -> bool {
        self.home.is_here()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: mapped when this value was made, and users of the memory keep the value.
            unsafe { unmap(self.address, self.len) };
        }
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Maps a file at an address that equals `offset` modulo 2 MiB; returns the address.
pub(super) fn map_aligned(file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
    let whole = len.checked_add(HUGE_PAGE).ok_or(Errno::NOMEM)?;
    let nothing = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
    let space = unsafe { mmap_anonymous(null_mut(), whole, ProtFlags::empty(), nothing)? } as usize;
    let wanted = (offset % HUGE_PAGE as u64) as usize;
    let skip = wanted.wrapping_sub(space) % HUGE_PAGE;
    let start = space + skip;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: the range lies inside the space just reserved, which nothing else uses: `skip` is
    // below the 2 MiB that the reservation is longer than `len`.
    if let Err(error) = unsafe { mmap(start as *mut _, len, READ_WRITE, flags, file, offset) } {
        // SAFETY: the space reserved above, which nobody has been told of.
        unsafe { unmap(space, whole) };
        return Err(error);
    }
    // What was only reserved goes back; `len` may end inside a page, which belongs to the mapping.
    let end = whole_pages((start + len) as u64).unwrap_or(u64::MAX) as usize;
    // SAFETY: both ranges are of the space reserved above, before and behind the mapping.
    unsafe {
        unmap(space, skip);
        unmap(end, (space + whole).saturating_sub(end));
    }
    Ok(start)
}

/// Removes `len` bytes of mappings at `address`.
///
/// # Safety
///
/// The caller made them, nobody refers to them any more, and they were not removed before.
pub(super) unsafe fn unmap(address: usize, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: by the promise of the caller.
    if let Err(errno) = unsafe { munmap(address as *mut _, len) } {
        // Out of mappings, when the range is a part of one; anything else is a fault of ours.
        debug_assert!(
            errno == Errno::NOMEM,
            "munmap({address:#x}, {len}): {errno}"
        );
        log!(
            Error,
            "{len} bytes of memory at {address:#x} cannot be unmapped and are leaked: {errno}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsRawFd;

    #[test]
    fn huge_page_mappings_are_congruent_and_trimmed() {
        let file = memfd_create("dt-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 8 << 20).unwrap();
        let page = page_size();
        for offset in [0, page, (2 << 20) - page, 2 << 20, (4 << 20) + 3 * page] {
            let mapping = Mapping::for_huge_pages(&file, offset, 100).unwrap();
            assert_eq!(
                mapping.address() as u64 % HUGE_PAGE as u64,
                offset % HUGE_PAGE as u64
            );
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let start = format!(
                "{:x}-{:x} ",
                mapping.address(),
                mapping.address() as u64 + page
            );
            assert!(
                maps.lines().any(|line| line.starts_with(&start)),
                "{start} in\n{maps}"
            );
        }
    }

    #[test]
    fn what_cannot_be_mapped_is_refused_and_leaves_nothing() {
        let file = memfd_create("dt-test", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(
            map_aligned(&file, 0, usize::MAX - 5).unwrap_err(),
            Errno::NOMEM
        );
        assert_eq!(map_aligned(&file, 0, 1 << 50).unwrap_err(), Errno::NOMEM);
    }

    #[test]
    fn any_number_may_be_duplicated() {
        for fd in [-1, i32::MIN, i32::MAX, 1 << 20] {
            assert!(duplicate(fd).is_err());
        }
        let file = memfd_create("dt-test", MemfdFlags::CLOEXEC).unwrap();
        let copy = duplicate(file.as_raw_fd()).unwrap();
        let flags = rustix::io::fcntl_getfd(&copy).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
