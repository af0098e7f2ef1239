//! What a peer's metadata can do to the process: nothing.

mod nixl_support;

use datatransport::error::Status;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("hostile_metadata", hostile_metadata),
    ("own_name_and_wrapped_ranges", own_name_and_wrapped_ranges),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    hostile_metadata_default: hostile_metadata Default;
    hostile_metadata_tcp: hostile_metadata Tcp;
    own_name_and_wrapped_ranges_default: own_name_and_wrapped_ranges Default;
    own_name_and_wrapped_ranges_tcp: own_name_and_wrapped_ranges Tcp;
}

const BLOCK: usize = 4096;

/// All that the tests of NIXL itself found to end the process or to spoil a name, on real metadata.
fn hostile_metadata() {
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 64, BLOCK);
    let honest = &peer.metadata;
    let find = |what: &[u8]| {
        honest
            .windows(what.len())
            .rposition(|window| window == what)
            .expect("real metadata has it")
    };
    // All bytes but those of the worker address, which nobody here can judge.
    let address = find(b"|t\x03\0\0\0\0\0\0\0UCX|c") + 23;
    let end_of_address = find(b"|\x0a\0\0\0\0\0\0\0MemSection");
    let memory_type = find(b"|t\x04\0\0\0\0\0\0\0") + 10;
    let (mut taken, mut refused) = (0, 0);
    for at in (0..honest.len()).filter(|at| !(address..end_of_address).contains(at)) {
        for flip in [1u8, 0x80, 0xff] {
            let mut bent = honest.clone();
            bent[at] ^= flip;
            match try_add(&transport, "bent", &bent, &peer) {
                // Another name, a longer region, an unused bit: NIXL's own check is no better.
                Ok(()) => {
                    taken += 1;
                    assert!(!(memory_type..memory_type + 4).contains(&at), "memory type");
                    transport.remove_peer("bent").unwrap();
                }
                Err(error) => {
                    refused += 1;
                    let expected = [Status::InvalidArg, Status::Incompatible];
                    assert!(expected.contains(&error.status), "byte {at}: {error}");
                }
            }
        }
    }
    for len in 0..honest.len() {
        assert!(try_add(&transport, "bent", &honest[..len], &peer).is_err());
    }
    let mut trailing = honest.clone();
    trailing.extend_from_slice(b"Agent\x01\0\0\0\0\0\0\0x|");
    assert!(try_add(&transport, "bent", &trailing, &peer).is_err());
    println!("{taken} taken, {refused} refused");
    assert!(refused > taken);

    // An address whose lengths lie is refused; one that merely leads nowhere costs nothing.
    let mut nowhere = 0;
    for at in address..end_of_address {
        for flip in [1u8, 0x20, 0x80, 0xff] {
            let mut bent = honest.clone();
            bent[at] ^= flip;
            if try_add(&transport, "bent", &bent, &peer).is_ok() {
                nowhere += 1;
                transport.remove_peer("bent").unwrap();
            }
        }
        // Cut in the middle, with all records in good order.
        let mut cut = honest[..address - 8].to_vec();
        cut.extend_from_slice(&((at - address) as u64).to_le_bytes());
        cut.extend_from_slice(&honest[address..at]);
        cut.extend_from_slice(&honest[end_of_address..]);
        assert!(
            try_add(&transport, "bent", &cut, &peer).is_err(),
            "cut at {at}"
        );
    }
    println!("{nowhere} addresses taken");

    // After all that the honest agent of the same name is welcome.
    peer.add_to(&transport, "b");
    let id = write(&transport, "b", &[1, 2, 3], &[3, 2, 1]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    assert!(holds(peer.memory.block(3, BLOCK), 1, 1));
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn own_name_and_wrapped_ranges() {
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let own = transport.agent_metadata().unwrap();
    let error = transport
        .add_peer("self", &own, memory.base(), 64, BLOCK as u64)
        .unwrap_err();
    assert_eq!(error.status, Status::InvalidArg, "{error}");
    let namesake = Peer::start("a", 64, BLOCK);
    let error = namesake.try_add_to(&transport, "x").unwrap_err();
    assert_eq!(error.status, Status::InvalidArg, "{error}");

    let peer = Peer::start("b", 64, BLOCK);
    let block = BLOCK as u64;
    let add = |base: u64, blocks: u64| transport.add_peer("b", &peer.metadata, base, blocks, block);
    for (base, blocks, expected) in [
        (u64::MAX - block + 1, 1, Status::InvalidArg),
        (u64::MAX - block, 1, Status::Incompatible),
        (peer.base, 65, Status::Incompatible),
        (peer.base - 1, 64, Status::Incompatible),
        (peer.base + 1, 64, Status::Incompatible),
        (peer.base, u64::MAX / block, Status::InvalidArg),
        (1 << 40, 1, Status::Incompatible),
    ] {
        let error = add(base, blocks).unwrap_err();
        assert_eq!(error.status, expected, "{base:#x} {blocks}: {error}");
    }
    // A region that claims to end where addresses end.
    let len = (64 * block).to_le_bytes();
    let at = peer
        .metadata
        .windows(8)
        .rposition(|window| window == len)
        .unwrap();
    for (base, len) in [
        (u64::MAX - block + 1, block),
        (u64::MAX - 1, 2),
        (peer.base, u64::MAX),
    ] {
        let mut bent = peer.metadata.clone();
        bent[at - 8..at].copy_from_slice(&base.to_le_bytes());
        bent[at..at + 8].copy_from_slice(&len.to_le_bytes());
        let error = try_add(&transport, "b", &bent, &peer).unwrap_err();
        assert_eq!(error.status, Status::InvalidArg, "{error}");
    }
    // A part of the peer's region, unaligned, is a region too.
    add(peer.base + 13, 3).unwrap();
    let id = write(&transport, "b", &[5], &[2]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    let start = 13 + 2 * BLOCK;
    assert!(holds(&peer.memory.bytes()[start..start + BLOCK], 1, 5));
    transport.close(PATIENCE).unwrap();
    peer.finish();
    namesake.finish();
}
