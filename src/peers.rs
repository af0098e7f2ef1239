//! Registrations of peers: which name means which connection, and whether it can be used.
//!
//! A peer *id* is the caller's name; a *registration* is what one add made of it. When an id is
//! removed and added again, the new registration shares nothing with the old one but the name under
//! which transfers surface: that name lives as a [`PeerKey`] until the last of them was reported.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::backend::ConnId;
use crate::error::{Error, Quoted, Result, Status, fail};
use crate::layout::Layout;

/// A peer id as a number, valid while the id is registered or a transfer of it can still surface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerKey(u64);

/// This many failed transfers in a row, with no success between, fault a peer.
const MAX_STRIKES: u32 = 3;

/// One add of one peer.
#[derive(Debug)]
pub struct Registration {
    /// The name it has with the ledger.
    pub key: PeerKey,
    /// The name it has with the backend.
    pub conn: ConnId,
    /// The peer's blocks.
    pub layout: Layout,
    strikes: u32,
    has_failed: bool,
    fault: Option<Error>,
}

/// What people should know of an outcome.
#[derive(PartialEq, Eq, Debug)]
pub enum Remark<'a> {
    /// The first transfer of this registration that failed, and why.
    FirstFailure(&'a str, &'a Error),
    /// The peer is faulted now, and why.
    Faulted(&'a str, &'a Error),
}

/// All peer ids of one transport.
#[derive(Debug, Default)]
pub struct Peers {
    last_key: u64,
    keys: HashMap<String, PeerKey>,
    names: FxHashMap<PeerKey, String>,
    registered: FxHashMap<PeerKey, Registration>,
    by_conn: FxHashMap<ConnId, PeerKey>,
}

impl Peers {
    /// Registers `name`, which is not registered now.
    pub fn insert(&mut self, name: &str, conn: ConnId, layout: Layout) {
        let key = match self.keys.get(name) {
            Some(key) => *key,
            None => {
                self.last_key += 1;
                let key = PeerKey(self.last_key);
                self.keys.insert(name.to_owned(), key);
                self.names.insert(key, name.to_owned());
                key
            }
        };
        self.by_conn.insert(conn, key);
        let registration = Registration {
            key,
            conn,
            layout,
            strikes: 0,
            has_failed: false,
            fault: None,
        };
        let old = self.registered.insert(key, registration);
        debug_assert!(old.is_none(), "an id is removed before it is added again");
    }

    /// Ends the registration of `name`. Its key stays until [`sweep`](Self::sweep).
    pub fn remove(&mut self, name: &str) -> Option<Registration> {
        let registration = self.registered.remove(self.keys.get(name)?)?;
        self.by_conn.remove(&registration.conn);
        Some(registration)
    }

    /// The registration of `name`, if it may be used.
    pub fn usable(&self, name: &str) -> Result<&Registration> {
        let registration = self.get(name)?;
        if let Some(fault) = registration.fault() {
            fail!(
                PeerLost,
                "peer {} is faulted, remove it or add it again before you use it; why: {fault}",
                Quoted(name)
            );
        }
        Ok(registration)
    }

    /// False once the registration behind `conn` was removed, replaced or faulted.
    pub fn is_usable(&self, conn: ConnId) -> bool {
        let registration = self.by_conn.get(&conn).map(|key| &self.registered[key]);
        registration.is_some_and(|registration| registration.fault.is_none())
    }

    /// The registration of `name`, healthy or not.
    pub fn get(&self, name: &str) -> Result<&Registration> {
        self.keys
            .get(name)
            .and_then(|key| self.registered.get(key))
            .ok_or_else(|| {
                Error::new(
                    Status::NotFound,
                    format!(
                        "peer {} is not registered here: it was never added or was removed; add it (that it may know this transport does not count)",
                        Quoted(name)
                    ),
                )
            })
    }

    /// The key of `name`, also of a removed peer whose transfers can still surface.
    pub fn key(&self, name: &str) -> Option<PeerKey> {
        self.keys.get(name).copied()
    }

    /// Gives up the name of `key` if it is not registered; no transfer of it can surface any more.
    /// True if it did.
    pub fn sweep(&mut self, key: PeerKey) -> bool {
        if self.registered.contains_key(&key) {
            return false;
        }
        if let Some(name) = self.names.remove(&key) {
            self.keys.remove(&name);
        }
        true
    }

    /// The ids that are registered.
    pub fn registered_names(&self) -> Vec<String> {
        self.registered
            .keys()
            .filter_map(|key| self.names.get(key).cloned())
            .collect()
    }

    /// How many are registered.
    pub fn count(&self) -> usize {
        self.registered.len()
    }

