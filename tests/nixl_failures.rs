//! Transfers that NIXL fails, whenever and in whatever words: they fail once, when all of them has ended.

mod nixl_support;

use std::sync::atomic::Ordering;
use std::time::Instant;

use datatransport::backend::Direction;
use datatransport::error::Status;
use datatransport::transport::ReadState;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("every_status", every_status),
    ("one_of_five", one_of_five),
    ("all_parts_end_first", all_parts_end_first),
    ("half_a_post", half_a_post),
    ("disconnect_anywhere", disconnect_anywhere),
    ("failed_reads_say_nothing", failed_reads_say_nothing),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios_behind_proxy! {
    every_status_default: every_status Default;
    every_status_tcp: every_status Tcp;
    one_of_five_default: one_of_five Default;
    one_of_five_tcp: one_of_five Tcp;
    all_parts_end_first_default: all_parts_end_first Default;
    all_parts_end_first_tcp: all_parts_end_first Tcp;
    half_a_post_default: half_a_post Default;
    half_a_post_tcp: half_a_post Tcp;
    disconnect_anywhere_default: disconnect_anywhere Default;
    disconnect_anywhere_tcp: disconnect_anywhere Tcp;
    failed_reads_say_nothing_default: failed_reads_say_nothing Default;
    failed_reads_say_nothing_tcp: failed_reads_say_nothing Tcp;
}

const BLOCK: usize = 4096;

/// All statuses of NIXL's C API but success and in progress, and some that it does not have.
const FAILURES: [i32; 13] = [
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
    -7,
    -100,
    2,
    3,
    255,
    i32::MIN,
    i32::MAX,
];

/// What is neither success nor in progress is a failure: of this transfer, once, and of nothing else.
fn every_status() {
    let mut world = World::new(64, BLOCK);
    let before = world.proxy.holdings();
    for status in FAILURES {
        let plans = [
            format!("create_xfer_req probe=0 answer={status}"),
            format!("post_xfer_req probe=0 answer={status}"),
            format!("post_xfer_req probe=0 answer={status} forward=1"),
            format!("get_xfer_status probe=0 answer={status}; {ASKED_FOR}"),
            format!("get_xfer_status probe=0 answer={status} forward=1; {ASKED_FOR}"),
        ];
        for plan in plans {
            // One that is posted at once, and one that waits for polls.
            for count in [2, 32] {
                world.refill();
                world.proxy.plan(&plan);
                let id = world.submit(Direction::Write, count);
                let case = format!("{plan}, {count} blocks");
                assert_eq!(world.ends(id), Err(Status::Backend), "{case}");
                assert!(world.proxy.fired() >= 1, "{case}");
                world.proxy.plan("");
                assert!(world.b_is_clean(), "{case}");
                assert!(world.transport.peer_status("b").is_ok(), "{case}");
                world.moves("b");
                assert_eq!(world.proxy.holdings(), before, "{case}");
            }
        }
        world.moves("c");
    }
    // In progress is no end, however often, and success is.
    for count in [2, 32] {
        world.refill();
        world.proxy.plan(&format!(
            "get_xfer_status probe=0 answer=1 times=100; {ASKED_FOR}"
        ));
        let id = world.submit(Direction::Write, count);
        assert_eq!(world.ends(id), Ok(()));
        assert!(world.proxy.fired() >= 101);
        assert!((0..count).all(|index| world.landed(index)));
    }
    world.end();
}

