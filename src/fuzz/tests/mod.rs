//! The targets over what `cargo fuzz` has found for them, and over mutations of it.

mod memory;

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// One change of some bytes.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Truncate(Index),
    /// A stretch of another input of the corpus.
    Splice(Index, Index, Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    let few = prop::collection::vec(any::<u8>(), 1..9);
    let edges = prop::sample::select(vec![0u8, 1, 0x7f, 0x80, 0xff]);
    prop_oneof![
        (at(), prop_oneof![edges, any::<u8>()]).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (at(), few).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 1..40usize).prop_map(|(at, len)| Edit::Remove(at, len)),
        at().prop_map(Edit::Truncate),
        (at(), at(), at(), 1..60usize)
            .prop_map(|(to, which, from, len)| Edit::Splice(to, which, from, len)),
    ]
}

fn apply(edit: &Edit, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
    match edit {
        Edit::Set(at, byte) => {
            let at = place(at, bytes);
            bytes.splice(at..(at + 1).min(bytes.len()), [*byte]);
        }
        Edit::Flip(at, bit) => {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
        }
        Edit::Insert(at, few) => {
            let at = place(at, bytes);
            bytes.splice(at..at, few.iter().copied());
        }
        Edit::Remove(at, len) => {
            let at = place(at, bytes);
            bytes.drain(at..(at + len).min(bytes.len()));
        }
        Edit::Truncate(at) => bytes.truncate(place(at, bytes)),
        Edit::Splice(to, which, from, len) => {
            let other = which.get(corpus);
            let from = place(from, other);
            let stretch = other[from..(from + len).min(other.len())].to_vec();
            let to = place(to, bytes);
            bytes.splice(to..to, stretch);
        }
    }
}

/// The committed inputs of a target.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// Runs a target over its corpus, and over so many mutations.
fn try_out(name: &str, target: fn(&[u8]), mutations: u32) {
    let corpus = corpus(name);
    assert!(corpus.len() > 5, "{} inputs of {name}", corpus.len());
    for input in &corpus {
        target(input);
    }
    let mut config = Config::with_cases(mutations);
    config.failure_persistence = None;
    let mutation = (any::<Index>(), prop::collection::vec(edit(), 1..6));
    let mutated = mutation.prop_map(|(which, edits)| {
        let mut bytes = which.get(&corpus).clone();
        for edit in &edits {
            apply(edit, &mut bytes, &corpus);
        }
        bytes
    });
    let run = TestRunner::new(config).run(&mutated, |bytes| {
        target(&bytes);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn local_metadata() {
    try_out("local_metadata", super::local_metadata, 1000);
}

#[test]
fn local_mail() {
    try_out("local_mail", super::local_mail, 300);
}

#[test]
fn nixl_metadata() {
    try_out("nixl_metadata", super::nixl_metadata, 2000);
}

#[test]
fn descriptor() {
    try_out("descriptor", super::descriptor, 1000);
}

#[test]
fn handshake() {
    try_out("handshake", super::handshake, 2000);
}

#[test]
fn fingerprint() {
    try_out("fingerprint", super::fingerprint, 2000);
}

#[test]
fn calls() {
    try_out("calls", super::calls, 200);
}
