//! Who a process is. A pid alone says little: numbers are used again, and mean something else in
//! another pid namespace or after a reboot.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::errno::{failed, unreadable};
use super::memory_file::above_stdio;
use crate::error::{Result, fail};

/// Bits of a pid; the kernel's own limit is 4 Mi.
const PID_BITS: u32 = 22;
/// Bits of a start time in clock ticks since boot: enough for 1,000 years.
const START_BITS: u32 = 64 - PID_BITS;

/// One process of this host: its pid, and when it started, in clock ticks since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessId {
    pid: u32,
    start: u64,
}

impl ProcessId {
    /// A process id, if the numbers can be ones.
    pub(super) fn new(pid: i64, start: u64) -> Option<ProcessId> {
        let fits = (1..1 << PID_BITS).contains(&pid) && start < 1 << START_BITS;
        fits.then_some(ProcessId {
            pid: pid as u32,
            start,
        })
    }

    /// The process that calls.
    pub(super) fn own() -> Result<ProcessId> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        // A /proc that belongs to another pid namespace shows other processes under our numbers.
        let shown = read_proc_link("/proc/self")?;
        if shown != own.to_string() {
            fail!(
                Unavailable,
                "/proc shows this process as {shown}, but its pid is {own}: mount the /proc of its own pid namespace"
            );
        }
        let path = "/proc/self/stat";
        let stat = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
        let start = parse_start_time(&stat);
        let Some(id) = start.and_then(|start| ProcessId::new(own.into(), start)) else {
            fail!(
                Unavailable,
                "{path} does not tell the start time of this process"
            );
        };
        Ok(id)
    }

    /// The pid.
    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// The start time, in clock ticks since boot.
    pub(super) fn start(self) -> u64 {
        self.start
    }

    /// Both numbers in one word, which is never 0.
    pub(super) fn to_word(self) -> u64 {
        self.start << PID_BITS | u64::from(self.pid)
    }

    /// The process that a word of [`to_word`](ProcessId::to_word) names.
    pub(super) fn from_word(word: u64) -> Option<ProcessId> {
        ProcessId::new((word & ((1 << PID_BITS) - 1)) as i64, word >> PID_BITS)
    }

    /// A descriptor of exactly this process, which becomes readable when the process ends.
    pub(super) fn open(self) -> Result<OwnedFd> {
        let pid = self.pid;
        let pidfd = match self.pidfd() {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => fail!(PeerLost, "process {pid} is gone"),
            // The number is now that of a thread in some other process.
            Err(Errno::INVAL | Errno::NOENT) => {
                fail!(
                    PeerLost,
                    "process {pid} is gone, its pid names another thread now"
                )
            }
            Err(errno @ (Errno::NOSYS | Errno::PERM | Errno::ACCESS)) => fail!(
                Unavailable,
                "pidfd_open of process {pid}: {errno}: it needs Linux 5.3, and a seccomp profile that permits it"
            ),
            Err(errno) => return Err(failed(format!("pidfd_open of process {pid}"), errno)),
        };
        // The descriptor is held while this is read: what is read belongs to the same process, or
        // to one that took over the number, which has another start time.
        match start_time(pid) {
            // From another time namespace nothing follows: the control page will tell.
            Ok(Some(start)) if start == self.start || shares_our_clock(pid) == Some(false) => {}
            Ok(Some(_)) => fail!(PeerLost, "process {pid} is another process now"),
            Ok(None) if has_ended(&pidfd) => fail!(PeerLost, "process {pid} is gone"),
            Ok(None) => fail!(
                Unavailable,
                "process {pid} exists but /proc/{pid} cannot be seen: /proc is mounted with hidepid; run both \
                 processes under one uid, or mount /proc without hidepid"
            ),
            Err(error) => return Err(unreadable(&format!("/proc/{pid}/stat"), &error)),
        }
        if has_ended(&pidfd) {
            fail!(PeerLost, "process {pid} is gone");
        }
        Ok(pidfd)
    }

    /// True when it is certain that no thread of this process runs any more. A doubt is a no.
    pub(super) fn is_dead(self) -> bool {
        let pidfd = match self.pidfd() {
            Ok(pidfd) => pidfd,
            Err(errno) => return matches!(errno, Errno::SRCH | Errno::INVAL | Errno::NOENT),
        };
        let is_another = matches!(start_time(self.pid), Ok(Some(start)) if start != self.start);
        is_another && shares_our_clock(self.pid) == Some(true) || has_ended(&pidfd)
    }

    fn pidfd(self) -> rustix::io::Result<OwnedFd> {
        let pid = Pid::from_raw(self.pid as i32).ok_or(Errno::SRCH)?;
        pidfd_open(pid, PidfdFlags::empty()).and_then(above_stdio)
    }
}

/// True when the process of a pidfd has ended; a zombie has.
pub(super) fn has_ended(pidfd: impl AsFd) -> bool {
    let pidfd = pidfd.as_fd();
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().contains(PollFlags::IN)
}

