//! Takes back what UCX does to the process's signals while it is loaded.
//!
//! The constructor of its library installs a handler for SIGHUP. A library that a program embeds
//! has no business there.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The dispositions of all signals at one time.
pub struct Signals(Vec<(c_int, libc::sigaction)>);

impl Signals {
    /// As they are now.
    pub fn save() -> Signals {
        let all = 1..=libc::SIGRTMAX();
        Signals(
            all.filter_map(|signal| Some((signal, disposition(signal)?)))
                .collect(),
        )
    }

    /// Gives back those that now belong to UCX. What other threads of the program installed
    /// meanwhile stays.
    pub fn restore(self) {
        for (signal, before) in self.0 {
            let changed = disposition(signal)
                .filter(|now| now.sa_sigaction != before.sa_sigaction)
                .is_some_and(|now| belongs_to_ucx(now.sa_sigaction));
            if changed {
                // SAFETY: `before` is what sigaction gave for this very signal.
                unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
            }
        }
    }
}

/// `None` for the numbers that libc keeps to itself.
fn disposition(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: with a NULL second argument the call only writes what is installed to `action`.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0;
    // SAFETY: on success it has been written.
    (!failed).then(|| unsafe { action.assume_init() })
}

fn belongs_to_ucx(handler: libc::sighandler_t) -> bool {
    let name = file_of(handler as *mut c_void)
        .as_deref()
        .and_then(|file| Path::new(file).file_name())
        .map(|name| name.as_bytes().starts_with(b"libuc"));
    name.unwrap_or(false)
}

/// The file that the code at `address` was loaded from.
pub fn file_of(address: *mut c_void) -> Option<std::ffi::OsString> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr takes any address, and writes `info` when it returns something other than 0.
    // The name lives as long as the library, which is not unloaded during this call.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        let name = info.assume_init().dli_fname;
        (!name.is_null()).then(|| OsStr::from_bytes(CStr::from_ptr(name).to_bytes()).to_owned())
    }
}
