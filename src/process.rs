//! Which process this is. After a `fork` the child has a copy of everything that the parent made, but
//! no right to it: mappings are missing, slots and descriptors are the parent's.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

/// The process in which a value was made. Comparing pids would cost a system call, and miss a child
/// that is the first of its own pid namespace, as its parent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home(u64);

impl Home {
    /// The process that calls.
    #[inline]
    pub fn here() -> Home {
        let Some(word) = word() else {
            return Home(u64::from(std::process::id()));
        };
        let known = word.load(Ordering::Relaxed);
        if known != 0 {
            return Home(known);
        }
        Home::first(word)
    }

    /// The first call in this process. A child goes on counting where its parent was.
    #[cold]
    fn first(word: &AtomicU64) -> Home {
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

/// Room for a whole page wherever it begins, on every machine. It is a part of the library, which
/// takes it along when it is unloaded.
static ROOM: [AtomicU64; 2 * LARGEST_PAGE / size_of::<AtomicU64>()] =
    [const { AtomicU64::new(0) }; _];
const LARGEST_PAGE: usize = 64 << 10;

/// A word that the kernel sets to 0 in every forked child. `None` where it cannot (before Linux 4.14):
/// then the pid has to do.
#[inline]
fn word() -> Option<&'static AtomicU64> {
    static PLACE: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const UNKNOWN: usize = usize::MAX;
    const KEPT: usize = usize::MAX - 1;

    // No lock: a child that is forked meanwhile would wait for it for ever. Twice is as good as once.
    let place = match PLACE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let place = wiped().unwrap_or(KEPT);
            PLACE.store(place, Ordering::Relaxed);
            place
        }
        known => known,
    };
    ROOM.get(place)
}

/// Has the page of a word in `ROOM` wiped, and says which word that is.
fn wiped() -> Option<usize> {
    let page = page_size().min(LARGEST_PAGE);
    let start = ROOM.as_ptr().addr().next_multiple_of(page);
    let place = (start - ROOM.as_ptr().addr()) / size_of::<AtomicU64>();
    let address = std::ptr::from_ref(&ROOM[place]).cast_mut().cast();
    // SAFETY: whole pages inside ROOM, of which only this word is used, or a part of one, which the
    // kernel refuses. The advice changes nothing in this process.
    unsafe { madvise(address, page, Advice::LinuxWipeOnFork) }.ok()?;
    Some(place)
}

/// A value that each process makes for itself. To a forked child, what the parent has is of no use: a
/// thread that does not exist there may have its lock, and be half way through changing it.
pub struct PerProcess<T> {
    /// Whose value it is, and whether it is made yet; 0: nobody's.
    home: AtomicU64,
    /// That of the first process that asked.
    first: UnsafeCell<MaybeUninit<T>>,
    /// That of a child, which leaves those of its parents where they are: what they hold is not lost,
    /// and the thread that forked may be using them. NULL: there is the first alone.
    later: AtomicPtr<Later<T>>,
    make: fn(Option<&T>) -> T,
}

struct Later<T> {
    value: T,
    /// For a search for leaks.
    _parents: *mut Later<T>,
}

/// In `home`: it is being made.
const UNFINISHED: u64 = 1 << 63;

// SAFETY: threads get shared references alone, and the value may have been made on any of them.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

impl<T> PerProcess<T> {
    /// `make` is called in every process that asks for the value. In a child it gets what the parent
    /// had, if anything: it must not wait for a lock there.
    pub const fn new(make: fn(Option<&T>) -> T) -> PerProcess<T> {
        PerProcess {
            home: AtomicU64::new(0),
            first: UnsafeCell::new(MaybeUninit::uninit()),
            later: AtomicPtr::new(std::ptr::null_mut()),
            make,
        }
    }

