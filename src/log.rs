//! The log: process-wide, silent unless asked for.
//!
//! Messages that arise inside a call are kept on the calling thread and delivered when the call has
//! let go of every lock ([`Batch`]), so that a callback may call the library again.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rustix::io::retry_on_intr;
use rustix::stdio::stderr;

use crate::process::PerProcess;

/// Severity, from what a person must see to what only a debugging one wants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
pub enum Level {
    /// Something is broken and stays so.
    Error = 1,
    /// Something failed, or works worse than it could.
    Warn = 2,
    /// What was chosen and why.
    Info = 3,
    /// Every transfer.
    Debug = 4,
}

/// Where messages go.
pub type Sink = Arc<dyn Fn(Level, &CStr) + Send + Sync>;

#[derive(Clone)]
enum Target {
    /// Nobody has set a callback: `$DT_LOG` decides, and stderr shows.
    Environment,
    Off,
    Callback {
        sink: Sink,
        max_level: i32,
    },
}

/// A child goes on with the parent's target, but has no part in its shares: threads that do not exist
/// in the child may have some. Where the parent was just changing it, no callback is the right one.
static TARGET: PerProcess<RwLock<Arc<Target>>> = PerProcess::new(|parents| {
    let target = match parents.map(RwLock::try_read) {
        None => Target::Environment,
        Some(None) => Target::Off,
        Some(Some(parents)) => Target::clone(&parents),
    };
    RwLock::new(Arc::new(target))
});
/// The highest level that is wanted; `UNREAD` until `$DT_LOG` was looked at.
static MAX_LEVEL: AtomicI32 = AtomicI32::new(UNREAD);
const UNREAD: i32 = -1;

static ENVIRONMENT_LEVEL: PerProcess<i32> =
    PerProcess::new(|parents| parents.copied().unwrap_or_else(environment_level));

fn environment_level() -> i32 {
    let Ok(wanted) = std::env::var("DT_LOG") else {
        return 0;
    };
    match wanted.to_ascii_lowercase().as_str() {
        "" | "off" => 0,
        "error" => Level::Error as i32,
        "warn" => Level::Warn as i32,
        "info" => Level::Info as i32,
        "debug" => Level::Debug as i32,
        _ => {
            // Whoever sets it wants a log: let him have one, and know.
            print(&format!(
                "DT_LOG is {wanted:?}, but it can be error, warn, info or debug: taken as warn"
            ));
            Level::Warn as i32
        }
    }
}

/// A line on stderr, past the standard library: a child that was forked while another thread wrote
/// would wait for that thread's lock.
fn print(message: &str) {
    // In one piece: other processes write there, too.
    let line = format!("libdatatransport: {message}\n");
    // A closed stderr is no reason to fail.
    let _ = retry_on_intr(|| rustix::io::write(stderr(), line.as_bytes()));
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static PENDING: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
    static IN_SINK: Cell<bool> = const { Cell::new(false) };
}

/// True when a message of `level` would go anywhere: ask before building a costly one.
pub fn enabled(level: Level) -> bool {
    let max = match MAX_LEVEL.load(Ordering::Relaxed) {
        UNREAD => {
            let wanted = *ENVIRONMENT_LEVEL.get();
            // Unless a callback was set meanwhile.
            let set =
                MAX_LEVEL.compare_exchange(UNREAD, wanted, Ordering::Relaxed, Ordering::Relaxed);
            set.map_or_else(|other| other, |_| wanted)
        }
        max => max,
    };
    level as i32 <= max
}

/// Sends messages up to `max_level` to `sink`; `None` switches the log off. When it returns, no
/// thread is inside the old sink, nor will one enter it. From inside a sink it does nothing.
pub fn set_sink(sink: Option<Sink>, max_level: i32) {
    if IN_SINK.get() {
        return;
    }
    let max_level = if sink.is_some() { max_level.max(0) } else { 0 };
    let new = sink.map_or(Target::Off, |sink| Target::Callback { sink, max_level });
    let mut old = {
        let mut target = TARGET.get().write();
        MAX_LEVEL.store(max_level, Ordering::Relaxed);
        std::mem::replace(&mut *target, Arc::new(new))
    };
    // Whoever delivers holds a share of the target. New messages go to the new one, so the shares of
    // the old one come to an end, however much is logged. Asked so, what they did with it has happened
    // before it goes, and before the caller takes down what the old sink used.
    while Arc::get_mut(&mut old).is_none() {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Takes a message. Use the macro [`log!`], which checks the level first.
pub fn emit(level: Level, message: String) {
    if DEPTH.get() > 0 {
        // While a thread ends, its list is gone: what arises then is dropped.
        let _ = PENDING.try_with(|pending| pending.borrow_mut().push((level, message)));
    } else {
        deliver(level, message);
    }
}

fn deliver(level: Level, message: String) {
    // A sink that makes the library log would otherwise call itself without end.
    if IN_SINK.replace(true) {
        return;
    }
    let target = TARGET.get().read().clone();
    match &*target {
        Target::Off => {}
        Target::Environment => {
            print(&message);
        }
        // The message was made for whatever sink was there then; this one may want less.
        Target::Callback { sink, max_level } => {
            if level as i32 <= *max_level
                && let Ok(text) = CString::new(message)
            {
                sink(level, &text);
            }
        }
    }
    drop(target);
    IN_SINK.set(false);
}

/// While one lives on a thread, the thread's messages wait; the outermost delivers them when dropped.
pub struct Batch(());

impl Batch {
    /// Starts a batch, or joins the one that this thread is in.
    pub fn open() -> Batch {
        DEPTH.set(DEPTH.get() + 1);
        Batch(())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            for (level, message) in PENDING.try_with(RefCell::take).unwrap_or_default() {
                deliver(level, message);
            }
        }
    }
}

/// `log!(Warn, "peer {id} is gone")`.
macro_rules! log {
    ($level:ident, $($arg:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::emit($crate::log::Level::$level, format!($($arg)+));
        }
    };
}
pub(crate) use log;

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe, stderr as standard};
    use std::sync::mpsc::channel;

    use super::*;
    use crate::process::in_a_child;

    #[test]
    fn a_child_writes_though_another_thread_was_writing_at_the_fork() {
        let (locked, is_locked) = channel();
        let (end, ends) = channel::<()>();
        let writer = std::thread::spawn(move || {
            let _lock = standard().lock();
            locked.send(()).unwrap();
            let _ = ends.recv();
        });
        is_locked.recv().unwrap();
        let (mut ours, theirs) = pipe().unwrap();
        let status = in_a_child(|| {
            rustix::stdio::dup2_stderr(&theirs).unwrap();
            print("one line");
            true
        });
        drop((end, theirs));
        writer.join().unwrap();
        assert_eq!(status, 0);
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text, "libdatatransport: one line\n");
    }
}
