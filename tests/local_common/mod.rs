//! What the tests of the LOCAL backend share: memory, transports, and child processes that do as
//! they are told. A child is this test program again, running only its test `child_main`.
#![allow(dead_code, reason = "each test program uses a part")]

mod child;
mod memory;
pub mod messages;

pub use child::*;
pub use memory::*;

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datatransport::backend::local::{Local, alloc};
use datatransport::backend::{Backend, ConnId, Direction, Event, OpId, Start};
use datatransport::error::{Error, Result, Status};
use datatransport::extents::Runs;
use datatransport::layout::Layout;
use datatransport::region::{LocalRegion, Region};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that differ from block to block and from seed to seed.
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i * 31 + i / 256 * 7 + i / 4096 * 13) as u8 ^ seed)
        .collect()
}

/// A transport and its memory. The transport is dropped first.
pub struct Node {
    pub local: Local,
    pub region: Region,
    pub memory: Memory,
    /// What `progress` will tell first: transfers that were done as they started, losses that
    /// nobody waited for.
    untold: Vec<Event>,
    next: u64,
}

impl Node {
    pub fn new(backing: Backing, blocks: u64, block_len: u64) -> Node {
        Node::named("node", backing, blocks, block_len)
    }

    pub fn named(name: &str, backing: Backing, blocks: u64, block_len: u64) -> Node {
        Node::create(name, backing, blocks, block_len).unwrap()
    }

    fn create(name: &str, backing: Backing, blocks: u64, block_len: u64) -> Result<Node> {
        let memory = Memory::new(backing, (blocks * block_len) as usize);
        let region = Region::new(memory.address as u64, blocks, block_len).unwrap();
        let fd = memory.fd.as_ref().map(|fd| (fd.as_raw_fd(), 0));
        // SAFETY: the node drops its transport before its memory.
        let local = Local::create(unsafe { LocalRegion::new(region) }, fd, name)?;
        Ok(Node {
            local,
            region,
            memory,
            untold: Vec::new(),
            next: 0,
        })
    }

    pub fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn connect(&mut self, metadata: &[u8], remote: impl Into<Layout>) -> Result<ConnId> {
        let conn = ConnId(self.id());
        self.local
            .connect(conn, metadata, &remote.into(), None)
            .map(|()| conn)
    }

    pub fn connect_to(&mut self, peer: &Described) -> Result<ConnId> {
        self.connect(&peer.metadata, peer.region)
    }

    pub fn described(&self) -> Described {
        Described {
            metadata: self.local.metadata().to_vec(),
            region: self.region,
        }
    }

    pub fn start(
        &mut self,
        conn: ConnId,
        direction: Direction,
        locals: &[u32],
        remotes: &[u32],
        remote: &(impl Clone + Into<Layout>),
    ) -> Result<OpId> {
        let op = OpId(self.id());
        let mut runs = Runs::of(locals, remotes, &self.region, &remote.clone().into())?;
        if self.local.start(conn, op, direction, &mut runs)? == Start::Done {
            self.untold.push(Event::Ended { op, result: Ok(()) });
        }
        Ok(op)
    }

    /// One progress of at most a millisecond.
    pub fn progress(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.untold);
        self.local
            .progress(Instant::now() + Duration::from_millis(1), &mut events);
        events
    }

    /// Runs a transfer to its end.
    pub fn run(
        &mut self,
        conn: ConnId,
        direction: Direction,
        locals: &[u32],
        remotes: &[u32],
        remote: &(impl Clone + Into<Layout>),
    ) -> Result<()> {
        let op = self.start(conn, direction, locals, remotes, remote)?;
        self.until(|event| match event {
            Event::Ended { op: ended, result } if *ended == op => Some(result.clone()),
            _ => None,
        })
    }

    /// Progresses until `wanted` finds its event.
    pub fn until<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let events = self.progress();
            let found = events.iter().find_map(&mut wanted);
            // A loss is told once: whoever waits for something else must not swallow it.
            let untold =
                |event: &Event| matches!(event, Event::Lost { .. }) && wanted(event).is_none();
            self.untold.extend(events.into_iter().filter(untold));
            if let Some(found) = found {
                return found;
            }
            if self.local.idle_for().is_some() {
                std::thread::yield_now();
            }
        }
        panic!("the event has not come");
    }

    /// Progresses until the peer is reported lost.
    pub fn until_lost(&mut self, conn: ConnId) -> Error {
        self.until(|event| match event {
            Event::Lost { conn: lost, error } if *lost == conn => Some(error.clone()),
            _ => None,
        })
    }
}

/// What one needs to know of a peer.
#[derive(Clone)]
pub struct Described {
    pub metadata: Vec<u8>,
    pub region: Region,
}

/// How many descriptors this process has open, and its mappings by name.
pub fn holdings() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().count())
}

/// How many mappings of the file with this inode this process has; 0 is no file.
pub fn mappings_of(ino: u64) -> usize {
    if ino == 0 {
        return 0;
    }
    let ino = ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.split_ascii_whitespace().nth(4) == Some(&ino))
        .count()
}

/// A field of the JSON body of metadata.
pub fn body(metadata: &[u8]) -> serde_json::Value {
    serde_json::from_slice(&metadata[16..metadata.len() - 8]).unwrap()
}

/// Metadata around a body of one's own making.
pub fn forge(body: &serde_json::Value) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let body = body.to_string();
    let mut blob = b"DTLOCAL\0\x02\0\0\0".to_vec();
    blob.extend((body.len() as u32).to_le_bytes());
    blob.extend(body.as_bytes());
    let sum = Sha256::digest(&blob);
    blob.extend(&sum[..8]);
    blob
}

pub fn status<T: std::fmt::Debug>(result: Result<T>) -> Status {
    result.unwrap_err().status
}
