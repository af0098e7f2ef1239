//! How many agents this process has, because a fork takes UCX's thread away from them.
//!
//! UCX has one thread for all its users in a process, which accepts the connections of peers. A
//! child that is forked while there are any has UCX's memory, which says that the thread runs, and
//! no thread: an agent made there can be created and can write, but nobody reaches it.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Result, fail};
use crate::process::PerProcess;

struct Users {
    count: AtomicUsize,
    /// The parent process left its own behind.
    inherited: bool,
}

static USERS: PerProcess<Users> = PerProcess::new(|parents| Users {
    count: AtomicUsize::new(0),
    inherited: parents.is_some_and(|users| users.inherited || users.count() > 0),
});

impl Users {
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// One agent, as long as it lives. In a forked child it is not dropped but forgotten.
pub struct User(());

impl User {
    /// Unless the parent process left its own behind.
    pub fn join() -> Result<User> {
        let users = USERS.get();
        if users.inherited {
            fail!(
                Unavailable,
                "NIXL: this process was forked while its parent had NIXL transports, and UCX does not work after that; close all of them before the fork, or call exec after it"
            );
        }
        users.count.fetch_add(1, Ordering::Relaxed);
        Ok(User(()))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        USERS.get().count.fetch_sub(1, Ordering::Relaxed);
    }
}
