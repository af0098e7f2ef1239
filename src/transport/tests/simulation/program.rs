//! Programs: what is called, on which node, in which order.
//!
//! A step is one number besides its call and its node: what the call is given, and what the simulated
//! machine does meanwhile, are drawn from it. So a program stays what it is when others of its steps
//! are cut.

use std::fmt::{self, Display};
use std::str::FromStr;

use fastrand::Rng;

/// How many transports live at a time.
pub(super) const NODES: usize = 3;

macro_rules! calls {
    ($($name:ident $weight:literal,)+) => {
        /// What a step does.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Call { $($name),+ }

        /// All of them, each with how often it is drawn.
        pub(super) const CALLS: &[(Call, u32)] = &[$((Call::$name, $weight)),+];
    };
}

calls! {
    AddPeer 7,
    AddAgent 5,
    ImportHandshake 4,
    AddWrong 4,
    RemovePeer 4,
    PeerStatus 2,
    Write 16,
    Read 8,
    PostRead 13,
    SubmitWrong 4,
    ReadState 8,
    ReleaseRead 5,
    Poll 16,
    Wait 3,
    CancelImmediate 5,
    CancelWait 6,
    Send 6,
    Receive 7,
    Describe 2,
    Close 1,
    // The transport is dropped, and another takes its place: so is the process of the next one.
    Destroy 1,
    Kill 1,
    // A call has panicked.
    Break 1,
    // Nothing is called, and the machine goes on.
    Tick 5,
    // An endpoint breaks.
    Lose 1,
    // Somebody who is no transport sends a message.
    Foreign 3,
    // Very many transfers at once.
    Flood 0,
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) call: Call,
    pub(super) node: usize,
    pub(super) salt: u32,
}

/// The inner call that fails, counted from 1, and whether all later ones do, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fuse {
    pub(super) at: u64,
    pub(super) onward: bool,
}

/// What a run does, to the last bit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Program {
    /// Sizes of the regions, rates of the faults, and how it ends.
    pub(super) setup: u64,
    /// Instead of faults by rates.
    pub(super) fuse: Option<Fuse>,
    pub(super) steps: Vec<Step>,
}

/// Numbers from one seed. Seeds that are neighbours must not give neighbours.
pub(super) fn numbers(seed: u64) -> Rng {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Rng::with_seed(mixed ^ (mixed >> 31))
}

impl Program {
    /// The program of a seed.
    pub(super) fn of_seed(seed: u64) -> Program {
        let mut numbers = numbers(seed);
        // A few are long, for what comes with many transfers alone.
        let long = numbers.u32(..400) == 0;
        let steps = if long { 150 } else { numbers.usize(30..=60) };
        Program::drawn(&mut numbers, steps, long)
    }

    /// A program that is short enough to be run once for each of its inner calls.
    pub(super) fn short(seed: u64) -> Program {
        let mut numbers = numbers(!seed);
        let steps = numbers.usize(6..=12);
        Program::drawn(&mut numbers, steps, false)
    }

    fn drawn(numbers: &mut Rng, steps: usize, long: bool) -> Program {
        let setup = numbers.u64(..);
        // Many programs do one or two things much more than others: what is always mixed evenly seldom
        // happens three times in a row.
        let favourites: Vec<Call> = (0..numbers.usize(..3))
            .map(|_| CALLS[numbers.usize(..CALLS.len())])
            .filter(|(_, weight)| *weight > 1)
            .map(|(call, _)| call)
            .collect();
        let all: u32 = CALLS.iter().map(|(_, weight)| weight).sum();
        let step = |at: usize, numbers: &mut Rng| {
            let mut call = match favourites.is_empty() || numbers.bool() {
                true => drawn_at(numbers.u32(..all)),
                false => favourites[numbers.usize(..favourites.len())],
            };
            // Without peers there is little to do.
            if at < 4 && numbers.u32(..8) > 0 {
                call = [Call::AddPeer, Call::AddAgent][numbers.usize(..2)];
            }
            if long && numbers.u32(..16) == 0 {
                call = Call::Flood;
            }
            // Most of it on one node: what happens there is dense.
            let node = [0, 0, 0, 0, 1, 1, 2][numbers.usize(..7)];
            let salt = numbers.u32(..);
            Step { call, node, salt }
        };
        let steps = (0..steps).map(|at| step(at, numbers)).collect();
        Program {
            setup,
            fuse: None,
            steps,
        }
    }
}

fn drawn_at(mut ticket: u32) -> Call {
    for (call, weight) in CALLS {
        match ticket.checked_sub(*weight) {
            Some(left) => ticket = left,
            None => return *call,
        }
    }
    unreachable!("the ticket is less than the sum of all weights")
}

/// One line, which [`FromStr`] reads.
impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.setup)?;
        if let Some(fuse) = self.fuse {
            write!(f, " {}{}", fuse.at, if fuse.onward { "+" } else { "!" })?;
        }
        for step in &self.steps {
            write!(f, " {:?}:{}:{:x}", step.call, step.node, step.salt)?;
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Program, String> {
        let mut words = text.split_whitespace().peekable();
        let wrong = |word: &str| format!("{word:?} is no part of a program");
        let setup = words.next().ok_or("an empty program")?;
        let setup = u64::from_str_radix(setup, 16).map_err(|_| wrong(setup))?;
        let fuse = words
            .next_if(|word| word.ends_with(['+', '!']))
            .map(|word| {
                let at = word[..word.len() - 1].parse().map_err(|_| wrong(word))?;
                Ok::<_, String>(Fuse {
                    at,
                    onward: word.ends_with('+'),
                })
            })
            .transpose()?;
        let steps = words
            .map(|word| step(word).ok_or_else(|| wrong(word)))
            .collect::<Result<_, _>>()?;
        Ok(Program { setup, fuse, steps })
    }
}

fn step(word: &str) -> Option<Step> {
    let mut parts = word.split(':');
    let name = parts.next()?;
    let (call, _) = *CALLS.iter().find(|(call, _)| format!("{call:?}") == name)?;
    let node = parts.next()?.parse().ok().filter(|node| *node < NODES)?;
    let salt = u32::from_str_radix(parts.next()?, 16).ok()?;
    Some(Step { call, node, salt })
}

#[test]
fn a_program_is_read_as_it_was_printed() {
    for seed in 0..50 {
        let mut program = Program::of_seed(seed);
        assert_eq!(program.to_string().parse(), Ok(program.clone()));
        program.fuse = Some(Fuse {
            at: seed,
            onward: seed % 2 == 0,
        });
        assert_eq!(program.to_string().parse(), Ok(program));
    }
    assert!("1 Write:9:0".parse::<Program>().is_err());
    assert!("1 Wirte:0:0".parse::<Program>().is_err());
}