fn one_of_five() {
    let mut world = World::new(64, BLOCK);
    for n in 0..5 {
        world.refill();
        let warnings = count_warnings();
        world.proxy.plan(&format!(
            "get_xfer_status probe=0 skip={n} answer=-6; {ASKED_FOR}"
        ));
        let ids: Vec<_> = (0..5)
            .map(|at| write(&world.transport, "b", &[at], &[at]))
            .collect();
        let results = finish(&world.transport, &ids);
        assert_eq!(world.proxy.zombies(), 0);
        let failed: Vec<_> = (0..5).filter(|at| results[&ids[*at]].is_err()).collect();
        assert_eq!(failed.len(), 1, "{results:?}");
        assert_eq!(results[&ids[failed[0]]], Err(Status::Backend));
        for at in 0..5 {
            assert!(results[&ids[at]].is_err() || world.landed(at as u32));
        }
        assert!(poll(&world.transport).is_empty(), "each surfaces once");
        let said = warnings.load(Ordering::SeqCst);
        assert_eq!(said, usize::from(n == 0), "the first of a peer");
        world.proxy.plan("");
        world.moves("b");
    }
    warn_nobody();
    world.end();
}

/// A transfer is moved in parts. When one of them fails, at any place, the transfer has failed when all
/// others have ended, and nothing more of it is posted.
fn all_parts_end_first() {
    let mut world = World::new(16, 1 << 20);
    for place in 0..3 {
        // So many parts end first. The others wait until there are several, and after the failure of the
        // first of them as well.
        let asked = format!(
            "get_xfer_status probe=0 skip={place} answer=1 times=50; get_xfer_status probe=0 skip={place} answer=-2"
        );
        let posted = format!(
            "post_xfer_req probe=0 skip={} answer=-2 forward=1",
            place + 1
        );
        for rule in [asked, posted] {
            world.refill();
            let stall = format!("get_xfer_status probe=0 skip={place} answer=1 times=-1");
            world.proxy.plan(&format!("{rule}; {stall}; {ASKED_FOR}"));
            let probes = world.proxy.count("posted_probes");
            let id = world.submit(Direction::Write, 16);
            // A probe is posted, and may have ended.
            poll_until(&world.transport, "the probe", || {
                world.proxy.count("posted_probes") > probes
            });
            for _ in 0..100 {
                assert!(poll(&world.transport).is_empty(), "{rule}");
            }
            assert!(world.proxy.count("r") > 0, "{rule}: others run");
            world.proxy.plan(ASKED_FOR);
            assert_eq!(world.ends(id), Err(Status::Backend), "{rule}");
            let left = world.proxy.count("r");
            assert_eq!(left, 0, "{rule}: {left} parts were left");
            // Nothing reads the blocks any more, nor is anything on its way.
            assert!(world.b_is_clean());
            world.memory.bytes().fill(0xee);
            world.proxy.plan("");
            let flush = write(&world.transport, "b", &[0], &[15]);
            assert_eq!(finish(&world.transport, &[flush])[&flush], Ok(()));
            let last = world.b.memory.block(15, world.block_len);
            assert_eq!(last, vec![0xee; last.len()]);
            last.fill(0);
            assert!(world.b_is_clean(), "{rule}");
            assert!(!world.landed(14), "{rule}: it was posted to its end");
        }
    }
    world.moves("c");
    world.end();
}

/// NIXL posts the first three of eight blocks, and fails.
fn half_a_post() {
    let mut world = World::new(64, BLOCK);
    world.refill();
    world
        .proxy
        .plan("create_xfer_req probe=0 parts=3; post_xfer_req probe=0 answer=-2 forward=1");
    let every_other: Vec<u32> = (0..16).step_by(2).collect();
    let sockets = std::env::var_os("UCX_TLS").is_some();
    if sockets {
        world.b.stop();
    }
    let id = write(&world.transport, "b", &every_other, &every_other);
    assert_eq!(world.proxy.fired(), 2);
    if sockets {
        for _ in 0..300 {
            assert!(poll(&world.transport).is_empty(), "its parts are under way");
        }
        world.b.cont();
    }
    assert_eq!(world.ends(id), Err(Status::Backend));
    for index in 0..16 {
        match index {
            0 | 2 | 4 => assert!(world.landed(index)),
            _ => assert!(is_zero(world.b.memory.block(index, BLOCK)), "{index}"),
        }
    }
    assert!(world.transport.peer_status("b").is_ok());
    let again = write(&world.transport, "b", &every_other, &every_other);
    assert_ne!(again, id);
    assert_eq!(world.ends(again), Ok(()));
    assert!(every_other.iter().all(|index| world.landed(*index)));
    world.end();
}

