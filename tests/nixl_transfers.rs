//! Transfers over the real NIXL: bytes, both ways, and what peers do to them.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::backend::Direction;
use datatransport::error::Status;
use datatransport::transport::CancelMode;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("moves_permuted_blocks", moves_permuted_blocks),
    ("large_and_odd_blocks", large_and_odd_blocks),
    ("a_target_only_polls", a_target_only_polls),
    ("progress_threads", progress_threads),
    ("killed_peer", killed_peer),
    ("killed_idle_peer", killed_idle_peer),
    ("stopped_peer", stopped_peer),
    ("cancel_drains", cancel_drains),
    ("cancel_before_post", cancel_before_post),
    ("removal_drains", removal_drains),
    ("restart_under_one_name", restart_under_one_name),
    ("two_ids_for_one_agent", two_ids_for_one_agent),
    ("many_in_flight", many_in_flight),
    ("close_under_load", close_under_load),
    ("submission_is_quick", submission_is_quick),
    ("a_foreign_peer", a_foreign_peer),
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
    killed_peer_default: killed_peer Default;
    killed_peer_tcp: killed_peer Tcp;
    killed_idle_peer_default: killed_idle_peer Default;
    killed_idle_peer_tcp: killed_idle_peer Tcp;
    stopped_peer_tcp: stopped_peer Tcp;
    cancel_drains_tcp: cancel_drains Tcp;
    cancel_before_post_default: cancel_before_post Default;
    removal_drains_tcp: removal_drains Tcp;
    restart_under_one_name_default: restart_under_one_name Default;
    restart_under_one_name_tcp: restart_under_one_name Tcp;
    two_ids_for_one_agent_default: two_ids_for_one_agent Default;
    two_ids_for_one_agent_tcp: two_ids_for_one_agent Tcp;
    many_in_flight_tcp: many_in_flight Tcp;
    close_under_load_default: close_under_load Default;
    close_under_load_tcp: close_under_load Tcp;
    submission_is_quick_default: submission_is_quick Default;
    submission_is_quick_tcp: submission_is_quick Tcp;
    a_foreign_peer_default: a_foreign_peer Default;
    a_foreign_peer_tcp: a_foreign_peer Tcp;
}

fn all(count: u32) -> Vec<u32> {
    (0..count).collect()
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

/// The peer answers only when this side moves, too.
fn expect_while_polling(
    transport: &datatransport::transport::Transport,
    peer: &mut Peer,
    word: &str,
) {
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| peer.expect(word));
        while !answer.is_finished() {
            assert!(wait(transport, Duration::from_millis(1)).is_empty());
        }
        answer.join().unwrap();
    });
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

