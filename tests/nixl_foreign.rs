//! A peer that knows nothing of this library: NIXL's own Python bindings.

mod nixl_support;

use std::time::Instant;

use datatransport::backend::{Direction, Message};
use datatransport::transport::ReadState;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("a_foreign_peer", a_foreign_peer),
    ("a_foreign_encoder", a_foreign_encoder),
    ("a_foreign_reader", a_foreign_reader),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    a_foreign_peer_default: a_foreign_peer Default;
    a_foreign_peer_tcp: a_foreign_peer Tcp;
    a_foreign_encoder_default: a_foreign_encoder Default;
    a_foreign_encoder_tcp: a_foreign_encoder Tcp;
    a_foreign_reader_default: a_foreign_reader Default;
    a_foreign_reader_tcp: a_foreign_reader Tcp;
}

const BLOCK: usize = 64 << 10;
const THEIR_NAME: &str = "their name | with / signs";

/// A process that has 128 blocks, and nothing but NIXL's own bindings.
fn python_peer() -> Option<Peer> {
    let (mut command, bindings) = python()?;
    let theirs = Memory::new(128 * BLOCK);
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nixl_peer.py"))
        .arg(bindings)
        .arg(THEIR_NAME)
        .arg(&theirs.path)
        .args([theirs.len.to_string(), BLOCK.to_string()]);
    Some(Peer::spawn(command, theirs, BLOCK))
}

/// NIXL's own Python bindings on the other side: they write to and read from us, we to and from them.
fn a_foreign_peer() {
    let Some(mut peer) = python_peer() else {
        return;
    };
    let memory = Memory::new(128 * BLOCK);
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

fn listed(indexes: &[u32]) -> String {
    let words: Vec<String> = indexes.iter().map(u32::to_string).collect();
    words.join(",")
}

/// What a reader sends in vLLM, and what nobody takes for text.
fn messages() -> [Vec<u8>; 3] {
    [
        "0f9c2b54-session:\u{e9}".into(),
        vec![0, 0xff, 0],
        (0..20_000u32).map(|n| (n * 7) as u8).collect(),
    ]
}

/// We read as vLLM's consumer does from a producer that speaks NIXL only: by its metadata and a
/// descriptor that it packed itself, of blocks in any order. It gets our messages under our name.
fn a_foreign_encoder() {
    let Some(mut peer) = python_peer() else {
        return;
    };
    let memory = Memory::new(128 * BLOCK);
    let transport = transport(Some("ours \u{e9}"), &memory, BLOCK);
    let offered = &permutation(128, 5)[..100];
    peer.tell(&format!("offer {}", listed(offered)));
    let descriptor = unhex(&peer.expect("offered"));
    peer.memory.fill(4, BLOCK);
    let name = transport.name_in(&peer.metadata).unwrap();
    assert_eq!(name, THEIR_NAME);
    transport
        .add_agent(&name, &peer.metadata, &descriptor)
        .unwrap();
    for (round, message) in messages().iter().enumerate() {
        memory.fill(9, BLOCK);
        let order = permutation(100, round as u64);
        let (local, remote) = (&all(60)[..], &order[..60]);
        let id = transport.post_read(&name, local, remote, message).unwrap();
        let start = Instant::now();
        loop {
            match transport.read_state(id).unwrap() {
                ReadState::Running => assert!(start.elapsed() < PATIENCE),
                ReadState::Ended(result) => break assert_eq!(result, Ok(())),
            }
        }
        transport.release_read(id).unwrap();
        for (l, r) in local.iter().zip(remote) {
            let theirs = offered[*r as usize];
            assert!(
                holds(memory.block(*l, BLOCK), 4, theirs),
                "read {theirs} -> {l}"
            );
        }
        peer.tell("receive 1");
        let said = peer.expect("received");
        assert_eq!(
            said,
            format!("{}={}", hex("ours \u{e9}".as_bytes()), hex(message))
        );
    }
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

/// A reader that speaks NIXL only reads our blocks, in any order, by our descriptor, and we get its
/// messages under its name without having heard of it.
fn a_foreign_reader() {
    let Some(mut peer) = python_peer() else {
        return;
    };
    let memory = Memory::new(128 * BLOCK);
    let transport = transport(Some("ours"), &memory, BLOCK);
    let (metadata, descriptor) = (
        transport.agent_metadata().unwrap(),
        transport.mem_descriptor().unwrap(),
    );
    assert_eq!(descriptor.len(), transport.mem_descriptor_len().unwrap());
    memory.fill(1, BLOCK);
    peer.tell(&format!("know {} {}", hex(&metadata), hex(&descriptor)));
    assert_eq!(peer.expect("known"), "128");
    for (round, message) in messages().iter().enumerate() {
        peer.memory.fill(9, BLOCK);
        let (ours, theirs) = (permutation(128, round as u64), permutation(128, 77));
        let (ours, theirs) = (&ours[..60], &theirs[..60]);
        let (from, to) = (listed(ours), listed(theirs));
        peer.tell(&format!("fetch {from} {to} {}", hex(message)));
        expect_while_polling(&transport, &mut peer, "fetched");
        for (o, t) in ours.iter().zip(theirs) {
            assert!(
                holds(peer.memory.block(*t, BLOCK), 1, *o),
                "read {o} -> {t}"
            );
        }
        let start = Instant::now();
        let mut come = Vec::new();
        while come.is_empty() {
            assert!(start.elapsed() < PATIENCE);
            let mut take = |message: &Message| {
                come.push(message.clone());
                true
            };
            transport.receive(8, &mut take).unwrap();
        }
        assert_eq!(come.len(), 1);
        assert_eq!((&*come[0].sender, &come[0].bytes), (THEIR_NAME, message));
    }
    assert_eq!(transport.stats().unwrap().peers, 0);
    transport.close(PATIENCE).unwrap();
    peer.finish();
}