/// The machine, and the numbering of its processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Host {
    /// Changes with every boot.
    pub(super) boot_id: String,
    /// Inode of the pid namespace.
    pub(super) pid_ns: u64,
}

impl Host {
    /// The host of the process that calls.
    pub(super) fn own() -> Result<Host> {
        let path = "/proc/sys/kernel/random/boot_id";
        let boot_id = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        let path = "/proc/thread-self/ns/pid";
        let pid_ns = rustix::fs::stat(path)
            .map_err(|errno| unreadable(path, &errno.into()))?
            .st_ino;
        Ok(Host {
            boot_id: boot_id.trim().to_owned(),
            pid_ns,
        })
    }
}

fn read_proc_link(path: &str) -> Result<String> {
    let target = std::fs::read_link(path).map_err(|error| unreadable(path, &error))?;
    Ok(target.to_string_lossy().into_owned())
}

/// The start time of a process; `None` when there is none under this number, or none to be seen.
fn start_time(pid: u32) -> std::io::Result<Option<u64>> {
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_start_time(&stat)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// False when the process counts its time from another boot than this one, or may do so: the kernel
/// shows a start time by the clock of whoever reads it. `None`: we may not know.
fn shares_our_clock(pid: u32) -> Option<bool> {
    let namespace = |of: &str| match rustix::fs::stat(format!("/proc/{of}/ns/time")) {
        Ok(found) => Ok(Some(found.st_ino)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    };
    match (namespace("thread-self"), namespace(&pid.to_string())) {
        // Before Linux 5.6 there is one clock for all.
        (Ok(None), _) => Some(true),
        (Ok(ours), Ok(theirs)) => Some(ours == theirs),
        _ => None,
    }
}

/// Field 22 of `/proc/<pid>/stat`. The second field, the program's name, is in parentheses and may
/// hold anything, parentheses and spaces included: counting starts behind the last one.
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use std::process::{Command, Stdio};

    fn sleeper() -> std::process::Child {
        Command::new("sleep")
            .arg("1000")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn id_of(child: &std::process::Child) -> ProcessId {
        let start = start_time(child.id()).unwrap().unwrap();
        ProcessId::new(child.id().into(), start).unwrap()
    }

    #[test]
    fn names_in_stat_may_hold_anything() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20 21";
        for name in ["cat", "a b", ") S 1 2 3", "((", "\u{e9})"] {
            let stat = format!("12 ({name}) {tail}");
            assert_eq!(parse_start_time(stat.as_bytes()), Some(424242), "{name}");
        }
        for bad in [
            "",
            "12 (cat",
            "12 (cat) S 1 2",
            "12 (cat) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x",
        ] {
            assert_eq!(parse_start_time(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn words_keep_both_numbers() {
        for (pid, start) in [(1, 0), (4194303, (1 << 42) - 1), (77, 123456789)] {
            let id = ProcessId::new(pid, start).unwrap();
            assert_ne!(id.to_word(), 0);
            assert_eq!(ProcessId::from_word(id.to_word()), Some(id));
        }
        for (pid, start) in [(0, 1), (-1, 1), (4194304, 1), (i64::MAX, 1), (1, 1 << 42)] {
            assert_eq!(ProcessId::new(pid, start), None);
        }
        assert_eq!(ProcessId::from_word(0), None);
    }

    #[test]
    fn this_process_is_alive() {
        let own = ProcessId::own().unwrap();
        assert_eq!(own.pid(), std::process::id());
        assert!(!own.is_dead());
        assert!(!has_ended(own.open().unwrap()));
        assert_eq!(Host::own().unwrap().boot_id.len(), 36);
    }

    #[test]
    fn a_zombie_is_dead_and_a_stopped_process_is_not() {
        let mut child = sleeper();
        let id = id_of(&child);
        let pidfd = id.open().unwrap();
        let pid = Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        assert!(!id.is_dead());
        child.kill().unwrap();
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        // Nobody has waited for it yet: a zombie.
        assert!(id.is_dead() && has_ended(&pidfd));
        assert_eq!(id.open().unwrap_err().status, Status::PeerLost);
        child.wait().unwrap();
        assert!(id.is_dead());
        let error = id.open().unwrap_err();
        assert_eq!(
            (error.status, error.message),
            (Status::PeerLost, format!("process {} is gone", id.pid()))
        );
    }

    #[test]
    fn another_start_time_is_another_process() {
        let mut child = sleeper();
        let id = id_of(&child);
        let older = ProcessId {
            start: id.start - 1,
            ..id
        };
        assert!(older.is_dead() && !id.is_dead());
        let error = older.open().unwrap_err();
        assert_eq!(error.status, Status::PeerLost);
        assert!(error.message.contains("another process now"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_is_no_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            let _ = ended.recv();
        });
        let id = ProcessId::new(told.recv().unwrap().into(), 1).unwrap();
        assert!(id.is_dead());
        assert_eq!(id.open().unwrap_err().status, Status::PeerLost);
        drop(end);
        thread.join().unwrap();
    }
}
