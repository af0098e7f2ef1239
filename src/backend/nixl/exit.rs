//! Whether this process is exiting so far that NIXL cannot be called any more.
//!
//! Handlers of atexit and destructors of static objects run in the reverse of the order in which they
//! were registered. NIXL's own static objects are made with the first agent, so what a program has
//! registered before it made a transport runs when they are gone. It may close the transport there.

use std::any::Any;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// What cannot be given back. It is not lost, which is what a search for leaks would take it for.
static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// From now on the exit is noticed, before NIXL's objects go. An agent was made.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as this library, and the C library forgets it when the
        // library is unloaded. Without a place for it (the result) the exit is not noticed.
        unsafe { libc::atexit(begin) };
    });
}

/// NIXL is not to be called any more.
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// Keeps for ever what cannot be dropped without calling NIXL.
pub fn keep(value: impl Send + 'static) {
    // In a forked child another thread of the parent may have had the lock: then it is forgotten.
    match KEPT.try_lock() {
        Some(mut kept) => kept.push(Box::new(value)),
        None => std::mem::forget(value),
    }
}

extern "C" fn begin() {
    BEGUN.store(true, Ordering::Relaxed);
}
