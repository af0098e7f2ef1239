//! What nobody would notice, because nothing fails: the log tells it.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::log::Level;
use nixl_support::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SCENARIOS: &[(&str, fn())] = &[("silent_targets", silent_targets), ("deaf", deaf)];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    silent_targets_tcp: silent_targets Tcp;
    deaf_default: deaf Default;
    deaf_tcp: deaf Tcp;
}

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 64;

/// One target has never made a call, one stands still, one is well.
fn silent_targets() {
    let memory = Memory::new(BLOCKS * BLOCK);
    memory.fill(1, BLOCK);
    let a = transport(Some("a"), &memory, BLOCK);
    let start = |name| {
        let mut peer = Peer::start(name, BLOCKS, BLOCK);
        if name == "never" {
            peer.drive(0);
        }
        peer.add_to(&a, name);
        peer
    };
    let (mut never, stopped, well) = (start("never"), start("stopped"), start("well"));
    let moves = |name, peer: &Peer| {
        let id = write(&a, name, &[3], &[4]);
        assert_eq!(finish(&a, &[id])[&id], Ok(()));
        assert!(holds(peer.memory.block(4, BLOCK), 1, 3));
    };
    moves("stopped", &stopped);
    stopped.stop();
    let log = Log::new();
    let all = all(BLOCKS as u32);
    let ids = ["never", "stopped"].map(|name| write(&a, name, &all, &all));
    let silent = |name| log.count(Level::Warn, &[name, "answered nothing", "dt_poll"]);
    let began = Instant::now();
    while silent("never") + silent("stopped") < 2 {
        assert!(began.elapsed() < PATIENCE, "nobody was told");
        moves("well", &well);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((silent("never"), silent("stopped")), (1, 1));
    // The warning changes nothing.
    never.drive(2);
    stopped.cont();
    let ended = finish(&a, &ids);
    for (id, peer) in ids.iter().zip([&never, &stopped]) {
        assert_eq!(ended[id], Ok(()));
        assert!(
            all.iter()
                .all(|at| holds(peer.memory.block(*at, BLOCK), 1, *at))
        );
    }
    for name in ["never", "stopped"] {
        let answers = log.count(Level::Info, &[name, "answers"]);
        assert_eq!((answers, silent(name)), (1, 1), "{name}");
    }
    assert_eq!(log.count(Level::Warn, &["well"]), 0);
    a.close(PATIENCE).unwrap();
    for peer in [never, stopped, well] {
        peer.finish();
    }
}

/// A peer connects while this process has no descriptor left.
fn deaf() {
    let memory = Memory::new(BLOCKS * BLOCK);
    // From the beginning: it is looked at the first time that the engine is driven, and is well then.
    let log = Log::new();
    let told = || log.count(Level::Error, &["UCX has closed", "RLIMIT_NOFILE"]);
    let a = transport(Some("a"), &memory, BLOCK);
    let introduce = |peer: &mut Peer| {
        let (metadata, base) = (hex(&a.agent_metadata().unwrap()), memory.base());
        peer.tell(&format!("add {metadata} {base} {BLOCKS}"));
        expect_while_polling(&a, peer, "added");
    };
    let mut early = Peer::start("early", BLOCKS, BLOCK);
    let mut late = Peer::start("late", BLOCKS, BLOCK);
    introduce(&mut early);
    early.memory.fill(1, BLOCK);
    let push = |peer: &mut Peer| {
        memory.bytes().fill(0);
        peer.tell("push 8");
        expect_while_polling(&a, peer, "pushed");
        assert!((0..8).all(|at| holds(memory.block(at, BLOCK), 1, at)));
    };
    push(&mut early);
    assert_eq!(told(), 0);

    let few = Rlimit {
        current: Some(200),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let all: Vec<_> = std::iter::repeat_with(|| file.try_clone())
        .map_while(Result::ok)
        .collect();
    introduce(&mut late);
    late.tell("push 8");
    let began = Instant::now();
    while told() == 0 {
        assert!(began.elapsed() < PATIENCE, "nobody was told");
        assert!(wait(&a, Duration::from_millis(1)).is_empty());
    }
    drop(all);
    // Connections that are there go on.
    push(&mut early);
    drop(late);
    a.close(PATIENCE).unwrap();
    assert_eq!(told(), 1);
    early.finish();
}
