//! What has happened, and how often: a simulation that never does a thing shows nothing about it.

use std::fmt::{self, Display};

use super::program::{CALLS, Call};

macro_rules! marks {
    ($($name:ident $text:literal,)+) => {
        /// What is counted besides calls.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Mark { $($name),+ }

        const NAMES: &[&str] = &[$($text),+];
    };
}

marks! {
    NameRefused "agent metadata refused",
    ConnectFailed "connect failed",
    ConnectGone "connect to one that is gone",
    ConnectOutside "connect beyond the peer's memory",
    Replaced "registration replaced",
    StartFailed "start failed",
    StartGone "start over a dead connection",
    Inline "done at the start",
    Stopped "stopped at once",
    StoppedNews "stopped before the news of its end was out",
    Drains "cannot be stopped",
    DrainsNews "cannot be stopped, for it has ended",
    AskedAgain "asked to stop once more",
    DoneLate "done after it was to stop",
    CancelledLate "cancelled after it was to stop",
    BytesLate "bytes moved after it was to stop",
    FailedMidway "failed with some bytes moved",
    FailedAtEnd "failed with all bytes moved",
    PeerGone "ended with its peer",
    Stalled "a turn without progress",
    Held "news held back",
    Reordered "news out of order",
    Duplicated "news told twice, or of what never ran",
    Lost "connection lost",
    LostAfter "connection lost after it was given up",
    SendBusy "no room for a message",
    SendFailed "message refused",
    SentFirst "message of a read sent at the first try",
    SentLate "message of a read sent when there was room",
    SentFromStart "message of a read sent by its submission",
    ReceiveFew "fewer messages than were asked for",
    Nameless "message without a sender",
    MessageStays "message for which the caller had no room",
    CloseHeld "close held up",
    CloseTimeout "close ran out of time",
    CloseAgain "close when closed",
    Forced "closed by force",
    Leftovers "destroyed with transfers that drain",
    PeerFaulted "peer found faulted",
    Strikes "peer faulted by three failures",
    WaitTimeout "wait ran out of time",
    Reported "transfer reported as done",
    ReportedFailed "transfer reported as failed",
    ReportedOfRemoved "transfer of a removed peer reported",
    ReadDone "posted read found done",
    ReadFailed "posted read found failed",
    DroppedRunning "transfer dropped while it ran",
    DroppedEnded "transfer dropped after it ended",
    DroppedWaiting "read dropped while its message waited",
    StillInFlight "cancel says that it is in flight",
    Refused "call refused for its arguments",
    CalledClosed "call after close",
    CalledBroken "call after a panic",
    Exhausted "last step: everything failed from the n-th inner call on",
    FailedOnce "last step: the n-th inner call alone failed",
}

/// Counters of [`Mark`]s and calls.
#[derive(Clone)]
pub(super) struct Marks {
    marks: Vec<u64>,
    calls: Vec<u64>,
    pub(super) programs: u64,
    pub(super) runs: u64,
    pub(super) steps: u64,
    pub(super) inner_calls: u64,
    pub(super) compared: u64,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks {
            marks: vec![0; NAMES.len()],
            calls: vec![0; CALLS.len()],
            programs: 0,
            runs: 0,
            steps: 0,
            inner_calls: 0,
            compared: 0,
        }
    }
}

impl Marks {
    pub(super) fn count(&mut self, mark: Mark) {
        self.marks[mark as usize] += 1;
    }

    pub(super) fn count_call(&mut self, call: Call) {
        self.calls[call as usize] += 1;
    }

    pub(super) fn add(&mut self, other: &Marks) {
        let pairs = self.marks.iter_mut().zip(&other.marks);
        pairs
            .chain(self.calls.iter_mut().zip(&other.calls))
            .for_each(|(sum, more)| *sum += more);
        self.programs += other.programs;
        self.runs += other.runs;
        self.steps += other.steps;
        self.inner_calls += other.inner_calls;
        self.compared += other.compared;
    }

    /// What has never happened.
    pub(super) fn missing(&self) -> Vec<String> {
        let calls = CALLS.iter().zip(&self.calls);
        let calls = calls.map(|((call, _), count)| (format!("{call:?}"), *count));
        let marks = NAMES.iter().zip(&self.marks);
        let marks = marks.map(|(name, count)| ((*name).to_owned(), *count));
        let never = calls.chain(marks).filter(|(_, count)| *count == 0);
        never.map(|(name, _)| name).collect()
    }
}

impl Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "calls:")?;
        for ((call, _), count) in CALLS.iter().zip(&self.calls) {
            writeln!(f, "{count:>12}  {call:?}")?;
        }
        writeln!(f, "what happened:")?;
        for (name, count) in NAMES.iter().zip(&self.marks) {
            writeln!(f, "{count:>12}  {name}")?;
        }
        write!(
            f,
            "{} programs, {} runs, {} steps, {} inner calls, {} bytes compared",
            self.programs, self.runs, self.steps, self.inner_calls, self.compared
        )
    }
}
