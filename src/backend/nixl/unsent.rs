//! What UCX has not sent yet when it is to go.
//!
//! Over sockets UCX answers peers that read from here, or write, with requests of its own, which wait
//! when the peer's socket is full. When UCX goes it gives them up, and looks at a field of theirs that
//! it has not set: what was in that memory before may be taken for a list of handles, and the process
//! crashes. So nothing may wait by then, but a peer that stands still takes nothing, and must not
//! hold up a close, and one that dies while UCX sends to it takes UCX with it. What waits is sent all
//! the same: into a socket that is put in the place of the one that leads to the peer, and whose other
//! end is here. The peer finds its connection closed, as it would a moment later.
//!
//! UCX wants to know that a socket can be written to only while something waits for it, and the system
//! says in /proc what is wanted of which. Without /proc, UCX goes with what waits.
//!
//! Nothing says whose a descriptor is. UCX's sets were opened while its worker was made, and all their
//! connections lead to a port that this agent or a peer has in its address. What another thread of the
//! process opened at the same time has others.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_link, read_to_string};
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{DupFlags, dup3};

use super::address::ports;
use crate::log::log;

/// Where threads of NIXL's own drive UCX, a socket must not be taken from under their hands. Meanwhile
/// a peer that is well takes what waits for it, and then they leave the socket alone.
const GRACE: Duration = Duration::from_millis(20);
/// When nothing has moved for so long, nothing will.
const ENOUGH: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(100);

/// Where UCX waits for its sockets.
#[derive(Default)]
pub struct EventSets {
    /// Candidates.
    sets: Vec<RawFd>,
    /// Of this agent and of all peers that it has heard of.
    ports: FxHashSet<u16>,
    /// UCX has threads that drive it.
    has_threads: bool,
}

/// The other ends of the sockets that were put in the place of others. They stay until UCX is gone.
#[derive(Default)]
pub struct Sinks(Vec<UnixStream>);

impl EventSets {
    /// Those that `start` opens. What another thread opens meanwhile may be among them.
    pub fn of<T>(has_threads: bool, start: impl FnOnce() -> T) -> (T, EventSets) {
        // Another agent's are not.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock();
        let before = event_sets();
        let started = start();
        let after = event_sets();
        let sets = match (before, after) {
            (Some(before), Some(after)) => after.difference(&before).copied().collect(),
            _ => Vec::new(),
        };
        let ports = FxHashSet::default();
        let sets = EventSets {
            sets,
            ports,
            has_threads,
        };
        (started, sets)
    }

    /// UCX may be connected to this worker address, or it is its own.
    pub fn know(&mut self, address: &[u8]) {
        self.ports.extend(ports(address));
    }

    fn is_ucx(&self, set: RawFd) -> bool {
        let watched = watched(set);
        let mut leading = watched.iter().filter_map(|one| one.leads_to(&self.ports));
        // What is still being made, or only listens, leads nowhere, and nobody waits there for answers.
        leading.next() == Some(true) && leading.all(|leads| leads)
    }

    /// Nothing more is taken from peers, and nothing waits to be sent to them. `drive` lets UCX work.
    pub fn send_off(self, mut drive: impl FnMut()) -> Sinks {
        let mut sinks = Sinks::default();
        let start = Instant::now();
        let mut last_news = start;
        let sets = self.sets.iter().filter(|set| self.is_ucx(**set));
        let sets: Vec<RawFd> = sets.copied().collect();
        loop {
            let mut waits = false;
            // Without threads at once: if the peer dies now, UCX must not notice any more.
            let impatient = !self.has_threads || start.elapsed() >= GRACE;
            for one in sets.iter().flat_map(|set| watched(*set)) {
                waits |= one.hush(impatient, &mut sinks);
            }
            if !waits {
                break;
            }
            drive();
            if sinks.empty() {
                last_news = Instant::now();
            } else if last_news.elapsed() >= ENOUGH {
                log!(
                    Warn,
                    "NIXL: UCX does not send what waits for some peers, and goes with it"
                );
                break;
            } else {
                // Where threads of NIXL's own drive it.
                sleep(PAUSE);
            }
        }
        if !sinks.0.is_empty() {
            log!(
                Info,
                "NIXL: {} connection(s) were cut on which answers waited for their peers",
                sinks.0.len()
            );
        }
        sinks
    }
}

