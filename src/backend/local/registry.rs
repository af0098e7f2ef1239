//! The transports of this process, so that those that are peers of each other need no system call.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::metadata::FileRef;
use crate::process::PerProcess;
use crate::region::Region;

/// An open transport of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Its memory, which is there as long as its gate is open.
    pub(super) region: Region,
    /// Its control page.
    pub(super) control: FileRef,
}

/// A map that holds no memory when it is empty: a process ends with nothing of ours left over.
static ENTRIES: PerProcess<Mutex<BTreeMap<u128, Entry>>> =
    PerProcess::new(|_| Mutex::new(BTreeMap::new()));

/// Makes the transport known.
pub(super) fn enter(incarnation: u128, entry: Entry) {
    ENTRIES.get().lock().insert(incarnation, entry);
}

/// Forgets the transport.
pub(super) fn leave(incarnation: u128) {
    ENTRIES.get().lock().remove(&incarnation);
}

/// The transport of this incarnation, if it is one of this process.
pub(super) fn find(incarnation: u128) -> Option<Entry> {
    ENTRIES.get().lock().get(&incarnation).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_who_has_entered_and_not_left() {
        let entry = Entry {
            region: Region::new(4096, 1, 1).unwrap(),
            control: FileRef {
                fd: 5,
                dev: 1,
                ino: 77,
            },
        };
        let incarnation = 0x6a7e;
        assert!(find(incarnation).is_none());
        enter(incarnation, entry);
        assert_eq!(find(incarnation), Some(entry));
        leave(incarnation);
        assert!(find(incarnation).is_none());
    }
}
