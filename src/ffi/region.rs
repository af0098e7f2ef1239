//! Memory that peers can map.

use std::ffi::c_void;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;

use super::args::Out;
use super::guard;
use super::status::dt_status;
use crate::backend::local::alloc;

/// Allocates memory for a region that peers on the same host reach in the fastest way: zeroed,
/// backed by a memfd that is sealed against shrinking, and mapped at a multiple of 2 MiB. To use
/// it, set region_fd to *fd, region_offset to the offset of the region's base in it (0 for *base),
/// and region_has_fd.
///
/// The memory is taken from the system here and now, in huge pages of 2 MiB, from the NUMA node
/// that the calling thread's memory comes from; that takes as long as to write all of it once. The
/// exceptions: what is left after five seconds, all of a region larger than half of the memory that
/// the system or a control group has left, what would take more than that together with others, the
/// last part of a size that is no multiple of 2 MiB, and kernels that cannot do it (before Linux
/// 6.1) or refuse memory. Such pages are small, and are taken when they are touched first: if there
/// are none left then, the system ends a process, and no call can tell. Where the kernel finds no
/// huge pages, because its memory is in pieces, small ones are taken at once.
///
/// Memory and descriptor belong to the caller, who gives them to dt_region_free when no open
/// transport uses them any more.
///
/// @param bytes  size, at least 1.
/// @param base   where the address goes, written on DT_OK only.
/// @param fd     where the file descriptor goes, written on DT_OK only. It is close-on-exec.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: a pointer is NULL, or bytes is 0 or more than there can be
/// - DT_ERR_NO_MEMORY: the system has no memory, address space or file descriptors for it, or a
///   limit of the process (RLIMIT_FSIZE) forbids so much
/// - DT_ERR_UNAVAILABLE: the system does not permit memory files (memfd_create)
/// - DT_ERR_BACKEND: the system refused for another reason
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_region_alloc(
    bytes: usize,
    base: *mut *mut c_void,
    fd: *mut i32,
) -> dt_status {
    guard::call("dt_region_alloc", || {
        // SAFETY: the pointers are as the header says.
        let (base, fd) = unsafe { (Out::new("base", base)?, Out::new("fd", fd)?) };
        let (address, file) = alloc::alloc(bytes)?;
        base.write(ptr::with_exposed_provenance_mut(address));
        fd.write(file.into_raw_fd());
        Ok(())
    })
}

/// Unmaps memory of dt_region_alloc and closes its file descriptor.
///
/// All three must be what one dt_region_alloc gave or was given: what is unmapped and closed is
/// what they name, whatever that is by now. Only when bytes is 0, or base is not where a region can
/// begin, that is seen: then nothing is unmapped or closed, and the log has a warning.
///
/// @param base   the address that dt_region_alloc gave. NULL: nothing is done, whatever fd is.
/// @param bytes  the size that was asked for.
/// @param fd     its file descriptor; a negative one is not closed (the caller has closed it).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_region_free(base: *mut c_void, bytes: usize, fd: i32) {
    if base.is_null() {
        return;
    }
    guard::value("dt_region_free", (), || {
        if !alloc::can_be_freed(base.addr(), bytes) {
            return Ok(());
        }
        // SAFETY: base and bytes are those of dt_region_alloc and no longer used, as the header
        // says.
        unsafe { alloc::free(base.addr(), bytes) };
        if fd >= 0 {
            // SAFETY: the descriptor of dt_region_alloc, which the caller gives back here.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    });
}