    /// A transfer over `conn` ended, or the connection was lost (an error of status `PeerLost`).
    ///
    /// A registration that was removed meanwhile is not concerned: a straggler of the old one must
    /// not harm the new one.
    pub fn record<'a>(&'a mut self, conn: ConnId, result: &'a Result<()>) -> Option<Remark<'a>> {
        let key = self.by_conn.get(&conn)?;
        let registration = self.registered.get_mut(key)?;
        let error = match result {
            Ok(()) => {
                registration.strikes = 0;
                return None;
            }
            Err(error) if error.status == Status::Cancelled => return None,
            Err(error) => error,
        };
        let name = self.names.get(key)?;
        registration.strikes += 1;
        let first = !std::mem::replace(&mut registration.has_failed, true);
        // The first fault stays: later ones say less.
        let faulted = registration.fault.is_none()
            && (error.status == Status::PeerLost || registration.strikes >= MAX_STRIKES);
        if faulted {
            let fault = match error.status {
                Status::PeerLost => error.clone(),
                _ => error.clone().context(format_args!(
                    "{MAX_STRIKES} transfers in a row failed, the last one"
                )),
            };
            return Some(Remark::Faulted(name, registration.fault.insert(fault)));
        }
        first.then_some(Remark::FirstFailure(name, error))
    }
}

impl Registration {
    /// Why the peer cannot be used, if so.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    fn blocks() -> Layout {
        Region::new(4096, 4, 64).unwrap().into()
    }

    fn failure(status: Status) -> Result<()> {
        Err(Error::new(status, "it broke"))
    }

    #[test]
    fn three_failures_in_a_row_fault_a_peer() {
        let mut peers = Peers::default();
        let conn = ConnId(1);
        peers.insert("a", conn, blocks());
        let backend = failure(Status::Backend);
        let first = Some(Remark::FirstFailure("a", backend.as_ref().unwrap_err()));
        assert_eq!(peers.record(conn, &backend), first);
        for result in [&backend, &Ok(()), &backend] {
            assert_eq!(peers.record(conn, result), None);
        }
        assert_eq!(peers.record(conn, &failure(Status::Cancelled)), None);
        assert_eq!(peers.record(conn, &backend), None);
        let fault = Error::new(
            Status::Backend,
            "3 transfers in a row failed, the last one: it broke",
        );
        let faulted = Some(Remark::Faulted("a", &fault));
        assert_eq!(peers.record(conn, &backend), faulted);
        let refused = peers.usable("a").unwrap_err();
        assert_eq!(refused.status, Status::PeerLost);
        assert!(refused.message.ends_with(&fault.message), "{refused}");
        // A fault lasts: success does not lift it, a later fault does not replace it.
        assert_eq!(peers.record(conn, &Ok(())), None);
        assert_eq!(peers.record(conn, &failure(Status::PeerLost)), None);
        assert_eq!(
            peers.get("a").unwrap().fault().unwrap().status,
            Status::Backend
        );
    }

    #[test]
    fn one_lost_connection_faults_at_once() {
        let mut peers = Peers::default();
        peers.insert("a", ConnId(1), blocks());
        assert!(
            peers
                .record(ConnId(1), &failure(Status::PeerLost))
                .is_some()
        );
        assert!(peers.get("a").unwrap().fault().is_some());
    }

    #[test]
    fn stragglers_of_an_old_registration_do_not_harm_the_new_one() {
        let mut peers = Peers::default();
        peers.insert("a", ConnId(1), blocks());
        let key = peers.get("a").unwrap().key;
        assert_eq!(peers.remove("a").unwrap().conn, ConnId(1));
        assert_eq!(peers.get("a").unwrap_err().status, Status::NotFound);
        peers.insert("a", ConnId(2), blocks());
        assert_eq!(peers.record(ConnId(1), &failure(Status::PeerLost)), None);
        assert!(peers.get("a").unwrap().fault().is_none());
        assert_eq!(
            peers.get("a").unwrap().key,
            key,
            "transfers surface under one name"
        );
    }

    #[test]
    fn a_name_lives_until_it_is_swept() {
        let mut peers = Peers::default();
        peers.insert("a", ConnId(1), blocks());
        let key = peers.key("a").unwrap();
        peers.sweep(key);
        assert!(peers.get("a").is_ok(), "a registered name is not swept");
        peers.remove("a");
        assert_eq!(peers.key("a"), Some(key));
        peers.sweep(key);
        assert_eq!(peers.key("a"), None);
        assert_eq!(peers.names.get(&key), None);
        assert_eq!((peers.count(), peers.registered_names().len()), (0, 0));
    }
}
