//! Comparison with Python itself, over many generated texts.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::thread;

use super::super::canonical::canonicalize;
use super::super::compute;
use super::generate::Generator;
use super::golden;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fingerprint_python.py");

const VALID: usize = 4000;
const DAMAGED: usize = 6000;
const NUMBERS: usize = 200;

/// The answers of one Python process to all of `texts`, one line each.
fn ask_python(texts: &[String]) -> Vec<String> {
    // -I: neither the environment nor the current folder has a say.
    let mut python = Command::new("python3")
        .args(["-I", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "the fingerprint tests compare with Python: python3 must be on the PATH ({error})"
            )
        });
    let mut stdin = python.stdin.take().expect("piped");
    let stdout = BufReader::new(python.stdout.take().expect("piped"));
    let answers: Vec<String> = thread::scope(|scope| {
        scope.spawn(move || {
            for text in texts {
                let mut line = String::with_capacity(2 * text.len() + 1);
                for byte in text.bytes() {
                    write!(line, "{byte:02x}").expect("writing to a String does not fail");
                }
                line.push('\n');
                if let Err(error) = stdin.write_all(line.as_bytes()) {
                    // Python has ended; that there are too few answers says so below.
                    return eprintln!("python3 takes no more texts: {error}");
                }
            }
        });
        stdout
            .lines()
            .collect::<Result<_, _>>()
            .expect("python3's answers are ASCII")
    });
    let status = python.wait().expect("python3 was started");
    assert!(status.success(), "{SCRIPT} ended with {status}");
    assert_eq!(answers.len(), texts.len(), "one answer per text");
    answers
}

fn our_answer(text: &str) -> String {
    match (canonicalize(text), compute(Some(text))) {
        (Ok(canonical), Ok(fingerprint)) => {
            let fingerprint = if fingerprint.is_empty() {
                "-"
            } else {
                &fingerprint
            };
            format!("{fingerprint} {canonical}")
        }
        (Err(_), Err(_)) => "REFUSED".to_owned(),
        (canonical, fingerprint) => panic!("{text:?}: {canonical:?} but {fingerprint:?}"),
    }
}

/// The canonical texts from a little before they part.
fn first_difference(ours: &str, python: &str) -> String {
    // The fingerprints in front differ in any case.
    let [ours, python] =
        [ours, python].map(|answer| answer.split_once(' ').map_or(answer, |(_, text)| text));
    let same = ours
        .bytes()
        .zip(python.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let excerpt = |text: &str| {
        text.chars()
            .skip(same.saturating_sub(30))
            .take(80)
            .collect::<String>()
    };
    format!(
        "they part at ...{}... / ...{}...",
        excerpt(ours),
        excerpt(python)
    )
}

/// Compares the answers to all of `texts`; says how many were refused.
fn compare(texts: &[String]) -> usize {
    let answers = ask_python(texts);
    for (text, python) in texts.iter().zip(&answers) {
        let ours = our_answer(text);
        if ours != *python {
            panic!(
                "{text:?}\n  here:   {ours}\n  python: {python}\n{}",
                first_difference(&ours, python)
            );
        }
    }
    answers.iter().filter(|answer| *answer == "REFUSED").count()
}

fn seed() -> u64 {
    let seed = match std::env::var("DT_TEST_SEED") {
        Ok(seed) => seed.parse().expect("DT_TEST_SEED is a decimal number"),
        Err(_) => getrandom::u64().expect("the system has random numbers"),
    };
    println!("DT_TEST_SEED={seed} repeats this run");
    seed
}

#[test]
fn generated_texts_get_pythons_answer() {
    let mut generator = Generator::new(seed());
    let mut texts: Vec<String> = (0..VALID).map(|_| generator.valid()).collect();
    texts.extend((0..NUMBERS).map(|_| generator.numbers(100)));
    assert_eq!(compare(&texts), 0, "valid texts that Python refuses");

    let texts: Vec<String> = (0..DAMAGED).map(|_| generator.damaged()).collect();
    let refused = compare(&texts);
    // Either kind must be there, or the comparison is an empty one.
    assert!(
        (DAMAGED / 10..DAMAGED).contains(&refused),
        "{refused} of {DAMAGED} refused"
    );
}

#[test]
fn golden_texts_get_pythons_answer() {
    let texts: Vec<String> = golden().into_iter().map(|entry| entry.text).collect();
    compare(&texts);
}

#[test]
fn large_and_deep_texts_get_pythons_answer() {
    let zeros = "0".repeat(100_000);
    let ones = "1".repeat(4300);
    let object = |value: &str| format!("{{\"a\":{value}}}");
    let nested = |open: &str, close: &str, times: usize| {
        object(&format!("{}1{}", open.repeat(times), close.repeat(times)))
    };
    let accepted = [
        object(&ones),
        object(&format!("-{ones}")),
        object(&format!("{ones}1.5e-4000")),
        object(&format!("0.{zeros}1e100001")),
        object(&format!("1{zeros}.5E-100000")),
        object(&format!("0.{zeros}4940656458412465e+99676")),
        object(&format!("9007199254740993.{zeros}1")),
        object(&format!("1e{zeros}5")),
        object(&format!("1e-1{zeros}")),
        object(&format!("\"{}\"", "\\ud83d\u{1f600}é".repeat(20_000))),
        nested("[", "]", 899),
        nested("{\"b\":", ",\"a\":2}", 899),
        nested("[{\"b\":", ",\"b\":[],\"a\":{}}]", 449),
    ];
    assert_eq!(compare(&accepted), 0);
    let refused = [
        object(&format!("{ones}1")),
        object(&format!("-{ones}1")),
        format!("{{\"a\":{ones}1,\"a\":1}}"),
        object(&format!("0{ones}")),
    ];
    assert_eq!(compare(&refused), refused.len());
}
