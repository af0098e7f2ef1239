//! Which process this is. After a `fork` the child has a copy of everything that the parent made, but
//! no right to it: mappings are missing, slots and descriptors are the parent's.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::sync::Lazy;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// The process in which a value was made. Comparing pids would cost a system call, and miss a child
/// that is the first of its own pid namespace, as its parent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home(u64);

impl Home {
    /// The process that calls.
    pub fn here() -> Home {
        let Some(word) = *WORD else {
            return Home(u64::from(std::process::id()));
        };
        let known = word.load(Ordering::Relaxed);
        if known != 0 {
            return Home(known);
        }
        // The first call in this process. A child goes on counting where its parent was.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let fresh = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Home(fresh),
            Err(other_thread) => Home(other_thread),
        }
    }

    /// False in a forked child of that process.
    pub fn is_here(self) -> bool {
        self == Home::here()
    }
}

/// A word that the kernel sets to 0 in every forked child. `None` where it cannot (before Linux 4.14):
/// then the pid has to do.
static WORD: Lazy<Option<&AtomicU64>> = Lazy::new(|| {
    let len = size_of::<AtomicU64>();
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
    let page =
        unsafe { mmap_anonymous(std::ptr::null_mut(), len, rights, MapFlags::PRIVATE).ok()? };
    // SAFETY: the range was just mapped, and the advice changes nothing in this process.
    unsafe { madvise(page, len, Advice::LinuxWipeOnFork).ok()? };
    // SAFETY: the page is zeroed, aligned, used by this word alone, and never unmapped.
    Some(unsafe { &*page.cast::<AtomicU64>() })
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_elsewhere() {
        let home = Home::here();
        assert!(home.is_here());
        // SAFETY: the child calls nothing but what works in a copy of one thread, and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let inside = Home::here();
            let fine = !home.is_here() && inside.is_here() && inside != home;
            // SAFETY: ends the child without running anything of the test program.
            unsafe { libc::_exit(i32::from(!fine)) };
        }
        let mut status = -1;
        // SAFETY: `child` is a child of this process, and `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(home.is_here());
    }

    #[test]
    fn all_threads_have_one_home() {
        let homes: Vec<Home> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(Home::here)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(homes.iter().all(|home| *home == Home::here()));
    }
}
