//! How often the engine is driven while nothing is known to move, and how long a waiting caller sleeps.
//!
//! NIXL does not say whether driving it did anything: what peers do to this side's memory shows only
//! in the processor time that a drive took. The time that it took by the clock says little, because a
//! busy machine makes every wake-up long, and waking more often then would make the machine busier. But
//! it costs less to know, so the processor is asked only about a drive that follows a long one.

use std::time::{Duration, Instant};

/// How often the engine is asked for incoming work by polls that have something else to do: it costs a
/// microsecond. Those that have nothing ask each time, because over sockets a peer's write waits for it.
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

/// What a poll has to do beside driving the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// Nothing.
    None,
    /// To tell what has ended.
    Tell,
    /// To see to requests.
    Work,
}

/// What has happened when.
pub struct Pace {
    has_thread: bool,
    last_drive: Instant,
    /// The last one took long: by the clock, or by the processor if that was asked.
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

    /// Whether a poll should drive the engine.
    pub fn wants_drive(&self, now: Instant, task: Task) -> bool {
        let every = match task {
            // NIXL's thread sees to what comes in, and would have to be waited for.
            Task::None if !self.has_thread => return true,
            Task::None | Task::Tell => DRIVE_EVERY,
            Task::Work => DRIVE_AT_WORK,
        };
        self.drive_worked || now.duration_since(self.last_drive) >= every
    }

    /// Whether the next drive's processor time is of interest.
    pub fn wants_work(&self) -> bool {
        self.drive_worked
    }

    /// The engine was driven, which took `wall` by the clock and `work` of processor time, if that was of
    /// interest.
    pub fn drove(&mut self, now: Instant, wall: Duration, work: Option<Duration>) {
        self.last_drive = now;
        // With a thread of NIXL's the time is what it takes to wait for that one.
        let worked = work.unwrap_or(wall) >= DRIVE_WORKED && !self.has_thread;
        if worked && work.is_some() {
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
            if pace.wants_drive(now, Task::None) {
                now += wall;
                let work = pace.wants_work().then_some(work);
                pace.drove(now, wall, work);
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
            wakes(true, span, work, work),
            wakes(true, span, Duration::ZERO, work)
        );
        let start = Instant::now();
        let mut pace = Pace::new(true, start);
        pace.drove(start + span, work, None);
        assert!(!pace.wants_work());
        assert_eq!(pace.nap(start + span, false), Some(THREAD_NAP));
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
        let long = Duration::from_millis(1);
        assert!(pace.wants_drive(later, Task::Tell));
        assert_eq!(pace.nap(later, false), Some(LONG_NAP));
        pace.drove(later, long, None);
        assert!(pace.wants_drive(later, Task::Tell) && pace.wants_work());
        assert_eq!(pace.nap(later, false), None);
        // One alone was nothing.
        pace.drove(later, long, Some(Duration::ZERO));
        assert_eq!(pace.nap(later, false), Some(LONG_NAP));
        pace.drove(later, long, None);
        pace.drove(later, long, Some(long));
        pace.drove(later, Duration::ZERO, Some(Duration::ZERO));
        assert_eq!(pace.nap(later, false), None);
        for (task, pause) in [(Task::Tell, DRIVE_EVERY), (Task::Work, DRIVE_AT_WORK)] {
            assert!(!pace.wants_drive(later + pause / 2, task));
            assert!(pace.wants_drive(later + pause, task));
        }
    }

    #[test]
    fn a_poll_without_anything_else_to_do_drives() {
        let now = Instant::now();
        assert!(Pace::new(false, now).wants_drive(now, Task::None));
        // NIXL's own thread does.
        assert!(!Pace::new(true, now).wants_drive(now, Task::None));
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
