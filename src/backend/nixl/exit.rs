//! Whether this process is exiting so far that NIXL cannot be called any more.
//!
//! Handlers of atexit and destructors of static objects run in the reverse of the order in which they
//! were registered. NIXL's own static objects are made with the first agent and its backend, so what a
//! program has registered before it made a transport runs when they are gone. It may close the
//! transport there, and its other threads may still be inside calls.

use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Result, fail};
use crate::process::{Home, PerProcess};

static BEGUN: AtomicBool = AtomicBool::new(false);

/// What cannot be given back. It is not lost, which is what a search for leaks would take it for.
static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// How many threads are inside NIXL.
static INSIDE: PerProcess<AtomicUsize> = PerProcess::new(|_| AtomicUsize::new(0));

thread_local! {
    /// How often this thread is.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// How long the exit waits for them. A poll over sockets can take long, and so can a first transport.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far NIXL is there. It registers something with each step.
pub enum Step {
    Unloaded,
    Loaded,
    Agent,
    Backend,
}

/// From now on the exit is noticed, before the objects of NIXL that there are by now go. `Err`: it has
/// begun.
pub fn watch(step: Step) -> Result<()> {
    static WATCHED: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
    if !WATCHED[step as usize].swap(true, Ordering::Relaxed) {
        // SAFETY: the function lives as long as this library, and the C library forgets it when the
        // library is unloaded. Without a place for it (the result) the exit is not noticed.
        unsafe { libc::atexit(begin) };
    }
    if BEGUN.load(Ordering::SeqCst) {
        fail!(Unavailable, "NIXL: the process exits");
    }
    Ok(())
}

/// As [`watch`], while there is a value that only NIXL can take back.
pub fn watch_with<T: Send + 'static>(step: Step, value: T) -> Result<T> {
    match watch(step) {
        Ok(()) => Ok(value),
        Err(error) => {
            keep(value);
            Err(error)
        }
    }
}

/// While one lives, NIXL can be called: the exit waits. A child that is forked meanwhile has a copy,
/// which counts for nothing there.
pub struct Inside {
    home: Home,
    count: &'static AtomicUsize,
}

/// `None` when NIXL is not to be called any more.
pub fn enter() -> Option<Inside> {
    // One order with `begin`: either this thread sees that it has begun, or it is waited for.
    let inside = Inside {
        home: Home::here(),
        count: INSIDE.get(),
    };
    inside.count.fetch_add(1, Ordering::SeqCst);
    MINE.set(MINE.get() + 1);
    (!BEGUN.load(Ordering::SeqCst)).then_some(inside)
}

impl Drop for Inside {
    fn drop(&mut self) {
        MINE.set(MINE.get() - 1);
        if self.home.is_here() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
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
    begin_with(PATIENCE);
}

fn begin_with(patience: Duration) {
    if BEGUN.swap(true, Ordering::SeqCst) {
        // It is registered more than once, and whoever is still inside has been waited for.
        return;
    }
    let deadline = Instant::now() + patience;
    // This thread may be inside itself, in a handler of a signal: it will not come back.
    while INSIDE.get().load(Ordering::SeqCst) > MINE.get() && Instant::now() < deadline {
        sleep(Duration::from_micros(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::in_a_child;

    /// The exit begins once in a process, so a child has to do it.
    #[test]
    fn the_exit_waits_once_for_a_call_that_does_not_end() {
        let status = in_a_child(|| {
            let (say, hear) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let _inside = enter().unwrap();
                say.send(()).unwrap();
                loop {
                    std::thread::park();
                }
            });
            hear.recv().unwrap();
            begin_with(Duration::from_millis(10));
            // Nobody sees the end of this, if it waits.
            begin_with(Duration::from_secs(1 << 20));
            enter().is_none() && watch(Step::Unloaded).is_err()
        });
        assert_eq!(status, 0);
    }

    #[test]
    fn a_child_is_not_inside() {
        let inside = enter().unwrap();
        let status = in_a_child(|| {
            drop(inside);
            let before = INSIDE.get().load(Ordering::SeqCst);
            let _own = enter();
            before == 0 && INSIDE.get().load(Ordering::SeqCst) == 1
        });
        assert_eq!(status, 0);
    }

    #[test]
    fn what_cannot_be_given_back_when_the_exit_has_begun_is_kept() {
        struct Fatal;
        impl Drop for Fatal {
            fn drop(&mut self) {
                // SAFETY: ends the child.
                unsafe { libc::_exit(3) };
            }
        }
        let status = in_a_child(|| {
            begin_with(Duration::ZERO);
            watch_with(Step::Backend, Fatal).is_err()
        });
        assert_eq!(status, 0);
    }
}
