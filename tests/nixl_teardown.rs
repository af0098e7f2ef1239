//! What is taken from NIXL is given back: in order, when it has ended and not before, whatever NIXL says
//! to that; and NIXL is left alone when it cannot be called any more.

mod nixl_support;

use std::time::Duration;

use datatransport::backend::Direction;
use datatransport::error::Status;
use datatransport::transport::{CancelMode, ReadState, Transport};
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("in_order", in_order),
    ("by_force", by_force),
    ("cancels", cancels),
    ("refused_at_the_end", refused_at_the_end),
    ("nothing_is_kept", nothing_is_kept),
    ("parked", parked),
    ("exits", exits),
    ("forks", forks),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios_behind_proxy! {
    in_order_default: in_order Default;
    in_order_tcp: in_order Tcp;
    by_force_default: by_force Default;
    by_force_tcp: by_force Tcp;
    cancels_default: cancels Default;
    cancels_tcp: cancels Tcp;
    refused_at_the_end_default: refused_at_the_end Default;
    refused_at_the_end_tcp: refused_at_the_end Tcp;
    nothing_is_kept_default: nothing_is_kept Default;
    nothing_is_kept_tcp: nothing_is_kept Tcp;
    parked_default: parked Default;
    parked_tcp: parked Tcp;
    exits_default: exits Default;
    exits_tcp: exits Tcp;
    forks_default: forks Default;
}

const BLOCK: usize = 4096;

/// Posted, and asked for in vain as long as the plan lasts.
const STALL: &str =
    "get_xfer_status peer=1 answer=1 times=-1; post_xfer_req peer=1 forward=1 answer=1 times=-1";

/// What NIXL may make of the release of a request that runs: the pinned one cancels it.
const RELEASES: [&str; 3] = [
    "",
    "release_xfer_req running=1 answer=-2 forward=0 times=-1",
    "release_xfer_req running=1 answer=1 forward=0 times=5",
];

/// Requests go before their peers, peers before memory, memory before its backend, and the agent is the
/// last. Nothing goes only because the agent does.
fn check_order(journal: &str) {
    assert!(!journal.contains(char::is_uppercase), "{journal}");
    let first = |kind: char| journal.find(kind).unwrap_or_else(|| panic!("{journal}"));
    let last = |kind: char| journal.rfind(kind).unwrap_or(0);
    assert!(last('r') < last('p'), "{journal}");
    for (before, after) in [('p', 'm'), ('m', 'b'), ('b', 'a')] {
        assert!(
            last(before) < first(after),
            "{before} and {after}: {journal}"
        );
    }
    assert!(journal.ends_with('a'), "{journal}");
}

fn in_order() {
    for removed in [false, true] {
        let world = World::new(64, BLOCK);
        // Of each kind of transfer one that is still posted.
        world.proxy.plan(STALL);
        world.submit(Direction::Write, 2);
        world.submit(Direction::Read, 32);
        let read = world.transport.post_read("b", &[1], &[1], b"x").unwrap();
        for _ in 0..50 {
            assert!(poll(&world.transport).is_empty());
        }
        assert_eq!(world.transport.read_state(read), Ok(ReadState::Running));
        assert!(world.proxy.count("r") >= 3);
        if removed {
            world.transport.remove_peer("b").unwrap();
        }
        world.proxy.forget();
        let closed = world.transport.close(Duration::from_millis(20));
        assert_eq!(closed.unwrap_err().status, Status::Timeout);
        let journal = world.proxy.journal();
        assert!(!journal.contains(['r', 'm', 'b', 'a']), "{journal}");
        world.proxy.plan("");
        world.transport.close(PATIENCE).unwrap();
        check_order(&world.proxy.journal());
        assert!(world.proxy.journal().contains('r'));
        world.end();
    }
}

/// A transport is dropped while NIXL works for it. What NIXL refuses to give back, it keeps.
fn by_force() {
    for release in RELEASES {
        let mut world = World::new(64, BLOCK);
        world.refill();
        world.proxy.plan(&format!("{STALL}; {release}"));
        // Over sockets they run indeed.
        let sockets = std::env::var_os("UCX_TLS").is_some();
        world.b.stop();
        world.submit(Direction::Write, 2);
        world.submit(Direction::Write, 32);
        for _ in 0..50 {
            assert!(poll(&world.transport).is_empty());
        }
        let running = world.proxy.count("r");
        assert!(running >= 2);
        world.proxy.forget();
        let World {
            proxy,
            transport,
            memory,
            mut b,
            c,
            seed,
            ..
        } = world;
        drop(transport);
        let journal = proxy.journal();
        assert_eq!(proxy.count("a"), 0);
        proxy.plan("");
        // Of what NIXL does not take back, nothing can be said but this.
        check_order(&journal.replace('R', ""));
        let refused = sockets && !release.is_empty();
        assert_eq!(journal.contains('R'), refused, "{journal}");
        // The memory is the caller's again.
        memory.bytes().fill(0xee);
        drop(memory);
        b.cont();
        b.drive(2);
        for index in 0..64 {
            assert!(landed_in_part(b.memory.block(index, BLOCK), seed, index));
        }
        b.finish();
        c.finish();
    }
}

