//! Metadata that real agents exported, and what becomes of it when it is bent.

use proptest::prelude::*;

use super::*;
use crate::fuzz::SENTENCE;
use crate::fuzz::meter::measured;
use crate::region::Region;

const BASE: u64 = 0x7f00_0000_1000;
const LEN: u64 = 1 << 20;
/// One memory domain without a key, and the hint behind it.
const RKEY: [u8; 11] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff];

fn record(blob: &mut Vec<u8>, key: &str, bytes: &[u8]) {
    blob.extend_from_slice(key.as_bytes());
    blob.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    blob.extend_from_slice(bytes);
    blob.push(b'|');
}

fn region_bytes(start: u64, len: u64, device: u64, rkey: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [start, len, device] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(rkey);
    bytes
}

/// A blob with one record exchanged.
fn blob_with(key: &str, nth: usize, bytes: &[u8]) -> Vec<u8> {
    let one = 1u64.to_le_bytes();
    let region = region_bytes(BASE, LEN, 0, &RKEY);
    let records: [(&str, &[u8]); 11] = [
        ("Agent", b"prefill-0"),
        ("Conns", &one),
        ("t", b"UCX"),
        ("c", b" an address"),
        ("", b"MemSection"),
        ("nixlSecElms", &one),
        ("bknd", b"UCX"),
        ("nixlDList", b"nixlSDList"),
        ("t", &[0; 4]),
        ("n", &one),
        ("", &region),
    ];
    let mut blob = MAGIC.to_vec();
    let mut seen = 0;
    for (name, honest) in records {
        let exchange = name == key && seen == nth;
        seen += usize::from(name == key);
        record(&mut blob, name, if exchange { bytes } else { honest });
    }
    assert!(seen > nth, "no such record");
    blob
}

fn honest() -> Vec<u8> {
    blob_with("Agent", 0, b"prefill-0")
}

fn refused(blob: &[u8]) -> Error {
    Metadata::parse(blob, "UCX").expect_err("a bent blob was taken")
}

#[test]
fn reads_an_honest_blob() {
    let blob = honest();
    let metadata = Metadata::parse(&blob, "UCX").unwrap();
    assert_eq!(metadata.agent, "prefill-0");
    assert_eq!(metadata.address, b" an address");
    assert_eq!(metadata.regions, [(BASE, BASE + LEN)]);
    assert_eq!(metadata.renamed("prefill-0"), blob);
    assert_eq!(metadata.renamed("x>1"), blob_with("Agent", 0, b"x>1"));
    let bare = metadata.without_memory("x>1");
    let renamed = metadata.renamed("x>1");
    let memory = bare.strip_suffix(b"nixlSecElms\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0|");
    assert!(renamed.starts_with(memory.expect("no kinds of memory")));
    assert!(bare.windows(10).any(|key| key == b"MemSection"));
    // tcp alone needs no memory domain.
    let tcp = blob_with("", 1, &region_bytes(BASE, LEN, 0, &[0; 9]));
    assert!(Metadata::parse(&tcp, "UCX").is_ok());
}

#[test]
fn takes_several_regions() {
    let mut blob = blob_with("n", 0, &2u64.to_le_bytes());
    record(&mut blob, "", &region_bytes(4096, 8192, 0, &RKEY));
    let metadata = Metadata::parse(&blob, "UCX").unwrap();
    let covers = |base, blocks| {
        metadata
            .check_covers(&Region::new(base, blocks, 4096).unwrap().into())
            .is_ok()
    };
    assert!(covers(BASE, 256) && covers(4096, 2) && covers(8192, 1));
    assert!(!covers(BASE, 257) && !covers(BASE - 1, 1) && !covers(4096, 3));
}

#[test]
fn names_and_memory_types_are_checked() {
    for name in [&b""[..], b"a\0b", b"\xff", &[b'a'; MAX_NAME + 1]] {
        assert_eq!(
            refused(&blob_with("Agent", 0, name)).status,
            Status::InvalidArg
        );
    }
    // NIXL 1.5.1 dies of a memory type that it does not know.
    for kind in [1u32, 5, 6, 1 << 31, u32::MAX] {
        let error = refused(&blob_with("t", 1, &kind.to_le_bytes()));
        assert_eq!(error.status, Status::Incompatible, "{error}");
    }
    assert_eq!(
        refused(&blob_with("t", 1, &[0; 8])).status,
        Status::InvalidArg
    );
    for (key, nth) in [("t", 0), ("bknd", 0)] {
        let error = refused(&blob_with(key, nth, b"LIBFABRIC"));
        assert_eq!(error.status, Status::Incompatible);
        assert!(error.message.contains("LIBFABRIC"), "{error}");
    }
}

