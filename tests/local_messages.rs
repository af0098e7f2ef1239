//! Messages over LOCAL, between processes: delivered once, whole, in order, however late, and whatever
//! becomes of those who sent them.

mod local_common;

use std::time::Instant;

use datatransport::backend::{Backend, Event, MAX_MESSAGE};
use datatransport::error::Status;
use local_common::messages::{bytes, check_numbered, mailbox, numbered, receive, received};
use local_common::{Backing, Child, Described, Node, PATIENCE, serve, status, to_hex};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn child_main() {
    serve();
}

fn node(name: &str) -> Node {
    Node::named(name, Backing::Foreign, 4, 4096)
}

/// A process that has `peer` as its peer.
fn sender(name: &str, peer: &Described) -> Child {
    let mut child = Child::new();
    child.create_named(name, Backing::Foreign, 4, 4096);
    child.connect(peer).unwrap();
    child
}

fn send(child: &mut Child, message: &[u8]) -> Result<String, String> {
    child.ask(&format!("send {}", to_hex(message)))
}

/// The only message that there is.
fn only(node: &mut Node, sender: &str, bytes: &[u8]) {
    assert_eq!(received(node), [(sender.to_owned(), bytes.to_vec())]);
}

#[test]
fn thousands_wait_for_a_reader_that_never_called_before() {
    let mut producer = node("producer");
    let peer = producer.described();
    let mut consumers: Vec<Child> = (0..3).map(|n| sender(&n.to_string(), &peer)).collect();
    for (seed, consumer) in consumers.iter_mut().enumerate() {
        consumer.tell(&format!("send_numbered {seed} 3000 600"));
    }
    for consumer in &mut consumers {
        assert_eq!(consumer.answer().unwrap(), "3000 Ok");
    }
    drop(consumers);
    let counts = check_numbered(received(&mut producer), 600);
    assert_eq!(counts, "0=3000 1=3000 2=3000");
    assert!(received(&mut producer).is_empty());
}

#[test]
fn messages_of_all_sizes_come_while_they_are_sent() {
    let mut producer = node("producer");
    let peer = producer.described();
    let mut consumers: Vec<Child> = (0..3).map(|n| sender(&n.to_string(), &peer)).collect();
    for (seed, consumer) in consumers.iter_mut().enumerate() {
        consumer.tell(&format!("send_patiently {seed} 400 {MAX_MESSAGE}"));
    }
    let messages = receive(&mut producer, 1200);
    for consumer in &mut consumers {
        assert_eq!(consumer.answer().unwrap(), "400 Ok");
    }
    let counts = check_numbered(messages, MAX_MESSAGE as u64);
    assert_eq!(counts, "0=400 1=400 2=400");
    assert_eq!(producer.local.refused_messages(), 0);
}

#[test]
fn any_bytes_of_any_permitted_length() {
    let mut consumer = node("consumer \u{e9}");
    let mut producer = node("producer");
    let conn = consumer.connect_to(&producer.described()).unwrap();
    let all: Vec<u8> = (0..=255).collect();
    for message in [
        &b"\0"[..],
        b"\xff",
        b"\n@=\0\0",
        &all,
        &vec![0xff; 4096],
        &vec![0; MAX_MESSAGE - 1],
        &all.repeat(256),
    ] {
        consumer.local.send(conn, message).unwrap();
        only(&mut producer, "consumer \u{e9}", message);
    }
    for message in [&b""[..], &vec![1; MAX_MESSAGE + 1]] {
        let refused = consumer.local.send(conn, message);
        assert_eq!(status(refused), Status::InvalidArg);
    }
    assert!(received(&mut producer).is_empty());
    assert_eq!(consumer.local.refused_messages(), 0);
    let name = consumer.local.agent_name(consumer.local.metadata());
    assert_eq!(name.unwrap(), "consumer \u{e9}");
    assert_eq!(status(consumer.local.agent_name(b"x")), Status::InvalidArg);
}

#[test]
fn a_transport_can_send_to_itself() {
    let mut own = node("own");
    let conn = own.connect_to(&own.described()).unwrap();
    own.local.send(conn, b"myself").unwrap();
    only(&mut own, "own", b"myself");
}

#[test]
fn what_was_accepted_outlives_its_sender() {
    let mut producer = node("producer");
    let peer = producer.described();
    let mut child = sender("killed", &peer);
    send(&mut child, b"before the kill").unwrap();
    child.kill();
    only(&mut producer, "killed", b"before the kill");
    for (name, command) in [
        ("exits", "send_and_exit"),
        ("closes", "send_and_close"),
        ("starts-another-program", "send"),
    ] {
        let mut child = sender(name, &peer);
        child
            .ask(&format!("{command} {}", to_hex(b"last")))
            .unwrap();
        if command == "send" {
            child.ask("exec").unwrap();
        }
        only(&mut producer, name, b"last");
    }
    // With many messages unread.
    let mut child = sender("0", &peer);
    assert_eq!(child.ask("send_numbered 0 3000 300").unwrap(), "3000 Ok");
    child.kill();
    assert_eq!(check_numbered(received(&mut producer), 300), "0=3000");
}

