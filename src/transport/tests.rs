//! The transport over the scripted backend: every order of events, without memory.

use std::collections::HashSet;

use super::*;
use crate::backend::sim::Script;

mod pull;
mod simulation;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A transport that works as `script` says.
pub(crate) fn transport(script: &Script) -> Transport {
    let config = Config {
        // SAFETY: the scripted backend touches no memory.
        region: unsafe { LocalRegion::new(Region::new(1 << 20, 64, 4096).unwrap()) },
        region_fd: None,
        backend: BackendChoice::Local,
        nixl: NixlConfig::default(),
        agent_name: None,
        config_json: None,
        poll_budget: Duration::from_micros(500),
    };
    Transport::over(
        script.backend(),
        config,
        String::new(),
        "me".into(),
        Clock::default(),
    )
}

fn add(transport: &Transport, name: &str) {
    transport
        .add_peer(name, b"metadata", 1 << 30, 64, 4096)
        .unwrap();
}

fn write(transport: &Transport, name: &str) -> Result<XferId> {
    transport.submit(Direction::Write, name, &[1, 2], &[3, 4], 99)
}

fn poll(transport: &Transport, name: Option<&str>, cap: usize) -> Vec<Completion> {
    let mut got = Vec::new();
    let count = transport
        .poll(name, cap, &mut |completion| got.push(completion))
        .unwrap();
    assert_eq!(count, got.len());
    got
}

fn outcomes(completions: &[Completion]) -> Vec<(XferId, std::result::Result<(), Status>)> {
    completions
        .iter()
        .map(|completion| (completion.id, completion.result))
        .collect()
}

#[test]
fn a_refused_add_leaves_the_old_registration() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    script.fail_connect(Status::Incompatible);
    let error = transport
        .add_peer("a", b"x", 1 << 30, 64, 4096)
        .unwrap_err();
    assert_eq!(error.status, Status::Incompatible);
    assert!(transport.peer_status("a").is_ok());
    assert!(write(&transport, "a").is_ok());
    assert_eq!(script.conns(), [1]);

    script.fail_connect(Status::PeerLost);
    assert!(transport.add_peer("b", b"x", 1 << 30, 64, 4096).is_err());
    assert_eq!(
        transport.peer_status("b").unwrap_err().status,
        Status::NotFound
    );
    assert_eq!(transport.stats().unwrap().peers, 1);
}

#[test]
fn an_add_checks_its_numbers_first() {
    let script = Script::default();
    let transport = transport(&script);
    let error = transport
        .add_peer("a", b"x", 1 << 30, 64, 4097)
        .unwrap_err();
    assert_eq!(error.status, Status::Incompatible);
    assert!(
        error.message.contains("4097") && error.message.contains("4096"),
        "{error}"
    );
    for (base, blocks) in [
        (0, 64),
        (1 << 30, 0),
        (u64::MAX - 4096, 2),
        (1 << 30, u64::MAX),
    ] {
        let error = transport
            .add_peer("a", b"x", base, blocks, 4096)
            .unwrap_err();
        assert_eq!(error.status, Status::InvalidArg);
    }
    assert!(script.calls().is_empty());
}

#[test]
fn adding_again_replaces_and_old_ids_surface_under_the_name() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    let known = write(&transport, "a").unwrap();
    script.end(known, Ok(()));
    assert!(poll(&transport, None, 0).is_empty());
    let stopped = write(&transport, "a").unwrap();
    script.set_stubborn(true);
    add(&transport, "a");
    script.set_stubborn(false);
    let fresh = write(&transport, "a").unwrap();
    assert_eq!(script.conns(), [2]);

    // The one whose outcome was known surfaces with it; the other only when it is quiescent.
    assert_eq!(outcomes(&poll(&transport, Some("a"), 9)), [(known, Ok(()))]);
    script.end(stopped, Ok(()));
    script.end(fresh, Ok(()));
    let got = outcomes(&poll(&transport, Some("a"), 9));
    assert_eq!(got, [(stopped, Err(Status::Cancelled)), (fresh, Ok(()))]);
    assert!(transport.peer_status("a").is_ok());
}

#[test]
fn a_removed_peer_is_unknown_at_once_and_its_ids_still_surface() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    add(&transport, "b");
    let id = write(&transport, "a").unwrap();
    transport.remove_peer("a").unwrap();
    assert_eq!(
        transport.remove_peer("a").unwrap_err().status,
        Status::NotFound
    );
    assert_eq!(write(&transport, "a").unwrap_err().status, Status::NotFound);
    assert!(poll(&transport, Some("b"), 9).is_empty());
    assert_eq!(
        outcomes(&poll(&transport, Some("a"), 9)),
        [(id, Err(Status::Cancelled))]
    );
    assert!(poll(&transport, Some("a"), 9).is_empty());
    assert_eq!(
        transport.lock().peers.key("a"),
        None,
        "the name is forgotten"
    );
}