/// `None`: the system does not say.
fn event_sets() -> Option<BTreeSet<RawFd>> {
    let is_set = |fd: &RawFd| {
        let to = read_link(format!("{DESCRIPTORS}/{fd}"));
        to.is_ok_and(|to| to == Path::new("anon_inode:[eventpoll]"))
    };
    Some(descriptors()?.into_iter().filter(is_set).collect())
}

const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// All that this process has open. `None`: the system does not say.
pub fn descriptors() -> Option<Vec<RawFd>> {
    let mut found = Vec::new();
    for entry in read_dir(DESCRIPTORS).ok()? {
        found.extend(entry.ok()?.file_name().to_str()?.parse::<RawFd>());
    }
    Some(found)
}

/// One socket of a set.
#[derive(PartialEq, Eq, Debug)]
struct Watched {
    set: RawFd,
    socket: RawFd,
    events: EventFlags,
    data: u64,
}

fn watched(set: RawFd) -> Vec<Watched> {
    let text = read_to_string(format!("/proc/thread-self/fdinfo/{set}")).unwrap_or_default();
    text.lines().filter_map(|line| parse(set, line)).collect()
}

fn parse(set: RawFd, line: &str) -> Option<Watched> {
    let mut words = line.split_whitespace();
    let mut after = |label| (words.next()? == label).then(|| words.next())?;
    Some(Watched {
        set,
        socket: after("tfd:")?.parse().ok()?,
        events: EventFlags::from_bits_retain(u32::from_str_radix(after("events:")?, 16).ok()?),
        data: u64::from_str_radix(after("data:")?, 16).ok()?,
    })
}

impl Watched {
    /// Whether it is a connection from or to one of these ports. `None`: it is not connected.
    fn leads_to(&self, ports: &FxHashSet<u16>) -> Option<bool> {
        let socket = self.socket();
        let Ok(here) = socket.local_addr() else {
            return Some(false);
        };
        let there = socket.peer_addr().ok()?;
        Some(ports.contains(&here.port()) || ports.contains(&there.port()))
    }

    /// UCX reads nothing more from it, and what waits for it goes elsewhere if the peer is gone, or
    /// `impatient`. True if something waits.
    fn hush(&self, impatient: bool, sinks: &mut Sinks) -> bool {
        if self.events.contains(EventFlags::IN) {
            let events = self.events - EventFlags::IN;
            // Or UCX has closed it just now.
            let _ = epoll::modify(self.set(), self.fd(), self.data(), events);
        }
        if !self.events.contains(EventFlags::OUT) {
            return false;
        }
        // Nobody was promised an answer yet, and UCX waits for more than to send.
        if self.is_begun() {
            return false;
        }
        let is_sink = self.socket().peer_addr().is_err();
        if impatient && !is_sink || self.is_gone() {
            self.replace(sinks);
        }
        true
    }

