//! The gate of a transport's memory: how it takes back what peers may do, without their help.
//!
//! Every transport owns a control page, a small shared file that its peers map. Before a peer
//! touches the transport's memory it raises its flag there and then looks whether the gate is open;
//! the owner shuts the gate and then looks at the flags. Both do so in one total order, so either
//! the peer sees a shut gate, or the owner sees the flag and knows whom it waits for. A flag whose
//! owner has died means nothing: the dead copy nothing.
//!
//! The page also tells of an `exec` of its owner, which keeps the pid and takes the memory away: the
//! owner holds a lock on its open file, which the kernel drops with the last descriptor and mapping.
//! A child that the owner has forked, and that has not called `exec`, keeps the descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;

use super::identity::ProcessId;
use super::mapping::Mapping;
use crate::error::{Error, Result, Status, fail};

/// Bytes of the page. The layout is 64-bit words: line 0 is the header, each other line of 64 bytes
/// one peer's slot, so that peers do not share cache lines.
const BYTES: usize = 64 << 10;
const WORDS: usize = BYTES / 8;
const LINE: usize = 8;
const SLOTS: usize = BYTES / 64 - 1;

const MAGIC_AT: usize = 0;
const INCARNATION_AT: usize = 1;
const STATE_AT: usize = 3;
/// Says what the page is and which version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"DTGATE\0\x01");
const OPEN: u64 = 1;
const CLOSED: u64 = 2;

/// In a slot: word of the process that has it, 0 when free.
const OWNER: usize = 0;
/// In a slot: 1 while its process is inside a copy.
const ACTIVE: usize = 1;

/// A mapped control page. The other processes that map it may write anything anywhere in it.
#[derive(Debug)]
pub(super) struct Page {
    mapping: Mapping,
}

impl Page {
    fn words(&self) -> &[AtomicU64] {
        let start = self.mapping.address() as *const AtomicU64;
        // SAFETY: the mapping has this many bytes, starts at a page, lives as long as `self`, and
        // its size is sealed, so that no access can fail. Others change it, hence atomics. Nothing
        // calls this in a forked child, where the mapping does not exist.
        unsafe { std::slice::from_raw_parts(start, WORDS) }
    }

    fn map(file: impl AsFd) -> rustix::io::Result<Page> {
        Ok(Page {
            mapping: Mapping::anywhere(file, 0, BYTES)?,
        })
    }

    fn slot(&self, index: usize) -> &[AtomicU64] {
        &self.words()[LINE * (index + 1)..][..LINE]
    }

    /// False as soon as the owner has shut its gate.
    pub(super) fn is_open(&self) -> bool {
        self.words()[STATE_AT].load(Ordering::SeqCst) == OPEN
    }

    fn incarnation(&self) -> u128 {
        let word = |at: usize| u128::from(self.words()[at].load(Ordering::Relaxed));
        word(INCARNATION_AT) << 64 | word(INCARNATION_AT + 1)
    }
}

/// The owner's side.
#[derive(Debug)]
pub(super) struct Gate {
    page: Arc<Page>,
    file: OwnedFd,
    incarnation: u128,
}

