//! A transport ends while peers that stand still have not taken what they read from it.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::error::Status;
use datatransport::transport::{NixlConfig, Transport};
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("closed", closed),
    ("dropped", dropped),
    ("removed", removed),
    ("killed", killed),
    ("with_threads", with_threads),
    ("fresh", fresh),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

/// Sockets that are soon full, and a heap whose memory is never zero by chance: it has 0x2a in it.
const ENV: &[(&str, &str)] = &[
    ("UCX_TCP_SNDBUF", "64k"),
    ("UCX_TCP_RCVBUF", "64k"),
    ("MALLOC_PERTURB_", "213"),
    ("DT_TEST_PEER_FOLLOWS", "1"),
];

macro_rules! scenarios_with_small_sockets {
    ($($test:ident: $scenario:ident;)+) => {$(
        #[test]
        fn $test() {
            run_with(stringify!($scenario), Tls::Tcp, ENV);
        }
    )+};
}

scenarios_with_small_sockets! {
    closed_tcp: closed;
    dropped_tcp: dropped;
    removed_tcp: removed;
    killed_tcp: killed;
    with_threads_tcp: with_threads;
}

#[test]
fn nothing_is_waited_for_where_nothing_was_answered() {
    for tls in [Tls::Default, Tls::Tcp] {
        if let Some(outcome) = run_with("fresh", tls, &[("DT_LOG", "info")]) {
            assert!(outcome.stderr.contains("NIXL agent"), "there is a log");
            for word in ["were cut", "UCX does not send"] {
                assert!(!outcome.stderr.contains(word), "{}", outcome.stderr);
            }
        }
    }
}

const BLOCK: usize = 1 << 20;
const BLOCKS: u32 = 16;

/// A transport that "b" reads from, and which cannot send more, because "b" is stopped.
struct Stuck {
    memory: Memory,
    transport: Transport,
    b: Peer,
}

impl Stuck {
    fn new(nixl: NixlConfig) -> Stuck {
        let memory = Memory::new(BLOCKS as usize * BLOCK);
        memory.fill(1, BLOCK);
        let transport = transport_with(Some("a"), &memory, BLOCK, nixl);
        let mut b = Peer::start("b", BLOCKS as usize, BLOCK);
        read(&transport, &memory, &mut b);
        poll_until(&transport, "the first bytes", || b.memory.bytes()[0] != 0);
        b.stop();
        poll_until(&transport, "a full socket", something_waits);
        Stuck {
            memory,
            transport,
            b,
        }
    }

    /// The transport is gone: so is its memory. The peer hears of it, and both begin anew.
    fn goes_on(self) {
        let Stuck {
            memory,
            transport,
            mut b,
        } = self;
        drop(transport);
        assert!(!something_waits());
        memory.bytes().fill(0xee);
        drop(memory);
        b.cont();
        assert_eq!(b.expect("pulled"), "Err(PeerLost)");
        for index in 0..BLOCKS {
            assert!(landed_in_part(b.memory.block(index, BLOCK), 1, index));
        }
        for seed in [2, 3] {
            let memory = Memory::new(BLOCKS as usize * BLOCK);
            memory.fill(seed, BLOCK);
            let transport = transport_with(Some("a"), &memory, BLOCK, NixlConfig::default());
            read(&transport, &memory, &mut b);
            expect_while_polling(&transport, &mut b, "pulled");
            for index in 0..BLOCKS {
                assert!(holds(b.memory.block(index, BLOCK), seed, index));
            }
            transport.close(PATIENCE).unwrap();
        }
        b.finish();
    }
}

/// All of the transport's blocks.
fn read(transport: &Transport, memory: &Memory, b: &mut Peer) {
    let metadata = hex(&transport.agent_metadata().unwrap());
    b.tell(&format!("add {metadata} {} {BLOCKS}", memory.base()));
    expect_while_polling(transport, b, "added");
    b.tell(&format!("pull {BLOCKS}"));
}

/// Whether one of this process's sockets is watched until it can be written to.
fn something_waits() -> bool {
    const EPOLLOUT: u32 = 4;
    let files = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    files.flatten().any(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        text.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.first() == Some(&"tfd:")
                && u32::from_str_radix(words[3], 16).unwrap() & EPOLLOUT != 0
        })
    })
}

fn closed() {
    let stuck = Stuck::new(NixlConfig::default());
    let start = Instant::now();
    stuck.transport.close(Duration::from_secs(5)).unwrap();
    assert!(start.elapsed() < PATIENCE);
    stuck.goes_on();
}

fn dropped() {
    Stuck::new(NixlConfig::default()).goes_on();
}

/// The peer is given up while bytes wait in both directions.
fn removed() {
    let stuck = Stuck::new(NixlConfig::default());
    let Stuck { transport, b, .. } = &stuck;
    b.add_to(transport, "b");
    write(transport, "b", &all(BLOCKS), &all(BLOCKS));
    for _ in 0..1000 {
        assert!(poll(transport).is_empty());
    }
    transport.remove_peer("b").unwrap();
    for _ in 0..1000 {
        poll(transport);
    }
    let closed = transport.close(Duration::from_millis(20));
    assert_eq!(closed.unwrap_err().status, Status::Timeout);
    stuck.goes_on();
}

/// A reader that has died since UCX was driven last.
fn killed() {
    let mut stuck = Stuck::new(NixlConfig::default());
    stuck.b.kill();
    stuck.transport.close(PATIENCE).unwrap();
    assert!(!something_waits());
    drop(stuck);
}

/// The engine is driven by NIXL as well.
fn with_threads() {
    for num_threads in [0, 2] {
        let nixl = NixlConfig {
            progress_thread: true,
            num_threads,
            ..NixlConfig::default()
        };
        let stuck = Stuck::new(nixl);
        stuck.transport.close(PATIENCE).unwrap();
        stuck.goes_on();
    }
}

/// Connections that are still being made: NIXL's to itself, and one to a peer.
fn fresh() {
    let memory = Memory::new(BLOCK);
    let b = Peer::start("b", 1, BLOCK);
    for with_peer in [false, true] {
        let transport = transport_with(Some("a"), &memory, BLOCK, NixlConfig::default());
        if with_peer {
            b.add_to(&transport, "b");
        }
        transport.close(Duration::ZERO).unwrap();
    }
}
