//! Memory for a region that peers can map: what `dt_region_alloc` and `dt_region_free` give and take.

use std::os::fd::OwnedFd;

use rustix::mm::{Advice, madvise};

use super::errno::failed;
use super::huge_pages;
use super::mapping::{HUGE_PAGE, map_aligned, unmap, whole_pages};
use super::memory_file;
use crate::error::{Result, fail};
use crate::log::log;

/// At least `bytes` of zeroed memory at a 2 MiB boundary, and the descriptor that backs it. It is
/// taken from the system at once, in huge pages, as far as that is harmless: see [`huge_pages`].
/// What is left comes into being when it is first touched.
///
/// The size is sealed, so that a peer that mapped the memory cannot be hit by SIGBUS, whatever
/// becomes of this process.
pub fn alloc(bytes: usize) -> Result<(usize, OwnedFd)> {
    if bytes == 0 {
        fail!(InvalidArg, "bytes is 0, but a region has at least one byte");
    }
    let len = whole_pages(bytes as u64).filter(|len| i64::try_from(*len).is_ok());
    let Some(len) = len else {
        fail!(
            InvalidArg,
            "bytes is {bytes}, which is more than any file can hold"
        );
    };
    let what = format!("cannot allocate {bytes} bytes for a region");
    let file = memory_file::create(&what, "dt-region", len)?;
    let address = map_aligned(&file, 0, len as usize)
        .map_err(|errno| failed(format!("{what}: mmap"), errno))?;
    // SAFETY: the advice changes nothing but the size of pages, and the range was just mapped.
    // Kernels without huge pages for shared memory refuse it, which costs speed only.
    let _ = unsafe { madvise(address as *mut _, len as usize, Advice::LinuxHugepage) };
    huge_pages::fill(address, len as usize);
    Ok((address, file))
}

/// False, and a warning, for what no [`alloc`] has given or was asked for.
pub fn can_be_freed(address: usize, bytes: usize) -> bool {
    let given = bytes > 0 && address.is_multiple_of(HUGE_PAGE);
    if !given {
        log!(
            Warn,
            "{bytes} bytes at {address:#x} are no region, which begins at a multiple of {HUGE_PAGE}: nothing is freed"
        );
    }
    given
}

/// Gives back the memory of one [`alloc`]. The descriptor is closed by its owner.
///
/// # Safety
///
/// `address` and `bytes` come from one call of `alloc`, this is the first `free` of it, and nobody
/// uses the memory any more.
pub unsafe fn free(address: usize, bytes: usize) {
    if let Some(len) = whole_pages(bytes as u64) {
        // SAFETY: `alloc` mapped just this, and by the promise of the caller it is no longer used.
        unsafe { unmap(address, len as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::local::mapping::page_size;
    use crate::error::Status;
    use rustix::fs::{SealFlags, fcntl_get_seals, ftruncate};
    use rustix::io::Errno;

    #[test]
    fn gives_zeroed_aligned_sealed_memory() {
        for bytes in [1, 4095, 4096, 4097, 5 << 20] {
            let (address, file) = alloc(bytes).unwrap();
            assert_eq!(address % HUGE_PAGE, 0);
            // SAFETY: `alloc` mapped this many bytes, and only this test knows of them.
            let memory = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) };
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert!(fcntl_get_seals(&file).unwrap().contains(SealFlags::SHRINK));
            assert_eq!(ftruncate(&file, 0).unwrap_err(), Errno::PERM);
            let size = rustix::fs::fstat(&file).unwrap().st_size as u64;
            assert_eq!(size, (bytes as u64).next_multiple_of(page_size()));
            // SAFETY: from `alloc` above, freed once; the slice is not used below.
            unsafe { free(address, bytes) };
        }
    }

    #[test]
    fn freed_memory_is_gone() {
        let (address, _file) = alloc(3 << 20).unwrap();
        let start = format!("{address:x}-");
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines()
                .any(|line| line.starts_with(&start) && line.contains("dt-region"))
        };
        assert!(is_mapped());
        // SAFETY: from `alloc` above, freed once, never touched.
        unsafe { free(address, 3 << 20) };
        assert!(!is_mapped());
    }

    #[test]
    fn refuses_what_no_machine_has() {
        assert_eq!(alloc(0).unwrap_err().status, Status::InvalidArg);
        assert_eq!(alloc(usize::MAX).unwrap_err().status, Status::InvalidArg);
        let error = alloc(1 << 60).unwrap_err();
        assert_eq!(error.status, Status::NoMemory);
        assert!(
            error.message.contains("1152921504606846976 bytes"),
            "{error}"
        );
    }
}
