//! What surrounds every call from C. A panic becomes `DT_ERR_INTERNAL` and breaks the transport,
//! log messages go out when the call holds no lock any more, and a failure leaves its sentence for
//! `dt_last_error`.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::handle::{dt_transport, handle};
use super::last_error::{self, Line, line, text};
use super::status::{DT_OK, dt_status};
use crate::error::{Error, Result, Status};
use crate::log;
use crate::process::PerProcess;
use crate::transport::Transport;

// Plain values have no destructor, so these can be used until a thread has really ended, also by
// destructors of the caller's own thread-local data.
thread_local! {
    static PANIC: Cell<Line> = const { Cell::new(last_error::EMPTY) };
    /// Guarded calls that this thread is inside of; more than one when a log callback calls us.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Not a `Once`, which a child forked in the midst of it would wait for. Such a child leaves the hook as
/// it is, because the standard library's lock for it is in the midst, too.
static QUIET: PerProcess<()> = PerProcess::new(|_| {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if !TAKEN.swap(true, Ordering::Relaxed) {
        keep_panics_quiet();
    }
});

/// Runs a call that needs no handle.
pub(super) fn call(name: &str, body: impl FnOnce() -> Result<()>) -> dt_status {
    finish(run(name, None, body))
}

/// Runs a call that answers with something else than a status: `fallback` when it fails.
pub(super) fn value<T>(name: &str, fallback: T, body: impl FnOnce() -> Result<T>) -> T {
    run(name, None, body).unwrap_or_else(|error| {
        last_error::set(&error.message);
        fallback
    })
}

/// Runs a call on a handle.
///
/// # Safety
/// `t` is NULL, or points to readable memory; if that is a handle, it outlives the call.
pub(super) unsafe fn on(
    name: &str,
    t: *const dt_transport,
    body: impl FnOnce(&Transport) -> Result<()>,
) -> dt_status {
    // SAFETY: as the caller of this function promises.
    let outcome = match unsafe { handle(t) } {
        Ok(handle) => run(name, Some(&handle.transport), || body(&handle.transport)),
        Err(error) => Err(error),
    };
    finish(outcome)
}

fn finish(outcome: Result<()>) -> dt_status {
    match outcome {
        Ok(()) => DT_OK,
        Err(error) => {
            last_error::set(&error.message);
            error.status as dt_status
        }
    }
}

fn run<T>(
    name: &str,
    transport: Option<&Transport>,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    QUIET.get();
    let _uncancelled = Uncancelled::new();
    DEPTH.set(DEPTH.get() + 1);
    let batch = log::Batch::open();
    let outcome =
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err(panicked(name, transport)));
    // Delivers the log. The callback may call us and fail there, so our own last error comes after.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(batch)));
    DEPTH.set(DEPTH.get() - 1);
    outcome
}

/// While it lives, pthread_cancel of this thread waits. Cancelling unwinds the stack from inside a
/// system call: it would leave the transport half changed, and `catch_unwind` aborts on it.
struct Uncancelled(c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
/// As in the pthread.h of glibc and of musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

impl Uncancelled {
    fn new() -> Uncancelled {
        let mut old = 0;
        // SAFETY: a valid state, and room for the old one.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
        Uncancelled(old)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that was there before; nobody wants to know this one.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// The failure that a panic becomes. It must not panic again.
fn panicked(name: &str, transport: Option<&Transport>) -> Error {
    let what = PANIC.get();
    let fate = if transport.is_some() {
        "; the transport refuses further work"
    } else {
        ""
    };
    let message = format!(
        "{name} failed by a fault of the library ({}){fate}; please report it",
        text(&what)
    );
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(transport) = transport {
            transport.mark_broken();
        }
        log::log!(Error, "{message}");
    }));
    Error::new(Status::Internal, message)
}

/// Rust prints every panic to stderr. Panics inside a guarded call are kept for the last error
/// instead; all others go where they went before.
fn keep_panics_quiet() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if DEPTH.get() == 0 {
            return previous(info);
        }
        let payload = info.payload();
        let what = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let place = info
            .location()
            .map_or(String::new(), |at| format!(", {at}"));
        PANIC.set(line(&format!("{what}{place}")));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr;

    /// The last error of this thread.
    fn last_error_text() -> String {
        // SAFETY: it is NUL-terminated and nothing fails on this thread meanwhile.
        unsafe { CStr::from_ptr(last_error::dt_last_error()) }
            .to_str()
            .unwrap()
            .to_owned()
    }

    extern "C" fn dt_test_panic() -> dt_status {
        call("dt_test_panic", || panic!("index {} of nothing", 7))
    }

    extern "C" fn dt_test_panic_in_value() -> i32 {
        value("dt_test_panic_in_value", -7, || panic!("no value"))
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_sentence() {
        assert_eq!(dt_test_panic(), Status::Internal as i32);
        let sentence = last_error_text();
        assert!(
            sentence.starts_with("dt_test_panic failed by a fault"),
            "{sentence}"
        );
        assert!(sentence.contains("index 7 of nothing"), "{sentence}");
        assert!(sentence.contains("guard.rs:"), "{sentence}");
        assert_eq!(dt_test_panic_in_value(), -7);
        assert!(last_error_text().contains("no value"));
        assert_eq!(DEPTH.get(), 0);
    }

    unsafe extern "C" fn dt_test_panic_on(t: *mut dt_transport) -> dt_status {
        // SAFETY: the test passes a handle.
        unsafe { on("dt_test_panic_on", t, |_| panic!("in the middle")) }
    }

    #[test]
    fn a_panic_breaks_the_transport_it_happened_in() {
        use super::super::{push::dt_poll, transport};
        let mut memory = vec![0u8; 4096];
        let (mut broken, mut other) = (ptr::null_mut(), ptr::null_mut());
        let mut count = 7;
        // SAFETY: the memory and the results outlive the transports, which are destroyed once.
        unsafe {
            for t in [&mut broken, &mut other] {
                let base = memory.as_mut_ptr().cast();
                assert_eq!(transport::dt_create(base, 4, 1024, ptr::null(), t), DT_OK);
            }
            assert_eq!(dt_test_panic_on(broken), Status::Internal as i32);
            assert!(
                last_error_text().contains("in the middle"),
                "{}",
                last_error_text()
            );
            let mut poll = |t| dt_poll(t, ptr::null(), ptr::null_mut(), 0, &mut count);
            assert_eq!(poll(broken), Status::Internal as i32);
            assert_eq!(poll(other), DT_OK);
            assert_eq!(transport::dt_num_blocks(broken), 4);
            transport::dt_destroy(broken);
            transport::dt_destroy(other);
        }
    }

    #[test]
    fn success_leaves_the_last_error() {
        assert_eq!(
            call("f", || Err(Error::new(Status::Busy, "busy once"))),
            Status::Busy as i32
        );
        assert_eq!(call("f", || Ok(())), DT_OK);
        assert_eq!(last_error_text(), "busy once");
        std::thread::spawn(|| assert_eq!(last_error_text(), ""))
            .join()
            .unwrap();
    }
}
