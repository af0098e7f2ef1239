//! The transports, their memory, and the transfers between them, as they should be.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::time::{Duration, Instant};

use super::messages::Notes;
use super::wrong::{Faults, Name, last_error};
use crate::ffi::handle::dt_transport;
use crate::ffi::push::{dt_completion, dt_wait, dt_xfer_id};
use crate::ffi::region::{dt_region_alloc, dt_region_free};
use crate::ffi::status::*;
use crate::ffi::transport::*;
use crate::fuzz::Input;

/// Bounds every wait: what takes so long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a program that uses the library knows.
pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    pub(super) xfers: Vec<Xfer>,
    pub(super) notes: Notes,
    /// Makes contents different.
    pub(super) pattern: u64,
}

/// One transport.
pub(super) struct Node {
    pub(super) handle: *mut dt_transport,
    memory: Memory,
    pub(super) blocks: usize,
    pub(super) block_len: usize,
    pub(super) name: String,
    /// What the region must hold.
    pub(super) model: Vec<u8>,
    pub(super) peers: BTreeMap<String, Peer>,
    /// What `dt_close` was called on; it answers, but no more than that.
    pub(super) closed: bool,
    pub(super) destroyed: bool,
    pub(super) metadata: Vec<u8>,
    pub(super) descriptor: Vec<u8>,
    pub(super) handshake: Vec<u8>,
    pub(super) ids: BTreeSet<dt_xfer_id>,
    pub(super) polls: u64,
}

/// A peer of a node.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) node: usize,
    /// Which blocks of it the indexes mean.
    pub(super) blocks: Vec<usize>,
}

/// A block of a node.
pub(super) type Block = (usize, usize);

/// A transfer that was not reported yet.
pub(super) struct Xfer {
    pub(super) id: dt_xfer_id,
    pub(super) owner: usize,
    pub(super) peer: String,
    pub(super) user_data: u64,
    pub(super) from: Vec<Block>,
    pub(super) to: Vec<Block>,
    /// What `from` held when it was submitted.
    pub(super) bytes: Vec<u8>,
    /// Another one touches the same blocks: what they hold is not said.
    pub(super) mixed: bool,
    /// Its peer was removed or replaced.
    pub(super) orphaned: bool,
    /// Belongs to a handle, and has this message.
    pub(super) posted: bool,
    pub(super) note: Option<u64>,
    /// Of a posted read, when it was seen.
    pub(super) state: Option<dt_status>,
}

/// A region that is the caller's.
struct Memory {
    base: *mut u8,
    bytes: usize,
    fd: i32,
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let (mut base, mut fd) = (ptr::null_mut(), -1);
        // SAFETY: room for both results.
        let status = unsafe { dt_region_alloc(bytes, &raw mut base, &raw mut fd) };
        assert_eq!(status, DT_OK, "{}", last_error());
        Memory {
            base: base.cast(),
            bytes,
            fd,
        }
    }

    fn get(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.bytes);
        // SAFETY: inside of the mapping; only calls of this thread change it, and none is going on.
        unsafe { std::slice::from_raw_parts(self.base.add(at), len) }
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes);
        // SAFETY: inside of the mapping, and `bytes` are elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it came from dt_region_alloc, and the transport over it is gone.
        unsafe { dt_region_free(self.base.cast(), self.bytes, self.fd) };
    }
}

impl Node {
    /// Where its region is, also when nothing is there any more.
    pub(super) fn base(&self) -> u64 {
        self.memory.base.addr() as u64
    }
}

impl World {
    pub(super) fn new(input: &mut Input) -> World {
        let mut world = World {
            nodes: Vec::new(),
            xfers: Vec::new(),
            notes: Notes::default(),
            pattern: 1,
        };
        let block_len = [64, 1, 4096, 7, 72 << 10][input.below(5)];
        for _ in 0..2 {
            let blocks = 1 + input.below(if block_len > 4096 { 6 } else { 16 });
            world.create(blocks, block_len, input);
        }
        world
    }

