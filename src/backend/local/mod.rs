//! LOCAL: copies between processes of one host.
//!
//! The process that starts a transfer does all of it, by reaching into the other one's memory; the
//! owner of that memory need not run. What it takes, from the ground up:
//!
//! - `errno`: what failures of the kernel mean.
//! - `mapping`, [`alloc`] with `huge_pages` and `available`, `copy`: memory of this process.
//! - `identity`, `threads`, `space`, `program`, `maps`: what the kernel says about processes, and about
//!   our own memory.
//! - `words`, `locks`: signs that processes leave each other in a memory file.
//! - `metadata`, `region_file`: what a transport says about itself.
//! - `foreign`: files of another process.
//! - `gate`, `fuse`: how a transport takes its memory back without the help of its peers.
//! - `plain` with `streaming` and `lines`: copies between memory that this process has mapped.
//! - `reach` with `process_vm`: the three ways to a peer's memory, and `peer`: one connection.
//! - `queue`: whose turn it is.
//! - `mail`: messages.
//!
//! Nothing here survives a `fork`: in a forked child a transport does nothing, and dropping it only
//! closes file descriptors.

pub mod alloc;
mod available;
mod copy;
mod errno;
mod foreign;
mod fuse;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    pub use super::mail::fuzz::local_mail;
    pub use super::metadata::fuzz::local_metadata;
}
mod gate;
mod huge_pages;
mod identity;
mod lines;
mod locks;
mod mail;
mod mapping;
pub(super) mod maps;
mod memory_file;
mod metadata;
mod peer;
mod permission;
mod plain;
mod process_vm;
mod program;
mod queue;
mod reach;
mod region_file;
mod registry;
mod space;
mod streaming;
mod threads;
mod words;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{OwnedFd, RawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use self::copy::Memory;
use self::errno::failed;
use self::foreign::refer_to;
use self::fuse::Fuse;
use self::gate::Gate;
use self::identity::{Host, ProcessId};
use self::mail::{Inbox, Outboxes};
use self::metadata::Metadata;
use self::peer::Peer;
use self::queue::{Queue, Transfer};
use self::region_file::OwnFile;
use super::{Backend, ConnId, Direction, Event, Kind, Message, OpId, Start, Stop, check_message};
use crate::error::{Error, Result, Status, fail};
use crate::extents::Runs;
use crate::layout::Layout;
use crate::log::log;
use crate::region::{LocalRegion, Region};

/// A transfer that is no larger is copied by `start` itself, when nothing is before it: to queue it
/// would cost more than to copy it.
const INLINE_BYTES: u64 = 64 << 10;
/// As [`INLINE_BYTES`], in runs.
const INLINE_RUNS: usize = 16;
/// How many connections one `progress` looks at for the news that the peer has closed.
const WATCHED: usize = 16;
/// How many deaths the kernel tells of at once.
const DEATHS: usize = 16;
/// A peer that was seen alive is believed to be so for this long: to look again takes system calls, which
/// cost more than a small transfer. So much later than its death a transfer may still succeed, into
/// memory that nobody has any more.
const BELIEVED: Duration = Duration::from_micros(20);
/// How long a waiting caller may sleep when all that can happen is that a peer goes.
const IDLE: Duration = Duration::from_millis(50);
/// How long `force_close` waits for a peer that is in the middle of a copy.
const PATIENCE: Duration = Duration::from_secs(1);

/// One transport that moves bytes between processes of this host.
pub struct Local {
    region: Region,
    memory: Memory,
    host: Host,
    process: ProcessId,
    agent_name: String,
    metadata: Vec<u8>,
    /// `None` when closed.
    open: Option<Open>,
    links: BTreeMap<ConnId, Link>,
    outboxes: Outboxes,
    /// Lanes of the mailbox that were given up; known beyond the end of the mailbox.
    damaged: u64,
    queue: Queue,
    /// Number of the current `progress`; no peer is checked more than once in each that serves it.
    round: u64,
    /// When the kernel was asked for deaths.
    asked: Instant,
    /// The connection that was looked at last.
    watched: ConnId,
}

/// What a transport holds until it is closed.
struct Open {
    gate: Gate,
    fuse: Fuse,
    inbox: Inbox,
    /// Holds the descriptors of all peers' processes.
    epoll: OwnedFd,
    /// Peers open it through this process.
    _region_file: Option<OwnFile>,
}

/// A connection.
enum Link {
    Live { peer: Peer, seen: Seen },
    Lost(Error),
}

/// When a peer was last seen alive.
struct Seen {
    at: Instant,
    round: u64,
}

impl Seen {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < BELIEVED
    }
}

