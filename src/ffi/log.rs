//! The log callback.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::args;
use super::guard;
use crate::error::fail;
use crate::log::{self, Level};

/// How important a message is. A callback gets its own level and all more important ones.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum dt_log_level {
    /// Nothing.
    DT_LOG_OFF = 0,
    /// Something is broken and stays so.
    DT_LOG_ERROR = 1,
    /// Something failed, or works worse than it could.
    DT_LOG_WARN = 2,
    /// What was chosen, and why.
    DT_LOG_INFO = 3,
    /// The end of every transfer.
    DT_LOG_DEBUG = 4,
}

/// Takes one message: one line of UTF-8 without a newline, valid during the call only. user is what
/// was given to dt_set_log_callback.
///
/// It is called from any thread that is inside a library call, also from several at the same time,
/// when that call has done its work and is about to return. It may call the library, except that
/// dt_set_log_callback is ignored there, and that messages which arise inside the callback are
/// dropped. It must return: no C++ exception, no longjmp.
pub type dt_log_fn =
    Option<unsafe extern "C" fn(level: dt_log_level, message: *const c_char, user: *mut c_void)>;

/// The caller's pointer, which only the callback looks at.
struct User(*mut c_void);
// SAFETY: the header says that the callback is called from any thread, so its pointer is meant to
// be.
unsafe impl Send for User {}
// SAFETY: as above, also from several threads at the same time.
unsafe impl Sync for User {}

impl From<Level> for dt_log_level {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => dt_log_level::DT_LOG_ERROR,
            Level::Warn => dt_log_level::DT_LOG_WARN,
            Level::Info => dt_log_level::DT_LOG_INFO,
            Level::Debug => dt_log_level::DT_LOG_DEBUG,
        }
    }
}

/// Sets where log messages of the whole process go. Until the first call, the environment variable
/// DT_LOG ("error", "warn", "info" or "debug") sends them to stderr, and without it there are none.
///
/// When it returns, the callback that was set before is not running in any thread and will not be
/// called again, so that its user data may be freed. The caller must therefore not hold a lock that
/// the old callback takes.
///
/// @param fn         the callback. NULL: no log at all, whatever DT_LOG says.
/// @param user       passed to each call of fn; may be NULL.
/// @param max_level  the least important level that is wanted; DT_LOG_OFF: none. With an unknown
///                   level nothing is changed, and dt_last_error says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_set_log_callback(
    r#fn: dt_log_fn,
    user: *mut c_void,
    max_level: MaybeUninit<dt_log_level>,
) {
    guard::value("dt_set_log_callback", (), || {
        // SAFETY: an argument is always initialised.
        let max_level = unsafe { args::enum_value(max_level) };
        let last = dt_log_level::DT_LOG_DEBUG as i32;
        if !(dt_log_level::DT_LOG_OFF as i32..=last).contains(&max_level) {
            fail!(
                InvalidArg,
                "max_level is {max_level}, but levels go from 0 to {last}"
            );
        }
        let user = User(user);
        let sink = r#fn.map(|callback| -> log::Sink {
            Arc::new(move |level: Level, message: &CStr| {
                let User(user) = &user;
                // SAFETY: a callback of this type, with the pointer that was given along with it.
                unsafe { callback(level.into(), message.as_ptr(), *user) }
            })
        });
        log::set_sink(sink, max_level);
        Ok(())
    });
}
