//! Messages over NIXL: delivered once, whole, in order, however late, and whatever becomes of those who
//! sent them.

mod nixl_support;

use std::time::Instant;

use datatransport::backend::{Event, MAX_MESSAGE, Message};
use datatransport::error::Status;
use datatransport::transport::NixlConfig;
use nixl_support::node::*;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("any_bytes", any_bytes),
    ("order_of_mixed_sizes", order_of_mixed_sizes),
    ("thousands_wait", thousands_wait),
    ("last_words", last_words),
    ("a_stopped_receiver", a_stopped_receiver),
    ("a_receiver_that_is_gone", a_receiver_that_is_gone),
    ("remove_and_add", remove_and_add),
    ("a_forgotten_sender", a_forgotten_sender),
    ("what_nobody_asks_for", what_nobody_asks_for),
    ("foreign_messages", foreign_messages),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    any_bytes_default: any_bytes Default;
    any_bytes_tcp: any_bytes Tcp;
    order_of_mixed_sizes_default: order_of_mixed_sizes Default;
    order_of_mixed_sizes_tcp: order_of_mixed_sizes Tcp;
    thousands_wait_default: thousands_wait Default;
    thousands_wait_tcp: thousands_wait Tcp;
    last_words_default: last_words Default;
    last_words_tcp: last_words Tcp;
    a_stopped_receiver_default: a_stopped_receiver Default;
    a_stopped_receiver_tcp: a_stopped_receiver Tcp;
    a_receiver_that_is_gone_default: a_receiver_that_is_gone Default;
    a_receiver_that_is_gone_tcp: a_receiver_that_is_gone Tcp;
    remove_and_add_default: remove_and_add Default;
    remove_and_add_tcp: remove_and_add Tcp;
    a_forgotten_sender_default: a_forgotten_sender Default;
    a_forgotten_sender_tcp: a_forgotten_sender Tcp;
    what_nobody_asks_for_default: what_nobody_asks_for Default;
    foreign_messages_default: foreign_messages Default;
    foreign_messages_tcp: foreign_messages Tcp;
}

/// Over sockets alone each peer has one for each network interface, and UCX closes all of them when it
/// finds one closed: what a killed sender's receiver has not read by then is lost.
fn one_socket() -> bool {
    std::env::var_os("UCX_TLS").is_none()
}

fn message(sender: &str, bytes: &[u8]) -> Message {
    Message {
        sender: sender.into(),
        bytes: bytes.to_vec(),
    }
}

/// A process that has `node` as its peer, and is connected.
fn sender(name: &str, node: &mut Node, threads: u32, progress_thread: bool) -> Peer {
    let mut peer = start(name, threads, progress_thread);
    let metadata = hex(node.backend.metadata());
    peer.tell(&format!("connect {metadata} {}", node.memory.base()));
    peer.expect("connected");
    peer
}

/// The same; `node` has got a first message of it, number 0, and the sender knows.
fn connected_sender(name: &str, node: &mut Node) -> Peer {
    let mut peer = sender(name, node, 0, false);
    peer.tell(&format!(
        "send {}",
        hex(&numbered(name.parse().unwrap(), 0, 9))
    ));
    assert_eq!(check_numbered(&node.receive(1), 9), format!("{name}=1"));
    peer.expect("sent");
    peer
}

fn drive_until_said(node: &mut Node, peer: &mut Peer, word: &str) -> String {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "the peer did not say {word:?}");
        let events = node.progress();
        // One that was killed, and given up, may be found dead now.
        let lost = |event: &Event| matches!(event, Event::Lost { .. });
        assert!(events.iter().all(lost), "{events:?}");
        if let Some(rest) = peer.said(word) {
            return rest;
        }
    }
}