impl Gate {
    /// A new page with an open gate and a new incarnation.
    pub(super) fn create() -> Result<Gate> {
        let refused = |step: &'static str| {
            move |errno: Errno| {
                let status = match errno {
                    Errno::NOSYS | Errno::PERM | Errno::ACCESS => Status::Unavailable,
                    _ => Status::NoMemory,
                };
                Error::new(
                    status,
                    format!("cannot make the control page of a LOCAL transport: {step}: {errno}"),
                )
            }
        };
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| {
            Error::new(
                Status::Unavailable,
                format!("no random numbers for the transport's identity: {error}"),
            )
        })?;
        let incarnation = u128::from_ne_bytes(random);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("dt-control", flags).map_err(refused("memfd_create"))?;
        ftruncate(&file, BYTES as u64).map_err(refused("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(refused("sealing its size"))?;
        lock(&file).map_err(refused("locking it"))?;
        let page = Page::map(&file).map_err(refused("mmap"))?;
        let words = page.words();
        words[INCARNATION_AT].store((incarnation >> 64) as u64, Ordering::Relaxed);
        words[INCARNATION_AT + 1].store(incarnation as u64, Ordering::Relaxed);
        words[STATE_AT].store(OPEN, Ordering::Relaxed);
        words[MAGIC_AT].store(MAGIC, Ordering::Release);
        Ok(Gate {
            page: Arc::new(page),
            file,
            incarnation,
        })
    }

    /// The file that peers map.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The page, for peers in this process.
    pub(super) fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// The random number of this transport.
    pub(super) fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// False in a forked child, where the gate must not be touched.
    pub(super) fn is_here(&self) -> bool {
        self.page.mapping.is_here()
    }

    /// Shuts the gate: from now on nobody new comes in.
    pub(super) fn close(&self) {
        self.page.words()[STATE_AT].store(CLOSED, Ordering::SeqCst);
    }

    /// After [`close`](Gate::close): the pid of a process that is still inside a copy, if any is.
    pub(super) fn still_inside(&self) -> Option<u32> {
        (0..SLOTS).find_map(|index| {
            let slot = self.page.slot(index);
            if slot[ACTIVE].load(Ordering::SeqCst) == 0 {
                return None;
            }
            let id = ProcessId::from_word(slot[OWNER].load(Ordering::SeqCst))?;
            (!id.is_dead()).then_some(id.pid())
        })
    }
}

/// The peer's side: its slot in the owner's page.
#[derive(Debug)]
pub(super) struct Slot {
    page: Arc<Page>,
    index: usize,
}

impl Slot {
    /// Takes a slot of `page` for the process `own`.
    pub(super) fn claim(page: Arc<Page>, own: ProcessId) -> Result<Slot> {
        let take = |index: usize, old: u64| {
            let slot = page.slot(index);
            slot[OWNER]
                .compare_exchange(old, own.to_word(), Ordering::SeqCst, Ordering::SeqCst)
                // What a dead owner left; the owner of the page sees the flag of the living from here.
                .map(|_| slot[ACTIVE].store(0, Ordering::SeqCst))
                .is_ok()
        };
        let owner = |index: usize| page.slot(index)[OWNER].load(Ordering::SeqCst);
        let free = (0..SLOTS).find(|&index| owner(index) == 0 && take(index, 0));
        // Only when all are taken is it worth asking the kernel who of their owners is dead.
        let reclaimed = || {
            (0..SLOTS).find(|&index| {
                let word = owner(index);
                let dead = ProcessId::from_word(word).is_none_or(|id| id != own && id.is_dead());
                dead && take(index, word)
            })
        };
        let Some(index) = free.or_else(reclaimed) else {
            fail!(
                NoMemory,
                "the peer has {SLOTS} connections, which is the limit: some of its other peers must remove it first"
            );
        };
        Ok(Slot { page, index })
    }

    /// False as soon as the owner has shut its gate.
    pub(super) fn is_open(&self) -> bool {
        self.page.is_open()
    }

    /// Goes in: while the result lives, the owner's memory stays. `None` when the gate is shut.
    pub(super) fn enter(&self) -> Option<Pass<'_>> {
        let active = &self.page.slot(self.index)[ACTIVE];
        active.store(1, Ordering::SeqCst);
        let pass = Pass(active);
        self.page.is_open().then_some(pass)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A forked child has a copy of this value, but neither the page nor a right to the slot.
        if self.page.mapping.is_here() {
            self.page.slot(self.index)[OWNER].store(0, Ordering::SeqCst);
        }
    }
}

/// The right to touch the owner's memory, until dropped.
#[derive(Debug)]
pub(super) struct Pass<'a>(&'a AtomicU64);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Maps the control page that a peer's `file` is, and checks that it is one, of `incarnation`.
pub(super) fn map_foreign(file: impl AsFd, incarnation: u128) -> Result<Arc<Page>> {
    let not_one = |what: &str| {
        Error::new(
            Status::PeerLost,
            format!("the peer's control page is {what}"),
        )
    };
    let seals = fcntl_get_seals(&file).map_err(|_| not_one("not a sealed file"))?;
    let stat = fstat(&file).map_err(|errno| not_one(&errno.to_string()))?;
    // Without the seal the peer could cut the file short, and this process would get SIGBUS.
    if !seals.contains(SealFlags::SHRINK) || stat.st_size != BYTES as i64 {
        return Err(not_one("not of the right size, or the size is not sealed"));
    }
    let page = Page::map(&file).map_err(|errno| {
        Error::new(
            Status::NoMemory,
            format!("mapping the peer's control page: {errno}"),
        )
    })?;
    if page.words()[MAGIC_AT].load(Ordering::Acquire) != MAGIC {
        return Err(not_one("not one of this version of the library"));
    }
    if page.incarnation() != incarnation {
        return Err(not_one("that of another transport: the peer has restarted"));
    }
    Ok(Arc::new(page))
}

