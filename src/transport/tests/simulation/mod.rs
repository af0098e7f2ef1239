//! Deterministic simulation: whole transports in a simulated machine, driven by random programs of
//! every call, with every fault that a backend can have, against a model of the contract.

mod asked;
mod backend;
mod calls;
mod heard;
mod marks;
mod model;
mod motion;
mod peer_calls;
mod program;
mod run;
mod shadow;
mod transfer_calls;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use marks::Marks;
use parking_lot::Mutex;
use program::{Fuse, Program};
use run::run;

/// Seeds of this many programs are taken by a thread at a time.
const BATCH: u64 = 64;

/// One program in so many is short, and runs again with each of its inner calls failing.
const EXHAUSTIVE: u64 = 50;

/// A program that shows something wrong, and what.
struct Failure {
    seed: u64,
    program: Program,
    breach: String,
}

/// Runs what a seed stands for.
fn run_seed(seed: u64, marks: &mut Marks) -> Result<(), (Program, String)> {
    let mut one = |program: Program| {
        let outcome = run(&program, false);
        marks.add(&outcome.marks);
        match outcome.verdict {
            Ok(()) => Ok(outcome.inner_calls),
            Err(breach) => Err((program, breach)),
        }
    };
    one(Program::of_seed(seed))?;
    if seed.is_multiple_of(EXHAUSTIVE) {
        let mut program = Program::short(seed);
        // One that never burns: only to count.
        program.fuse = Some(Fuse {
            at: u64::MAX,
            onward: false,
        });
        let inner_calls = one(program.clone())?;
        for at in 1..=inner_calls {
            for onward in [false, true] {
                program.fuse = Some(Fuse { at, onward });
                one(program.clone())?;
            }
        }
    }
    marks.programs += 1;
    Ok(())
}

/// A program that takes so long hangs.
const HANGS: Duration = Duration::from_secs(60);

/// What a thread runs, and since when.
type Watched = Mutex<Option<(u64, Instant)>>;

/// Ends the process when a program hangs: nothing else would say which one.
fn watch(threads: &[Watched], done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        for thread in threads {
            if let Some((seed, since)) = *thread.lock()
                && since.elapsed() > HANGS
            {
                eprintln!("seed {seed} hangs: scripts/soak.sh sim --programs 1 --seed {seed}");
                std::process::exit(1);
            }
        }
    }
}

/// Runs so many programs on all processors. Says what has happened, and the first failure.
fn run_many(first: u64, programs: u64, progress: bool) -> (Marks, Option<Failure>) {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    let sum = Mutex::new((Marks::default(), None));
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let watched: Vec<Watched> = (0..threads).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        let (next, stop, sum, watched) = (&next, &stop, &sum, &watched);
        let watcher = scope.spawn(|| watch(watched, &done));
        let workers: Vec<_> = watched
            .iter()
            .map(|watched| {
                scope.spawn(move || {
                    let mut marks = Marks::default();
                    while !stop.load(Ordering::Relaxed) {
                        let at = next.fetch_add(BATCH, Ordering::Relaxed);
                        if at >= programs {
                            break;
                        }
                        let said = |at: u64| progress && at > 0 && at.is_multiple_of(BATCH * 1024);
                        if said(at) {
                            let rate = at as f64 / start.elapsed().as_secs_f64();
                            println!("{at} programs, {rate:.0} a second");
                        }
                        for at in at..programs.min(at + BATCH) {
                            let seed = first.wrapping_add(at);
                            *watched.lock() = Some((seed, Instant::now()));
                            if let Err((program, breach)) = run_seed(seed, &mut marks) {
                                stop.store(true, Ordering::Relaxed);
                                sum.lock().1.get_or_insert(Failure {
                                    seed,
                                    program,
                                    breach,
                                });
                                break;
                            }
                        }
                    }
                    *watched.lock() = None;
                    sum.lock().0.add(&marks);
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("panics are caught in programs");
        }
        done.store(true, Ordering::Relaxed);
        watcher.join().expect("it only looks");
    });
    sum.into_inner()
}

/// Cuts whatever can be cut with something still wrong.
fn shrink(mut program: Program) -> Program {
    let fails = |program: &Program| run(program, false).verdict.is_err();
    let mut piece = program.steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < program.steps.len() {
            let mut less = program.clone();
            let end = less.steps.len().min(at + piece);
            less.steps.drain(at..end);
            match fails(&less) {
                true => program = less,
                false => at += piece,
            }
        }
        piece /= 2;
    }
    program
}

fn report(failure: &Failure) -> String {
    let shrunk = shrink(failure.program.clone());
    let outcome = run(&shrunk, true);
    format!(
        "seed {}: {}\n\nrun it again: scripts/soak.sh sim --programs 1 --seed {}\n\n\
         cut down to {} steps: {}\n  {}\n\nas a line for once_failed.txt:\n{shrunk}\n",
        failure.seed,
        failure.breach,
        failure.seed,
        shrunk.steps.len(),
        outcome.verdict.err().unwrap_or_default(),
        outcome.trace.join("\n  "),
    )
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")),
    )
}

/// Without settings a short run: the same programs each time, and some that nobody has run before.
#[test]
fn programs_of_seeds() {
    let long = setting("DT_SIM_PROGRAMS");
    let fresh = getrandom::u64().expect("random bytes") >> 16;
    let seed = setting("DT_SIM_SEED");
    let usual = long.is_none() && seed.is_none();
    let parts = match (long, seed) {
        (Some(programs), seed) => vec![(seed.unwrap_or(fresh), programs)],
        (None, Some(seed)) => vec![(seed, 1)],
        (None, None) => vec![(0, 4000), (fresh, 1000)],
    };
    let mut marks = Marks::default();
    let mut programs = 0;
    for (seed, count) in parts {
        println!("{count} programs from seed {seed} on");
        let start = Instant::now();
        let (counted, failure) = run_many(seed, count, long.is_some());
        marks.add(&counted);
        programs += count;
        if let Some(failure) = failure {
            panic!("{}", report(&failure));
        }
        let time = start.elapsed().as_secs_f64();
        println!("{time:.1} s, {:.0} programs a second", count as f64 / time);
    }
    println!("{marks}");
    // Few programs cannot do everything. What is rare comes up in the seeds of the short run.
    if usual || programs >= 50_000 {
        let missing = marks.missing();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}

#[test]
fn a_program_takes_the_same_way_again() {
    for seed in 0..100 {
        let program = Program::of_seed(seed);
        let ways = [(); 2].map(|()| run(&program, true).trace);
        assert!(!ways[0].is_empty() && ways[0] == ways[1], "seed {seed}");
    }
}

#[test]
fn programs_that_once_failed() {
    for line in include_str!("once_failed.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let program = line.parse().expect("a line that was printed");
        let outcome = run(&program, true);
        if let Err(breach) = outcome.verdict {
            panic!("{breach}\n{line}\n  {}", outcome.trace.join("\n  "));
        }
    }
}