/// Cancelling asks nothing of NIXL, so it is the same whatever a release does: see RELEASES.
fn cancels() {
    let mut seen = Vec::new();
    for release in RELEASES {
        let mut world = World::new(64, BLOCK);
        let before = world.proxy.holdings();
        let stall = format!("{STALL}; {release}");
        for mode in [CancelMode::Wait, CancelMode::Immediate] {
            for ends_first in [false, true] {
                world.refill();
                world.proxy.plan(&stall);
                // One is posted, the other waits for polls.
                let posted = world.submit(Direction::Write, 2);
                let waiting = world.submit(Direction::Write, 32);
                if ends_first {
                    world.proxy.plan(release);
                    poll_until_done(&world.transport, 2);
                }
                let still = world.transport.cancel(&[posted, waiting], mode).unwrap();
                let draining = world.transport.stats().unwrap().transfers.draining;
                world.proxy.plan(release);
                let ended = finish(&world.transport, &still);
                poll_until(&world.transport, "the drain", || {
                    world.transport.stats().unwrap().transfers.draining == 0
                });
                assert!(poll(&world.transport).is_empty());
                seen.push((
                    still.len(),
                    draining,
                    still.iter().map(|id| ended[id]).collect::<Vec<_>>(),
                ));
                assert_eq!(world.proxy.count("r"), 0);
                // Nothing reads the blocks any more.
                assert!(world.b_is_clean());
                world.moves("b");
                assert_eq!(world.proxy.holdings(), before);
            }
        }
        // Removal, and the end of the transport.
        world.proxy.plan(&stall);
        let ids = [
            world.submit(Direction::Write, 2),
            world.submit(Direction::Write, 32),
        ];
        world.transport.remove_peer("b").unwrap();
        world.proxy.plan(release);
        let ended = finish(&world.transport, &ids);
        assert_eq!(ids.map(|id| ended[&id]), [Err(Status::Cancelled); 2]);
        world.end();
    }
    let (first, rest) = seen.split_at(4);
    let done = vec![Ok(())];
    assert_eq!(
        first[0],
        (1, 0, done),
        "what was posted goes on, and is done"
    );
    assert_eq!(first[1], (0, 0, vec![]));
    assert_eq!(first[2], (0, 1, vec![]));
    assert_eq!(first[3], (0, 0, vec![]));
    assert!(rest.chunks(4).all(|other| other == first), "{seen:?}");
}

/// NIXL does not take back what has ended. The caller does not see it. (nixl-sys does not say what a
/// release answered, so NIXL keeps what it refused until the agent goes.)
fn refused_at_the_end() {
    for answer in [1, -2] {
        let mut world = World::new(64, BLOCK);
        world.refill();
        let plan = format!("release_xfer_req answer={answer} forward=0 times=5");
        world.proxy.plan(&plan);
        let ids: Vec<_> = (0..10)
            .map(|at| write(&world.transport, "b", &[at], &[at]))
            .collect();
        let results = finish(&world.transport, &ids);
        assert!(results.values().all(|result| *result == Ok(())));
        assert_eq!((world.proxy.fired(), world.proxy.count("r")), (5, 5));
        assert!((0..10).all(|index| world.landed(index)));
        assert!(poll(&world.transport).is_empty(), "each surfaces once");
        world.moves("b");
        world.end();
    }
}

/// Drives until so many have ended, without taking them.
fn poll_until_done(transport: &Transport, count: u64) {
    let start = std::time::Instant::now();
    let before = transport.stats().unwrap().transfers;
    let ended = |counts: datatransport::ledger::Counts| counts.done + counts.failed;
    while ended(transport.stats().unwrap().transfers) < ended(before) + count {
        assert!(start.elapsed() < PATIENCE);
        transport.poll(None, 0, &mut |_| {}).unwrap();
    }
}

/// What has ended is given back at once, not when the transport is closed.
fn nothing_is_kept() {
    let mut world = World::new(64, BLOCK);
    let before = world.proxy.holdings();
    for round in 0..100 {
        world.seed += 1;
        world.memory.fill(world.seed, BLOCK);
        let ids: Vec<_> = (0..50)
            .map(|at| write(&world.transport, "b", &[at], &[at]))
            .collect();
        if round % 4 == 0 {
            world
                .transport
                .cancel(&ids[..10], CancelMode::Immediate)
                .unwrap();
        }
        let from = if round % 4 == 0 { 10 } else { 0 };
        assert!(
            finish(&world.transport, &ids[from..])
                .values()
                .all(|result| result.is_ok())
        );
        assert!((from as u32..50).all(|index| world.landed(index)));
    }
    poll_until(&world.transport, "the drain", || {
        world.transport.stats().unwrap().transfers.draining == 0
    });
    assert!(world.proxy.count("create_xfer_req") >= 5_000);
    assert_eq!(world.proxy.holdings(), before);
    world.end();
}

