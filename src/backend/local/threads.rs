//! The threads of another process. What the kernel shows under the number of a process is that of its
//! first thread, and nothing when that has ended, as it may (`pthread_exit` in `main`) while the others
//! go on. And a thread can have descriptors of its own. So what is not there is looked for there.

use rustix::io::Errno;

use super::errno::{of_io, status_of};
use crate::error::Status;

/// All but the first; none when the process is gone.
pub(super) fn others(pid: u32) -> rustix::io::Result<Vec<u32>> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/task")).and_then(|folder| {
        folder
            .map(|entry| Ok(entry?.file_name().to_str().and_then(|tid| tid.parse().ok())))
            .collect::<std::io::Result<Vec<Option<u32>>>>()
    });
    match listed {
        Ok(listed) => Ok(listed
            .into_iter()
            .flatten()
            .filter(|tid| *tid != pid)
            .collect()),
        Err(error) => match of_io(&error) {
            errno if status_of(errno) == Status::NoMemory => Err(errno),
            _ => Ok(Vec::new()),
        },
    }
}

/// Looks under the number of the process, and, where that shows nothing, of its other threads; gives the
/// first that `look` finds, which is called with a folder of /proc. What there is to say when there is
/// none is said of the first thread, if that has not ended.
pub(super) fn find<T>(
    pid: u32,
    look: impl Fn(&str) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let own = format!("/proc/{pid}");
    let first = match look(&own) {
        Err(errno) if is_absent(errno) => errno,
        found => return found,
    };
    let mut verdict = None;
    for tid in others(pid)? {
        match look(&format!("{own}/task/{tid}")) {
            Err(errno) if is_absent(errno) => verdict = verdict.or(Some(errno)),
            found => return found,
        }
    }
    Err(verdict.filter(|_| first_has_ended(pid)).unwrap_or(first))
}

/// Of a thread that has ended, strangers are told that they may not look.
fn is_absent(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM
    )
}

fn first_has_ended(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything.
    let state = stat
        .iter()
        .rposition(|byte| *byte == b')')
        .and_then(|at| stat.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}
