//! What a failure of NIXL means: is it the peer, or only this transfer? Probes find out.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::backend::{Direction, Message};
use datatransport::error::Status;
use datatransport::transport::CancelMode;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("dead_but_not_dropped", dead_but_not_dropped),
    ("three_probes", three_probes),
    ("a_slow_probe", a_slow_probe),
    ("messages_in_doubt", messages_in_doubt),
    ("drives_that_fail", drives_that_fail),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios_behind_proxy! {
    dead_but_not_dropped_default: dead_but_not_dropped Default;
    dead_but_not_dropped_tcp: dead_but_not_dropped Tcp;
    three_probes_default: three_probes Default;
    three_probes_tcp: three_probes Tcp;
    a_slow_probe_default: a_slow_probe Default;
    a_slow_probe_tcp: a_slow_probe Tcp;
    messages_in_doubt_default: messages_in_doubt Default;
    messages_in_doubt_tcp: messages_in_doubt Tcp;
    drives_that_fail_default: drives_that_fail Default;
    drives_that_fail_tcp: drives_that_fail Tcp;
}

const BLOCK: usize = 4096;

/// The peer is dead, but NIXL says that it knows it, and does not say why nothing works any more.
fn dead_but_not_dropped() {
    let mut world = World::new(64, BLOCK);
    world.b.kill();
    world.proxy.plan("check_remote_md answer=0 times=-1");
    let id = world.submit(Direction::Write, 32);
    assert_eq!(world.ends(id), Err(Status::PeerLost));
    let fault = world.transport.peer_status("b").unwrap_err();
    assert_eq!(fault.status, Status::PeerLost, "{fault}");
    world.moves("c");
    world.b = honest_peer("b", 64, BLOCK);
    world.renew().unwrap();
    world.moves("b");
    world.end();
}

/// What cannot be reached three times is gone, and not before.
fn three_probes() {
    let mut world = World::new(64, BLOCK);
    for call in ["create_xfer_req", "post_xfer_req"] {
        for count in [2, 32] {
            world.refill();
            // The transfer and two probes.
            world.proxy.plan(&format!("{call} answer=-2 times=3"));
            let id = world.submit(Direction::Write, count);
            assert_eq!(world.ends(id), Err(Status::Backend));
            assert_eq!(world.proxy.fired(), 3);
            assert!(world.transport.peer_status("b").is_ok());
            world.moves("b");

            // NIXL cannot say whether it knows the peer.
            world.refill();
            world.proxy.plan(&format!(
                "{call} answer=-2; check_remote_md answer=-2 times=2"
            ));
            let id = world.submit(Direction::Write, count);
            assert_eq!(world.ends(id), Err(Status::Backend));
            assert_eq!(world.proxy.fired(), 3);
            assert!(world.transport.peer_status("b").is_ok());
            world.moves("b");

            let conn = world.conn;
            world
                .proxy
                .plan(&format!("{call} peer={conn} answer=-2 times=-1"));
            let ids = [(); 4].map(|()| world.submit(Direction::Write, count));
            let other = write(&world.transport, "c", &[1], &[1]);
            let results = finish(&world.transport, &[&ids[..], &[other]].concat());
            assert_eq!(results[&other], Ok(()));
            for id in ids {
                assert_eq!(results[&id], Err(Status::PeerLost));
            }
            let tries = world.proxy.fired();
            assert_eq!(tries, 4, "a transfer and three probes");
            let refused = world.transport.submit(Direction::Write, "b", &[0], &[0], 0);
            assert_eq!(refused.unwrap_err().status, Status::PeerLost);
            assert!(poll(&world.transport).is_empty());
            assert_eq!(world.proxy.fired(), tries, "nobody asks any more");
            world.proxy.plan("");
            world.renew().unwrap();
            world.moves("b");
        }
    }
    world.end();
}