fn any_bytes() {
    let mut ours = Node::new("ours \u{e9}");
    let mut theirs = Node::new("theirs");
    let conn = ours.connect_to(&theirs);
    let all: Vec<u8> = (0..=255).collect();
    for bytes in [
        &b"\0"[..],
        b"\xff",
        b"|=\0\0msg|name",
        &all,
        &vec![0xff; 4096],
        &vec![0; MAX_MESSAGE - 1],
        &all.repeat(256),
    ] {
        ours.send(conn, bytes, || {
            theirs.progress();
        })
        .unwrap();
        assert_eq!(theirs.receive(1), [message("ours \u{e9}", bytes)]);
    }
    for bytes in [&b""[..], &vec![1; MAX_MESSAGE + 1]] {
        let refused = ours.backend.send(conn, bytes).unwrap_err();
        assert_eq!(refused.status, Status::InvalidArg);
    }
    assert!(theirs.received().is_empty());
    // A few at a time.
    for n in 0..10 {
        ours.send(conn, &[n], || {}).unwrap();
    }
    let mut some = Vec::new();
    let start = Instant::now();
    while some.len() < 10 {
        assert!(start.elapsed() < PATIENCE);
        let before = some.len();
        theirs.backend.receive(3, &mut some);
        assert!(some.len() <= before + 3);
    }
    let bytes: Vec<u8> = some.iter().map(|message| message.bytes[0]).collect();
    assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(
        (
            ours.backend.refused_messages(),
            theirs.backend.refused_messages()
        ),
        (0, 0)
    );
    let progress = |ours: &mut Node, theirs: &mut Node| {
        theirs.progress();
        ours.backend.try_close()
    };
    while progress(&mut ours, &mut theirs).is_err() {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(
        ours.backend.send(conn, b"x").unwrap_err().status,
        Status::Closed
    );
    theirs.close();
}

/// Three senders with transfers between their messages, one of them with threads.
fn order_of_mixed_sizes() {
    const EACH: u64 = 1500;
    let config = NixlConfig {
        progress_thread: true,
        ..NixlConfig::default()
    };
    for config in [NixlConfig::default(), config] {
        let mut node = Node::with("node", Memory::new(BLOCKS * BLOCK), config);
        let mut peers: Vec<Peer> = [(0, false), (4, false), (0, true)]
            .into_iter()
            .enumerate()
            .map(|(seed, (threads, thread))| sender(&seed.to_string(), &mut node, threads, thread))
            .collect();
        for (seed, peer) in peers.iter_mut().enumerate() {
            peer.tell(&format!(
                "send_numbered {seed} 0 {EACH} {MAX_MESSAGE} writes"
            ));
        }
        let messages = node.receive(3 * EACH as usize);
        let expected = format!("0={EACH} 1={EACH} 2={EACH}");
        assert_eq!(check_numbered(&messages, MAX_MESSAGE), expected);
        for mut peer in peers {
            drive_until_said(&mut node, &mut peer, "sent");
            peer.tell("close");
            drive_until_said(&mut node, &mut peer, "closed");
            peer.finish();
        }
        assert!(node.received().is_empty());
        assert_eq!(node.backend.refused_messages(), 0);
        node.close();
    }
}

/// The receiver calls nothing at all while they are sent, and the sender nothing more when they are.
fn thousands_wait() {
    let mut node = Node::new("node");
    let mut peers: Vec<Peer> = (0..3)
        .map(|seed| connected_sender(&seed.to_string(), &mut node))
        .collect();
    for (seed, peer) in peers.iter_mut().enumerate() {
        peer.tell(&format!("burst {seed} 1 1001 50"));
    }
    for peer in &mut peers {
        assert_eq!(peer.expect("burst"), "1000 None");
        match one_socket() {
            true => peer.kill(),
            false => peer.stop(),
        }
    }
    let mut messages: Vec<Message> = (0..3)
        .map(|seed: u64| message(&seed.to_string(), &numbered(seed, 0, 50)))
        .collect();
    messages.extend(node.receive(3000));
    assert_eq!(check_numbered(&messages, 50), "0=1001 1=1001 2=1001");
    assert!(node.received().is_empty());
    node.close();
}

/// Whatever the sender does after its message was taken.
fn last_words() {
    let mut node = Node::new("node");
    let receive = |node: &mut Node, name: &str, bytes: &[u8]| {
        assert_eq!(node.receive(1), [message(name, bytes)]);
        assert!(node.received().is_empty());
    };
    for len in [1, 100, 20_000, MAX_MESSAGE] {
        let bytes = vec![7; len];
        // It is silent.
        let mut peer = connected_sender("1", &mut node);
        peer.tell("drive 0");
        peer.expect("driving");
        peer.tell(&format!("send {}", hex(&bytes)));
        peer.expect("sent");
        receive(&mut node, "1", &bytes);
        // It is silent from the first message on, over a connection that is still to be made.
        let mut peer = sender("1", &mut node, 0, false);
        peer.tell("drive 0");
        peer.expect("driving");
        peer.tell(&format!("send {}", hex(&bytes)));
        drive_until_said(&mut node, &mut peer, "sent");
        receive(&mut node, "1", &bytes);
        // It is killed, or stopped. With a short message, the receiver has it as a peer too, and it leaves a
        // message of the receiver's unread.
        let mut peer = connected_sender("1", &mut node);
        let mut back = None;
        if len <= 100 {
            let conn = node.connect(&peer.metadata, peer.base);
            node.send(conn, b"x", || {}).unwrap();
            back = Some(conn);
        }
        peer.tell("drive 0");
        peer.expect("driving");
        if let Some(conn) = back {
            node.send(conn, &[1; 10_000], || {}).unwrap();
        }
        peer.tell(&format!("send {}", hex(&bytes)));
        peer.expect("sent");
        match len <= 100 || one_socket() {
            true => peer.kill(),
            false => peer.stop(),
        }
        receive(&mut node, "1", &bytes);
        if let Some(conn) = back {
            node.backend.disconnect(conn);
            node.progress();
        }
        // It closes at once.
        let mut peer = connected_sender("1", &mut node);
        peer.tell(&format!("send {}", hex(&bytes)));
        peer.expect("sent");
        peer.tell("close");
        receive(&mut node, "1", &bytes);
        drive_until_said(&mut node, &mut peer, "closed");
        peer.finish();
    }
    node.close();
}

fn a_stopped_receiver() {
    let mut peer = start("peer", 0, false);
    let mut other = start("other", 0, false);
    let mut ours = Node::new("7");
    let conn = ours.connect(&peer.metadata, peer.base);
    let second = ours.connect(&other.metadata, other.base);
    ours.send(conn, &numbered(7, 0, 5000), || {}).unwrap();
    ours.send(second, &numbered(7, 0, 5000), || {}).unwrap();
    peer.tell("receive_numbered 1 5000");
    peer.expect("numbered");
    peer.stop();
    let mut sent = 1;
    let mut bytes = 0;
    let fill = |ours: &mut Node, sent: &mut u64, bytes: &mut usize| {
        for _ in 0..100_000 {
            let message = numbered(7, *sent, 5000);
            if let Err(error) = ours.backend.send(conn, &message) {
                assert_eq!(error.status, Status::Busy, "{error}");
                assert!(error.message.contains("\"peer\""), "{error}");
                return;
            }
            *sent += 1;
            *bytes += message.len();
        }
        panic!("{bytes} bytes went to a peer that does not read");
    };
    fill(&mut ours, &mut sent, &mut bytes);
    assert!((100 << 10..1 << 20).contains(&bytes), "{bytes} bytes");
    assert_eq!(ours.backend.refused_messages(), 0, "nothing came");
    for _ in 0..100 {
        assert_eq!(ours.progress(), []);
    }
    let again = ours.backend.send(conn, &numbered(7, sent, 5000));
    assert_eq!(again.unwrap_err().status, Status::Busy);
    // Others have room of their own.
    for n in 1..200 {
        ours.send(second, &numbered(7, n, 5000), || {}).unwrap();
    }
    other.tell("receive_numbered 200 5000");
    // Those that were received before it was asked count too: it checks all.
    other.expect("numbered");
    peer.cont();
    ours.send(conn, &numbered(7, sent, 5000), || {}).unwrap();
    peer.tell(&format!("receive_numbered {} 5000", sent + 1));
    peer.expect("numbered");
    // A single message keeps a transport from closing, and is what the error is about.
    peer.stop();
    ours.send(conn, b"last", || {}).unwrap();
    ours.backend.disconnect(conn);
    for _ in 0..100 {
        let error = ours.backend.try_close().unwrap_err();
        assert_eq!(error.status, Status::Timeout);
        assert!(error.message.contains("\"peer\""), "{error}");
    }
    peer.cont();
    ours.close();
    peer.finish();
    other.finish();
}

fn a_receiver_that_is_gone() {
    for ending in ["killed", "closed", "killed with messages unread"] {
        let mut peer = start("peer", 0, false);
        let mut ours = Node::new("ours");
        let conn = ours.connect(&peer.metadata, peer.base);
        ours.send(conn, b"fine", || {}).unwrap();
        match ending {
            "killed" => peer.kill(),
            "closed" => {
                peer.tell("close");
                peer.expect("closed");
            }
            _ => {
                peer.stop();
                ours.send(conn, &[1; 1000], || {}).unwrap();
                peer.kill();
            }
        }
        let start = Instant::now();
        let error = loop {
            match ours.backend.send(conn, b"lost") {
                Err(error) if error.status != Status::Busy => break error,
                _ => assert!(start.elapsed() < PATIENCE),
            }
        };
        assert_eq!(error.status, Status::PeerLost, "{ending}: {error}");
        assert_eq!(ours.progress(), [Event::Lost { conn, error }]);
        let again = ours.backend.send(conn, b"x").unwrap_err();
        assert_eq!(again.status, Status::PeerLost);
        assert_eq!(ours.progress(), []);
        ours.backend.try_close().unwrap();
    }
    // One that was never reached.
    let mut peer = start("peer", 0, false);
    let mut ours = Node::new("ours");
    let conn = ours.connect(&peer.metadata, peer.base);
    peer.kill();
    let error = ours.send(conn, b"x", || {}).unwrap_err();
    assert_eq!(error.status, Status::PeerLost, "{error}");
    ours.close();
}

/// Each connection has an endpoint of its own; the order is kept all the same.
fn remove_and_add() {
    let mut node = Node::new("node");
    let mut ours = Node::new("3");
    let (mut messages, mut long_and_short) = (Vec::new(), Vec::new());
    let mut conn = ours.connect_to(&node);
    let mut second = ours.connect_to(&node);
    for n in 0..400 {
        ours.send(conn, &numbered(3, n, 20_000), || {
            messages.extend(node.received())
        })
        .unwrap();
        match n % 3 {
            0 => {
                ours.backend.disconnect(conn);
                conn = ours.connect_to(&node);
            }
            1 => {
                let new = ours.connect_to(&node);
                ours.backend.disconnect(conn);
                conn = new;
            }
            _ => std::mem::swap(&mut conn, &mut second),
        }
    }
    // A long message takes a while; a short one over another connection does not overtake it.
    for n in 0..60 {
        let mut bytes = vec![n; if n % 2 == 0 { MAX_MESSAGE } else { 1 }];
        bytes[0] = n;
        let conn = if n % 2 == 0 { conn } else { second };
        ours.send(conn, &bytes, || long_and_short.extend(node.received()))
            .unwrap();
    }
    ours.backend.disconnect(conn);
    ours.backend.disconnect(second);
    let start = Instant::now();
    while ours.backend.try_close().is_err() {
        assert!(start.elapsed() < PATIENCE);
        long_and_short.extend(node.received());
    }
    long_and_short.extend(node.received());
    messages.extend(long_and_short.drain(..400 - messages.len()));
    assert_eq!(check_numbered(&messages, 20_000), "3=400");
    let order: Vec<u8> = long_and_short
        .iter()
        .map(|message| message.bytes[0])
        .collect();
    assert!(order.iter().copied().eq(0..60), "{order:?}");
    node.close();
}

/// The receiver knows the sender as a peer, too, and removes or replaces it. That is nothing to what the
/// sender sends.
fn a_forgotten_sender() {
    let (mut node, mut ours) = (Node::new("node"), Node::new("1"));
    let (longest, mut sent) = (64_000 - "1".len(), 0u8);
    let conn = ours.connect_to(&node);
    let mut back = node.connect_to(&ours);
    for round in 0..4 {
        for len in [9, 8_000, 16_000, 24_000, longest] {
            let bytes = vec![sent; len];
            let mut come = Vec::new();
            ours.send(conn, &bytes, || come.extend(node.received()))
                .unwrap();
            let start = Instant::now();
            while come.is_empty() {
                assert!(start.elapsed() < PATIENCE, "{len} bytes in round {round}");
                ours.progress();
                come.extend(node.received());
            }
            assert_eq!(come, [message("1", &bytes)]);
            sent += 1;
        }
        // There and back again, one beside the other, and not at all any more.
        match round {
            0 => {
                node.backend.disconnect(back);
                back = node.connect_to(&ours);
            }
            1 => {
                let new = node.connect_to(&ours);
                node.backend.disconnect(back);
                back = new;
            }
            2 => node.backend.disconnect(back),
            _ => {}
        }
    }
    node.close();
    ours.close();
}

/// More than is kept: the rest is counted, and what is kept is right.
fn what_nobody_asks_for() {
    let mut node = Node::new("node");
    let mut ours = Node::new("ours");
    let conn = ours.connect_to(&node);
    let mut sent: u64 = 0;
    let long = vec![9; MAX_MESSAGE];
    for _ in 0..1100 {
        ours.send(conn, &long, || {
            node.progress();
        })
        .unwrap();
        sent += 1;
    }
    let start = Instant::now();
    while ours.backend.try_close().is_err() {
        assert!(start.elapsed() < PATIENCE);
        node.progress();
    }
    node.progress();
    let refused = node.backend.refused_messages();
    assert!(refused > 50, "{refused}");
    let messages = node.received();
    assert_eq!(messages.len() as u64 + refused, sent);
    assert!(messages.iter().all(|message| message.bytes == long));
    node.close();
}

/// NIXL's own Python bindings, which send and take messages as vLLM does.
fn foreign_messages() {
    let Some((mut command, bindings)) = python() else {
        return;
    };
    let theirs = Memory::new(BLOCKS * BLOCK);
    let name = "their name | with / signs";
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nixl_peer.py"))
        .arg(bindings)
        .arg(name)
        .arg(&theirs.path)
        .args([theirs.len.to_string(), BLOCK.to_string()]);
    let mut peer = Peer::spawn(command, theirs, BLOCK);
    let mut node = Node::new("5");
    let conn = node.connect(&peer.metadata, peer.base);
    // Ours to theirs: the bytes as they are, in order, under our name.
    const COUNT: u64 = 500;
    for n in 0..COUNT {
        node.send(conn, &numbered(5, n, 20_000), || {}).unwrap();
    }
    peer.tell(&format!("receive {COUNT}"));
    let said = drive_until_said(&mut node, &mut peer, "received");
    let messages: Vec<Message> = said
        .split(' ')
        .map(|word| {
            let (sender, bytes) = word.split_once('=').unwrap();
            message(&String::from_utf8(unhex(sender)).unwrap(), &unhex(bytes))
        })
        .collect();
    assert_eq!(check_numbered(&messages, 20_000), format!("5={COUNT}"));
    let refused = node.backend.refused_messages();
    // Theirs to ours, longer ones than ours can be too. An empty one is none.
    let metadata = hex(node.backend.metadata());
    peer.tell(&format!("add {metadata} {}", node.memory.base()));
    drive_until_said(&mut node, &mut peer, "added");
    let vllm = b"0f9c2b54-session:\xc3\xa9".to_vec();
    let expected = [vllm, vec![0, 0xff, 0], vec![3; 200_000], vec![1]];
    for bytes in &expected[..3] {
        peer.tell(&format!("send {}", hex(bytes)));
        drive_until_said(&mut node, &mut peer, "sent");
    }
    peer.tell("send");
    drive_until_said(&mut node, &mut peer, "sent");
    peer.tell(&format!("send {}", hex(&expected[3])));
    drive_until_said(&mut node, &mut peer, "sent");
    let expected: Vec<Message> = expected.iter().map(|bytes| message(name, bytes)).collect();
    assert_eq!(node.receive(4), expected);
    assert_eq!(node.backend.refused_messages(), refused + 1);
    node.close();
    peer.finish();
}
