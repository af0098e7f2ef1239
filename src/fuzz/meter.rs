//! How much memory a piece of work takes: an allocator that counts what the current thread has, and
//! can refuse.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Counting {
    /// Runs `alloc`, which is to get `size` bytes and gives `freed` bytes back.
    fn count(size: usize, freed: usize, alloc: impl FnOnce() -> *mut u8) -> *mut u8 {
        if size > LIMIT.get() {
            return std::ptr::null_mut();
        }
        let place = alloc();
        if !place.is_null() {
            let in_use = IN_USE.get().wrapping_sub(freed).wrapping_add(size);
            IN_USE.set(in_use);
            // What was allocated before the measurement may be freed in it.
            if in_use <= isize::MAX as usize {
                PEAK.set(PEAK.get().max(in_use));
            }
        }
        place
    }
}

// SAFETY: every call goes on to `System` as it came, or fails; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: as the trait asks; a null pointer says that there is no memory.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        Counting::count(layout.size(), 0, || unsafe { System.alloc(layout) })
    }

    // SAFETY: as for `alloc`.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        Counting::count(layout.size(), 0, || unsafe { System.alloc_zeroed(layout) })
    }

    // SAFETY: as the trait asks; after a null pointer the old memory is still there.
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count(size, layout.size(), || {
            // SAFETY: `alloc` had it from `System` with this layout.
            unsafe { System.realloc(ptr, layout, size) }
        })
    }

    // SAFETY: as the trait asks.
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get().wrapping_sub(layout.size()));
        // SAFETY: `alloc` had it from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, and the most bytes that it had at one time.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    IN_USE.set(0);
    PEAK.set(0);
    let result = work();
    (result, PEAK.get())
}

/// `work` where no allocation may be larger than `limit` bytes.
pub fn limited<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    LIMIT.set(limit);
    let result = work();
    LIMIT.set(usize::MAX);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_counts() {
        let (len, peak) = measured(|| {
            drop(vec![0u8; 5000]);
            let mut grows = vec![1u8; 3000];
            grows.reserve_exact(1000);
            grows.len()
        });
        assert_eq!(len, 3000);
        assert!((5000..7000).contains(&peak), "{peak}");
        let refused = limited(100, || Vec::<u8>::new().try_reserve_exact(101));
        assert!(refused.is_err());
    }
}