/// Locks the whole of `file` for this open file description.
fn lock(file: impl AsFd) -> rustix::io::Result<()> {
    ofd_lock(file, libc::F_OFD_SETLK).map(|_| ())
}

/// True when the owner of a control page still has it open. `file` is another description of it.
pub(super) fn is_held(file: impl AsFd) -> bool {
    // An error would be one of the arguments, which never change: count it as the end.
    matches!(ofd_lock(file, libc::F_OFD_GETLK), Ok(kind) if kind != libc::F_UNLCK as i16)
}

fn ofd_lock(file: impl AsFd, command: libc::c_int) -> rustix::io::Result<i16> {
    // SAFETY: all-zero is a valid value of this struct of plain numbers.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as i16;
    range.l_whence = libc::SEEK_SET as i16;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the kernel reads and
    // writes one `flock` behind the pointer.
    if unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &mut range) } < 0 {
        let errno = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&errno).unwrap_or(Errno::INVAL));
    }
    Ok(range.l_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::{Child, Command};
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    fn own() -> ProcessId {
        ProcessId::own().unwrap()
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
        let slot = Slot::claim(gate.page().clone(), own()).unwrap();
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
        let slot = Slot::claim(gate.page().clone(), id).unwrap();
        std::mem::forget(slot.enter().unwrap());
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        gate.close();
        assert_eq!(gate.still_inside(), Some(child.id()));
        reap(child);
        assert_eq!(gate.still_inside(), None);
    }

    #[test]
    fn slots_of_the_dead_are_used_again() {
        let gate = Gate::create().unwrap();
        let (child, id) = child();
        let mut slots: Vec<Slot> = (0..SLOTS)
            .map(|_| Slot::claim(gate.page().clone(), id).unwrap())
            .collect();
        std::mem::forget(slots[3].enter().unwrap());
        let error = Slot::claim(gate.page().clone(), own()).unwrap_err();
        assert_eq!(error.status, Status::NoMemory);
        assert!(error.message.contains("1023 connections"), "{error}");
        let freed = slots.pop().unwrap().index;
        assert_eq!(
            Slot::claim(gate.page().clone(), own()).unwrap().index,
            freed
        );
        std::mem::forget(Slot::claim(gate.page().clone(), id).unwrap());
        reap(child);
        let mut mine: Vec<Slot> = (0..SLOTS)
            .map(|_| Slot::claim(gate.page().clone(), own()).unwrap())
            .collect();
        assert!(Slot::claim(gate.page().clone(), own()).is_err());
        gate.close();
        assert_eq!(
            gate.still_inside(),
            None,
            "the flag of the dead one is down"
        );
        mine.clear();
        // They are no longer those of the dead: dropping must not free them for somebody else twice.
        slots.into_iter().for_each(std::mem::forget);
    }

    #[test]
    fn words_that_name_nobody_do_not_hold_a_slot() {
        let gate = Gate::create().unwrap();
        for index in 0..SLOTS {
            // A start time without a pid.
            gate.page().slot(index)[OWNER].store(1 << 22, Ordering::SeqCst);
            gate.page().slot(index)[ACTIVE].store(1, Ordering::SeqCst);
        }
        gate.close();
        assert_eq!(gate.still_inside(), None);
        assert!(Slot::claim(gate.page().clone(), own()).is_ok());
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
        let path = format!("/proc/self/fd/{}", gate.file().as_raw_fd());
        let other = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        assert!(is_held(&other));
        drop(gate);
        // A child that another test is just starting has copies of all descriptors until its exec.
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_held(&other) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!is_held(&other));
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
                    let slot = Slot::claim(gate.page().clone(), own()).unwrap();
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
}
