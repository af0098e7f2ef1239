use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::peers::Peers;
use crate::region::Region;

fn keys() -> [PeerKey; 2] {
    let mut peers = Peers::default();
    for (conn, name) in ["a", "b"].into_iter().enumerate() {
        peers.insert(
            name,
            ConnId(conn as u64),
            Region::new(4096, 1, 1).unwrap().into(),
        );
    }
    [peers.key("a").unwrap(), peers.key("b").unwrap()]
}

fn terms(peer: PeerKey, conn: u64, direction: Direction) -> Terms {
    Terms {
        peer,
        conn: ConnId(conn),
        direction,
        bytes: 64,
        user_data: 7,
        held: false,
    }
}

#[test]
fn a_recorded_outcome_never_changes() {
    let [a, _] = keys();
    let mut ledger = Ledger::default();
    let id = ledger.open(terms(a, 1, Direction::Write));
    assert_eq!(ledger.end(id, Ok(())), Some(ConnId(1)));
    assert_eq!(ledger.end(id, Err(Status::Backend)), None);
    ledger.condemn(id);
    ledger.forget_stopped(id);
    ledger.forget_draining(id);
    let (key, completion) = ledger.take(None).unwrap();
    assert_eq!(key, a);
    assert_eq!(
        completion,
        Completion {
            id,
            user_data: 7,
            bytes: 64,
            result: Ok(())
        }
    );
    assert_eq!(ledger.take(None), None);
    assert_eq!(ledger.end(id, Ok(())), None);
}

#[test]
fn a_failure_moves_no_bytes() {
    let [a, _] = keys();
    let mut ledger = Ledger::default();
    let id = ledger.open(terms(a, 1, Direction::Read));
    ledger.end(id, Err(Status::PeerLost));
    let (_, completion) = ledger.take(Some(a)).unwrap();
    assert_eq!(
        (completion.bytes, completion.result),
        (0, Err(Status::PeerLost))
    );
    assert_eq!(ledger.counts().bytes_read, 0);
}

#[test]
fn places_that_are_skipped_do_not_pile_up() {
    let [a, b] = keys();
    for scope in [None, Some(a)] {
        let mut ledger = Ledger::default();
        let waits = ledger.open(terms(b, 1, Direction::Write));
        ledger.end(waits, Ok(()));
        for _ in 0..1000 {
            let id = ledger.open(terms(a, 1, Direction::Write));
            ledger.end(id, Ok(()));
            let taken = ledger.take(Some(a)).map(|(_, completion)| completion.id);
            assert_eq!(taken, Some(id));
        }
        for _ in 0..1000 {
            let id = ledger.open(terms(a, 1, Direction::Write));
            ledger.end(id, Ok(()));
            ledger.take(scope).unwrap();
        }
        let places = [&ledger.line, &ledger.accounts[&a].line].map(Line::places);
        assert!(places.iter().all(|places| *places < 70), "{places:?}");
    }
}

#[test]
fn the_oldest_end_surfaces_first() {
    let [a, b] = keys();
    let mut ledger = Ledger::default();
    let ids: Vec<_> = [a, b, a]
        .map(|peer| ledger.open(terms(peer, 1, Direction::Write)))
        .into();
    for id in [ids[2], ids[0], ids[1]] {
        ledger.end(id, Ok(()));
    }
    assert_eq!(ledger.take(Some(b)).unwrap().1.id, ids[1]);
    assert_eq!(ledger.take(None).unwrap().1.id, ids[2]);
    assert_eq!(ledger.take(Some(b)), None);
    assert!(ledger.uses(a) && !ledger.uses(b));
    assert_eq!(ledger.take(Some(a)).unwrap().1.id, ids[0]);
}