    /// A connection on which nothing has come yet: it is still being made, by the system or by UCX.
    fn is_begun(&self) -> bool {
        // `struct tcp_info` of <linux/tcp.h>: since Linux 4.1 the 17th eight bytes are those received.
        const RECEIVED: usize = 16;
        let mut info = [0u64; 32];
        let mut len = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `info`, and to `len` how many.
        let failed = unsafe {
            libc::getsockopt(
                self.socket,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        failed == 0 && info[RECEIVED] == 0
    }

    fn is_gone(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.fd(), PollFlags::empty())];
        let _ = poll(&mut polled, Some(&Timespec::default()));
        polled[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn replace(&self, sinks: &mut Sinks) {
        let Ok((ours, theirs)) = UnixStream::pair() else {
            return;
        };
        if ours.set_nonblocking(true).is_err() || theirs.set_nonblocking(true).is_err() {
            return;
        }
        // By itself it would go only if no child of this process has the socket, too.
        let _ = epoll::delete(self.set(), self.fd());
        // SAFETY: the descriptor is open, as UCX watches it, and it stays open and UCX's.
        let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.socket) });
        if dup3(&theirs, &mut place, DupFlags::CLOEXEC).is_ok() {
            sinks.0.push(ours);
        }
        let _ = epoll::add(self.set(), self.fd(), self.data(), EventFlags::OUT);
    }

    fn data(&self) -> EventData {
        EventData::new_u64(self.data)
    }

    fn set(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as UCX is there.
        unsafe { BorrowedFd::borrow_raw(self.set) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the system has just said that it is open. If a thread of NIXL's closes it meanwhile,
        // another file may have the number, but that is none of the set's, and is only looked at.
        unsafe { BorrowedFd::borrow_raw(self.socket) }
    }

    fn socket(&self) -> ManuallyDrop<TcpStream> {
        // SAFETY: as for `fd`; it is not closed here. Of a file of another kind, all questions fail.
        ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(self.socket) })
    }
}

impl Sinks {
    /// True if there was something in them.
    fn empty(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        let mut any = false;
        for sink in &mut self.0 {
            loop {
                match sink.read(&mut buffer) {
                    Ok(1..) => any = true,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    _ => break,
                }
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_system_says_what_is_watched() {
        let (set, sets) = EventSets::of(false, || {
            epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()
        });
        assert!(sets.sets.contains(&set.as_raw_fd()));
        let (one, _other) = UnixStream::pair().unwrap();
        let data = 0xfedc_ba98_7654_3210;
        let both = EventFlags::IN | EventFlags::OUT;
        epoll::add(&set, &one, EventData::new_u64(data), both).unwrap();
        let watched = watched(set.as_raw_fd());
        assert_eq!(watched.len(), 1);
        assert_eq!(
            (watched[0].socket, watched[0].data),
            (one.as_raw_fd(), data)
        );
        assert!(watched[0].events.contains(both));
        assert!(watched[0].socket().local_addr().is_err());
        assert_eq!(parse(1, "pos:\t0"), None);
    }

    #[test]
    fn what_leads_elsewhere_is_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut one = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let both = EventFlags::IN | EventFlags::OUT;
        let sets = |ports: &[u16]| {
            let (set, mut sets) = EventSets::of(false, || {
                epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()
            });
            // Other tests of this process may open some at the same time.
            sets.sets.retain(|one| *one == set.as_raw_fd());
            sets.ports.extend(ports);
            (set, sets)
        };
        // The listener, alone or not, is none of UCX's connections; nor is one to another port.
        for (ports, connected) in [(&[port][..], false), (&[port ^ 1][..], true), (&[], true)] {
            let (set, sets) = sets(ports);
            epoll::add(&set, &listener, EventData::new_u64(1), both).unwrap();
            if connected {
                epoll::add(&set, &one, EventData::new_u64(2), both).unwrap();
            }
            let before = watched(set.as_raw_fd());
            assert!(sets.send_off(|| panic!("nothing waits")).0.is_empty());
            assert_eq!(watched(set.as_raw_fd()), before);
        }
        // Nothing waits on a connection on which nothing has come.
        let (set, fresh) = sets(&[port]);
        epoll::add(&set, &one, EventData::new_u64(2), both).unwrap();
        assert!(fresh.send_off(|| panic!("nothing waits")).0.is_empty());
        other.write_all(b"x").unwrap();
        one.read_exact(&mut [0]).unwrap();
        let (set, sets) = sets(&[port]);
        epoll::add(&set, &one, EventData::new_u64(2), both).unwrap();
        let sinks = sets.send_off(|| {
            // As UCX does when it has sent what waited.
            let _ = epoll::modify(&set, &one, EventData::new_u64(2), EventFlags::empty());
        });
        assert_eq!(sinks.0.len(), 1);
        assert!(one.peer_addr().is_err(), "it leads to the sink now");
    }
}