    /// A node that works.
    pub(super) fn create(&mut self, blocks: usize, block_len: usize, input: &mut Input) {
        let memory = Memory::new(blocks * block_len);
        let name = CString::new(format!("node {}", self.nodes.len())).expect("no NUL");
        let config = [None, Some(c"{\"a\":1}"), Some(c"{}")][input.below(3)];
        let mut options = options();
        options.agent_name = name.as_ptr();
        options.config_json = config.map_or(ptr::null(), CStr::as_ptr);
        options.poll_budget_us = [0, 1][input.below(2)];
        // Without it, peers of other processes would take another way; here it makes none.
        options.region_has_fd = MaybeUninit::new(input.one_in(2));
        options.region_fd = memory.fd;
        let mut handle = ptr::null_mut();
        let base = memory.base.cast::<c_void>();
        // SAFETY: the memory outlives the transport, the strings and the options outlive the call.
        let status =
            unsafe { dt_create(base, blocks, block_len, &raw const options, &raw mut handle) };
        assert_eq!(status, DT_OK, "{}", last_error());
        let mut node = Node {
            handle,
            model: vec![0; memory.bytes],
            memory,
            blocks,
            block_len,
            name: name.into_string().expect("ASCII"),
            peers: BTreeMap::new(),
            closed: false,
            destroyed: false,
            metadata: Vec::new(),
            descriptor: Vec::new(),
            handshake: Vec::new(),
            ids: BTreeSet::new(),
            polls: 0,
        };
        node.ask_for_blobs();
        self.nodes.push(node);
        let new = self.nodes.len() - 1;
        for block in 0..blocks {
            self.fill(new, block);
        }
    }

    /// New content for a block.
    pub(super) fn fill(&mut self, node: usize, block: usize) {
        self.pattern = self
            .pattern
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(1);
        let len = self.nodes[node].block_len;
        let mut bytes = self.pattern.to_le_bytes().repeat(len.div_ceil(8));
        bytes.truncate(len);
        let node = &mut self.nodes[node];
        node.memory.set(block * len, &bytes);
        node.model[block * len..][..len].copy_from_slice(&bytes);
    }

    /// What a block should hold.
    pub(super) fn expected(&self, (node, block): Block) -> &[u8] {
        let node = &self.nodes[node];
        &node.model[block * node.block_len..][..node.block_len]
    }

    /// Marks the new transfer, and those whose blocks it meets.
    pub(super) fn submitted(&mut self, mut new: Xfer) {
        let meets = |a: &[Block], b: &[Block]| a.iter().any(|block| b.contains(block));
        let mut unique = new.to.clone();
        unique.sort_unstable();
        unique.dedup();
        new.mixed = unique.len() < new.to.len() || meets(&new.from, &new.to);
        for old in &mut self.xfers {
            if meets(&new.to, &old.to) || meets(&new.to, &old.from) || meets(&new.from, &old.to) {
                new.mixed = true;
                old.mixed = true;
            }
        }
        let held = new.from.iter().map(|block| self.expected(*block));
        new.bytes = held.collect::<Vec<_>>().concat();
        assert!(
            self.nodes[new.owner].ids.insert(new.id),
            "an id was given twice"
        );
        assert_ne!(new.id, 0);
        self.xfers.push(new);
    }

    /// A transfer has stopped: what its blocks hold now stays. `done`: all of it must be there.
    pub(super) fn stopped(&mut self, xfer: &Xfer, done: bool) {
        for (nth, (node, block)) in xfer.to.iter().copied().enumerate() {
            let len = self.nodes[node].block_len;
            let new = &xfer.bytes[nth * len..][..len];
            let target = &mut self.nodes[node];
            if target.closed && node != xfer.owner {
                // Nothing comes there any more; what was done before has been entered.
                continue;
            }
            let found = target.memory.get(block * len, len);
            let old = &target.model[block * len..][..len];
            if !xfer.mixed {
                if done {
                    assert!(
                        found == new,
                        "done, but block {block} of node {node} holds others"
                    );
                }
                assert!(is_between(found, old, new), "block {block} of node {node}");
            }
            target.model[block * len..][..len].copy_from_slice(found);
        }
    }