#[test]
fn a_lost_peer_refuses_work_and_others_go_on() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    add(&transport, "b");
    let (a, b) = (
        write(&transport, "a").unwrap(),
        write(&transport, "b").unwrap(),
    );
    script.lose(1);
    script.end(a, Err(Status::PeerLost));
    script.end(b, Ok(()));
    let mut got = outcomes(&poll(&transport, None, 9));
    got.sort_by_key(|(id, _)| *id);
    assert_eq!(got, [(a, Err(Status::PeerLost)), (b, Ok(()))]);
    assert_eq!(
        transport.peer_status("a").unwrap_err().status,
        Status::PeerLost
    );
    let error = write(&transport, "a").unwrap_err();
    assert_eq!(error.status, Status::PeerLost);
    assert!(error.message.contains("\"a\""), "{error}");
    assert!(write(&transport, "b").is_ok());
    add(&transport, "a");
    assert!(transport.peer_status("a").is_ok());
    assert!(write(&transport, "a").is_ok());
}

#[test]
fn a_failed_start_gives_no_id_and_counts_as_a_failure() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    for _ in 0..3 {
        script.fail_start(Status::Backend);
        assert_eq!(write(&transport, "a").unwrap_err().status, Status::Backend);
    }
    assert_eq!(
        transport.peer_status("a").unwrap_err().status,
        Status::Backend
    );
    assert_eq!(write(&transport, "a").unwrap_err().status, Status::PeerLost);
    let stats = transport.stats().unwrap();
    assert_eq!(
        (stats.transfers.submitted, stats.transfers.inflight),
        (0, 0)
    );
}

#[test]
fn refused_arguments_are_no_failure_of_the_peer() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    for _ in 0..5 {
        let result = transport.submit(Direction::Read, "a", &[64], &[0], 0);
        assert_eq!(result.unwrap_err().status, Status::OutOfRange);
    }
    assert!(transport.peer_status("a").is_ok());
}

#[test]
fn cancel_wait_lists_what_cannot_be_stopped_once() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    let (kept, stopped, ended) = (
        write(&transport, "a").unwrap(),
        write(&transport, "a").unwrap(),
        write(&transport, "a").unwrap(),
    );
    script.end(ended, Ok(()));
    assert!(poll(&transport, None, 0).is_empty());
    assert!(
        transport
            .cancel(&[stopped, ended, 77], CancelMode::Wait)
            .unwrap()
            .is_empty()
    );
    script.set_stubborn(true);
    assert_eq!(
        transport
            .cancel(&[kept, stopped, kept], CancelMode::Wait)
            .unwrap(),
        [kept]
    );
    assert!(poll(&transport, None, 9).is_empty());
    script.end(kept, Ok(()));
    assert_eq!(outcomes(&poll(&transport, None, 9)), [(kept, Ok(()))]);
    let counts = transport.stats().unwrap().transfers;
    assert_eq!((counts.done, counts.cancelled, counts.inflight), (2, 1, 0));
}

#[test]
fn an_id_is_asked_about_once_in_a_cancel() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    let id = write(&transport, "a").unwrap();
    // Asked again, the backend would say that it has stopped.
    script.set_stubborn_for(1);
    assert_eq!(transport.cancel(&[id, id], CancelMode::Wait).unwrap(), [id]);
    script.end(id, Ok(()));
    assert_eq!(outcomes(&poll(&transport, None, 9)), [(id, Ok(()))]);
}

#[test]
fn cancel_immediate_drains_inside() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    let id = write(&transport, "a").unwrap();
    script.set_stubborn(true);
    assert!(
        transport
            .cancel(&[id, id], CancelMode::Immediate)
            .unwrap()
            .is_empty()
    );
    assert_eq!(transport.stats().unwrap().transfers.draining, 1);
    assert_eq!(
        transport.close(Duration::ZERO).unwrap_err().status,
        Status::Timeout
    );
    assert_eq!(script.touching(), [id]);
    script.end(id, Ok(()));
    transport.close(Duration::from_secs(10)).unwrap();
    let counts = transport.stats().unwrap().transfers;
    assert_eq!((counts.draining, counts.cancelled, counts.done), (0, 1, 0));
}

#[test]
fn a_transfer_that_is_done_at_once_surfaces_in_poll() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    script.set_inline(true);
    let id = write(&transport, "a").unwrap();
    let got = poll(&transport, Some("a"), 1);
    assert_eq!(
        got,
        [Completion {
            id,
            user_data: 99,
            bytes: 8192,
            result: Ok(())
        }]
    );
    assert_eq!(transport.stats().unwrap().transfers.bytes_written, 8192);
}

