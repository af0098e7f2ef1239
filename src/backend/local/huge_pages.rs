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
            () => take(address + done, CHUNK.min(whole - done)).map_err(|error| error.to_string()),
        };
        if let Err(why) = result {
            log!(
                Debug,
                "{done} bytes of a region of {len} are in huge pages: {why}"
            );
            return;
        }
        done += CHUNK.min(whole - done);
    }
}

fn take(address: usize, len: usize) -> io::Result<()> {
    // A page table must be there; the rest of each huge page comes with the collapse.
    for page in (address..address + len).step_by(HUGE_PAGE) {
        // SAFETY: the caller's mapping; the advice makes a page come into being.
        unsafe {
            madvise(
                page as *mut _,
                page_size() as usize,
                Advice::LinuxPopulateWrite,
            )?
        };
    }
    // SAFETY: as above; the advice changes nothing but the size of pages.
    match unsafe { libc::madvise(address as *mut _, len, MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::alloc;

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
