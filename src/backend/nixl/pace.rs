//! How often the engine is driven while nothing is known to move, and how long a waiting caller sleeps.
//!
//! NIXL does not say whether driving it did anything: what peers do to this side's memory shows only
//! in the processor time that a drive took. The time that it took by the clock says nothing, because a
//! busy machine makes every wake-up long, and waking more often then would make the machine busier.

use std::time::{Duration, Instant};

/// How often the engine is asked for incoming work while polls come fast: it costs microseconds.
const DRIVE_EVERY: Duration = Duration::from_micros(200);
/// The same while requests are posted or asked for, which drives the engine as well.
const DRIVE_AT_WORK: Duration = Duration::from_millis(2);

/// A drive that worked this long may have moved bytes, so the next one comes at once; if that does as
/// well, they did. Less says nothing: one for which the process had to wake up works for up to 50 µs,
/// and on a busy machine now and then for longer.
const DRIVE_WORKED: Duration = Duration::from_micros(100);

/// So long after the last news the next bytes are probably there already.
const SPIN: Duration = Duration::from_micros(200);

/// After such pauses a waiting caller sleeps longer.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_secs(1);

const SHORT_NAP: Duration = Duration::from_micros(100);
const NAP: Duration = Duration::from_micros(500);
/// What a peer's first write after a long pause waits for. A caller that waits for nothing costs next
/// to nothing with it: each wake-up finds cold caches, and takes 60 µs.
const LONG_NAP: Duration = Duration::from_millis(10);
/// NIXL's own thread sees to what comes in.
const THREAD_NAP: Duration = Duration::from_millis(50);

/// What has happened when.
pub struct Pace {
    has_thread: bool,
    last_drive: Instant,
    drive_worked: bool,
    last_news: Instant,
}

impl Pace {
    /// A pace that begins as if something had just happened.
    pub fn new(has_thread: bool, now: Instant) -> Pace {
        Pace {
            has_thread,
            last_drive: now,
            drive_worked: false,
            last_news: now,
        }
    }

    /// Whether a poll should drive the engine. `at_work`: it has requests to see to.
    pub fn wants_drive(&self, now: Instant, at_work: bool) -> bool {
        let every = if at_work { DRIVE_AT_WORK } else { DRIVE_EVERY };
        self.drive_worked || now.duration_since(self.last_drive) >= every
    }

    /// The engine was driven, which took `work` of processor time.
    pub fn drove(&mut self, now: Instant, work: Duration) {
        self.last_drive = now;
        // With a thread of NIXL's the time is what it takes to wait for that one.
        let worked = work >= DRIVE_WORKED && !self.has_thread;
        if worked && self.drive_worked {
            self.last_news = now;
        }
        self.drive_worked = worked;
    }

    /// Something moved.
    pub fn news(&mut self, now: Instant) {
        self.last_news = now;
    }

    /// How long a waiting caller may sleep; `None`: not at all. `running`: the engine works on requests.
    pub fn nap(&self, now: Instant, running: bool) -> Option<Duration> {
        match now.duration_since(self.last_news) {
            _ if self.drive_worked => None,
            pause if pause < SPIN && !self.has_thread => None,
            pause if pause < SHORT_PAUSE => Some(SHORT_NAP),
            pause if pause < LONG_PAUSE || running => Some(NAP),
            _ if self.has_thread => Some(THREAD_NAP),
            _ => Some(LONG_NAP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wake-ups of a caller that waits for `span`, when nothing moves and each drive takes `work` of
    /// processor time and `wall` by the clock.
    fn wakes(has_thread: bool, span: Duration, work: Duration, wall: Duration) -> u32 {
        let start = Instant::now();
        let mut pace = Pace::new(has_thread, start);
        let (mut now, mut wakes) = (start, 0);
        while now - start < span {
            if pace.wants_drive(now, false) {
                now += wall;
                pace.drove(now, work);
            }
            now += pace.nap(now, false).unwrap_or(Duration::from_micros(1));
            wakes += u32::from(pace.nap(now, false).is_some());
        }
        wakes
    }

    #[test]
    fn waiting_for_nothing_is_cheap() {
        for has_thread in [false, true] {
            let first = wakes(has_thread, LONG_PAUSE, Duration::ZERO, Duration::ZERO);
            assert!(first < 2300, "{first} wake-ups in the first second");
            let span = LONG_PAUSE + Duration::from_secs(10);
            let later = wakes(has_thread, span, Duration::ZERO, Duration::ZERO) - first;
            assert!(later <= 1001, "{later} wake-ups in 10 s");
        }
    }

    #[test]
    fn what_a_drive_takes_beside_a_thread_says_nothing() {
        let span = LONG_PAUSE + Duration::from_secs(10);
        let work = Duration::from_millis(1);
        assert_eq!(
            wakes(true, span, work, Duration::ZERO),
            wakes(true, span, Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn a_busy_machine_does_not_make_it_dearer() {
        let span = LONG_PAUSE + Duration::from_secs(10);
        let work = Duration::from_micros(60);
        let idle = wakes(false, span, work, work);
        let busy = wakes(false, span, work, Duration::from_millis(3));
        assert!(
            busy <= idle,
            "{busy} wake-ups, {idle} when the machine is idle"
        );
    }

    #[test]
    fn incoming_bytes_keep_it_awake() {
        let start = Instant::now();
        let mut pace = Pace::new(false, start);
        let later = start + Duration::from_secs(5);
        assert!(pace.wants_drive(later, false));
        assert_eq!(pace.nap(later, false), Some(LONG_NAP));
        pace.drove(later, Duration::from_millis(1));
        assert!(pace.wants_drive(later, false));
        assert_eq!(pace.nap(later, false), None);
        // One alone was nothing.
        pace.drove(later, Duration::ZERO);
        assert_eq!(pace.nap(later, false), Some(LONG_NAP));
        for _ in 0..2 {
            pace.drove(later, Duration::from_millis(1));
        }
        pace.drove(later, Duration::ZERO);
        assert_eq!(pace.nap(later, false), None);
        assert!(!pace.wants_drive(later, false));
        assert!(pace.wants_drive(later + DRIVE_EVERY, false));
        assert!(!pace.wants_drive(later + DRIVE_EVERY, true));
        assert!(pace.wants_drive(later + DRIVE_AT_WORK, true));
    }

    #[test]
    fn requests_in_flight_are_asked_for_often() {
        let start = Instant::now();
        let pace = Pace::new(true, start);
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.nap(later, true), Some(NAP));
        assert_eq!(pace.nap(later, false), Some(THREAD_NAP));
    }
}