/// NIXL finds the peer gone and drops it: at a post or when it is asked for a transfer, by the call that
/// submits it or in a poll. It looks the same.
fn disconnect_anywhere() {
    let mut world = World::new(64, BLOCK);
    for call in ["post_xfer_req", "get_xfer_status"] {
        for count in [2, 32] {
            world.refill();
            let before = world.proxy.holdings();
            let warnings = count_warnings();
            world.proxy.plan(&format!(
                "{call} peer={} probe=0 answer=-2 drop=1; {ASKED_FOR}",
                world.conn
            ));
            // The first one meets it, the others wait behind it.
            let submitted = [count, 32, 32, 32].map(|count| {
                let all = all(count);
                let submitted = world.transport.submit(Direction::Write, "b", &all, &all, 0);
                submitted.map_err(|error| error.status)
            });
            let ids: Vec<_> = submitted.into_iter().filter_map(|id| id.ok()).collect();
            let polled = finish(&world.transport, &ids);
            assert_eq!(world.proxy.zombies(), 0);
            let results = submitted.map(|id| id.and_then(|id| polled[&id]));
            assert_eq!(results, [Err(Status::PeerLost); 4], "{call}, {count}");
            world.proxy.plan("");
            let status = world.transport.peer_status("b").unwrap_err();
            assert_eq!(status.status, Status::PeerLost, "{call}, {count}");
            let next = world.transport.submit(Direction::Write, "b", &[0], &[0], 0);
            assert_eq!(next.unwrap_err().status, Status::PeerLost);
            assert!(poll(&world.transport).is_empty());
            assert_eq!(warnings.load(Ordering::SeqCst), 1, "once for a peer");
            world.moves("c");
            world.renew().unwrap();
            world.moves("b");
            assert_eq!(world.proxy.holdings(), before);
        }
    }
    warn_nobody();
    world.end();
}

fn failed_reads_say_nothing() {
    let mut world = World::new(64, BLOCK);
    let ended = |world: &World, id| {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE);
            if let ReadState::Ended(result) = world.transport.read_state(id).unwrap() {
                return result;
            }
        }
    };
    for plan in [
        "create_xfer_req probe=0 answer=-2",
        "post_xfer_req probe=0 answer=-2",
        "post_xfer_req probe=0 answer=-2 forward=1",
        &format!("get_xfer_status probe=0 answer=-2; {ASKED_FOR}"),
    ] {
        for count in [2, 32] {
            world.seed += 1;
            world.b.memory.fill(world.seed, BLOCK);
            world.memory.bytes().fill(0);
            let blocks = all(count);
            world.proxy.plan(plan);
            let id = world
                .transport
                .post_read("b", &blocks, &blocks, b"failed")
                .unwrap();
            assert_eq!(ended(&world, id), Err(Status::Backend), "{plan}");
            assert_eq!(world.proxy.zombies(), 0, "{plan}");
            world.proxy.plan("");
            let id = world
                .transport
                .post_read("b", &blocks, &blocks, b"done")
                .unwrap();
            assert_eq!(ended(&world, id), Ok(()));
            for index in 0..count {
                assert!(holds(world.memory.block(index, BLOCK), world.seed, index));
            }
            let start = Instant::now();
            let mut came = Vec::new();
            while came.is_empty() {
                assert!(start.elapsed() < PATIENCE, "no message comes");
                came = world.b.messages();
            }
            assert_eq!(came, [b"done"], "{plan}");
        }
    }
    assert!(world.b.messages().is_empty());
    world.end();
}
