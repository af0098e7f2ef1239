//! Posted reads and messages.

use super::*;
use crate::descriptor;

fn post(transport: &Transport, message: &[u8]) -> XferId {
    transport.post_read("a", &[1, 2], &[3, 4], message).unwrap()
}

fn ended(status: Status) -> ReadState {
    ReadState::Ended(Err(status))
}

const DONE: ReadState = ReadState::Ended(Ok(()));

fn with_peer() -> (Script, Transport) {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    (script, transport)
}

fn received(transport: &Transport, cap: usize) -> Vec<(String, Vec<u8>)> {
    let mut got = Vec::new();
    transport
        .receive(cap, &mut |message| {
            got.push((message.sender.to_string(), message.bytes.clone()));
            true
        })
        .unwrap();
    got
}

#[test]
fn a_posted_read_is_asked_for_and_never_reported() {
    let (script, transport) = with_peer();
    let id = post(&transport, b"");
    let pushed = write(&transport, "a").unwrap();
    assert_eq!(transport.read_state(id), Ok(ReadState::Running));
    assert!(script.end(id, Ok(())) && script.end(pushed, Ok(())));
    assert_eq!(outcomes(&poll(&transport, None, 9)), [(pushed, Ok(()))]);
    assert_eq!(poll(&transport, Some("a"), 9), []);
    for _ in 0..3 {
        assert_eq!(transport.read_state(id), Ok(DONE));
    }
    assert_eq!(script.sent(), [], "no message goes with it");
    transport.release_read(id).unwrap();
    for id in [id, pushed, 99] {
        let error = transport.read_state(id).unwrap_err();
        assert_eq!(error.status, Status::NotFound);
        assert_eq!(transport.release_read(id).unwrap_err(), error);
    }
    let counts = transport.stats().unwrap().transfers;
    assert_eq!(
        (counts.done, counts.bytes_read, counts.inflight),
        (2, 8192, 0)
    );
}

#[test]
fn a_message_goes_when_the_bytes_have_arrived() {
    let (script, transport) = with_peer();
    let (first, second) = (post(&transport, b"one"), post(&transport, b"two"));
    assert_eq!(transport.read_state(first), Ok(ReadState::Running));
    assert_eq!(script.sent(), []);
    // In the order of completion, not of submission.
    script.end(second, Ok(()));
    assert_eq!(transport.read_state(second), Ok(DONE));
    script.end(first, Ok(()));
    assert_eq!(transport.read_state(first), Ok(DONE));
    assert_eq!(script.sent(), [(1, b"two".to_vec()), (1, b"one".to_vec())]);
    assert_eq!(transport.stats().unwrap().messages.sent, 2);
}

#[test]
fn a_read_that_is_done_at_once_sends_at_once() {
    let (script, transport) = with_peer();
    script.set_inline(true);
    let id = post(&transport, b"now");
    assert_eq!(script.sent(), [(1, b"now".to_vec())]);
    assert_eq!(transport.read_state(id), Ok(DONE));
}

#[test]
fn without_room_the_read_goes_on_and_none_overtakes() {
    let (script, transport) = with_peer();
    let (first, second) = (post(&transport, b"one"), post(&transport, b"two"));
    script.end(first, Ok(()));
    script.end(second, Ok(()));
    script.fail_send(Status::Busy);
    assert_eq!(transport.read_state(second), Ok(ReadState::Running));
    assert_eq!(script.sent(), []);
    script.fail_send(Status::Busy);
    poll(&transport, None, 1);
    let error = transport.send("a", b"late").unwrap_err();
    assert_eq!(error.status, Status::Busy, "{error}");
    let stats = transport.stats().unwrap();
    assert_eq!(stats.transfers.inflight, 2);
    // However often a message was tried, it counts once.
    assert_eq!(stats.messages.refused, 1);
    script.fail_send(Status::Busy);
    poll(&transport, None, 1);
    assert_eq!(transport.read_state(second), Ok(DONE));
    script.fail_send(Status::Busy);
    let error = transport.send("a", b"late").unwrap_err();
    assert_eq!(error.status, Status::Busy, "{error}");
    assert_eq!(transport.stats().unwrap().messages.refused, 2);
    transport.send("a", b"late").unwrap();
    let sent: Vec<_> = script.sent().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(sent, [&b"one"[..], b"two", b"late"]);
}

#[test]
fn a_message_that_cannot_go_fails_its_read() {
    let (script, transport) = with_peer();
    let id = post(&transport, b"lost");
    script.end(id, Ok(()));
    script.fail_send(Status::PeerLost);
    assert_eq!(transport.read_state(id), Ok(ended(Status::PeerLost)));
    assert_eq!(transport.read_state(id), Ok(ended(Status::PeerLost)));
    assert_eq!(
        transport.peer_status("a").unwrap_err().status,
        Status::PeerLost
    );
    assert_eq!(transport.stats().unwrap().messages.sent, 0);
}

