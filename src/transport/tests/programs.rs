//! Random programs of calls and events, against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    Remove(usize),
    Submit {
        peer: usize,
        read: bool,
    },
    End {
        pick: usize,
        result: std::result::Result<(), Status>,
    },
    Lose {
        pick: usize,
    },
    Poll {
        peer: Option<usize>,
        cap: usize,
    },
    Cancel {
        mode: CancelMode,
        picks: Vec<usize>,
    },
    Stubborn(bool),
    Inline(bool),
    FailStart,
    FailConnect,
}

fn step() -> impl Strategy<Value = Step> {
    let result = prop_oneof![
        5 => Just(Ok(())),
        1 => Just(Err(Status::Backend)),
        1 => Just(Err(Status::PeerLost))
    ];
    let mode = prop_oneof![Just(CancelMode::Immediate), Just(CancelMode::Wait)];
    prop_oneof![
        3 => (0usize..3).prop_map(Step::Add),
        1 => (0usize..3).prop_map(Step::Remove),
        8 => (0usize..3, any::<bool>()).prop_map(|(peer, read)| Step::Submit { peer, read }),
        6 => (0usize..40, result).prop_map(|(pick, result)| Step::End { pick, result }),
        1 => (0usize..9).prop_map(|pick| Step::Lose { pick }),
        5 => (prop::option::of(0usize..3), 0usize..4).prop_map(|(peer, cap)| Step::Poll { peer, cap }),
        3 => (mode, prop::collection::vec(0usize..40, 0..5))
            .prop_map(|(mode, picks)| Step::Cancel { mode, picks }),
        1 => any::<bool>().prop_map(Step::Stubborn),
        1 => any::<bool>().prop_map(Step::Inline),
        1 => Just(Step::FailStart),
        1 => Just(Step::FailConnect),
    ]
}