#[test]
fn a_forked_child_of_the_killed_holds_nothing_up() {
    let mut producer = node("producer");
    let peer = producer.described();
    let mut child = sender("parent", &peer);
    send(&mut child, b"one").unwrap();
    let pid: i32 = child.ask("fork").unwrap().parse().unwrap();
    send(&mut child, b"two").unwrap();
    child.kill();
    assert_eq!(bytes(received(&mut producer)), [b"one", b"two"]);
    let mut other = sender("other", &peer);
    send(&mut other, b"three").unwrap();
    only(&mut producer, "other", b"three");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_receiver_that_is_gone_is_lost() {
    for ending in ["kill", "close", "exec", "fork and kill"] {
        let mut target = Child::new();
        let peer = target.create(Backing::Foreign, 4, 4096);
        let mut consumer = node("consumer");
        let conn = consumer.connect_to(&peer).unwrap();
        consumer.local.send(conn, b"fine").unwrap();
        let expected = format!("consumer={}", to_hex(b"fine"));
        assert_eq!(target.ask("receive").unwrap(), expected);
        let mut forked = None;
        match ending {
            "kill" => target.kill(),
            "fork and kill" => {
                let pid = target.ask("fork").unwrap().parse().unwrap();
                forked = Pid::from_raw(pid);
                target.kill();
            }
            _ => {
                target.ask(ending).unwrap();
            }
        }
        // A process that starts another program takes a moment to let go of the old one.
        let deadline = Instant::now() + PATIENCE;
        let error = loop {
            match consumer.local.send(conn, b"lost") {
                Ok(()) if ending == "exec" && Instant::now() < deadline => {}
                other => break other.unwrap_err(),
            }
        };
        assert_eq!(error.status, Status::PeerLost, "{ending}: {error}");
        assert_eq!(consumer.progress(), [Event::Lost { conn, error }]);
        assert_eq!(status(consumer.local.send(conn, b"x")), Status::PeerLost);
        if let Some(pid) = forked {
            kill_process(pid, Signal::KILL).unwrap();
        }
    }
}

#[test]
fn a_stopped_receiver_takes_what_it_has_room_for_and_delays_nobody() {
    let mut target = Child::new();
    let peer = target.create(Backing::Foreign, 4, 4096);
    let mut consumer = Node::named("7", Backing::Foreign, 4, 4096);
    let conn = consumer.connect_to(&peer).unwrap();
    target.signal(Signal::STOP);
    let message = |n: u64| numbered(7, n, 5000);
    let fill = |consumer: &mut Node, from: u64| {
        for n in from.. {
            match consumer.local.send(conn, &message(n)) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.status, Status::Busy, "{error}");
                    return n;
                }
            }
        }
        unreachable!()
    };
    let sent = fill(&mut consumer, 0);
    assert!(sent > 200, "{sent} messages");
    assert_eq!(
        status(consumer.local.send(conn, &message(sent))),
        Status::Busy
    );
    // Another one has a lane of its own.
    let mut other = sender("8", &peer);
    assert_eq!(other.ask("send_numbered 8 100 5000").unwrap(), "100 Ok");
    target.signal(Signal::CONT);
    let answer = format!("7={sent} 8=100");
    assert_eq!(target.ask("receive_numbered 5000").unwrap(), answer);
    let sent = fill(&mut consumer, sent);
    assert_eq!(
        target.ask("receive_numbered 5000").unwrap(),
        format!("7={sent} 8=100")
    );
}

#[test]
fn who_restarts_under_the_same_name_begins_anew() {
    let mut consumer = node("consumer");
    let mut first = Child::new();
    let peer = first.create_named("producer", Backing::Foreign, 4, 4096);
    let old = consumer.connect_to(&peer).unwrap();
    consumer.local.send(old, b"to the first").unwrap();
    first.kill();
    let mut second = Child::new();
    let peer = second.create_named("producer", Backing::Foreign, 4, 4096);
    assert_eq!(status(consumer.local.send(old, b"x")), Status::PeerLost);
    let new = consumer.connect_to(&peer).unwrap();
    consumer.local.disconnect(old);
    consumer.local.send(new, b"to the second").unwrap();
    let expected = format!("consumer={}", to_hex(b"to the second"));
    assert_eq!(second.ask("receive").unwrap(), expected);
    // And a sender: what the first left comes, and then what the second says.
    let mut producer = node("producer");
    let peer = producer.described();
    let mut child = sender("0", &peer);
    send(&mut child, b"1").unwrap();
    child.kill();
    send(&mut sender("0", &peer), b"2").unwrap();
    assert_eq!(received(&mut producer).len(), 2);
}

