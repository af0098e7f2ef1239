//! Huge pages for the memory of a region: one entry in a page table instead of 512, for us and for
//! every peer that maps it, and no fault per 4 KiB in the first copies.

use std::io;
use std::time::{Duration, Instant};

use rustix::mm::{Advice, madvise};

use super::available::available;
use super::mapping::{HUGE_PAGE, page_size};
use crate::log::log;

/// Memory is taken in pieces of this size: the kernel waits for all its processors in each.
const CHUNK: usize = 64 << 20;
/// Then the rest stays as it is: a caller waits for this.
const LONGEST: Duration = Duration::from_secs(5);
/// Since Linux 6.1. The crate libc has it for glibc alone.
const MADV_COLLAPSE: libc::c_int = 25;

/// Takes as many huge pages as fit into `len` bytes of a memory file that is mapped at `address`, a
/// multiple of their size, and that nobody uses yet. What cannot be had, or would take more than
/// half of what the system has left, stays without pages until it is touched.
pub(super) fn fill(address: usize, len: usize) {
    fill_by(address, len, collapse);
}

fn fill_by(address: usize, len: usize, collapse: impl Fn(usize, usize) -> io::Result<()>) {
    let whole = len / HUGE_PAGE * HUGE_PAGE;
    if whole == 0 {
        return;
    }
    let room = available().unwrap_or(0);
    let floor = room / 2;
    if whole as u64 > floor {
        log!(
            Debug,
            "a region of {len} bytes gets no memory in advance: {room} bytes are available"
        );
        return;
    }
    let deadline = Instant::now() + LONGEST;
    let mut done = 0;
    while done < whole {
        // Others may take memory at the same time.
        let scarce = || done > 0 && available().is_none_or(|room| room < floor);
        let result = match () {
            () if Instant::now() >= deadline => Err("it takes long".to_owned()),
            () if scarce() => Err("others use up memory".to_owned()),
            () => take(address + done, CHUNK.min(whole - done), &collapse)
                .map_err(|error| error.to_string()),
        };
        if let Err(why) = result {
            log!(
                Debug,
                "{done} bytes of a region of {len} are taken in advance: {why}"
            );
            return;
        }
        done += CHUNK.min(whole - done);
    }
}

fn take(
    address: usize,
    len: usize,
    collapse: impl Fn(usize, usize) -> io::Result<()>,
) -> io::Result<()> {
    // A page table must be there; the rest of each huge page comes with the collapse.
    for page in (address..address + len).step_by(HUGE_PAGE) {
        populate(page, page_size() as usize)?;
    }
    match collapse(address, len) {
        // This kernel cannot.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(error),
        // Its memory is in pieces, or a page is in use for a moment. There is enough of it: the caller
        // has just looked.
        Err(_) => populate(address, len),
        Ok(()) => Ok(()),
    }
}

fn populate(address: usize, len: usize) -> io::Result<()> {
    // SAFETY: the caller's mapping; the advice makes pages come into being.
    unsafe { madvise(address as *mut _, len, Advice::LinuxPopulateWrite)? };
    Ok(())
}

fn collapse(address: usize, len: usize) -> io::Result<()> {
    // SAFETY: as above; the advice changes nothing but the size of pages.
    match unsafe { libc::madvise(address as *mut _, len, MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{alloc, mapping, memory_file};
    use super::*;
    use std::cell::Cell;

    /// One piece that the kernel refuses to collapse does not end it, a kernel that cannot does.
    #[test]
    fn what_cannot_be_collapsed_comes_in_small_pages() {
        let len = CHUNK + HUGE_PAGE;
        for (errno, calls, taken) in [
            (libc::EAGAIN, 2, len),
            (libc::EBUSY, 2, len),
            (libc::ENOMEM, 2, len),
            (libc::EINVAL, 1, CHUNK / HUGE_PAGE * page_size() as usize),
        ] {
            let file = memory_file::create("test", "dt-test", len as u64).unwrap();
            let address = mapping::map_aligned(&file, 0, len).unwrap();
            let called = Cell::new(0);
            fill_by(address, len, |_, _| {
                called.set(called.get() + 1);
                Err(io::Error::from_raw_os_error(errno))
            });
            assert_eq!(called.get(), calls);
            let blocks = rustix::fs::fstat(&file).unwrap().st_blocks;
            assert_eq!(blocks as usize * 512, taken);
            // SAFETY: mapped above, and nobody refers to it.
            unsafe { mapping::unmap(address, len) };
        }
    }

    /// Nobody is frightened by a size that no memory is behind.
    #[test]
    fn more_than_there_is_stays_sparse() {
        let len = 64 << 40;
        let (address, file) = alloc::alloc(len).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks, 0);
        // SAFETY: from `alloc` above, freed once, never touched.
        unsafe { alloc::free(address, len) };
    }
}
