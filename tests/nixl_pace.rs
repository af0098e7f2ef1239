//! How often NIXL is driven, because over sockets a peer's bytes wait for it; and how much it is given.

mod nixl_support;

use datatransport::backend::Direction;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("a_poll_without_work_drives", a_poll_without_work_drives),
    (
        "a_peer_that_stands_still_is_given_little",
        a_peer_that_stands_still_is_given_little,
    ),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios_behind_proxy! {
    a_poll_without_work_drives_default: a_poll_without_work_drives Default;
    a_poll_without_work_drives_tcp: a_poll_without_work_drives Tcp;
    a_peer_that_stands_still_is_given_little_tcp: a_peer_that_stands_still_is_given_little Tcp;
}

/// However fast polls come.
fn a_poll_without_work_drives() {
    let mut world = World::new(8, 4096);
    world.moves("b");
    let before = world.proxy.count("get_notifs");
    for _ in 0..1000 {
        world.transport.poll(None, 1, &mut |_| ()).unwrap();
    }
    assert_eq!(world.proxy.count("get_notifs") - before, 1000);
    world.end();
}

/// Whatever the sizes are, the engine gets no more for a peer that stands still.
fn a_peer_that_stands_still_is_given_little() {
    const BLOCK: usize = 64 << 10;
    const MOST: i64 = 8 << 20;
    let mut world = World::new(64, BLOCK);
    // Requests of 2 MiB and less; and, behind what just fits, small ones that need no poll.
    for counts in [vec![60; 4], [vec![63; 2], vec![1; 64]].concat()] {
        world.refill();
        world.b.stop();
        let running = || world.proxy.count("running_bytes");
        let mut ids = Vec::new();
        for count in &counts {
            ids.push(world.submit(Direction::Write, *count));
            let posts = || world.proxy.count("post_xfer_req");
            let mut before = -1;
            while posts() > before {
                before = posts();
                assert!(poll(&world.transport).is_empty());
            }
            assert!(running() <= MOST, "{} bytes", running());
        }
        assert!(running() > MOST * 3 / 4, "{} bytes", running());
        world.b.cont();
        let ended = finish(&world.transport, &ids);
        assert!(ended.values().all(Result::is_ok));
        let most = counts.iter().max().unwrap();
        assert!((0..*most).all(|index| world.landed(index)));
    }
    world.end();
}