    /// Every block that no transfer may change is as it was; the others hold old and new bytes.
    pub(super) fn check_memory(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let changing = |block: usize| {
                self.xfers
                    .iter()
                    .any(|xfer| xfer.to.contains(&(index, block)))
            };
            for block in 0..node.blocks {
                if node.closed || !changing(block) {
                    let (at, len) = (block * node.block_len, node.block_len);
                    let same = node.memory.get(at, len) == &node.model[at..at + len];
                    assert!(same, "block {block} of node {index} was touched");
                }
            }
        }
    }

    /// A node has closed: nobody touches its memory any more, and what it had in flight has ended.
    pub(super) fn closed(&mut self, node: usize) {
        let (ended, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.xfers)
            .into_iter()
            .partition(|xfer| xfer.owner == node);
        self.xfers = others;
        for xfer in &ended {
            self.notes.end(xfer.note, None);
            self.stopped(xfer, false);
        }
        // Those of others that have written here have ended, too.
        let mut others = std::mem::take(&mut self.xfers);
        for xfer in &mut others {
            if xfer.to.iter().any(|(target, _)| *target == node) {
                self.stopped(xfer, false);
            }
        }
        self.xfers = others;
        self.nodes[node].closed = true;
        self.nodes[node].peers.clear();
        for block in 0..self.nodes[node].blocks {
            // The caller uses its memory for something else.
            self.fill(node, block);
        }
    }

    /// Whether work for a peer may fail because that has closed.
    pub(super) fn is_gone(&self, peer: &Peer) -> bool {
        self.nodes[peer.node].closed
    }

    /// Everything ends, and nothing was lost.
    pub(super) fn end(mut self) {
        let deadline = Instant::now() + PATIENCE;
        for node in 0..self.nodes.len() {
            while !self.nodes[node].closed && self.has_open(node) {
                assert!(Instant::now() < deadline, "transfers that never end");
                self.drive(node);
                self.check_posted(node);
                for other in 0..self.nodes.len() {
                    self.receive_all(other);
                }
            }
        }
        self.check_memory();
        for node in 0..self.nodes.len() {
            self.receive_all(node);
        }
        for index in 0..self.nodes.len() {
            self.check_stats(index);
            if !self.nodes[index].destroyed {
                self.notes.receiver_is_gone(index);
                // SAFETY: the last use of the handle.
                unsafe { dt_destroy(self.nodes[index].handle) };
                self.nodes[index].destroyed = true;
            }
            self.nodes[index].closed = true;
        }
    }

    fn has_open(&self, node: usize) -> bool {
        let mut own = self.xfers.iter().filter(|xfer| xfer.owner == node);
        own.any(|xfer| !xfer.posted || xfer.state.is_none())
    }

    /// A wait without patience: LOCAL does all the work itself.
    fn drive(&mut self, node: usize) {
        let mut buf = [const { MaybeUninit::<dt_completion>::uninit() }; 4];
        let mut count = usize::MAX;
        let handle = self.nodes[node].handle;
        // SAFETY: a live handle, and room for as many completions.
        let status = unsafe {
            dt_wait(
                handle,
                ptr::null(),
                buf.as_mut_ptr().cast(),
                4,
                0,
                &raw mut count,
            )
        };
        assert_eq!(status, DT_OK, "{}", last_error());
        self.nodes[node].polls += 1;
        self.reported(node, None, &buf[..count]);
    }

    /// Index of a node; a handle that was destroyed is no more.
    pub(super) fn choose(&self, input: &mut Input) -> Option<usize> {
        let node = input.below(8) % self.nodes.len();
        (!self.nodes[node].destroyed).then_some(node)
    }

    /// The same with the name of a peer for it, and that as text if it can be one.
    pub(super) fn choose_with_name(
        &self,
        input: &mut Input,
        faults: &mut Faults,
    ) -> Option<(usize, Name, Option<String>)> {
        let node = self.choose(input)?;
        let id = Name::choose(input);
        let name = id.valid(faults);
        Some((node, id, name))
    }
}

/// Options that ask for LOCAL.
pub(super) fn options() -> dt_options {
    dt_options {
        struct_size: size_of::<dt_options>(),
        abi_version: 0,
        backend: MaybeUninit::new(dt_backend::DT_BACKEND_LOCAL),
        agent_name: ptr::null(),
        config_json: ptr::null(),
        nixl_lib_dir: ptr::null(),
        nixl_plugin: ptr::null(),
        nixl_num_threads: 0,
        progress_thread: MaybeUninit::new(false),
        region_fd: 0,
        region_offset: 0,
        region_has_fd: MaybeUninit::new(false),
        poll_budget_us: 0,
    }
}

/// Each byte is an old or a new one.
fn is_between(found: &[u8], old: &[u8], new: &[u8]) -> bool {
    let mut bytes = found.iter().zip(old).zip(new);
    found == new || found == old || bytes.all(|((found, old), new)| found == old || found == new)
}