#[test]
fn close_is_bounded_and_idempotent_and_final() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    let running = write(&transport, "a").unwrap();
    let ended = write(&transport, "a").unwrap();
    script.end(ended, Ok(()));
    assert!(poll(&transport, None, 0).is_empty());
    script.hold_close(true);
    let error = transport.close(Duration::from_millis(5)).unwrap_err();
    assert_eq!(error.status, Status::Timeout);
    assert!(error.message.contains("scripted hold"), "{error}");
    assert!(!script.touching().contains(&running));

    assert_eq!(write(&transport, "a").unwrap_err().status, Status::Closed);
    assert_eq!(
        transport
            .poll(None, 9, &mut |_| panic!("ended by close"))
            .unwrap_err()
            .status,
        Status::Closed
    );
    script.hold_close(false);
    transport.close(Duration::ZERO).unwrap();
    transport.close(Duration::ZERO).unwrap();
    assert_eq!(
        transport.peer_status("a").unwrap_err().status,
        Status::Closed
    );
    assert_eq!(transport.agent_name(), "me");
    let stats = transport.stats().unwrap();
    assert_eq!(
        (stats.transfers.cancelled, stats.transfers.done, stats.peers),
        (1, 1, 0)
    );
    drop(transport);
    assert_eq!(script.calls(), ["connect 1", "disconnect 1", "close"]);
}

#[test]
fn drop_forces_what_close_could_not() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    write(&transport, "a").unwrap();
    script.set_stubborn(true);
    drop(transport);
    assert_eq!(script.calls(), ["connect 1", "disconnect 1", "force_close"]);
    assert!(script.conns().is_empty());
}

#[test]
fn a_broken_transport_refuses_everything() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    transport.mark_broken();
    assert_eq!(write(&transport, "a").unwrap_err().status, Status::Internal);
    assert_eq!(
        transport.close(Duration::ZERO).unwrap_err().status,
        Status::Internal
    );
    drop(transport);
    assert_eq!(script.calls().last().unwrap(), "close");
}

#[test]
fn wait_returns_when_another_thread_brings_news() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    let id = write(&transport, "a").unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut got = Vec::new();
            transport
                .wait(Some("a"), 4, Duration::from_secs(60), &mut |c| {
                    got.push(c.id)
                })
                .unwrap();
            got
        });
        script.end(id, Ok(()));
        assert_eq!(waiter.join().unwrap(), [id]);
        // A close wakes it, too.
        let waiter = scope.spawn(|| transport.wait(None, 4, Duration::from_secs(60), &mut |_| ()));
        while transport.stats().unwrap().polls < 2 {
            std::thread::yield_now();
        }
        transport.close(Duration::ZERO).unwrap();
        assert_eq!(waiter.join().unwrap().unwrap_err().status, Status::Closed);
    });
}

#[test]
fn a_wait_without_room_says_when_there_is_something() {
    let script = Script::default();
    let transport = transport(&script);
    add(&transport, "a");
    let id = write(&transport, "a").unwrap();
    let timeout = Duration::from_millis(3);
    assert_eq!(transport.wait(None, 0, timeout, &mut |_| ()).unwrap(), 0);
    script.end(id, Ok(()));
    assert_eq!(
        transport
            .wait(Some("a"), 0, Duration::from_secs(60), &mut |_| ())
            .unwrap(),
        0
    );
    assert_eq!(poll(&transport, None, 1).len(), 1);
}

#[test]
fn each_id_once_over_polling_and_cancelling_threads() {
    let script = Script::default();
    let transport = transport(&script);
    for name in NAMES {
        add(&transport, name);
    }
    let rounds = 400;
    let stop = AtomicBool::new(false);
    let (reported, dropped) = std::thread::scope(|scope| {
        let stop = &stop;
        let (transport, script) = (&transport, &script);
        let pollers: Vec<_> = [None, Some("a")]
            .map(|name| {
                scope.spawn(move || {
                    let mut got = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        got.extend(
                            poll(transport, name, 3)
                                .iter()
                                .map(|completion| completion.id),
                        );
                    }
                    got
                })
            })
            .into();
        let mut dropped = Vec::new();
        for round in 0..rounds {
            let ids: Vec<_> = NAMES
                .iter()
                .map(|name| write(transport, name).unwrap())
                .collect();
            script.end(ids[round % 3], Ok(()));
            let still = transport.cancel(&ids, CancelMode::Wait).unwrap();
            dropped.extend(ids.iter().copied().filter(|id| !still.contains(id)));
        }
        while transport.stats().unwrap().transfers.inflight > 0 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        let mut reported: Vec<_> = pollers
            .into_iter()
            .flat_map(|poller| poller.join().unwrap())
            .collect();
        reported.extend(
            poll(transport, None, usize::MAX)
                .iter()
                .map(|completion| completion.id),
        );
        (reported, dropped)
    });
    let once: HashSet<_> = reported.iter().collect();
    assert_eq!(once.len(), reported.len(), "an id was reported twice");
    // An id that cancel dropped may have been reported before, never after: the sum shows it, since
    // an id that was reported before its cancel is ignored there and counted here.
    let all: HashSet<_> = reported.iter().chain(&dropped).collect();
    assert_eq!(all.len(), rounds * 3);
}