impl Local {
    /// A transport for `memory`. `region_fd` is the descriptor of the file that it is a mapping of,
    /// and the offset of the region in it: peers can then map the region. It is duplicated, and
    /// stays the caller's.
    pub fn create(
        memory: LocalRegion,
        region_fd: Option<(RawFd, u64)>,
        agent_name: &str,
    ) -> Result<Local> {
        let region = memory.blocks();
        let host = Host::own()?;
        let process = ProcessId::own()?;
        let region_file = match region_fd {
            Some((fd, offset)) => OwnFile::take(&region, fd, offset)?,
            None => None,
        };
        let memory = reach::own_memory(memory, region_file.as_ref().map(OwnFile::backing))?;
        let gate = Gate::create()?;
        let fuse = Fuse::create().map_err(|errno| failed("mapping one page", errno))?;
        let control = refer_to(gate.file())?;
        let inbox = Inbox::create(gate.incarnation())?;
        let metadata = Metadata {
            host: host.clone(),
            process,
            incarnation: gate.incarnation(),
            agent_name: agent_name.to_owned(),
            region,
            control,
            mail: refer_to(inbox.file())?,
            fuse: fuse.address(),
            region_file: region_file.as_ref().map(OwnFile::described),
        };
        let metadata = metadata.encode()?;
        gate.publish(metadata::digest(&metadata));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .and_then(memory_file::above_stdio)
            .map_err(|errno| failed("epoll_create", errno))?;
        registry::enter(gate.incarnation(), registry::Entry { region, control });
        Ok(Local {
            region,
            memory,
            host,
            process,
            agent_name: agent_name.to_owned(),
            metadata,
            open: Some(Open {
                gate,
                fuse,
                inbox,
                epoll,
                _region_file: region_file,
            }),
            links: BTreeMap::new(),
            outboxes: Outboxes::default(),
            damaged: 0,
            queue: Queue::default(),
            round: 0,
            asked: Instant::now(),
            watched: ConnId(0),
        })
    }

    /// The parts of an open transport. `None` when it is closed, and in a forked child, which has
    /// no part in it.
    fn open(&self) -> Option<&Open> {
        self.open.as_ref().filter(|open| open.gate.is_here())
    }

    fn check_open(&self) -> Result<()> {
        if self.open().is_none() {
            fail!(Closed, "the transport is closed");
        }
        Ok(())
    }

    /// The connection is of no use any more: gives up the peer's memory and says so.
    fn lose(&mut self, conn: ConnId, error: Error) {
        let Some(Link::Live { peer, .. }) = self.links.remove(&conn) else {
            return;
        };
        log!(Debug, "LOCAL peer {} is lost: {error}", peer.name());
        self.part_from(&peer);
        self.queue.lost(conn, &error);
        self.links.insert(conn, Link::Lost(error));
    }

    /// A connection to `peer` ends.
    fn part_from(&mut self, peer: &Peer) {
        self.outboxes.leave(peer.incarnation());
        // Closing the descriptor would not be enough while a forked child has a copy of it.
        if let (Some(open), Some(pidfd)) = (self.open(), peer.pidfd()) {
            // It was added when the peer was; there is nothing to be done about a failure.
            let _ = epoll::delete(&open.epoll, pidfd);
        }
    }

    /// Asks the kernel which peers have died.
    fn find_dead(&mut self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut room = [MaybeUninit::uninit(); DEATHS];
        // The lost are no longer watched, so that each look shows others.
        while let Some(open) = self.open.as_ref() {
            let Ok((found, _)) = epoll::wait(&open.epoll, &mut room, Some(&now)) else {
                return;
            };
            let mut lost = 0;
            for event in found {
                let conn = ConnId(event.data.u64());
                if let Some(Link::Live { peer, .. }) = self.links.get(&conn)
                    && let Err(error) = peer.check()
                {
                    self.lose(conn, error);
                    lost += 1;
                }
            }
            if lost < DEATHS {
                return;
            }
        }
    }

