//! A peer that knows nothing of this library: NIXL's own Python bindings.

mod nixl_support;

use datatransport::backend::Direction;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[("a_foreign_peer", a_foreign_peer)];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    a_foreign_peer_default: a_foreign_peer Default;
    a_foreign_peer_tcp: a_foreign_peer Tcp;
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
