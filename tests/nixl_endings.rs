//! How transfers over the real NIXL end before they are done: cancelled, with their peer, or with the transport.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::error::Status;
use datatransport::transport::CancelMode;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("cancel_drains", cancel_drains),
    ("cancel_before_post", cancel_before_post),
    ("removal_drains", removal_drains),
    ("close_under_load", close_under_load),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    cancel_drains_tcp: cancel_drains Tcp;
    cancel_before_post_default: cancel_before_post Default;
    removal_drains_tcp: removal_drains Tcp;
    close_under_load_default: close_under_load Default;
    close_under_load_tcp: close_under_load Tcp;
}

/// Every byte that differs from `seed`'s pattern or zero is one that landed too late.
fn no_scribble(peer: &Peer, seed: u64) {
    for index in 0..peer.blocks() as u32 {
        let block = peer.memory.block(index, peer.block_len);
        let mut bytes = vec![0; block.len()];
        fill(&mut bytes, seed, index);
        if block == bytes || is_zero(block) {
            continue;
        }
        let strange = block
            .iter()
            .zip(&bytes)
            .position(|(found, honest)| *found != 0 && found != honest);
        assert_eq!(strange, None, "block {index} has bytes from after its end");
    }
}

fn cancel_drains() {
    const BLOCK: usize = 1 << 20;
    for mode in [CancelMode::Wait, CancelMode::Immediate] {
        let memory = Memory::new(256 * BLOCK);
        memory.fill(1, BLOCK);
        let transport = transport(Some("a"), &memory, BLOCK);
        let peer = Peer::start("b", 256, BLOCK);
        peer.add_to(&transport, "b");
        let id = write(&transport, "b", &all(256), &all(256));
        let landed = || peer.memory.bytes()[0] != 0;
        poll_until(&transport, "the first block", landed);
        peer.stop();
        for _ in 0..100 {
            assert!(poll(&transport).is_empty());
        }
        let still = transport.cancel(&[id], mode).unwrap();
        let draining = transport.stats().unwrap().transfers.draining;
        match mode {
            CancelMode::Wait => assert_eq!((&still[..], draining), (&[id][..], 0)),
            CancelMode::Immediate => assert_eq!((still.len(), draining), (0, 1)),
        }
        for _ in 0..1000 {
            assert!(poll(&transport).is_empty(), "the peer is stopped");
        }
        peer.cont();
        match mode {
            // Only what had been posted went on.
            CancelMode::Wait => assert_eq!(finish(&transport, &[id])[&id], Err(Status::Cancelled)),
            CancelMode::Immediate => poll_until(&transport, "the drain", || {
                transport.stats().unwrap().transfers.draining == 0
            }),
        }
        // From here on nothing reads the blocks.
        memory.bytes().fill(0xee);
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            assert!(poll(&transport).is_empty());
        }
        no_scribble(&peer, 1);
        assert_eq!(
            peer.memory.block(255, BLOCK)[0],
            0,
            "the last block was never posted"
        );
        transport.close(PATIENCE).unwrap();
        peer.finish();
    }
}

fn cancel_before_post() {
    const BLOCK: usize = 1 << 20;
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 64, BLOCK);
    peer.add_to(&transport, "b");
    let ids: Vec<_> = (0..8)
        .map(|_| write(&transport, "b", &all(64), &all(64)))
        .collect();
    let still = transport.cancel(&ids, CancelMode::Wait).unwrap();
    assert!(still.is_empty(), "nothing was posted, but {still:?} go on");
    assert!(wait(&transport, Duration::from_millis(50)).is_empty());
    assert!(is_zero(peer.memory.bytes()));
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn removal_drains() {
    const BLOCK: usize = 1 << 20;
    let memory = Memory::new(256 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 256, BLOCK);
    peer.add_to(&transport, "b");
    let id = write(&transport, "b", &all(256), &all(256));
    poll_until(&transport, "the first block", || {
        peer.memory.bytes()[0] != 0
    });
    peer.stop();
    transport.remove_peer("b").unwrap();
    // The same agent again, while the old registration drains; also under its old id.
    peer.add_to(&transport, "b");
    assert!(poll(&transport).is_empty());
    peer.cont();
    assert_eq!(finish(&transport, &[id])[&id], Err(Status::Cancelled));
    memory.bytes().fill(0xee);
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        assert!(poll(&transport).is_empty());
    }
    no_scribble(&peer, 1);
    memory.fill(2, BLOCK);
    let id = write(&transport, "b", &all(256), &all(256));
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    assert!(holds(peer.memory.block(255, BLOCK), 2, 255));
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn close_under_load() {
    const BLOCK: usize = 1 << 20;
    let memory = Memory::new(128 * BLOCK);
    memory.fill(1, BLOCK);
    // Closes in good order while much is in flight.
    let transport_a = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 128, BLOCK);
    peer.add_to(&transport_a, "b");
    write(&transport_a, "b", &all(128), &all(128));
    poll_until(&transport_a, "the first block", || {
        peer.memory.bytes()[0] != 0
    });
    transport_a.close(PATIENCE).unwrap();
    memory.bytes().fill(0xee);
    std::thread::sleep(Duration::from_millis(200));
    no_scribble(&peer, 1);
    drop(transport_a);

    // A peer that does not answer: close says so, and dropping the transport ends it by force.
    memory.fill(1, BLOCK);
    let transport_b = transport(Some("a"), &memory, BLOCK);
    peer.add_to(&transport_b, "b");
    let warm = write(&transport_b, "b", &[0], &[0]);
    finish(&transport_b, &[warm]);
    peer.stop();
    write(&transport_b, "b", &all(128), &all(128));
    for _ in 0..200 {
        poll(&transport_b);
    }
    // Where the kernel copies, the peer need not run.
    if std::env::var_os("UCX_TLS").is_some() {
        let closed = transport_b.close(Duration::from_millis(200));
        assert_eq!(closed.unwrap_err().status, Status::Timeout);
    } else {
        assert_eq!(transport_b.close(PATIENCE), Ok(()));
    }
    drop(transport_b);
    memory.bytes().fill(0xee);
    peer.cont();
    std::thread::sleep(Duration::from_millis(300));
    no_scribble(&peer, 1);
    peer.finish();
}