    /// Looks at a few connections, in turn, for peers that have closed or started another program.
    fn watch(&mut self, with_programs: bool) {
        let after = self.watched;
        let idle = with_programs && self.queue.is_idle();
        let ring = self
            .links
            .range((Excluded(after), Unbounded))
            .chain(self.links.range(..=after));
        let mut lost = Vec::new();
        for (nth, (conn, link)) in ring.take(WATCHED).enumerate() {
            self.watched = *conn;
            let Link::Live { peer, .. } = link else {
                continue;
            };
            let mut checked = peer.check_gate();
            // System calls: only where they delay nobody's bytes.
            if nth == 0 && idle {
                checked = checked.and_then(|()| peer.check_program());
            }
            if let Err(error) = checked {
                lost.push((*conn, error));
            }
        }
        for (conn, error) in lost {
            self.lose(conn, error);
        }
    }

    /// Moves a piece of the oldest transfer of a connection.
    fn serve(&mut self, conn: ConnId, now: Instant) {
        let Some(Link::Live { peer, seen }) = self.links.get_mut(&conn) else {
            return;
        };
        let Some(transfer) = self.queue.front(conn) else {
            return;
        };
        let mut result = Ok(());
        if peer.follows_process() || (seen.round != self.round && !seen.is_recent(now)) {
            result = peer.check_program();
            if result.is_ok() {
                seen.at = now;
            }
            seen.round = self.round;
        }
        let result =
            result.and_then(|()| peer.step(self.memory, transfer.direction, &mut transfer.cursor));
        match result {
            Ok(()) if !transfer.cursor.is_done() => {}
            Err(error) if error.status == Status::PeerLost => self.lose(conn, error),
            result => self.queue.end_front(conn, result),
        }
    }

    /// Shuts the gate and gives up all that this transport has of its peers.
    fn shut(&mut self) {
        for conn in self.links.keys().copied().collect::<Vec<_>>() {
            self.disconnect(conn);
        }
        // What was sent is the peers' to read.
        self.outboxes = Outboxes::default();
        if let Some(open) = self.open() {
            open.gate.close();
            open.fuse.blow();
            registry::leave(open.gate.incarnation());
        }
    }

    fn still_inside(&self) -> Option<u32> {
        self.open().and_then(|open| open.gate.still_inside())
    }
}

/// The peer of a connection that can be used.
fn live(links: &mut BTreeMap<ConnId, Link>, conn: ConnId) -> Result<(&Peer, &mut Seen)> {
    match links.get_mut(&conn) {
        Some(Link::Live { peer, seen }) => Ok((peer, seen)),
        Some(Link::Lost(error)) => Err(error.clone()),
        None => fail!(NotFound, "there is no connection {}", conn.0),
    }
}

impl Backend for Local {
    fn kind(&self) -> Kind {
        Kind::Local
    }

    fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    fn agent_name(&self, metadata: &[u8]) -> Result<String> {
        Ok(Metadata::parse(metadata)?.agent_name)
    }

    fn connect(
        &mut self,
        conn: ConnId,
        metadata: &[u8],
        remote: &Layout,
        _replaces: Option<ConnId>,
    ) -> Result<()> {
        self.check_open()?;
        if remote.block_len() != self.region.block_len() {
            fail!(
                Incompatible,
                "the peer's block_len is {}, but this transport's is {}",
                remote.block_len(),
                self.region.block_len()
            );
        }
        let peer = Peer::connect(
            &Metadata::parse(metadata)?,
            metadata::digest(metadata),
            remote,
            &self.host,
            self.process,
        )?;
        if let (Some(open), Some(pidfd)) = (self.open(), peer.pidfd()) {
            let data = epoll::EventData::new_u64(conn.0);
            epoll::add(&open.epoll, pidfd, data, epoll::EventFlags::IN)
                .map_err(|errno| failed("epoll_ctl", errno))?;
        }
        self.outboxes.join(peer.incarnation());
        let seen = Seen {
            at: Instant::now(),
            round: self.round,
        };
        self.links.insert(conn, Link::Live { peer, seen });
        Ok(())
    }

