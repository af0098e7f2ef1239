//! Whether this process is exiting so far that NIXL cannot be called any more.
//!
//! Handlers of atexit and destructors of static objects run in the reverse of the order in which they
//! were registered. NIXL's own static objects are made with the first agent, so what a program has
//! registered before it made a transport runs when they are gone. It may close the transport there.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static BEGUN: AtomicBool = AtomicBool::new(false);

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

extern "C" fn begin() {
    BEGUN.store(true, Ordering::Relaxed);
}
