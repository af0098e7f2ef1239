use proptest::prelude::*;

use super::*;

fn facts() -> Facts {
    Facts {
        backend: Kind::Nixl,
        fingerprint: "b38181f3b0d6952d".into(),
        region: Region::new(0x7f0000001000, 64, 4096).unwrap(),
        metadata: b"nixlSerDes|\0\xff".to_vec(),
    }
}

/// The least that can be said.
fn few() -> Facts {
    Facts {
        backend: Kind::Local,
        fingerprint: String::new(),
        region: Region::new(16, 1 << 33, 1).unwrap(),
        metadata: Vec::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refused(blob: &[u8]) -> (Status, String) {
    let error = parse(blob).expect_err("a bad blob was taken");
    (error.status, error.message)
}

/// A whole blob around the body of `facts`, with other bytes at `at`.
fn with_body(facts: &Facts, at: usize, bytes: &[u8]) -> Vec<u8> {
    let blob = export(facts);
    let mut body = blob[HEADER..blob.len() - DIGEST].to_vec();
    body[at..at + bytes.len()].copy_from_slice(bytes);
    frame(VERSION, &body)
}

// Where the fields of `facts()` begin in its body.
const BACKEND: usize = 0;
const BASE: usize = 4;
const BLOCKS: usize = 12;
const LEN: usize = 20;
const DIGITS: usize = 28;
const METADATA: usize = 45;

/// `facts()` and `few()`, made by a few lines of Python from the table in the module's comment.
const GOLDEN: &str = "\
    445448454c4c4f000100000042000000000000000200000000100000007f00004000000000000000\
    001000000000000010623338313831663362306436393532640d000000000000006e69786c536572\
    4465737c00ff7680e17e76fc16a839cbf828745b155277428f574028c31b685e87cda147e5a8";
const GOLDEN_FEW: &str = "\
    445448454c4c4f000100000025000000000000000100000010000000000000000000000002000000\
    010000000000000000000000000000000069556afa37eba633ef9cc2963d1352932b351fd6b81ffe\
    c552fffafe950e666a";

#[test]
fn the_bytes_are_those_of_the_table() {
    for (facts, golden) in [(facts(), GOLDEN), (few(), GOLDEN_FEW)] {
        assert_eq!(hex(&export(&facts)), golden);
        assert_eq!(parse(&export(&facts)).unwrap(), facts);
    }
}

#[test]
fn every_truncation_and_any_tail_is_malformed() {
    for blob in [export(&facts()), export(&few())] {
        for len in 0..blob.len() {
            let (status, message) = refused(&blob[..len]);
            assert_eq!(status, Status::InvalidArg, "first {len} bytes: {message}");
        }
        for tail in [&b"\0"[..], &blob] {
            let (status, message) = refused(&[&blob, tail].concat());
            assert_eq!(status, Status::InvalidArg, "{message}");
        }
    }
}

#[test]
fn every_flipped_byte_is_found() {
    for blob in [export(&facts()), export(&few())] {
        for at in 0..blob.len() {
            for mask in [1, 0x80, 0xff] {
                let mut bad = blob.clone();
                bad[at] ^= mask;
                let (status, message) = refused(&bad);
                // Also in the version: a newer blob would be whole.
                assert_eq!(status, Status::InvalidArg, "byte {at}: {message}");
            }
        }
    }
}

#[test]
fn another_version_is_named() {
    for (version, body) in [(2, &b"whatever it will be"[..]), (u32::MAX, b"")] {
        let (status, message) = refused(&frame(version, body));
        assert_eq!(status, Status::Incompatible);
        let sentence = format!("made by a newer library: format {version}, this one reads 1");
        assert!(message.contains(&sentence), "{message}");
    }
    let (status, message) = refused(&frame(0, b""));
    assert_eq!(status, Status::InvalidArg);
    assert!(message.contains("format 0"), "{message}");
}

#[test]
fn lengths_that_lie_are_refused() {
    let blob = export(&facts());
    for len in [0, 65, 67, u64::MAX, u64::MAX - 51, u64::MAX - 52] {
        let mut bad = blob.clone();
        bad[12..20].copy_from_slice(&len.to_le_bytes());
        let (status, message) = refused(&bad);
        assert_eq!(status, Status::InvalidArg);
        assert!(message.contains(&format!(" {len} ")), "{message}");
    }
    for (at, len, named) in [
        (METADATA, 14, "agent metadata: 14 bytes, of which 13"),
        (
            METADATA,
            u64::MAX,
            "agent metadata: 18446744073709551615 bytes",
        ),
        (METADATA, 12, "1 bytes behind"),
    ] {
        let (status, message) = refused(&with_body(&facts(), at, &len.to_le_bytes()));
        assert_eq!(status, Status::InvalidArg);
        assert!(message.contains(named), "{message}");
    }
    // Whole frames around bodies that end early.
    let body = &blob[HEADER..blob.len() - DIGEST];
    for len in 0..body.len() {
        let (status, message) = refused(&frame(VERSION, &body[..len]));
        assert_eq!(status, Status::InvalidArg);
        assert!(message.contains("ends in its"), "{message}");
    }
}

#[test]
fn nonsense_in_a_whole_blob_is_malformed() {
    let cases: &[(usize, &[u8], &str)] = &[
        (BACKEND, &[0], "backend 0"),
        (BACKEND, &[3], "backend 3"),
        (BACKEND, &[2, 1], "backend 258"),
        (BASE, &[0; 8], "base address of the region is 0"),
        (BLOCKS, &[0; 8], "num_blocks is 0"),
        (LEN, &[0; 8], "block_len is 0"),
        (BLOCKS, &[0xff; 8], "64-bit address space"),
        (DIGITS, &[15], "15 bytes"),
        (DIGITS, &[17], "17 bytes"),
        (DIGITS, &[255], "fingerprint: 255 bytes"),
        (DIGITS + 1, b"B", "B38181f3b0d6952d"),
        (DIGITS + 3, b"\0g", "b3\\x00g"),
    ];
    for (at, bytes, named) in cases {
        let (status, message) = refused(&with_body(&facts(), *at, bytes));
        assert_eq!(status, Status::InvalidArg);
        assert!(message.contains(named), "{named} in {message}");
    }
}

#[test]
fn other_things_are_no_blob() {
    for (bytes, named) in [
        (&b"nixlSerDes|abc"[..], "\"nixlSerD\""),
        (b"DTLOCAL\0abcdefgh", "\"DTLOCAL\\x00\""),
        (b"\xff", "\"\\xff\""),
    ] {
        let (status, message) = refused(bytes);
        assert_eq!(status, Status::InvalidArg);
        assert!(message.contains("no handshake blob"), "{message}");
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn a_disagreement_names_the_field_and_both_values() {
    let own = facts();
    check(&own, &own).unwrap();
    type Change = fn(&mut Facts);
    let other = |change: Change| {
        let mut theirs = facts();
        change(&mut theirs);
        theirs
    };
    let cases: [(Change, [&str; 3]); 3] = [
        (
            |facts| facts.backend = Kind::Local,
            ["backend", "LOCAL there", "NIXL here"],
        ),
        (
            |facts| facts.fingerprint = "0123456789abcdef".into(),
            [
                "fingerprint",
                "0123456789abcdef there",
                "b38181f3b0d6952d here",
            ],
        ),
        (
            |facts| facts.region = Region::new(4096, 64, 4097).unwrap(),
            ["block_len", "4097 there", "4096 here"],
        ),
    ];
    for (change, named) in cases {
        let error = check(&own, &other(change)).unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        for word in named {
            assert!(error.message.contains(word), "{error}");
        }
    }
    // A node that makes no statement fits any other one; counts, places and metadata may differ.
    let silent = other(|facts| facts.fingerprint.clear());
    let elsewhere = other(|facts| {
        facts.region = Region::new(4096, 7, 4096).unwrap();
        facts.metadata.clear();
    });
    for (a, b) in [(&own, &silent), (&silent, &own), (&own, &elsewhere)] {
        check(a, b).unwrap();
    }
}

proptest! {
    #[test]
    fn comes_back_as_it_was(
        local in any::<bool>(),
        fingerprint in prop_oneof![Just(String::new()), "[0-9a-f]{16}"],
        (base, blocks, len) in (1u64..1 << 60, 1u64..1 << 30, 1u64..1 << 30),
        metadata in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let facts = Facts {
            backend: if local { Kind::Local } else { Kind::Nixl },
            fingerprint,
            region: Region::new(base, blocks, len).unwrap(),
            metadata,
        };
        prop_assert_eq!(parse(&export(&facts)).unwrap(), facts);
    }

    // Any number of changed bytes is found.
    #[test]
    fn mutations_are_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
        tail in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let good = export(&facts());
        let mut bad = good.clone();
        for (at, mask) in edits {
            let at = at.index(bad.len());
            bad[at] ^= mask;
        }
        if let Some(cut) = cut {
            bad.truncate(cut.index(bad.len()));
        }
        bad.extend(tail);
        prop_assume!(bad != good);
        prop_assert_eq!(refused(&bad).0, Status::InvalidArg);
    }

    // Behind a good digest: no panic, and what is taken is what is written there.
    #[test]
    fn mutated_bodies_are_refused_or_read_right(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        tail in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let blob = export(&facts());
        let mut body = blob[HEADER..blob.len() - DIGEST].to_vec();
        for (at, byte) in edits {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        body.extend(tail);
        let blob = frame(VERSION, &body);
        match parse(&blob) {
            Ok(facts) => prop_assert_eq!(export(&facts), blob),
            Err(error) => prop_assert_eq!(error.status, Status::InvalidArg),
        }
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(parse(&bytes).is_err());
        prop_assert!(parse(&[&MAGIC[..], &bytes].concat()).is_err());
        prop_assert!(parse(&frame(VERSION, &bytes)).is_err());
    }
}

#[test]
fn a_blob_is_not_taken_for_the_metadata_in_it() {
    let facts = facts();
    let error = check_is_metadata(&export(&facts)).unwrap_err();
    assert_eq!(error.status, Status::InvalidArg);
    assert!(error.message.contains("dt_import_handshake"), "{error}");
    assert!(check_is_metadata(&facts.metadata).is_ok());
}
