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

/// While it lives, a file that would grow beyond RLIMIT_FSIZE is an error, on this thread and on those
/// that it starts, and not the end of the process by SIGXFSZ. UCX makes files of shared memory.
pub struct LargeFilesFail {
    before: libc::sigset_t,
    /// It was there before, and is the program's.
    was_pending: bool,
}

impl LargeFilesFail {
    pub fn hold() -> LargeFilesFail {
        let mut before = MaybeUninit::uninit();
        // SAFETY: the call, which cannot fail with this request, writes `before`.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &file_size_signal(), before.as_mut_ptr());
            before.assume_init()
        };
        LargeFilesFail {
            before,
            was_pending: is_pending(),
        }
    }

    /// The limit was met, on this thread.
    pub fn was_needed(&self) -> bool {
        !self.was_pending && is_pending()
    }
}

impl Drop for LargeFilesFail {
    fn drop(&mut self) {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: all pointers are to values that live here; the signal's details may be left out.
        unsafe {
            if self.was_needed() {
                libc::sigtimedwait(&file_size_signal(), std::ptr::null_mut(), &raw const now);
            }
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

fn file_size_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call writes `set`; the number is one of a signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
        set.assume_init()
    }
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the first call writes `pending`; the number is one of a signal.
    unsafe {
        libc::sigpending(pending.as_mut_ptr()) == 0
            && libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1
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

    /// Makes a file that is larger than permitted, in a child that has such a limit.
    fn meet_the_limit() -> bool {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = Rlimit {
            current: Some(1),
            ..getrlimit(Resource::Fsize)
        };
        setrlimit(Resource::Fsize, limit).unwrap();
        let file = memfd_create("dt-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(file, 2) == Err(rustix::io::Errno::FBIG)
    }

    #[test]
    fn a_limit_for_files_is_an_error_and_leaves_no_trace() {
        let status = crate::process::in_a_child(|| {
            let before = blocked();
            let held = LargeFilesFail::hold();
            let (failed, needed) = (meet_the_limit(), held.was_needed());
            drop(held);
            failed && needed && !is_pending() && blocked() == before
        });
        assert_eq!(status, 0);
        // Without it the same ends the process.
        let status = crate::process::in_a_child(meet_the_limit);
        assert_eq!(status & 0x7f, libc::SIGXFSZ);
    }

    #[test]
    fn the_programs_own_signal_stays() {
        let status = crate::process::in_a_child(|| {
            let programs = LargeFilesFail::hold();
            // SAFETY: it is blocked.
            unsafe { libc::raise(libc::SIGXFSZ) };
            let held = LargeFilesFail::hold();
            let (failed, needed) = (meet_the_limit(), held.was_needed());
            drop(held);
            let stays = failed && !needed && is_pending();
            drop(programs);
            stays
        });
        assert_eq!(status, 0);
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