fn killed_peer() {
    const BLOCK: usize = 1 << 20;
    let memory = Memory::new(256 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let bystander = Peer::start("c", 8, BLOCK);
    bystander.add_to(&transport, "c");
    let mut peer = Peer::start("b", 256, BLOCK);
    peer.add_to(&transport, "b");

    let first = write(&transport, "b", &all(256), &all(256));
    let second = write(&transport, "b", &all(256), &all(256));
    let eighth = peer.memory.len / 8;
    let landed = || peer.memory.bytes()[eighth] != 0;
    poll_until(&transport, "the first blocks", landed);
    peer.kill();
    let killed = Instant::now();
    let other = write(&transport, "c", &all(8), &all(8));
    let got = finish(&transport, &[first, second, other]);
    assert_eq!(got[&first], Err(Status::PeerLost));
    assert_eq!(got[&second], Err(Status::PeerLost));
    assert_eq!(got[&other], Ok(()), "another peer's transfer");
    assert!(killed.elapsed() < Duration::from_secs(10));
    let fault = transport.peer_status("b").unwrap_err();
    assert_eq!(fault.status, Status::PeerLost, "{fault}");
    let refused = transport.submit(Direction::Write, "b", &[0], &[0], 0);
    assert_eq!(refused.unwrap_err().status, Status::PeerLost);
    assert!(transport.peer_status("c").is_ok());
    transport.remove_peer("b").unwrap();
    transport.close(PATIENCE).unwrap();
    bystander.finish();
}

fn killed_idle_peer() {
    const BLOCK: usize = 4096;
    let memory = Memory::new(1024 * BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    for (warm, count) in [(true, 1), (true, 1024), (false, 1), (false, 1024)] {
        let mut peer = Peer::start("b", 1024, BLOCK);
        peer.add_to(&transport, "b");
        if warm {
            let id = write(&transport, "b", &[0], &[0]);
            assert_eq!(finish(&transport, &[id])[&id], Ok(()));
        }
        peer.kill();
        // The death is found by the first transfer: at once or as its outcome.
        match transport.submit(Direction::Write, "b", &all(count), &all(count), 0) {
            Ok(id) => assert_eq!(finish(&transport, &[id])[&id], Err(Status::PeerLost)),
            Err(error) => assert_eq!(error.status, Status::PeerLost, "{error}"),
        }
        let fault = transport.peer_status("b").unwrap_err();
        assert_eq!(fault.status, Status::PeerLost, "{fault}");
        transport.remove_peer("b").unwrap();
    }
    let stats = transport.stats().unwrap().transfers;
    assert_eq!((stats.inflight, stats.draining), (0, 0));
    transport.close(PATIENCE).unwrap();
}

fn stopped_peer() {
    const BLOCK: usize = 1 << 20;
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 64, BLOCK);
    peer.add_to(&transport, "b");
    let bystander = Peer::start("c", 64, BLOCK);
    bystander.add_to(&transport, "c");
    let warm = write(&transport, "b", &[0], &[0]);
    finish(&transport, &[warm]);

    peer.stop();
    let mut ids = vec![write(&transport, "b", &all(64), &all(64))];
    ids.extend((0..64).map(|index| write(&transport, "b", &[index], &[index])));
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(1) {
        let call = Instant::now();
        assert!(poll(&transport).is_empty(), "the peer is stopped");
        slowest = slowest.max(call.elapsed());
    }
    // Generous: other work on this machine counts too.
    assert!(
        slowest < Duration::from_millis(100),
        "a poll took {slowest:?}"
    );
    assert!(transport.peer_status("b").is_ok());
    // It holds up nobody else.
    let other = write(&transport, "c", &all(64), &all(64));
    assert_eq!(finish(&transport, &[other])[&other], Ok(()));

    peer.cont();
    let got = finish(&transport, &ids);
    assert!(got.values().all(|result| result.is_ok()));
    for index in 0..64 {
        assert!(holds(peer.memory.block(index, BLOCK), 1, index));
    }
    transport.close(PATIENCE).unwrap();
    peer.finish();
    bystander.finish();
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

fn restart_under_one_name() {
    const BLOCK: usize = 256 << 10;
    let memory = Memory::new(64 * BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let bystander = Peer::start("c", 64, BLOCK);
    bystander.add_to(&transport, "c");
    for round in 0..20 {
        memory.fill(round, BLOCK);
        let mut peer = Peer::start("b", 64, BLOCK);
        // Odd rounds add in place of the old registration, which may not know yet that it is dead.
        peer.add_to(&transport, "b");
        let done = write(&transport, "b", &all(64), &all(64));
        assert_eq!(finish(&transport, &[done])[&done], Ok(()));
        for index in 0..64 {
            assert!(holds(peer.memory.block(index, BLOCK), round, index));
        }
        let ids: Vec<_> = (0..8)
            .map(|_| write(&transport, "b", &all(64), &all(64)))
            .collect();
        let other = write(&transport, "c", &all(64), &all(64));
        peer.kill();
        if round % 2 == 0 {
            transport.remove_peer("b").unwrap();
        }
        let expected: Vec<_> = ids.iter().copied().chain([other]).collect();
        if round % 2 == 0 {
            let got = finish(&transport, &expected);
            assert_eq!(got[&other], Ok(()), "round {round}");
            assert!(ids.iter().all(|id| got[id] == Err(Status::Cancelled)));
        } else {
            let next = Peer::start("b", 64, BLOCK);
            next.add_to(&transport, "b");
            let got = finish(&transport, &expected);
            assert_eq!(got[&other], Ok(()), "round {round}");
            assert!(ids.iter().all(|id| got[id].is_err()), "{got:?}");
            let id = write(&transport, "b", &[1], &[2]);
            assert_eq!(finish(&transport, &[id])[&id], Ok(()));
            assert!(
                transport.peer_status("b").is_ok(),
                "stale failures are not its own"
            );
            assert!(holds(next.memory.block(2, BLOCK), round, 1));
        }
    }
    transport.close(PATIENCE).unwrap();
    bystander.finish();
}

fn two_ids_for_one_agent() {
    const BLOCK: usize = 64 << 10;
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 64, BLOCK);
    peer.add_to(&transport, "one");
    peer.add_to(&transport, "two");
    let ids = [
        write(&transport, "one", &[0, 1], &[0, 1]),
        write(&transport, "two", &[2, 3], &[2, 3]),
    ];
    assert!(
        finish(&transport, &ids)
            .values()
            .all(|result| result.is_ok())
    );
    transport.remove_peer("one").unwrap();
    let id = write(&transport, "two", &[4], &[4]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    peer.add_to(&transport, "one");
    transport.remove_peer("two").unwrap();
    let id = write(&transport, "one", &[5], &[5]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    for index in 0..6 {
        assert!(holds(peer.memory.block(index, BLOCK), 1, index));
    }

    // A second live agent of that name is refused, and the first one goes on.
    let rival = Peer::start("b", 64, BLOCK);
    let error = rival.try_add_to(&transport, "three").unwrap_err();
    assert_eq!(error.status, Status::Incompatible, "{error}");
    let id = write(&transport, "one", &[6], &[6]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    // Once the first is removed, the name is free.
    transport.remove_peer("one").unwrap();
    rival.add_to(&transport, "three");
    let id = write(&transport, "three", &[7], &[7]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    assert!(holds(rival.memory.block(7, BLOCK), 1, 7));
    transport.close(PATIENCE).unwrap();
    peer.finish();
    rival.finish();
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
    let cost = |transport: &_| {
        let mut costs: Vec<_> = (0..500)
            .map(|_| {
                let start = Instant::now();
                assert!(poll(transport).is_empty());
                start.elapsed()
            })
            .collect();
        costs.sort();
        costs[costs.len() / 2]
    };
    // The median of many: what it costs, not what the machine did meanwhile.
    cost(&transport);
    let one = cost(&transport);
    ids.extend((0..10_000).map(|index| write(&transport, "b", &[index % 1024], &[index % 1024])));
    cost(&transport);
    let many = cost(&transport);
    println!("a poll: {one:?} with one transfer in flight, {many:?} with 10,001");
    assert!(
        many < one * 3 + Duration::from_micros(5),
        "{one:?} -> {many:?}"
    );
    let start = Instant::now();
    let still = transport.cancel(&ids[5000..], CancelMode::Wait).unwrap();
    assert!(still.is_empty(), "behind the limit nothing is posted");
    assert!(start.elapsed() < Duration::from_secs(1));
    peer.cont();
    let got = finish(&transport, &ids[..5000]);
    assert!(got.values().all(|result| result.is_ok()));
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
    let id = write(&transport_b, "b", &all(128), &all(128));
    for _ in 0..200 {
        poll(&transport_b);
    }
    let _ = id;
    let start = Instant::now();
    let closed = transport_b.close(Duration::from_millis(200));
    assert!(start.elapsed() < Duration::from_secs(10));
    if let Err(error) = closed {
        assert_eq!(error.status, Status::Timeout, "{error}");
    }
    let start = Instant::now();
    drop(transport_b);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    memory.bytes().fill(0xee);
    peer.cont();
    std::thread::sleep(Duration::from_millis(300));
    no_scribble(&peer, 1);
    peer.finish();
}

fn submission_is_quick() {
    const BLOCK: usize = 64 << 10;
    let memory = Memory::new(1024 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 1024, BLOCK);
    peer.add_to(&transport, "b");
    let (local, remote) = (permutation(1024, 1), permutation(1024, 2));
    let mut submits = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        let id = write(&transport, "b", &local, &remote);
        submits.push(start.elapsed());
        assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    }
    submits.sort();
    println!(
        "submission of 64 MiB: median {:?}, slowest {:?}",
        submits[15], submits[29]
    );
    // The copy takes 15 ms; the machine may be busy.
    assert!(submits[15] < Duration::from_millis(2), "{submits:?}");
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

/// NIXL's own Python bindings on the other side: they write to and read from us, we to and from them.
fn a_foreign_peer() {
    const BLOCK: usize = 64 << 10;
    let Some((mut command, bindings)) = python() else {
        return;
    };
    let memory = Memory::new(128 * BLOCK);
    let theirs = Memory::new(128 * BLOCK);
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nixl_peer.py"))
        .arg(bindings)
        .arg("their name | with / signs")
        .arg(&theirs.path)
        .args([theirs.len.to_string(), BLOCK.to_string()]);
    let mut peer = Peer::spawn(command, theirs, BLOCK);
    let transport = transport(Some("ours"), &memory, BLOCK);
    peer.add_to(&transport, "b");
    let metadata = hex(&transport.agent_metadata().unwrap());
    peer.tell(&format!("add {metadata} {}", memory.base()));
    expect_while_polling(&transport, &mut peer, "added");

    memory.fill(1, BLOCK);
    let (local, remote) = (permutation(128, 2), permutation(128, 3));
    let id = write(&transport, "b", &local, &remote);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    for (l, r) in local.iter().zip(&remote) {
        assert!(
            holds(peer.memory.block(*r, BLOCK), 1, *l),
            "write {l} -> {r}"
        );
    }
    peer.memory.fill(4, BLOCK);
    let id = transport
        .submit(Direction::Read, "b", &local, &remote, 0)
        .unwrap();
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    for (l, r) in local.iter().zip(&remote) {
        assert!(holds(memory.block(*l, BLOCK), 4, *r), "read {r} -> {l}");
    }
    peer.memory.fill(5, BLOCK);
    peer.tell("push 128");
    expect_while_polling(&transport, &mut peer, "pushed");
    memory.fill(6, BLOCK);
    for index in 0..64 {
        fill(memory.block(index, BLOCK), 7, index);
    }
    peer.tell("pull 64");
    expect_while_polling(&transport, &mut peer, "pulled");
    for index in 0..64 {
        assert!(holds(peer.memory.block(index, BLOCK), 7, index));
        assert!(holds(peer.memory.block(index + 64, BLOCK), 5, index + 64));
    }
    transport.close(PATIENCE).unwrap();
    peer.finish();
}
