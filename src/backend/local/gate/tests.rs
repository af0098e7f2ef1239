use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn own() -> ProcessId {
    ProcessId::own().unwrap()
}

/// A slot for the process `id`, through a description of its own.
fn claim(gate: &Gate, id: ProcessId) -> Result<Slot> {
    let file = open_again(gate.file()).unwrap();
    Slot::claim(file, gate.incarnation(), 0, id)
}

fn open_again(file: BorrowedFd) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).open(path).map(OwnedFd::from)
}

/// A live child, and its name as a slot has it.
fn child() -> (Child, ProcessId) {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let start = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_ascii_whitespace()
        .nth(19)
        .unwrap();
    let id = ProcessId::new(child.id().into(), start.parse().unwrap()).unwrap();
    (child, id)
}

fn reap(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_shut_gate_lets_nobody_in() {
    let gate = Gate::create().unwrap();
    let slot = claim(&gate, own()).unwrap();
    assert!(slot.enter().is_some());
    assert_eq!(gate.still_inside(), None);
    let pass = slot.enter().unwrap();
    gate.close();
    assert_eq!(gate.still_inside(), Some(own().pid()));
    drop(pass);
    assert_eq!(gate.still_inside(), None);
    assert!(slot.enter().is_none() && !slot.is_open());
    // Looking in vain leaves no flag up.
    assert_eq!(gate.still_inside(), None);
}

#[test]
fn a_stopped_peer_inside_is_waited_for_and_a_dead_one_is_not() {
    let gate = Gate::create().unwrap();
    let (child, id) = child();
    let slot = claim(&gate, id).unwrap();
    std::mem::forget(slot.enter().unwrap());
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    gate.close();
    assert_eq!(gate.still_inside(), Some(child.id()));
    reap(child);
    assert_eq!(gate.still_inside(), None);
}

#[test]
fn every_slot_is_one_connection() {
    // Each takes a descriptor.
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, all).unwrap();
    let gate = Gate::create().unwrap();
    let mut slots: Vec<Slot> = (0..SLOTS).map(|_| claim(&gate, own()).unwrap()).collect();
    let taken: BTreeSet<usize> = slots.iter().map(|slot| slot.index).collect();
    assert_eq!(taken.len(), SLOTS);
    let error = claim(&gate, own()).unwrap_err();
    assert_eq!(error.status, Status::NoMemory);
    assert!(error.message.contains("1023 connections"), "{error}");
    let freed = slots.swap_remove(500).index;
    for _ in 0..3 {
        assert_eq!(claim(&gate, own()).unwrap().index, freed);
    }
}

#[test]
fn what_nobody_has_locked_is_free_whatever_it_says() {
    let gate = Gate::create().unwrap();
    let (child, id) = child();
    // As an exec in the middle of a copy leaves it: the process lives, and has its old name.
    for index in 0..SLOTS {
        gate.page.slot(index)[OWNER].store(id.to_word(), Ordering::SeqCst);
        gate.page.slot(index)[ACTIVE].store(1, Ordering::SeqCst);
    }
    assert_eq!(gate.still_inside(), None);
    let slot = claim(&gate, own()).unwrap();
    assert_eq!(gate.still_inside(), None, "the flag came down");
    let pass = slot.enter().unwrap();
    assert_eq!(gate.still_inside(), Some(own().pid()));
    drop(pass);
    reap(child);
}

#[test]
fn words_that_name_nobody_hold_nothing() {
    let gate = Gate::create().unwrap();
    let slot = claim(&gate, own()).unwrap();
    std::mem::forget(slot.enter().unwrap());
    assert_eq!(gate.still_inside(), Some(own().pid()));
    // A start time without a pid.
    gate.page.slot(slot.index)[OWNER].store(1 << 22, Ordering::SeqCst);
    assert_eq!(gate.still_inside(), None);
}

/// A forked child that runs `what` and then waits to be killed, if it is to, or ends.
fn fork(what: impl FnOnce(), wait: bool) -> libc::pid_t {
    // SAFETY: the child calls nothing but what works in a copy of one thread, and `_exit`.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            what();
            if wait {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
            }
            libc::_exit(0);
        }
        pid
    }
}

fn wait_for(pid: libc::pid_t) {
    let pid = Pid::from_raw(pid);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap();
}

#[test]
fn a_forked_child_neither_frees_a_slot_nor_keeps_it() {
    let gate = Gate::create().unwrap();
    let mut slot = Some(claim(&gate, own()).unwrap());
    let byte = byte_of(slot.as_ref().unwrap().index);
    wait_for(fork(|| drop(slot.take()), false));
    assert_eq!(is_locked(gate.file(), byte), Ok(true));
    let child = fork(|| {}, true);
    drop(slot.take());
    assert_eq!(is_locked(gate.file(), byte), Ok(false));
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    wait_for(child);
}

#[test]
fn foreign_pages_are_checked() {
    let gate = Gate::create().unwrap();
    assert!(
        map_foreign(gate.file(), gate.incarnation())
            .unwrap()
            .is_open()
    );
    let error = map_foreign(gate.file(), gate.incarnation() ^ 1).unwrap_err();
    assert!(error.message.contains("restarted"), "{error}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("dt-test", flags).unwrap();
    assert!(map_foreign(&file, 0).is_err());
    ftruncate(&file, BYTES as u64).unwrap();
    assert!(map_foreign(&file, 0).is_err(), "not sealed");
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let error = map_foreign(&file, 0).unwrap_err();
    assert!(error.message.contains("version"), "{error}");
    assert_eq!(ftruncate(gate.file(), 0).unwrap_err(), Errno::PERM);
}

#[test]
fn the_lock_ends_with_the_descriptor() {
    let gate = Gate::create().unwrap();
    let other = open_again(gate.file()).unwrap();
    assert_eq!(is_locked(&other, OWNER_BYTE), Ok(true));
    drop(gate);
    // A child that another test is just starting has copies of all descriptors until its exec.
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_locked(&other, OWNER_BYTE).unwrap() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(!is_locked(&other, OWNER_BYTE).unwrap());
}

// The promise of the whole file: after `still_inside` is None, nothing is written any more.
#[test]
fn nothing_is_written_behind_a_shut_gate() {
    for _ in 0..200 {
        let gate = Gate::create().unwrap();
        let memory = AtomicU64::new(0);
        let shut = AtomicBool::new(false);
        let entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slot = claim(&gate, own()).unwrap();
                while let Some(_pass) = slot.enter() {
                    assert!(!shut.load(Ordering::SeqCst));
                    memory.fetch_add(1, Ordering::SeqCst);
                    entered.store(true, Ordering::SeqCst);
                }
            });
            while !entered.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            gate.close();
            while gate.still_inside().is_some() {
                std::thread::yield_now();
            }
            shut.store(true, Ordering::SeqCst);
            let last = memory.load(Ordering::SeqCst);
            std::thread::yield_now();
            assert_eq!(memory.load(Ordering::SeqCst), last);
        });
    }
}