#[test]
fn what_failed_or_was_given_up_sends_nothing() {
    let (script, transport) = with_peer();
    let failed = post(&transport, b"failed");
    script.end(failed, Err(Status::Backend));
    assert_eq!(transport.read_state(failed), Ok(ended(Status::Backend)));

    let stopped = post(&transport, b"stopped");
    transport.release_read(stopped).unwrap();

    script.set_stubborn(true);
    let drained = post(&transport, b"drained");
    transport.release_read(drained).unwrap();
    assert_eq!(transport.stats().unwrap().transfers.draining, 1);
    script.end(drained, Ok(()));
    poll(&transport, None, 1);
    assert_eq!(transport.stats().unwrap().transfers.draining, 0);

    // It has arrived, but its message waits for room when it is given up.
    let waits = post(&transport, b"waits");
    script.end(waits, Ok(()));
    script.fail_send(Status::Busy);
    assert_eq!(transport.read_state(waits), Ok(ReadState::Running));
    assert_eq!(transport.cancel(&[waits], CancelMode::Wait), Ok(vec![]));
    assert!(transport.read_state(waits).is_err(), "dropped is released");

    // Removing the peer cancels, and the handle stays until it is released.
    let removed = post(&transport, b"removed");
    transport.remove_peer("a").unwrap();
    assert_eq!(transport.read_state(removed), Ok(ReadState::Running));
    script.end(removed, Ok(()));
    assert_eq!(transport.read_state(removed), Ok(ended(Status::Cancelled)));
    assert_eq!(poll(&transport, None, 9), []);
    transport.release_read(removed).unwrap();
    assert_eq!(script.sent(), []);
    let counts = transport.stats().unwrap().transfers;
    assert_eq!(
        (counts.failed, counts.cancelled, counts.inflight),
        (1, 4, 0)
    );
}

#[test]
fn a_cancelled_read_that_completes_sends() {
    let (script, transport) = with_peer();
    script.set_stubborn(true);
    let id = post(&transport, b"m");
    assert_eq!(transport.cancel(&[id], CancelMode::Wait), Ok(vec![id]));
    script.end(id, Ok(()));
    assert_eq!(transport.read_state(id), Ok(DONE));
    assert_eq!(script.sent(), [(1, b"m".to_vec())]);
}

#[test]
fn messages_are_never_cut_and_never_empty() {
    let (script, transport) = with_peer();
    for bytes in [0, 65_537] {
        let error = transport.send("a", &vec![0; bytes]).unwrap_err();
        assert_eq!(error.status, Status::InvalidArg, "{error}");
    }
    let longest: Vec<u8> = (0..65_536u32).map(|i| ((i * 7) >> 3) as u8).collect();
    transport.send("a", &longest).unwrap();
    let long = transport.post_read("a", &[1], &[1], &vec![0; 65_537]);
    assert_eq!(long.unwrap_err().status, Status::InvalidArg);
    assert_eq!(
        transport.send("b", b"m").unwrap_err().status,
        Status::NotFound
    );
    assert!(script.sent() == [(1, longest)]);
    assert_eq!(transport.stats().unwrap().messages.sent, 1);
}

#[test]
fn what_the_caller_has_no_room_for_stays() {
    let (script, transport) = with_peer();
    for bytes in [&b"1"[..], b"2", b"3"] {
        script.deliver("far", bytes);
    }
    script.deliver("", b"nameless");
    script.deliver("na\0me", b"nameless");
    let mut seen = Vec::new();
    transport
        .receive(9, &mut |message| {
            seen.push(message.bytes.clone());
            seen.len() < 2
        })
        .unwrap();
    assert_eq!(seen, [b"1", b"2"]);
    assert_eq!(received(&transport, 1), [("far".into(), b"2".to_vec())]);
    assert_eq!(received(&transport, 9), [("far".into(), b"3".to_vec())]);
    assert_eq!(received(&transport, 9), []);
    let counts = transport.stats().unwrap().messages;
    assert_eq!((counts.received, counts.refused), (3, 2));
}

#[test]
fn close_drops_reads_and_counts_stay() {
    let (script, transport) = with_peer();
    let id = post(&transport, b"m");
    transport.close(Duration::from_secs(5)).unwrap();
    assert_eq!(script.sent(), []);
    assert_eq!(transport.read_state(id).unwrap_err().status, Status::Closed);
    let counts = transport.stats().unwrap().transfers;
    assert_eq!((counts.cancelled, counts.inflight), (1, 0));
}

#[test]
fn agents_bring_their_own_blocks() {
    let script = Script::default();
    let transport = transport(&script);
    let own = transport.mem_descriptor().unwrap();
    assert_eq!(own.len(), transport.mem_descriptor_len().unwrap());
    transport.add_agent("a", b"metadata", &own).unwrap();
    assert!(transport.post_read("a", &[0], &[63], b"").is_ok());
    let beyond = transport.post_read("a", &[0], &[64], b"").unwrap_err();
    assert_eq!(beyond.status, Status::OutOfRange);

    // A refused add leaves nothing behind.
    let short = descriptor::encode(&Region::new(1 << 20, 64, 64).unwrap()).unwrap();
    for (list, status) in [
        (&short[..], Status::Incompatible),
        (&own[..own.len() - 1], Status::InvalidArg),
    ] {
        let error = transport.add_agent("b", b"metadata", list).unwrap_err();
        assert_eq!(error.status, status, "{error}");
        let unknown = transport.peer_status("b").unwrap_err();
        assert_eq!(unknown.status, Status::NotFound);
    }
}

#[test]
fn a_handshake_is_an_add() {
    let (_script, transport) = with_peer();
    let blob = transport.export_handshake().unwrap();
    transport.import_handshake("b", &blob).unwrap();
    assert!(write(&transport, "b").is_ok());
    let error = transport.import_handshake("c", &blob[1..]).unwrap_err();
    assert_eq!(error.status, Status::InvalidArg);
    assert!(error.message.contains("\"c\""), "{error}");
    assert_eq!(
        transport.peer_status("c").unwrap_err().status,
        Status::NotFound
    );
}