/// While a probe is under way, nothing is said, and nothing is lost that comes meanwhile.
fn a_slow_probe() {
    let mut world = World::new(64, BLOCK);
    let before = world.proxy.holdings();
    let doubt = |world: &World, asked: i64| {
        world.proxy.plan(&format!(
            "post_xfer_req probe=0 answer=-2; post_xfer_req probe=1 forward=1 answer=1; get_xfer_status probe=1 answer=1 times={asked}"
        ));
        let id = world.submit(Direction::Write, 2);
        for _ in 0..200 {
            assert!(poll(&world.transport).is_empty());
        }
        assert_eq!(world.proxy.count("r"), 1, "one probe");
        id
    };
    let go_on = |world: &World| world.proxy.plan("");

    world.refill();
    let id = doubt(&world, 500);
    let later = write(&world.transport, "b", &[7], &[7]);
    let results = finish(&world.transport, &[id, later]);
    assert_eq!(
        (results[&id], results[&later]),
        (Err(Status::Backend), Ok(()))
    );
    assert_eq!(world.proxy.fired(), 502);
    assert!(world.landed(7));

    // Cancelled, both ways.
    let id = doubt(&world, -1);
    let still = world.transport.cancel(&[id], CancelMode::Wait).unwrap();
    assert_eq!(still, [id]);
    go_on(&world);
    assert!(world.ends(id).is_err());
    world.moves("b");
    let id = doubt(&world, -1);
    world
        .transport
        .cancel(&[id], CancelMode::Immediate)
        .unwrap();
    let draining = || world.transport.stats().unwrap().transfers.draining;
    assert_eq!(draining(), 1);
    go_on(&world);
    poll_until(&world.transport, "the drain", || draining() == 0);
    world.moves("b");

    // Removed.
    let id = doubt(&world, -1);
    world.renew().unwrap();
    assert!(poll(&world.transport).is_empty());
    world.moves("c");
    go_on(&world);
    assert_eq!(world.ends(id), Err(Status::Cancelled));
    world.moves("b");
    assert_eq!(world.proxy.holdings(), before);

    // Closed.
    doubt(&world, -1);
    let timeout = std::time::Duration::from_millis(50);
    let closed = world.transport.close(timeout).unwrap_err();
    assert_eq!(closed.status, Status::Timeout, "{closed}");
    assert!(closed.message.contains("1 transfer"), "{closed}");
    world.end();
}

/// A message that cannot be sent is sent later, once, unless the peer cannot be reached at all.
fn messages_in_doubt() {
    let mut world = World::new(64, BLOCK);
    let send = |world: &World, message: &[u8]| {
        let start = Instant::now();
        loop {
            match world.transport.send("b", message) {
                Err(error) if error.status == Status::Busy => {
                    assert!(start.elapsed() < PATIENCE, "{error}");
                    assert!(poll(&world.transport).is_empty());
                }
                result => return result.map_err(|error| error.status),
            }
        }
    };
    let plans = [
        "gen_notif answer=-2 times=5",
        "create_xfer_req answer=-2 times=2",
        "post_xfer_req answer=-2 times=2",
        "post_xfer_req forward=1 answer=1; get_xfer_status answer=1 times=100",
        "post_xfer_req forward=1 answer=1; get_xfer_status answer=-2",
        "get_notifs answer=-2 times=20",
    ];
    let mut sent = Vec::new();
    for plan in plans {
        world.renew().unwrap();
        world.proxy.plan(plan);
        for n in 0..3 {
            let message = format!("{plan} {n}").into_bytes();
            assert_eq!(send(&world, &message), Ok(()), "{plan}");
            sent.push(message);
        }
        assert!(world.proxy.fired() > 1, "{plan}");
        world.proxy.plan("");
        assert!(world.transport.peer_status("b").is_ok(), "{plan}");
    }
    let start = Instant::now();
    let mut came = Vec::new();
    while came.len() < sent.len() {
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {}",
            came.len(),
            sent.len()
        );
        came.extend(world.b.messages());
        poll(&world.transport);
    }
    assert_eq!(came, sent);
    // Nothing reaches it.
    world.renew().unwrap();
    world.proxy.plan(&format!(
        "post_xfer_req peer={} answer=-2 times=-1",
        world.conn
    ));
    assert_eq!(send(&world, b"lost"), Err(Status::PeerLost));
    assert_eq!(world.proxy.fired(), 3);
    world.moves("c");
    world.end();
}

/// NIXL cannot say what came in. Nothing is lost by it, and what goes out is not held up.
fn drives_that_fail() {
    let mut world = World::new(64, BLOCK);
    let metadata = hex(&world.transport.agent_metadata().unwrap());
    let base = world.memory.base();
    world.b.tell(&format!("add {metadata} {base} 64"));
    expect_while_polling(&world.transport, &mut world.b, "added");
    world.b.tell("send 01");
    expect_while_polling(&world.transport, &mut world.b, "sent");
    for forward in [0, 1] {
        world
            .proxy
            .plan(&format!("get_notifs forward={forward} answer=-2 times=-1"));
        assert!(wait(&world.transport, Duration::from_millis(100)).is_empty());
        assert!(world.proxy.fired() > 1, "it goes on asking");
        world.moves("b");
    }
    world.b.tell("send 02");
    world.proxy.plan("");
    let start = Instant::now();
    let mut came = Vec::new();
    while came.len() < 2 {
        assert!(start.elapsed() < PATIENCE, "{came:?}");
        let mut take = |message: &Message| {
            came.push(message.bytes.clone());
            true
        };
        world.transport.receive(10, &mut take).unwrap();
    }
    assert_eq!(came, [[1], [2]]);
    expect_while_polling(&world.transport, &mut world.b, "sent");
    world.end();
}