#[test]
fn the_order_survives_remove_and_add() {
    let mut consumer = node("3");
    let mut producer = node("producer");
    let peer = producer.described();
    let mut conn = consumer.connect_to(&peer).unwrap();
    for n in 0..300 {
        consumer.local.send(conn, &numbered(3, n, 500)).unwrap();
        if n % 3 == 0 {
            consumer.local.disconnect(conn);
            conn = consumer.connect_to(&peer).unwrap();
        } else if n % 3 == 1 {
            let new = consumer.connect_to(&peer).unwrap();
            consumer.local.disconnect(conn);
            conn = new;
        }
    }
    assert_eq!(check_numbered(received(&mut producer), 500), "3=300");
    consumer.local.try_close().unwrap();
    assert_eq!(status(consumer.local.send(conn, b"x")), Status::Closed);
}

#[test]
fn messages_leave_nothing_behind() {
    let (mut target, mut initiator) = (Child::new(), Child::new());
    let peer = target.create(Backing::Foreign, 4, 4096);
    initiator.create(Backing::Foreign, 4, 4096);
    let mut round = |rounds: u32| {
        for _ in 0..rounds {
            initiator.connect(&peer).unwrap();
            initiator.ask("send 00").unwrap();
            assert_eq!(target.ask("receive").unwrap(), "node=00");
            initiator.ask("disconnect").unwrap();
        }
        // The peer is idle: it reads nothing, and the next rounds' messages are in its way.
        for _ in 0..rounds {
            initiator.connect(&peer).unwrap();
            initiator.ask("send 00").unwrap();
            initiator.ask("disconnect").unwrap();
        }
        let texts = target.ask("receive").unwrap();
        assert_eq!(texts.split(' ').count(), rounds as usize);
        let holdings = |child: &mut Child| child.ask("holdings").unwrap();
        (holdings(&mut target), holdings(&mut initiator))
    };
    let first = round(20);
    assert_eq!(round(200), first);
}

#[test]
fn a_forked_child_has_no_part_in_messages() {
    let mut producer = node("producer");
    let mut child = sender("parent", &producer.described());
    send(&mut child, b"before").unwrap();
    child.ask("fork_drop").unwrap();
    send(&mut child, b"after").unwrap();
    assert_eq!(bytes(received(&mut producer)), [&b"before"[..], b"after"]);
}

#[test]
fn limits_of_a_process_are_errors_and_no_signals() {
    let mut producer = node("producer");
    let peer = producer.described();
    // Descriptors.
    let mut child = sender("starved", &peer);
    let error = child.ask("starve_send 01").unwrap_err();
    assert!(error.starts_with("NoMemory: "), "{error}");
    send(&mut child, b"2").unwrap();
    only(&mut producer, "starved", b"2");
    // Sizes of files: of a sender, ...
    let mut child = sender("small", &peer);
    child.ask("fsize 100000").unwrap();
    let error = send(&mut child, b"3").unwrap_err();
    assert!(
        error.starts_with("NoMemory: ") && error.contains("RLIMIT_FSIZE"),
        "{error}"
    );
    // ... and of a receiver, which has fewer lanes or none.
    let mut child = Child::new();
    child.ask("fsize 2300000").unwrap();
    let small = child.create(Backing::Foreign, 4, 4096);
    assert_eq!(
        mailbox(&small).metadata().unwrap().len(),
        (64 << 10) + (2 << 20)
    );
    let mut consumer = node("consumer");
    let conn = consumer.connect_to(&small).unwrap();
    consumer.local.send(conn, b"4").unwrap();
    let mut second = sender("second", &small);
    send(&mut second, b"5").unwrap();
    let mut third = sender("third", &small);
    assert!(send(&mut third, b"6").unwrap_err().starts_with("Busy: "));
    assert_eq!(child.ask("receive").unwrap(), "consumer=34 second=35");
    second.kill();
    send(&mut third, b"6").unwrap();
    assert_eq!(child.ask("receive").unwrap(), "third=36");
    let mut child = Child::new();
    child.ask("fsize 1000000").unwrap();
    let error = child.ask("create Foreign 4 4096 x").unwrap_err();
    assert!(
        error.starts_with("NoMemory: ") && error.contains("mailbox"),
        "{error}"
    );
}
