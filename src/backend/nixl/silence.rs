//! Peers that answer nothing. Over sockets a target has to poll, and one that does not looks like one
//! that is slow: nothing fails, and nothing ends. Somebody should be told.

use std::time::{Duration, Instant};

/// No peer that polls needs so long for the next answer, whatever the network is.
pub const LONG: Duration = Duration::from_secs(5);

/// Answers are taken when this side looks. Of a longer pause between two looks only this much counts
/// as time in which the peer could have been heard.
const LOOK: Duration = Duration::from_millis(250);

/// For how long a peer has answered nothing, while something waited for its answer.
#[derive(Default)]
pub struct Silence {
    lasts: Duration,
    looked: Option<Instant>,
    told: bool,
}

impl Silence {
    /// Nothing has come. True, once and never again, when that should be told.
    pub fn goes_on(&mut self, now: Instant) -> bool {
        if let Some(before) = self.looked.replace(now) {
            self.lasts += now.saturating_duration_since(before).min(LOOK);
        }
        self.lasts >= LONG && !std::mem::replace(&mut self.told, true)
    }

    /// Something has come, or is waited for from now on. True if there was a long silence.
    pub fn ends(&mut self) -> bool {
        self.looked = None;
        std::mem::take(&mut self.lasts) >= LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks `every` so often, for `span`. How often something was to be told.
    fn looks(silence: &mut Silence, now: &mut Instant, every: Duration, span: Duration) -> usize {
        let end = *now + span;
        let mut told = 0;
        while *now < end {
            told += usize::from(silence.goes_on(*now));
            *now += every;
        }
        told
    }

    #[test]
    fn a_long_silence_is_told_once() {
        let (mut silence, mut now) = (Silence::default(), Instant::now());
        let often = Duration::from_millis(1);
        assert_eq!(looks(&mut silence, &mut now, often, LONG - often), 0);
        assert_eq!(looks(&mut silence, &mut now, often, LONG), 1);
        assert!(silence.ends());
        assert_eq!(looks(&mut silence, &mut now, often, LONG * 3), 0);
        assert!(silence.ends() && !silence.ends());
    }

    #[test]
    fn an_answer_in_time_is_no_silence() {
        let (mut silence, mut now) = (Silence::default(), Instant::now());
        let often = Duration::from_millis(10);
        for _ in 0..10 {
            assert_eq!(looks(&mut silence, &mut now, often, LONG * 9 / 10), 0);
            assert!(!silence.ends());
            // Nothing is waited for.
            now += LONG;
        }
    }

    #[test]
    fn who_does_not_look_hears_nothing() {
        let (mut silence, mut now) = (Silence::default(), Instant::now());
        let seldom = LONG * 2;
        // Nineteen times the little that counts is not enough.
        assert_eq!(looks(&mut silence, &mut now, seldom, seldom * 20), 0);
        assert_eq!(looks(&mut silence, &mut now, seldom, seldom), 1);
    }
}
