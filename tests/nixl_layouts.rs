//! Blocks of a list over the real NIXL, in memory that a foreign agent registered in parts.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::backend::nixl::{Nixl, NixlConfig};
use datatransport::backend::{Backend, ConnId, Direction, Event, OpId, Start};
use datatransport::error::Status;
use datatransport::extents::Runs;
use datatransport::layout::Layout;
use datatransport::region::{LocalRegion, Region};
use nixl_support::*;
use nixl_sys::{Agent, AgentConfig, MemType, MemoryRegion, NixlDescriptor, Params};

const SCENARIOS: &[(&str, fn())] = &[("parts_that_touch", parts_that_touch)];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    parts_that_touch_default: parts_that_touch Default;
    parts_that_touch_tcp: parts_that_touch Tcp;
}

const BLOCK: usize = 4096;

#[derive(Debug)]
struct Part(u64, usize);

impl MemoryRegion for Part {
    // SAFETY: the address is only handed to NIXL, and the memory outlives the agent.
    unsafe fn as_ptr(&self) -> *const u8 {
        self.0 as *const u8
    }
    fn size(&self) -> usize {
        self.1
    }
}

impl NixlDescriptor for Part {
    fn mem_type(&self) -> MemType {
        MemType::Dram
    }
    fn device_id(&self) -> u64 {
        0
    }
}

/// A backend, and the peer that it is connected to.
struct Node<'a> {
    backend: Box<dyn Backend>,
    memory: &'a Memory,
    peer: &'a Memory,
    metadata: Vec<u8>,
    last: u64,
}

impl Node<'_> {
    fn region(&self) -> Region {
        region_of(self.memory)
    }

    fn connect(&mut self, remote: &Layout) -> Result<ConnId, datatransport::error::Error> {
        self.last += 1;
        let conn = ConnId(self.last);
        self.backend.connect(conn, &self.metadata, remote, None)?;
        Ok(conn)
    }

    fn run(&mut self, conn: ConnId, direction: Direction, pairs: &[(u32, u32)], remote: &Layout) {
        let (local, theirs): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let mut runs = Runs::of(&local, &theirs, &self.region(), remote).unwrap();
        self.last += 1;
        let op = OpId(self.last);
        if self.backend.start(conn, op, direction, &mut runs).unwrap() == Start::Done {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let mut events = Vec::new();
        while events.is_empty() {
            assert!(Instant::now() < deadline, "the transfer has not ended");
            let soon = Instant::now() + Duration::from_millis(1);
            self.backend.progress(soon, &mut events);
        }
        assert_eq!(events, [Event::Ended { op, result: Ok(()) }]);
    }

    /// Writes, then reads, the blocks of `remote`, which lie at these blocks of the peer's memory.
    fn both_ways(&mut self, remote: &Layout, at: &[u32]) {
        let conn = self.connect(remote).unwrap();
        let pairs: Vec<_> = (0..).take(at.len()).map(|index| (index, index)).collect();
        let seed = self.last;
        self.memory.fill(seed, BLOCK);
        self.peer.bytes().fill(0);
        self.run(conn, Direction::Write, &pairs, remote);
        for block in 0..64 {
            let theirs = self.peer.block(block, BLOCK);
            match at.iter().position(|at| *at == block) {
                Some(index) => assert!(holds(theirs, seed, index as u32), "{block}"),
                None => assert!(is_zero(theirs), "{block}"),
            }
        }
        self.peer.fill(1000, BLOCK);
        self.run(conn, Direction::Read, &pairs, remote);
        for (index, at) in (0..).zip(at) {
            assert!(holds(self.memory.block(index, BLOCK), 1000, *at), "{at}");
        }
        self.backend.disconnect(conn);
    }
}

fn region_of(memory: &Memory) -> Region {
    let blocks = (memory.len / BLOCK) as u64;
    Region::new(memory.base(), blocks, BLOCK as u64).unwrap()
}

fn parts_that_touch() {
    let (memory, peer) = (Memory::new(64 * BLOCK), Memory::new(64 * BLOCK));
    // SAFETY: the backend is closed before the memory goes.
    let local = unsafe { LocalRegion::new(region_of(&memory)) };
    let backend = Nixl::create(local, &NixlConfig::default(), "a").unwrap();

    let config = AgentConfig {
        enable_prog_thread: true,
        ..AgentConfig::default()
    };
    let agent = Agent::new_configured("b", &config).unwrap();
    let none: [(&str, &str); 0] = [];
    agent
        .create_backend("UCX", &Params::from(none).unwrap())
        .unwrap();
    // Blocks 0 to 31, 32 to 61; nobody registered the last two.
    let parts = [(0, 32), (32, 30)].map(|(first, blocks)| {
        let part = Part(peer.base() + (first * BLOCK) as u64, blocks * BLOCK);
        agent.register_memory(&part, None).unwrap()
    });
    let metadata = agent.get_local_md().unwrap();
    let mut node = Node {
        backend,
        memory: &memory,
        peer: &peer,
        metadata,
        last: 0,
    };

    let list = |at: &[u32]| {
        let addresses = at.iter().map(|at| Ok(peer.base() + u64::from(*at) * 4096));
        Layout::of_blocks(addresses, BLOCK as u64, at.len()).unwrap()
    };
    // One run goes from part to part.
    let at = [61, 29, 30, 31, 32, 33, 34, 7, 0, 8, 40];
    node.both_ways(&list(&at), &at);
    let formula = Region::new(peer.base(), 62, BLOCK as u64).unwrap();
    let at: Vec<u32> = (0..62).collect();
    node.both_ways(&formula.into(), &at);

    let range = |base, blocks| Region::new(base, blocks, BLOCK as u64).unwrap().into();
    for (remote, named) in [
        (list(&[5, 63, 4]), "block 1,"),
        (list(&[62, 4]), "block 0,"),
        (range(peer.base() + 2048, 62), "block 31,"),
        (range(peer.base() - 1, 4), "block 0,"),
        (range(peer.base(), 63), "block 62,"),
    ] {
        let error = node.connect(&remote).unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        assert!(error.message.contains(named), "{error}");
    }
    node.backend.try_close().unwrap();
    drop(parts);
}