#[derive(Clone, Debug)]
enum Step {
    Open {
        peer: usize,
        read: bool,
    },
    End {
        pick: usize,
        result: Result<(), Status>,
    },
    Condemn {
        pick: usize,
    },
    ForgetEnded {
        pick: usize,
    },
    ForgetStopped {
        pick: usize,
    },
    ForgetDraining {
        pick: usize,
    },
    Take {
        peer: Option<usize>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let pick = 0usize..40;
    let result = prop_oneof![
        3 => Just(Ok(())),
        1 => Just(Err(Status::Backend)),
        1 => Just(Err(Status::Cancelled))
    ];
    prop_oneof![
        4 => (0usize..2, any::<bool>()).prop_map(|(peer, read)| Step::Open { peer, read }),
        4 => (pick.clone(), result).prop_map(|(pick, result)| Step::End { pick, result }),
        1 => pick.clone().prop_map(|pick| Step::Condemn { pick }),
        1 => pick.clone().prop_map(|pick| Step::ForgetEnded { pick }),
        1 => pick.clone().prop_map(|pick| Step::ForgetStopped { pick }),
        1 => pick.prop_map(|pick| Step::ForgetDraining { pick }),
        3 => prop::option::of(0usize..2).prop_map(|peer| Step::Take { peer }),
    ]
}

/// The same machine, told in the plainest way.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Model {
    Running { condemned: bool },
    Ended(Result<(), Status>),
    Draining,
    Gone,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn behaves_as_its_drawing(steps in prop::collection::vec(step(), 1..120)) {
        let keys = keys();
        let mut ledger = Ledger::default();
        let mut model: BTreeMap<XferId, (usize, Model)> = BTreeMap::new();
        let mut order: Vec<XferId> = Vec::new();
        let mut expected = Counts::default();
        for step in steps {
            let nth = |pick: usize| model.keys().nth(pick % model.len().max(1)).copied();
            match step {
                Step::Open { peer, read } => {
                    let direction = if read { Direction::Read } else { Direction::Write };
                    let next = ledger.next_id();
                    let id = ledger.open(terms(keys[peer], peer as u64, direction));
                    prop_assert_eq!(id, next);
                    prop_assert!(id != 0 && !model.contains_key(&id));
                    model.insert(id, (peer, Model::Running { condemned: false }));
                    expected.submitted += 1;
                }
                Step::End { pick, result } => {
                    let Some(id) = nth(pick) else { continue };
                    let (peer, state) = model.get_mut(&id).unwrap();
                    let conn = ledger.end(id, result);
                    match *state {
                        Model::Running { condemned } => {
                            prop_assert_eq!(conn, Some(ConnId(*peer as u64)));
                            *state = Model::Ended(if condemned { Err(Status::Cancelled) } else { result });
                            order.push(id);
                            match *state {
                                Model::Ended(Ok(())) => expected.done += 1,
                                Model::Ended(Err(Status::Cancelled)) => expected.cancelled += 1,
                                _ => expected.failed += 1,
                            }
                        }
                        Model::Draining => {
                            prop_assert_eq!(conn, Some(ConnId(*peer as u64)));
                            *state = Model::Gone;
                        }
                        _ => prop_assert_eq!(conn, None),
                    }
                }
                Step::Condemn { pick } => {
                    let Some(id) = nth(pick) else { continue };
                    ledger.condemn(id);
                    if let (_, Model::Running { condemned }) = model.get_mut(&id).unwrap() {
                        *condemned = true;
                    }
                }
                Step::ForgetEnded { pick } => {
                    let Some(id) = nth(pick) else { continue };
                    let (peer, state) = model.get_mut(&id).unwrap();
                    let key = ledger.forget_ended(id);
                    if let Model::Ended(_) = *state {
                        *state = Model::Gone;
                        order.retain(|other| *other != id);
                        prop_assert_eq!(key, Some(keys[*peer]));
                    } else {
                        prop_assert_eq!(key, None);
                    }
                }
                Step::ForgetStopped { pick } | Step::ForgetDraining { pick } => {
                    let Some(id) = nth(pick) else { continue };
                    let (peer, state) = model.get_mut(&id).unwrap();
                    let (key, after) = match step {
                        Step::ForgetStopped { .. } => (ledger.forget_stopped(id), Model::Gone),
                        _ => (ledger.forget_draining(id), Model::Draining),
                    };
                    if let Model::Running { .. } = *state {
                        *state = after;
                        expected.cancelled += 1;
                        prop_assert_eq!(key, Some(keys[*peer]));
                    } else {
                        prop_assert_eq!(key, None);
                    }
                }
                Step::Take { peer } => {
                    let scope = peer.map(|peer| keys[peer]);
                    let first = order.iter().copied().find(|id| peer.is_none_or(|peer| model[id].0 == peer));
                    prop_assert_eq!(ledger.has_ready(scope), first.is_some());
                    match (ledger.take(scope), first) {
                        (None, None) => {}
                        (Some((key, completion)), Some(id)) => {
                            prop_assert_eq!(completion.id, id);
                            prop_assert_eq!(key, keys[model[&id].0]);
                            prop_assert_eq!(Model::Ended(completion.result), model[&id].1);
                            order.retain(|other| *other != id);
                            model.get_mut(&id).unwrap().1 = Model::Gone;
                        }
                        (got, want) => prop_assert!(false, "took {got:?}, expected {want:?}"),
                    }
                }
            }
            // What can be seen from outside agrees after every step.
            let count = |wanted: fn(&Model) -> bool| {
                model.values().filter(|(_, state)| wanted(state)).count() as u64
            };
            expected.inflight = count(|state| matches!(state, Model::Running { .. }));
            expected.draining = count(|state| matches!(state, Model::Draining));
            let got = ledger.counts();
            let bytes = (got.bytes_written, got.bytes_read);
            prop_assert_eq!(bytes.0 + bytes.1, 64 * expected.done);
            prop_assert_eq!(Counts { bytes_written: 0, bytes_read: 0, ..got }, expected);
            prop_assert_eq!(got.submitted, got.done + got.failed + got.cancelled + got.inflight);
            for (peer, key) in keys.into_iter().enumerate() {
                let alive = model.values().any(|(owner, state)| {
                    *owner == peer && matches!(state, Model::Running { .. } | Model::Ended(_))
                });
                prop_assert_eq!(ledger.uses(key), alive);
            }
            for (id, (_, state)) in &model {
                let standing = match state {
                    Model::Running { .. } => Standing::Running,
                    Model::Ended(_) => Standing::Ended,
                    _ => Standing::Unknown,
                };
                prop_assert_eq!(ledger.standing(*id), standing);
            }
            let running: Vec<_> = model
                .iter()
                .filter(|(_, (_, state))| matches!(state, Model::Running { .. }))
                .map(|(id, _)| *id)
                .collect();
            prop_assert_eq!(ledger.running(None), running);
        }
        ledger.forget_ready();
        prop_assert!(!ledger.has_ready(None) && !ledger.has_ready(Some(keys[0])));
    }
}