// The sentence has 511 bytes for all, and whoever sent the blob chose how long its parts are.
#[test]
fn refusals_show_the_beginning_of_what_is_wrong() {
    for (key, nth) in [("t", 0), ("", 0), ("bknd", 0), ("nixlDList", 0)] {
        for (byte, shown) in [(1, r#"\u{1}"..."#), (0xff, "\u{fffd}\"...")] {
            let blob = blob_with(key, nth, &vec![byte; 1 << 20]);
            let (error, peak) = measured(|| refused(&blob));
            assert!(error.message.contains(shown), "{error}");
            assert!(error.message.len() < 512, "{error}");
            assert!(peak < 2 * SENTENCE, "{peak} bytes for {error}");
        }
    }
    let name = vec![1u8; MAX_NAME];
    let blob = blob_with("Agent", 0, &name);
    let claim = Region::new(1, 1, 1).unwrap().into();
    let metadata = Metadata::parse(&blob, "UCX").unwrap();
    let uncovered = metadata.check_covers(&claim).err().unwrap();
    let other = Metadata::parse(&blob, "LIBFABRIC").unwrap_err();
    for (error, telling) in [(uncovered, "region(s)"), (other, "LIBFABRIC")] {
        let seen = error.message.find(telling);
        assert!(seen.is_some_and(|at| at < 500), "{error}");
    }
}

#[test]
fn counts_are_checked() {
    for count in [0, 2, u64::MAX] {
        for key in ["Conns", "nixlSecElms"] {
            let error = refused(&blob_with(key, 0, &count.to_le_bytes()));
            assert_eq!(error.status, Status::Incompatible, "{key}: {error}");
        }
        let error = refused(&blob_with("n", 0, &count.to_le_bytes()));
        assert_eq!(error.status, Status::InvalidArg);
    }
    let mut trailing = honest();
    trailing.push(b'|');
    assert_eq!(refused(&trailing).status, Status::InvalidArg);
}

#[test]
fn regions_do_not_wrap() {
    for (start, len) in [
        (u64::MAX - 4095, 4096),
        (BASE, u64::MAX),
        (0, 4096),
        (BASE, 0),
        (u64::MAX, 1),
    ] {
        let error = refused(&blob_with("", 1, &region_bytes(start, len, 0, &RKEY)));
        assert_eq!(error.status, Status::InvalidArg, "{start:#x} {len}");
    }
    // Memory of another device is none that blocks can lie in.
    let blob = blob_with("", 1, &region_bytes(BASE, LEN, 1, &RKEY));
    let Ok(metadata) = Metadata::parse(&blob, "UCX") else {
        panic!("a device id is no malformed metadata")
    };
    let inside = Region::new(BASE, 1, 64).unwrap().into();
    assert_eq!(
        metadata.check_covers(&inside).err().unwrap().status,
        Status::Incompatible
    );
}

#[test]
fn remote_keys_end_where_their_record_ends() {
    let mut many = RKEY;
    many[7] = 0x80;
    many[10] = 0;
    let mut long = RKEY;
    long[9] = 2;
    let mut device = RKEY;
    device[8] = 1;
    for rkey in [
        &b""[..],
        &RKEY[..8],
        &RKEY[..9],
        &many[..10],
        &long,
        &device,
    ] {
        let error = refused(&blob_with("", 1, &region_bytes(BASE, LEN, 0, rkey)));
        assert_eq!(error.status, Status::InvalidArg, "{rkey:?}");
    }
    let taken = |tail: &[u8]| check_rkey("a", &[&many, tail].concat()).is_ok();
    assert!(taken(&[0xff]), "two domains without keys");
    assert!(taken(&[3, 0xff]), "a device");
    assert!(taken(&[3, 1, 7, 7, 0xff]), "and a distance");
    for endless in [&[][..], &[5], &[5, 1], &[5, 1, 0xff, 0xff], &[5, 1, 7, 7]] {
        assert!(!taken(endless), "{endless:?}");
    }
}

proptest! {
    // Whatever happens to a blob: no panic, and what is taken is what is written there.
    #[test]
    fn bent_blobs_are_refused_or_read_right(
        flips in prop::collection::vec((0usize..400, any::<u8>()), 0..6),
        cut in 0usize..400,
        shorten in any::<bool>(),
    ) {
        let mut blob = honest();
        for (at, value) in flips {
            let at = at % blob.len();
            blob[at] = value;
        }
        if shorten {
            blob.truncate(cut % (blob.len() + 1));
        }
        if let Ok(metadata) = Metadata::parse(&blob, "UCX") {
            prop_assert_eq!(metadata.renamed(metadata.agent), blob.clone());
            for (start, end) in metadata.regions {
                prop_assert!(start != 0 && start < end);
            }
        }
    }

    #[test]
    fn noise_is_refused(mut blob in prop::collection::vec(any::<u8>(), 0..300), framed in any::<bool>()) {
        if framed {
            blob.splice(0..0, MAGIC.iter().copied());
        }
        prop_assert!(Metadata::parse(&blob, "UCX").is_err());
    }
}
