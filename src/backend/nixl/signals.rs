//! The process's signals: UCX must not take them, and threads of ours must not get them.
//!
//! The constructor of UCX's library installs a handler for SIGHUP. A library that a program embeds
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

/// While it lives, no signal comes to this thread, nor to threads that it starts: a handler of the
/// program may need more than their small stacks.
pub struct Blocked(libc::sigset_t);

impl Blocked {
    pub fn all() -> Blocked {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the first call writes `all`; the second one, which cannot fail with this request,
        // writes `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Blocked(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that was there before; nobody wants to know this one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What this thread has blocked, without the two that cannot be and the libc's own.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }

    #[test]
    fn threads_that_are_started_meanwhile_get_no_signals() {
        let before = blocked();
        let while_blocked = Blocked::all();
        let thread = std::thread::spawn(blocked);
        let inherited = thread.join().unwrap();
        drop(while_blocked);
        let reachable = [
            libc::SIGHUP,
            libc::SIGUSR1,
            libc::SIGTERM,
            libc::SIGALRM,
            libc::SIGRTMAX(),
        ];
        for signal in reachable {
            assert_ne!(inherited & 1 << (signal - 1), 0, "{signal}");
        }
        assert_eq!(blocked(), before);
    }
}
