//! The transports of this process, so that those that are peers of each other need no system call.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::gate::Page;
use crate::region::Region;

/// An open transport of this process.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its memory, which is there as long as its gate is open.
    pub(super) region: Region,
    /// Its control page.
    pub(super) page: Arc<Page>,
}

/// A map that holds no memory when it is empty: a process ends with nothing of ours left over.
static ENTRIES: Mutex<BTreeMap<u128, Entry>> = Mutex::new(BTreeMap::new());

/// Makes the transport known.
pub(super) fn enter(incarnation: u128, entry: Entry) {
    ENTRIES.lock().insert(incarnation, entry);
}

/// Forgets the transport.
pub(super) fn leave(incarnation: u128) {
    ENTRIES.lock().remove(&incarnation);
}

/// The transport of this incarnation, if it is one of this process. A forked child finds what its
/// parent had, too: compare the process as well.
pub(super) fn find(incarnation: u128) -> Option<Entry> {
    ENTRIES.lock().get(&incarnation).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::local::gate::Gate;

    #[test]
    fn finds_who_has_entered_and_not_left() {
        let gate = Gate::create().unwrap();
        let region = Region::new(4096, 1, 1).unwrap();
        assert!(find(gate.incarnation()).is_none());
        enter(
            gate.incarnation(),
            Entry {
                region,
                page: gate.page().clone(),
            },
        );
        let found = find(gate.incarnation()).unwrap();
        assert!(found.region == region && Arc::ptr_eq(&found.page, gate.page()));
        leave(gate.incarnation());
        assert!(find(gate.incarnation()).is_none());
    }
}
