//! What peers do to transfers over the real NIXL: they die, stop, come back, and share a name.

mod nixl_support;

use datatransport::backend::Direction;
use datatransport::error::Status;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("killed_peer", killed_peer),
    ("killed_idle_peer", killed_idle_peer),
    ("stopped_peer", stopped_peer),
    ("restart_under_one_name", restart_under_one_name),
    ("two_ids_for_one_agent", two_ids_for_one_agent),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    killed_peer_default: killed_peer Default;
    killed_peer_tcp: killed_peer Tcp;
    killed_idle_peer_default: killed_idle_peer Default;
    killed_idle_peer_tcp: killed_idle_peer Tcp;
    stopped_peer_tcp: stopped_peer Tcp;
    restart_under_one_name_default: restart_under_one_name Default;
    restart_under_one_name_tcp: restart_under_one_name Tcp;
    two_ids_for_one_agent_default: two_ids_for_one_agent Default;
    two_ids_for_one_agent_tcp: two_ids_for_one_agent Tcp;
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
    let other = write(&transport, "c", &all(8), &all(8));
    let got = finish(&transport, &[first, second, other]);
    assert_eq!(got[&first], Err(Status::PeerLost));
    assert_eq!(got[&second], Err(Status::PeerLost));
    assert_eq!(got[&other], Ok(()), "another peer's transfer");
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
    for _ in 0..1000 {
        assert!(poll(&transport).is_empty(), "the peer is stopped");
    }
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
