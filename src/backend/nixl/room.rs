//! What UCX has to find before it is called. Where it cannot open a file, or make a thread, at some
//! moments of its start, it ends the process; at others, it cannot be started any more until the
//! process ends. So both are tried before.
//!
//! Other threads of the program may take what was found here. A limit that is simply reached, as most
//! are, becomes an error.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use super::signals::Blocked;
use crate::error::{Error, Result, Status, fail};

/// Files that an agent opens when it is made: about 20 without RDMA devices.
const FILES: usize = 64;
/// The same for each worker thread: 10. With all 64 of them it has to fit into the usual limit, 1024.
const FILES_OF_THREAD: usize = 12;
/// Files for an endpoint: one or two for each way to the peer.
const FILES_OF_PEER: usize = 16;

/// Bytes of a thread's stack that does nothing.
const STACK: usize = 64 << 10;

/// There is room for an agent with so many worker threads.
pub fn for_agent(workers: u32, progress_thread: bool) -> Result<()> {
    let workers = workers as usize;
    check_files("to start", FILES + workers * FILES_OF_THREAD)?;
    // UCX's own, which accepts connections, is there once for all agents.
    check_threads(1 + workers + usize::from(progress_thread))
}

/// There is room for one more endpoint.
pub fn for_peer() -> Result<()> {
    check_files("for a peer", FILES_OF_PEER)
}

/// What to say when UCX did not start because of that limit.
pub fn too_small_files() -> Error {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    Error::new(
        Status::NoMemory,
        format!(
            "the limit for file sizes (RLIMIT_FSIZE, ulimit -f) is {limit} bytes, which is too little for NIXL's shared \
             memory: raise it, or set UCX_TLS to a choice without that, as tcp"
        ),
    )
}

fn check_files(why: &str, count: usize) -> Result<()> {
    let open = || -> rustix::io::Result<Vec<OwnedFd>> {
        let first = eventfd(0, EventfdFlags::CLOEXEC)?;
        let others = (1..count).map(|_| fcntl_dupfd_cloexec(&first, 0));
        others.collect()
    };
    if let Err(errno) = open() {
        fail!(
            NoMemory,
            "NIXL may need {count} file descriptors {why}, and there are fewer ({errno}): raise the limit \
             (RLIMIT_NOFILE, ulimit -n)"
        );
    }
    Ok(())
}

fn check_threads(count: usize) -> Result<()> {
    // No handler of the program runs on them.
    let _blocked = Blocked::all();
    let end = Mutex::new(());
    let started: io::Result<()> = thread::scope(|scope| {
        // Until all are there.
        let _not_yet = end.lock();
        for _ in 0..count {
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, || drop(end.lock()))?;
        }
        Ok(())
    });
    if let Err(error) = started {
        fail!(
            NoMemory,
            "NIXL needs {count} thread(s), which cannot be made ({error}): raise the limit for processes and threads \
             (RLIMIT_NPROC, ulimit -u, pids of the cgroup)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::{Rlimit, setrlimit};

    use super::*;
    use crate::process::in_a_child;

    #[test]
    fn the_usual_limit_is_enough_for_all_workers() {
        let with_limit = |files, workers| {
            let limit = Rlimit {
                current: Some(files),
                ..getrlimit(Resource::Nofile)
            };
            setrlimit(Resource::Nofile, limit).unwrap();
            for_agent(workers, true)
        };
        // The limit is that of the whole process.
        let status = in_a_child(|| {
            let too_few = with_limit(512, 64).unwrap_err();
            with_limit(1024, 64).is_ok() && too_few.status == Status::NoMemory
        });
        assert_eq!(status, 0);
    }
}
