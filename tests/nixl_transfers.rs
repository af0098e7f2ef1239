//! Transfers over the real NIXL: bytes, both ways, and what a call costs.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::backend::Direction;
use datatransport::transport::CancelMode;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("moves_permuted_blocks", moves_permuted_blocks),
    ("large_and_odd_blocks", large_and_odd_blocks),
    ("a_target_only_polls", a_target_only_polls),
    ("progress_threads", progress_threads),
    ("many_in_flight", many_in_flight),
    ("submission_copies_nothing", submission_copies_nothing),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    moves_permuted_blocks_default: moves_permuted_blocks Default;
    moves_permuted_blocks_tcp: moves_permuted_blocks Tcp;
    large_and_odd_blocks_default: large_and_odd_blocks Default;
    large_and_odd_blocks_tcp: large_and_odd_blocks Tcp;
    a_target_only_polls_tcp: a_target_only_polls Tcp;
    progress_threads_default: progress_threads Default;
    progress_threads_tcp: progress_threads Tcp;
    many_in_flight_tcp: many_in_flight Tcp;
    submission_copies_nothing_default: submission_copies_nothing Default;
    submission_copies_nothing_tcp: submission_copies_nothing Tcp;
}

fn moves_permuted_blocks() {
    const BLOCK: usize = 64 << 10;
    let memory = Memory::new(256 * BLOCK);
    let mut peer = Peer::start("b", 256, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    peer.add_to(&transport, "b");

    memory.fill(1, BLOCK);
    let (local, remote) = (permutation(256, 2), permutation(256, 3));
    let (half_local, half_remote) = (&local[..200], &remote[..200]);
    let id = write(&transport, "b", half_local, half_remote);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    for (l, r) in half_local.iter().zip(half_remote) {
        assert!(
            holds(peer.memory.block(*r, BLOCK), 1, *l),
            "block {l} -> {r}"
        );
    }
    for r in &remote[200..] {
        assert!(is_zero(peer.memory.block(*r, BLOCK)));
    }

    peer.memory.fill(4, BLOCK);
    memory.bytes().fill(0);
    let id = transport
        .submit(Direction::Read, "b", half_local, half_remote, 9)
        .unwrap();
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    for (l, r) in half_local.iter().zip(half_remote) {
        assert!(holds(memory.block(*l, BLOCK), 4, *r), "block {r} -> {l}");
    }
    for l in &local[200..] {
        assert!(is_zero(memory.block(*l, BLOCK)));
    }

    // The other way round, and both at once.
    peer.memory.fill(5, BLOCK);
    let metadata = hex(&transport.agent_metadata().unwrap());
    peer.tell(&format!("add {metadata} {} 256", memory.base()));
    expect_while_polling(&transport, &mut peer, "added");
    peer.tell("push 128");
    for l in 128..256 {
        fill(memory.block(l, BLOCK), 6, l);
    }
    let half: Vec<u32> = (128..256).collect();
    let id = write(&transport, "b", &half, &half);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    expect_while_polling(&transport, &mut peer, "pushed");
    for index in 0..128 {
        assert!(holds(memory.block(index, BLOCK), 5, index));
        assert!(holds(peer.memory.block(index + 128, BLOCK), 6, index + 128));
    }
    let stats = transport.stats().unwrap().transfers;
    assert_eq!((stats.done, stats.failed, stats.inflight), (3, 0, 0));
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn large_and_odd_blocks() {
    for (block, count) in [(5 << 20, 6u32), (777, 5000), (8, 20_000), (1, 300)] {
        let memory = Memory::new(block * count as usize);
        let peer = Peer::start("b", count as usize, block);
        let transport = transport(Some("a"), &memory, block);
        peer.add_to(&transport, "b");
        memory.fill(11, block);
        let (local, remote) = (permutation(count, 12), permutation(count, 13));
        let id = write(&transport, "b", &local, &remote);
        assert_eq!(finish(&transport, &[id])[&id], Ok(()));
        for (l, r) in local.iter().zip(&remote) {
            assert!(
                holds(peer.memory.block(*r, block), 11, *l),
                "{block} bytes, {l} -> {r}"
            );
        }
        // One at a time: small ones are done in the call that submits them.
        peer.memory.bytes().fill(0);
        for index in 0..count.min(50) {
            let id = write(&transport, "b", &[index], &[index]);
            assert_eq!(finish(&transport, &[id])[&id], Ok(()));
            assert!(holds(peer.memory.block(index, block), 11, index));
        }
        transport.close(PATIENCE).unwrap();
        peer.finish();
    }
}

fn a_target_only_polls() {
    const BLOCK: usize = 1 << 20;
    let memory = Memory::new(32 * BLOCK);
    let mut peer = Peer::start("b", 32, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    peer.add_to(&transport, "b");
    memory.fill(1, BLOCK);
    let id = write(&transport, "b", &[0], &[0]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));

    // A target that does not poll holds the transfer up; when it polls, all goes on.
    peer.drive(0);
    let id = write(&transport, "b", &all(32), &all(32));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        assert!(poll(&transport).is_empty(), "nobody received that");
    }
    peer.drive(2);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    for index in 0..32 {
        assert!(holds(peer.memory.block(index, BLOCK), 1, index));
    }
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn progress_threads() {
    const BLOCK: usize = 1 << 20;
    let memory = Memory::new(32 * BLOCK);
    let mut peer = Peer::start_with("b", 32, BLOCK, &[("DT_TEST_PEER_THREAD", "1")]);
    let config = datatransport::transport::NixlConfig {
        progress_thread: true,
        num_threads: 2,
        ..Default::default()
    };
    let transport = transport_with(Some("a"), &memory, BLOCK, config);
    peer.add_to(&transport, "b");
    // With its thread the target needs no calls.
    peer.drive(0);
    for round in 0..5 {
        memory.fill(round, BLOCK);
        let (local, remote) = (permutation(32, round), permutation(32, round + 100));
        let id = write(&transport, "b", &local, &remote);
        assert_eq!(finish(&transport, &[id])[&id], Ok(()));
        for (l, r) in local.iter().zip(&remote) {
            assert!(holds(peer.memory.block(*r, BLOCK), round, *l));
        }
    }
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn many_in_flight() {
    const BLOCK: usize = 4096;
    let memory = Memory::new(1024 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 1024, BLOCK);
    peer.add_to(&transport, "b");
    let warm = write(&transport, "b", &[0], &[0]);
    finish(&transport, &[warm]);
    peer.stop();
    let mut ids = vec![write(&transport, "b", &all(1024), &all(1024))];
    ids.extend((0..10_000).map(|index| write(&transport, "b", &[index % 1024], &[index % 1024])));
    for _ in 0..100 {
        assert!(poll(&transport).is_empty());
    }
    // What a poll looks at is bounded, because what is posted is.
    let still = transport.cancel(&ids[5000..], CancelMode::Wait).unwrap();
    assert!(still.is_empty(), "behind the limit nothing is posted");
    peer.cont();
    let got = finish(&transport, &ids[..5000]);
    assert!(got.values().all(|result| result.is_ok()));
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

/// What takes long is the copy, so none is made before the first poll.
fn submission_copies_nothing() {
    const BLOCK: usize = 64 << 10;
    let memory = Memory::new(1024 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 1024, BLOCK);
    peer.add_to(&transport, "b");
    let (local, remote) = (permutation(1024, 1), permutation(1024, 2));
    let warm = write(&transport, "b", &[0], &[0]);
    finish(&transport, &[warm]);
    for round in 0..3 {
        peer.memory.bytes().fill(0);
        let id = write(&transport, "b", &local, &remote);
        assert!(is_zero(peer.memory.bytes()), "round {round}");
        assert_eq!(finish(&transport, &[id])[&id], Ok(()));
        for (l, r) in local.iter().zip(&remote) {
            assert!(holds(peer.memory.block(*r, BLOCK), 1, *l));
        }
    }
    transport.close(PATIENCE).unwrap();
    peer.finish();
}