    fn disconnect(&mut self, conn: ConnId) {
        self.queue.forget(conn);
        if let Some(Link::Live { peer, .. }) = self.links.remove(&conn) {
            self.part_from(&peer);
        }
    }

    fn start(
        &mut self,
        conn: ConnId,
        op: OpId,
        direction: Direction,
        runs: &mut Runs,
    ) -> Result<Start> {
        self.check_open()?;
        let (peer, seen) = live(&mut self.links, conn)?;
        let mut cursor = self.queue.cursor(runs)?;
        let now = cursor.total_bytes() <= INLINE_BYTES
            && cursor.runs_left() <= INLINE_RUNS
            && !self.queue.has_work_for(conn);
        let time = Instant::now();
        let mut result = if seen.is_recent(time) && !peer.follows_process() {
            peer.check_gate()
        } else {
            let checked = peer.check();
            if checked.is_ok() {
                seen.at = time;
            }
            checked
        };
        if now {
            // So little is moved in one step.
            result = result.and_then(|()| peer.step(self.memory, direction, &mut cursor));
        }
        match result {
            Err(error) if error.status == Status::PeerLost => {
                self.lose(conn, error.clone());
                return Err(error);
            }
            Ok(()) if now => {
                self.queue.take_back(cursor);
                return Ok(Start::Done);
            }
            Err(error) => self.queue.ended(op, Err(error)),
            Ok(()) => self.queue.push(
                conn,
                Transfer {
                    op,
                    direction,
                    cursor,
                },
            ),
        }
        Ok(Start::Running)
    }

    fn stop(&mut self, op: OpId) -> Stop {
        // Copies happen only inside of `start` and `progress`: now nothing is being copied.
        self.queue.stop(op);
        Stop::Stopped
    }

    fn send(&mut self, conn: ConnId, message: &[u8]) -> Result<()> {
        check_message(message)?;
        self.check_open()?;
        let (peer, _) = live(&mut self.links, conn)?;
        let mut result = peer.check();
        if result.is_ok() {
            let (name, open) = (&self.agent_name, || peer.open_mail());
            result = self.outboxes.send(peer.incarnation(), name, message, open);
        }
        if let Err(error) = &result
            && error.status == Status::PeerLost
        {
            self.lose(conn, error.clone());
        }
        result
    }

    fn receive(&mut self, most: usize, messages: &mut Vec<Message>) {
        if let Some(open) = self.open.as_mut().filter(|open| open.gate.is_here()) {
            open.inbox.receive(most, messages);
            self.damaged = open.inbox.refused();
        }
    }

    fn refused_messages(&self) -> u64 {
        self.damaged
    }

    fn progress(&mut self, deadline: Instant, events: &mut Vec<Event>) {
        if self.open().is_none() {
            return;
        }
        self.round += 1;
        let mut now = Instant::now();
        let ask = now.saturating_duration_since(self.asked) >= BELIEVED;
        if ask {
            self.asked = now;
            self.find_dead();
        }
        self.watch(ask);
        self.outboxes.sweep(|| now);
        while let Some(conn) = self.queue.begin_turn() {
            self.serve(conn, now);
            self.queue.end_turn(conn);
            now = Instant::now();
            if now >= deadline {
                break;
            }
        }
        self.queue.take_events(events);
    }

    fn idle_for(&self) -> Option<Duration> {
        self.queue.is_idle().then_some(IDLE)
    }

    fn try_close(&mut self) -> Result<()> {
        self.shut();
        if let Some(pid) = self.still_inside() {
            fail!(
                Timeout,
                "process {pid} is in the middle of a copy to or from this region; if it is stopped, it must go on \
                 or be killed before the region is free"
            );
        }
        self.open = None;
        Ok(())
    }

    fn force_close(&mut self) {
        self.shut();
        let deadline = Instant::now() + PATIENCE;
        while let Some(pid) = self.still_inside() {
            if Instant::now() >= deadline {
                log!(
                    Error,
                    "closing a LOCAL transport by force while process {pid} is in the middle of a copy: if it has \
                     the region mapped, it may still read or write a piece of that memory when it goes on"
                );
                if let Some(open) = self.open.take() {
                    open.fuse.abandon();
                }
                break;
            }
            sleep(Duration::from_millis(1));
        }
        self.open = None;
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.force_close();
    }
}
