//! What this backend costs on top of NIXL itself: ratios of one interleaved run, not a check.
//!
//! `scripts/nixl.sh` fetches NIXL, `cargo bench --bench nixl` prints, in a minute or two.

#[path = "../tests/nixl_support/mod.rs"]
mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::transport::Transport;
use nixl_support::*;
use nixl_sys::{
    Agent, AgentConfig, MemType, MemoryRegion, NixlDescriptor, Params, ThreadSync, XferDescList,
    XferOp,
};

const SCENARIOS: &[(&str, fn())] = &[("bench", bench)];

fn main() {
    if std::env::var_os("DT_TEST_ROLE").is_some() {
        // A process that the other branch has started.
        return nixl_support::process(SCENARIOS);
    }
    print("default", Tls::Default);
    print("tcp", Tls::Tcp);
}

fn print(name: &str, tls: Tls) {
    if let Some(outcome) = run("bench", tls) {
        for line in outcome
            .stdout
            .lines()
            .filter_map(|line| line.split_once('@'))
        {
            println!("{name}: {}", line.1);
        }
    }
}

#[derive(Debug)]
struct Local(u64, usize);

impl MemoryRegion for Local {
    // SAFETY: the address is only handed to NIXL, and the memory outlives the agent.
    unsafe fn as_ptr(&self) -> *const u8 {
        self.0 as *const u8
    }
    fn size(&self) -> usize {
        self.1
    }
}

impl NixlDescriptor for Local {
    fn mem_type(&self) -> MemType {
        MemType::Dram
    }
    fn device_id(&self) -> u64 {
        0
    }
}

/// NIXL with one request for the whole transfer, as its users write it.
struct Raw {
    agent: Agent,
    base: u64,
    remote: u64,
    peer: String,
}

impl Raw {
    fn write(&self, block: usize, local: &[u32], remote: &[u32]) {
        let list = |base: u64, idxs: &[u32]| {
            let mut list = XferDescList::new(MemType::Dram).unwrap();
            for index in idxs {
                list.add_desc(base as usize + *index as usize * block, block, 0);
            }
            list
        };
        let (from, to) = (list(self.base, local), list(self.remote, remote));
        let request = self
            .agent
            .create_xfer_req(XferOp::Write, &from, &to, &self.peer, None)
            .unwrap();
        if self.agent.post_xfer_req(&request, None).unwrap() {
            while !self.agent.get_xfer_status(&request).unwrap().is_success() {}
        }
    }
}

fn ours(transport: &Transport, local: &[u32], remote: &[u32]) {
    let id = write(transport, "b", local, remote);
    let mut done = 0;
    while done == 0 {
        done = transport
            .poll(None, 1, &mut |completion| {
                assert_eq!((completion.id, completion.result), (id, Ok(())));
            })
            .unwrap();
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Median, and the quarters around it.
fn spread(mut times: Vec<Duration>) -> (f64, f64, f64) {
    times.sort();
    let at = |part: usize| times[times.len() * part / 4].as_secs_f64() * 1e6;
    (at(2), at(1), at(3))
}

fn bench() {
    const TOTAL: usize = 64 << 20;
    for (block, count, rounds) in [
        (4096usize, 1usize, 4000),
        (64 << 10, 1, 2000),
        (64 << 10, 16, 400),
        (4096, 16_384, 15),
        (64 << 10, 1024, 30),
        (2 << 20, 32, 30),
    ] {
        let memory = Memory::new(TOTAL);
        memory.fill(1, block);
        let peer = Peer::start("b", TOTAL / block, block);
        let transport = transport(Some("a"), &memory, block);
        peer.add_to(&transport, "b");
        let config = AgentConfig {
            enable_prog_thread: false,
            thread_sync: ThreadSync::None,
            ..AgentConfig::default()
        };
        let agent = Agent::new_configured("raw", &config).unwrap();
        let none: [(&str, &str); 0] = [];
        agent
            .create_backend("UCX", &Params::from(none).unwrap())
            .unwrap();
        let _registered = agent
            .register_memory(&Local(memory.base(), memory.len), None)
            .unwrap();
        let raw = Raw {
            peer: agent.load_remote_md(&peer.metadata).unwrap(),
            agent,
            base: memory.base(),
            remote: peer.base,
        };
        let blocks = (TOTAL / block) as u32;
        let (local, remote) = (permutation(blocks, 1), permutation(blocks, 2));
        let (local, remote) = (&local[..count], &remote[..count]);
        for _ in 0..3 {
            raw.write(block, local, remote);
            ours(&transport, local, remote);
        }
        let (mut theirs, mut own) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.push(timed(|| raw.write(block, local, remote)));
            own.push(timed(|| ours(&transport, local, remote)));
        }
        let (theirs, own) = (spread(theirs), spread(own));
        println!(
            "@{count:6} x {block:8} bytes: raw {:9.1} us ({:.1}..{:.1}), ours {:9.1} us ({:.1}..{:.1}), throughput x{:.3}, {:+.2} us",
            theirs.0,
            theirs.1,
            theirs.2,
            own.0,
            own.1,
            own.2,
            theirs.0 / own.0,
            own.0 - theirs.0
        );
        transport.close(PATIENCE).unwrap();
        peer.finish();
    }
}
