//! The clock of a transport, which reads time and sleeps by nothing else. In a simulation time passes
//! only where somebody sleeps or works, so that no program waits for it and each takes the same way
//! again.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MutexGuard};

/// The machine's clock, or a simulated one.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    #[cfg(test)]
    simulated: Option<simulated::Hands>,
}

impl Clock {
    /// What it shows.
    pub(crate) fn now(&self) -> Instant {
        #[cfg(test)]
        if let Some(hands) = &self.simulated {
            return hands.now();
        }
        Instant::now()
    }

    /// Returns when `time` has passed.
    pub(crate) fn sleep(&self, time: Duration) {
        #[cfg(test)]
        if let Some(hands) = &self.simulated {
            return hands.turn(time);
        }
        thread::sleep(time);
    }

    /// Gives the lock up until there is news, or `time` has passed.
    pub(crate) fn wait<T>(&self, news: &Condvar, guard: &mut MutexGuard<'_, T>, time: Duration) {
        #[cfg(test)]
        if let Some(hands) = &self.simulated {
            return hands.turn(time);
        }
        news.wait_for(guard, time);
    }
}

#[cfg(test)]
mod simulated {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use super::Clock;

    /// Nanoseconds since a moment.
    #[derive(Clone)]
    pub(super) struct Hands(Instant, Arc<AtomicU64>);

    impl Hands {
        pub(super) fn now(&self) -> Instant {
            self.0 + Duration::from_nanos(self.1.load(Ordering::Relaxed))
        }

        pub(super) fn turn(&self, time: Duration) {
            self.1.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    impl Clock {
        /// A clock that stands still until somebody sleeps by it. Its clones show the same time.
        pub(crate) fn simulated() -> Clock {
            Clock {
                simulated: Some(Hands(Instant::now(), Arc::default())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_passes_by_sleeping_alone() {
        let clock = Clock::simulated();
        let start = clock.now();
        thread::sleep(Duration::from_millis(1));
        assert_eq!(clock.now(), start);
        clock.clone().sleep(Duration::from_secs(3600));
        assert_eq!(clock.now() - start, Duration::from_secs(3600));
    }
}
