//! A transport behind the proxy with two peers that have the real NIXL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datatransport::backend::Direction;
use datatransport::error::Result;
use datatransport::log::{Level, set_sink};
use datatransport::transport::Transport;

use super::*;

/// The transport "a" and its peers "b" and "c", in this order. Tests let go wrong what concerns "b".
pub struct World {
    pub proxy: Proxy,
    pub memory: Memory,
    pub transport: Transport,
    pub b: Peer,
    pub c: Peer,
    pub block_len: usize,
    /// The seed of what was written last.
    pub seed: u64,
    /// Which of the transport's connections is that to "b".
    pub conn: u64,
    conns: u64,
}

impl World {
    /// Both peers are connected.
    pub fn new(blocks: usize, block_len: usize) -> World {
        let proxy = Proxy::here();
        let memory = Memory::new(blocks * block_len);
        let transport = transport(Some("a"), &memory, block_len);
        let b = honest_peer("b", blocks, block_len);
        let c = honest_peer("c", blocks, block_len);
        b.add_to(&transport, "b");
        c.add_to(&transport, "c");
        let mut world = World {
            proxy,
            memory,
            transport,
            b,
            c,
            block_len,
            seed: 0,
            conn: 1,
            conns: 2,
        };
        world.moves("b");
        world.moves("c");
        world
    }

    /// Other bytes than ever before in the local blocks, and none in those of "b".
    pub fn refill(&mut self) {
        self.seed += 1;
        self.memory.fill(self.seed, self.block_len);
        self.b.memory.bytes().fill(0);
    }

    /// A write through `id` works, and its bytes arrive.
    pub fn moves(&mut self, id: &str) {
        self.refill();
        let id_of_write = write(&self.transport, id, &[3], &[4]);
        assert_eq!(
            finish(&self.transport, &[id_of_write])[&id_of_write],
            Ok(()),
            "{id}"
        );
        let peer = if id == "c" { &self.c } else { &self.b };
        let block = peer.memory.block(4, self.block_len);
        assert!(holds(block, self.seed, 3), "{id}");
    }

    /// The same for "c", while "b" is in the middle of something.
    pub fn moves_for_c(&mut self) {
        let id = write(&self.transport, "c", &[3], &[4]);
        assert_eq!(finish(&self.transport, &[id])[&id], Ok(()));
        let block = self.c.memory.block(4, self.block_len);
        assert!(holds(block, self.seed, 3));
    }

    /// The first `count` local blocks to the same places at "b", or from there.
    pub fn submit(&self, direction: Direction, count: u32) -> XferId {
        let all = all(count);
        self.transport
            .submit(direction, "b", &all, &all, 0)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Its result, with which nothing of it runs any more.
    pub fn ends(&self, id: XferId) -> std::result::Result<(), Status> {
        let result = finish(&self.transport, &[id])[&id];
        assert_eq!(self.proxy.zombies(), 0, "it was reported, but it runs");
        result
    }

    /// In the blocks of "b" is nothing but bytes that belong there.
    pub fn b_is_clean(&self) -> bool {
        (0..self.b.blocks() as u32).all(|index| {
            landed_in_part(self.b.memory.block(index, self.block_len), self.seed, index)
        })
    }

    /// Block `index` of "b" has arrived.
    pub fn landed(&self, index: u32) -> bool {
        holds(self.b.memory.block(index, self.block_len), self.seed, index)
    }

    /// Removes "b" and adds it again.
    pub fn renew(&mut self) -> Result<()> {
        self.transport.remove_peer("b")?;
        self.b.try_add_to(&self.transport, "b")?;
        self.conns += 1;
        self.conn = self.conns;
        Ok(())
    }

    /// Closes everything, after which nothing of NIXL is left.
    pub fn end(self) {
        self.proxy.plan("");
        self.transport.close(PATIENCE).unwrap();
        let counts = self.transport.stats().unwrap().transfers;
        let ended = counts.done + counts.failed + counts.cancelled;
        assert_eq!((counts.submitted, counts.inflight), (ended, 0));
        drop(self.transport);
        assert_eq!(self.proxy.holdings(), NOTHING);
        assert_eq!(self.proxy.count("released_running"), 0);
        self.b.finish();
        self.c.finish();
    }
}

/// Nothing else is in the block than some bytes of what should be there.
pub fn landed_in_part(block: &[u8], seed: u64, index: u32) -> bool {
    let mut expected = vec![0; block.len()];
    fill(&mut expected, seed, index);
    if block == expected || is_zero(block) {
        return true;
    }
    let mut bytes = block.iter().zip(expected);
    bytes.all(|(found, expected)| *found == 0 || *found == expected)
}

/// Posts that end within the call look as if they ran on, so that they are asked for.
pub const ASKED_FOR: &str = "post_xfer_req probe=0 forward=1 answer=1 times=-1";

/// Counts the warnings until the next sink.
pub fn count_warnings() -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let sink = Arc::clone(&count);
    let keep = move |_: Level, _: &std::ffi::CStr| {
        sink.fetch_add(1, Ordering::SeqCst);
    };
    set_sink(Some(Arc::new(keep)), Level::Warn as i32);
    count
}

/// The end of it.
pub fn warn_nobody() {
    set_sink(None, 0);
}
