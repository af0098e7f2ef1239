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

const SCENARIOS: &[(&str, fn())] = &[("bench", bench), ("calls", calls), ("in_flight", in_flight)];

fn main() {
    if std::env::var_os("DT_TEST_ROLE").is_some() {
        // A process that the other branch has started.
        return nixl_support::process(SCENARIOS);
    }
    for scenario in ["bench", "calls"] {
        print(scenario, "default", Tls::Default);
        print(scenario, "tcp", Tls::Tcp);
    }
    // Over UCX's defaults nothing stays in flight: the kernel copies within the call.
    print("in_flight", "tcp", Tls::Tcp);
}

fn print(scenario: &str, name: &str, tls: Tls) {
    if let Some(outcome) = run(scenario, tls) {
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

/// How long the calls take that must not wait: 64 MiB in 1024 blocks.
fn calls() {
    const BLOCK: usize = 64 << 10;
    let memory = Memory::new(1024 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 1024, BLOCK);
    peer.add_to(&transport, "b");
    let (local, remote) = (permutation(1024, 1), permutation(1024, 2));
    let (mut submits, mut polls) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let mut id = 0;
        submits.push(timed(|| id = write(&transport, "b", &local, &remote)));
        let mut done = 0;
        while done == 0 {
            let mut poll = || done = transport.poll(None, 1, &mut |_| {}).unwrap();
            polls.push(timed(&mut poll));
        }
    }
    report("submission of 64 MiB", submits);
    report("poll that moves it", polls);
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    println!(
        "@{what}: median {:.1} us, p99 {:.1} us, worst {:.1} us of {}",
        at(50),
        at(99),
        at(100),
        times.len()
    );
}

/// What a poll costs when nothing can end, because the peer is stopped.
fn in_flight() {
    const BLOCK: usize = 4096;
    let memory = Memory::new(1024 * BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 1024, BLOCK);
    peer.add_to(&transport, "b");
    ours(&transport, &[0], &[0]);
    peer.stop();
    let all: Vec<u32> = (0..1024).collect();
    write(&transport, "b", &all, &all);
    let cost = || {
        let poll = || assert_eq!(transport.poll(None, 1, &mut |_| {}), Ok(0));
        // The first ones post what there is room for.
        spread((0..6000).map(|_| timed(poll)).skip(1000).collect()).0
    };
    let one = cost();
    for index in 0..10_000 {
        write(&transport, "b", &[index % 1024], &[index % 1024]);
    }
    let many = cost();
    println!(
        "@poll, nothing done: {one:.2} us with 1 in flight, {many:.2} us with 10,001, x{:.2}",
        many / one
    );
    peer.cont();
    transport.close(PATIENCE).unwrap();
    peer.finish();
}