/// Whatever a transfer waits for, and however long, the calls that shall end it return, and say so.
fn parked() {
    const PROBE: &str = "post_xfer_req probe=0 answer=-2";
    // How many transfers there are; a connection takes 64 requests, what comes then waits for its turn.
    for (state, plan, transfers) in [
        ("its turn", STALL, 70),
        ("NIXL", STALL, 1),
        ("a probe", &format!("{PROBE}; {STALL}"), 1),
    ] {
        let mut world = World::new(64, BLOCK);
        world.refill();
        world.proxy.plan(plan);
        let ids: Vec<_> = (0..transfers)
            .map(|_| world.submit(Direction::Write, 2))
            .collect();
        for _ in 0..100 {
            assert!(poll(&world.transport).is_empty(), "{state}");
        }
        world.moves_for_c();
        // Only what was not posted can be stopped.
        let last = &ids[transfers - 1..];
        let still = world.transport.cancel(last, CancelMode::Wait).unwrap();
        assert_eq!(still.is_empty(), state == "its turn");
        let counts = world.transport.stats().unwrap().transfers;
        assert_eq!(counts.inflight as usize, transfers - 1 + still.len());
        let closed = world.transport.close(Duration::from_millis(20));
        let closed = closed.unwrap_err();
        assert_eq!(closed.status, Status::Timeout, "{state}: {closed}");
        let posted = format!("{} transfer", transfers.min(64));
        assert!(closed.message.contains(&posted), "{state}: {closed}");
        world.end();
    }

    // A message, while the connection is made and when it is on its way.
    let mut world = World::new(64, BLOCK);
    world.renew().unwrap();
    let stall = STALL.replace("peer=1", &format!("peer={}", world.conn));
    world.proxy.plan(&stall);
    for _ in 0..100 {
        let busy = world.transport.send("b", b"early").unwrap_err();
        assert_eq!(busy.status, Status::Busy, "{busy}");
    }
    world.proxy.plan("");
    while let Err(busy) = world.transport.send("b", b"sent") {
        assert_eq!(busy.status, Status::Busy, "{busy}");
        assert!(poll(&world.transport).is_empty());
    }
    world.proxy.plan(&stall);
    let closed = world.transport.close(Duration::from_millis(20));
    let closed = closed.unwrap_err();
    assert_eq!(closed.status, Status::Timeout, "{closed}");
    assert!(closed.message.contains("messages to"), "{closed}");
    world.proxy.plan("");
    world.transport.close(PATIENCE).unwrap();
    assert_eq!(world.b.messages(), [b"sent"]);
    world.end();
}

/// What a program has left open at its exit.
static LEFT: std::sync::Mutex<Option<Transport>> = std::sync::Mutex::new(None);

/// Handlers of a program's own run before and after NIXL's objects go. The proxy would not let a call
/// pass after that.
fn exits() {
    extern "C" fn early() {
        let left = LEFT.lock().unwrap();
        let transport = left.as_ref().unwrap();
        let _ = poll(transport);
        eprintln!("early: {:?}", transport.peer_status("b"));
    }
    extern "C" fn late() {
        let transport = LEFT.lock().unwrap().take().unwrap();
        let _ = transport.submit(Direction::Write, "b", &[0], &[0], 0);
        let _ = transport.poll(None, 10, &mut |_| {});
        let _ = transport.send("b", b"late");
        let _ = transport.remove_peer("b");
        let closed = transport.close(Duration::from_millis(100));
        drop(transport);
        // Only this says that it came so far.
        let code = if closed.is_ok() { 0 } else { 3 };
        // SAFETY: it ends the process.
        unsafe { libc::_exit(code) };
    }
    // SAFETY: functions that live as long as the process.
    unsafe { libc::atexit(late) };
    let world = World::new(64, BLOCK);
    world.proxy.plan(STALL);
    world.submit(Direction::Write, 2);
    world.submit(Direction::Write, 32);
    poll(&world.transport);
    // SAFETY: as above.
    unsafe { libc::atexit(early) };
    let World {
        transport,
        memory,
        b,
        c,
        ..
    } = world;
    *LEFT.lock().unwrap() = Some(transport);
    std::mem::forget(memory);
    b.finish();
    c.finish();
    std::process::exit(4);
}

/// A child has copies of all handles, and calls NIXL with none of them. The proxy would not let it.
fn forks() {
    let world = World::new(64, BLOCK);
    world.proxy.plan(STALL);
    let id = world.submit(Direction::Write, 2);
    // SAFETY: the child only calls the transport and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let forked = |status: Status| status == Status::Forked;
        let transport = &world.transport;
        let refused = forked(
            transport
                .submit(Direction::Write, "b", &[0], &[0], 0)
                .unwrap_err()
                .status,
        ) && forked(transport.poll(None, 1, &mut |_| {}).unwrap_err().status)
            && forked(transport.remove_peer("b").unwrap_err().status)
            && forked(transport.send("b", b"x").unwrap_err().status)
            && forked(transport.close(PATIENCE).unwrap_err().status);
        drop(world.transport);
        // SAFETY: it ends the child.
        unsafe { libc::_exit(if refused { 0 } else { 5 }) };
    }
    let mut status = 0;
    // SAFETY: the child of above, waited for once.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "the child");
    world.proxy.plan("");
    assert_eq!(world.ends(id), Ok(()));
    world.end();
}
