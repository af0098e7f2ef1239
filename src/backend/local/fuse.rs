//! The fuse: what stops a `process_vm` copy that comes too late.
//!
//! A peer looks at the gate, and then calls the kernel to copy. Between the two it can be stopped for
//! any time, long after this transport was closed by force and its addresses mean other memory. So
//! each such call begins with one byte of a page that is accessible only as long as the gate is
//! open: the kernel takes the pieces of a call in their order and ends at the first that fails.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use super::mapping::{page_size, unmap};
use crate::process::Home;

/// The owner's side: a page of its address space.
#[derive(Debug)]
pub(super) struct Fuse {
    address: usize,
    home: Home,
    /// The page was given back to the kernel: it may be somebody else's.
    gone: AtomicBool,
}

impl Fuse {
    /// A whole fuse.
    pub(super) fn create() -> io::Result<Fuse> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
        let address = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len(), rights, MapFlags::PRIVATE)? as usize
        };
        Ok(Fuse {
            address,
            home: Home::here(),
            gone: AtomicBool::new(false),
        })
    }

    /// Where peers find it.
    pub(super) fn address(&self) -> u64 {
        self.address as u64
    }

    /// From now on no `process_vm` call that begins here copies anything.
    pub(super) fn blow(&self) {
        if self.is_ours() {
            // SAFETY: the page is ours, and nobody refers to it but the kernel on behalf of peers.
            let blown = unsafe { mprotect(self.address as *mut _, len(), MprotectFlags::empty()) };
            // It can fail only for want of memory for the kernel's books; giving the page away
            // altogether needs none.
            if blown.is_err() {
                // SAFETY: as above, and marked as no longer ours.
                unsafe { unmap(self.address, len()) };
                self.gone.store(true, Ordering::Relaxed);
            }
        }
    }

    fn is_ours(&self) -> bool {
        self.home.is_here() && !self.gone.load(Ordering::Relaxed)
    }

    /// Leaves the blown fuse where it is for the life of the process: a peer may still come to it.
    pub(super) fn abandon(self) {
        std::mem::forget(self);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the page was mapped by `create`, and nobody of this process refers to it.
            unsafe { unmap(self.address, len()) };
        }
    }
}

fn len() -> usize {
    page_size() as usize
}