    /// The value of the process that calls.
    pub fn get(&self) -> &T {
        let Home(here) = Home::here();
        let mut home = self.home.load(Ordering::Acquire);
        while home != here {
            if home == here | UNFINISHED {
                // Another thread makes it, which does not take long.
                std::thread::yield_now();
                home = self.home.load(Ordering::Acquire);
                continue;
            }
            let claimed = self.home.compare_exchange(
                home,
                here | UNFINISHED,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            if let Err(other) = claimed {
                home = other;
                continue;
            }
            // The parent's is whole if it was finished. It is never dropped: that could touch what was
            // half changed.
            let inherited = home != 0 && home & UNFINISHED == 0;
            // SAFETY: it was written, by a parent, before `home` said so.
            let parents = inherited.then(|| unsafe { self.made() });
            let value = (self.make)(parents);
            if home == 0 {
                // SAFETY: this thread alone has claimed the value, and nobody has seen it.
                unsafe { (*self.first.get()).write(value) };
            } else {
                let later = Box::new(Later {
                    value,
                    _parents: self.later.load(Ordering::Relaxed),
                });
                self.later.store(Box::into_raw(later), Ordering::Relaxed);
            }
            self.home.store(here, Ordering::Release);
            home = here;
        }
        // SAFETY: it was written before `home` said so.
        unsafe { self.made() }
    }

    /// # Safety
    /// `home` was seen to name a process that has finished it.
    unsafe fn made(&self) -> &T {
        // SAFETY: what this points to was leaked, and is not changed.
        match unsafe { self.later.load(Ordering::Relaxed).as_ref() } {
            Some(later) => &later.value,
            // SAFETY: the caller has seen that it was made, and it is not written again.
            None => unsafe { (*self.first.get()).assume_init_ref() },
        }
    }
}

/// Wait status of a forked child that runs `body`, and has a minute for it.
#[cfg(test)]
pub(crate) fn in_a_child(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls nothing but what works in a copy of one thread, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a signal that ends the child.
        unsafe { libc::alarm(60) };
        let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: ends the child without running anything of the test program.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = -1;
    // SAFETY: `child` is a child of this process, and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_elsewhere() {
        let home = Home::here();
        assert!(home.is_here());
        let status = in_a_child(|| {
            let inside = Home::here();
            !home.is_here() && inside.is_here() && inside != home
        });
        assert_eq!(status, 0);
        assert!(home.is_here());
    }

    #[test]
    fn a_child_has_a_value_of_its_own() {
        use parking_lot::Mutex;

        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new(|parents| {
            // Locked for ever, in the child.
            let inherited = parents.is_some_and(|value| value.try_lock().is_none());
            Mutex::new(if inherited { 100 } else { 1 })
        });
        let mut guard = VALUE.get().lock();
        *guard += 1;
        let status = in_a_child(|| {
            *VALUE.get().lock() += 1;
            *VALUE.get().lock() == 101
        });
        assert_eq!(status, 0);
        assert_eq!(*guard, 2);
    }

    /// What the parent's holds is in use in the child, or would be a leak there.
    #[test]
    fn a_child_leaves_the_parents_value_alone() {
        static VALUE: PerProcess<Vec<u64>> =
            PerProcess::new(|parents| vec![parents.map_or(1, |parents| parents[0] + 1)]);
        let first = VALUE.get();
        let status = in_a_child(|| {
            let second = VALUE.get();
            let third = in_a_child(|| {
                let third = VALUE.get();
                // SAFETY: nothing writes there.
                let parents = unsafe { (*VALUE.later.load(Ordering::Relaxed))._parents.as_ref() };
                let reachable = parents.is_some_and(|parents| std::ptr::eq(&parents.value, second));
                (first[0], second[0], third[0], reachable) == (1, 2, 3, true)
            });
            third == 0 && std::ptr::eq(VALUE.get(), second)
        });
        assert_eq!(status, 0);
        assert!(std::ptr::eq(VALUE.get(), first));
    }

    #[test]
    fn a_value_is_made_once() {
        static MADE: AtomicU64 = AtomicU64::new(0);
        static VALUE: PerProcess<u64> =
            PerProcess::new(|_| MADE.fetch_add(1, Ordering::Relaxed) + 7);
        let values: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| *VALUE.get())).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(values, [7; 8]);
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
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