/// What must become of an id, as the contract has it.
#[derive(Clone, Debug)]
struct Expected {
    peer: usize,
    /// Fixed once known; `None` while it runs.
    outcome: Option<std::result::Result<(), Status>>,
    /// What the script ended it with, not yet seen by the transport.
    scripted: Option<std::result::Result<(), Status>>,
    /// Reported or dropped: it must not surface any more.
    over: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_id_ends_in_exactly_one_way(steps in prop::collection::vec(step(), 1..150)) {
        let script = Script::default();
        let transport = transport(&script);
        let mut ids: BTreeMap<XferId, Expected> = BTreeMap::new();
        let mut last_id = 0;
        let mut registered = [false; 3];
        let mut fail_next_connect = 0;
        let mut stubborn = false;
        let mut reported = 0u64;

        // Any removal fixes the fate of what is not known to have ended.
        fn removed(ids: &mut BTreeMap<XferId, Expected>, peer: usize) {
            for id in ids.values_mut().filter(|id| id.peer == peer && !id.over && id.outcome.is_none()) {
                id.outcome = Some(Err(Status::Cancelled));
            }
        }
        let check = |ids: &mut BTreeMap<XferId, Expected>, got: &[Completion], scope: Option<usize>| {
            for id in ids.values_mut().filter(|id| id.scripted.is_some() && id.outcome.is_none()) {
                id.outcome = id.scripted;
            }
            let touching = script.touching();
            for completion in got {
                let id = ids.get_mut(&completion.id).expect("only ids that were given out");
                prop_assert!(!id.over, "{} surfaced twice, or after it was dropped", completion.id);
                id.over = true;
                prop_assert!(scope.is_none_or(|scope| scope == id.peer));
                prop_assert_eq!(Some(completion.result), id.outcome);
                prop_assert_eq!(completion.bytes, if completion.result.is_ok() { 8192 } else { 0 });
                prop_assert_eq!(completion.user_data, 99);
                prop_assert!(!touching.contains(&completion.id), "reported but not quiescent");
            }
            Ok(())
        };

        for step in steps {
            let nth = |pick: usize| ids.keys().nth(pick % ids.len().max(1)).copied().unwrap_or(pick as u64 + 1);
            match step {
                Step::Add(peer) => {
                    let result = transport.add_peer(NAMES[peer], b"m", 1 << 30, 64, 4096);
                    prop_assert_eq!(result.is_ok(), fail_next_connect == 0);
                    if result.is_ok() {
                        removed(&mut ids, peer);
                        registered[peer] = true;
                    } else {
                        fail_next_connect -= 1;
                    }
                }
                Step::Remove(peer) => {
                    let result = transport.remove_peer(NAMES[peer]);
                    prop_assert_eq!(result.is_ok(), registered[peer]);
                    registered[peer] = false;
                    removed(&mut ids, peer);
                }
                Step::Submit { peer, read } => {
                    let direction = if read { Direction::Read } else { Direction::Write };
                    match transport.submit(direction, NAMES[peer], &[1, 2], &[3, 4], 99) {
                        Ok(id) => {
                            prop_assert!(registered[peer] && id > last_id);
                            last_id = id;
                            let outcome = (!script.touching().contains(&id)).then_some(Ok(()));
                            ids.insert(id, Expected { peer, outcome, scripted: None, over: false });
                        }
                        Err(error) if registered[peer] => {
                            prop_assert!(matches!(error.status, Status::PeerLost | Status::Backend))
                        }
                        Err(error) => prop_assert_eq!(error.status, Status::NotFound),
                    }
                }
                Step::End { pick, result } => {
                    let id = nth(pick);
                    if script.end(id, result) && let Some(expected) = ids.get_mut(&id) {
                        expected.scripted = Some(result);
                    }
                }
                Step::Lose { pick } => {
                    if let Some(conn) = script.conns().get(pick) {
                        script.lose(*conn);
                    }
                }
                Step::Poll { peer, cap } => {
                    let got = poll(&transport, peer.map(|peer| NAMES[peer]), cap);
                    prop_assert!(got.len() <= cap);
                    reported += got.len() as u64;
                    check(&mut ids, &got, peer)?;
                }
                Step::Cancel { mode, picks } => {
                    let picked: Vec<_> = picks.into_iter().map(nth).collect();
                    let still = transport.cancel(&picked, mode).unwrap();
                    prop_assert!(mode == CancelMode::Wait || still.is_empty());
                    let touching = script.touching();
                    for id in picked {
                        let Some(expected) = ids.get_mut(&id) else { continue };
                        if still.contains(&id) {
                            prop_assert!(!expected.over && (stubborn || expected.scripted.is_some()));
                        } else {
                            // One that was dropped as IMMEDIATE may drain: it is unknown by now.
                            prop_assert!(
                                expected.over
                                    || mode == CancelMode::Immediate
                                    || !touching.contains(&id),
                                "dropped by WAIT but not quiescent"
                            );
                            expected.over = true;
                        }
                    }
                }
                Step::Stubborn(on) => { stubborn = on; script.set_stubborn(on) }
                Step::Inline(on) => script.set_inline(on),
                Step::FailStart => script.fail_start(Status::Backend),
                Step::FailConnect => { fail_next_connect += 1; script.fail_connect(Status::Incompatible) }
            }
            let stats = transport.stats().unwrap();
            let counts = stats.transfers;
            prop_assert_eq!(counts.submitted, ids.len() as u64);
            prop_assert_eq!(counts.submitted, counts.done + counts.failed + counts.cancelled + counts.inflight);
            prop_assert!(counts.draining <= counts.cancelled);
            prop_assert_eq!(stats.peers, registered.iter().filter(|on| **on).count() as u64);
            prop_assert_eq!(script.conns().len() as u64, stats.peers);
        }

        // Whatever happened: once the backend has ended what it holds, nothing stays behind.
        for id in script.touching() {
            script.end(id, Ok(()));
            if let Some(expected) = ids.get_mut(&id) {
                expected.scripted = Some(Ok(()));
            }
        }
        let got = poll(&transport, None, usize::MAX);
        reported += got.len() as u64;
        check(&mut ids, &got, None)?;
        prop_assert!(ids.values().all(|id| id.over), "an id never surfaced");
        let counts = transport.stats().unwrap().transfers;
        prop_assert_eq!((counts.inflight, counts.draining), (0, 0));
        prop_assert!(reported <= counts.submitted);
        for peer in 0..3 {
            prop_assert_eq!(transport.lock().peers.key(NAMES[peer]).is_some(), registered[peer]);
        }
        transport.close(Duration::ZERO).unwrap();
        prop_assert!(script.conns().is_empty() && script.touching().is_empty());
    }
}
