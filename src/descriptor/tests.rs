use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;

/// What msgspec 0.23 makes of `[(base + i * len, len, 0) for i in range(blocks)]`: base, blocks, len.
const WHOLE: [(u64, u64, u64, &str); 14] = [
    (0x7f0000001000, 1, 64, "9193cf00007f00000010004000"),
    (0x1, 3, 127, "9393017f0093cc807f0093ccff7f00"),
    (0x64, 4, 14, "9493640e0093720e0093cc800e0093cc8e0e00"),
    (0xfa, 3, 3, "9393ccfa030093ccfd030093cd01000300"),
    (0xfff0, 2, 256, "9293cdfff0cd01000093ce000100f0cd010000"),
    (
        0xfffffff0,
        2,
        16,
        "9293cefffffff0100093cf00000001000000001000",
    ),
    (
        0x7f0000001000,
        2,
        128,
        "9293cf00007f0000001000cc800093cf00007f0000001080cc8000",
    ),
    (0x7f0000001000, 1, 255, "9193cf00007f0000001000ccff00"),
    (0x7f0000001000, 1, 256, "9193cf00007f0000001000cd010000"),
    (0x7f0000001000, 1, 65535, "9193cf00007f0000001000cdffff00"),
    (
        0x7f0000001000,
        1,
        65536,
        "9193cf00007f0000001000ce0001000000",
    ),
    (
        0x7f0000001000,
        1,
        4294967295,
        "9193cf00007f0000001000ceffffffff00",
    ),
    (
        0x7f0000001000,
        1,
        4294967296,
        "9193cf00007f0000001000cf000000010000000000",
    ),
    (
        0x8000000000000000,
        1,
        4611686018427387904,
        "9193cf8000000000000000cf400000000000000000",
    ),
];

/// The same for long lists: base, blocks, len, bytes, and the first half of their SHA-256.
const HASHED: [(u64, u64, u64, usize, &str); 12] = [
    (
        0x7f0000001000,
        15,
        64,
        181,
        "aed961368f459caf9a5a38ec838e6f3c",
    ),
    (
        0x7f0000001000,
        16,
        64,
        195,
        "6a14e7b3d9d60998f36f277b5c548ae6",
    ),
    (
        0x7f0000001000,
        255,
        4096,
        3573,
        "dab07a5343581d3f5d9df446265e491e",
    ),
    (
        0x7f0000001000,
        256,
        4096,
        3587,
        "c925256873240e7241fc227696fe5aaa",
    ),
    (
        0x7f0000001000,
        10000,
        4096,
        140003,
        "a566ea8672109d7358b26e87273f779c",
    ),
    (
        0x7f0000001000,
        256,
        65536,
        4099,
        "45dae7ab6a2c599be8d509a45e5ba329",
    ),
    (
        0x7f0000001000,
        65535,
        64,
        786423,
        "9a629aa4dd2ab99b9de954cd60ce6fae",
    ),
    (
        0x7f0000001000,
        65536,
        64,
        786437,
        "7e299c0017fd01500e69c78d3cf886bd",
    ),
    (0x1, 70000, 1, 428553, "463e969c0acecf0734b4f5e00a97ab1b"),
    (
        0xffff0000,
        1000,
        1000,
        13739,
        "b4a7948481fe1ed8b62571a9ce4e47f3",
    ),
    (
        0x7f0000001000,
        1000000,
        4096,
        14000005,
        "25bf833637babaa6721f22bcd8dbc756",
    ),
    (
        0x3,
        100000,
        50000,
        1056399,
        "3ac4dcc3af0a255790b3273ad12869cd",
    ),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn region(base: u64, blocks: u64, len: u64) -> Region {
    Region::new(base, blocks, len).unwrap()
}

fn refused(bytes: &[u8], block_len: u64) -> (Status, String) {
    let error = parse(bytes, block_len).expect_err("a bad descriptor was taken");
    (error.status, error.message)
}

/// Writes a number in one of the forms that it has.
fn put(bytes: &mut Vec<u8>, value: u64, form: u8) {
    let (signed, wide) = (form & 1 == 1, form / 2 % 4);
    let fits = |bits: u32| u128::from(value) >> (bits - u32::from(signed)) == 0;
    let marker = |base: u8| if signed { base + 4 } else { base };
    match wide {
        0 if fits(8) => bytes.extend([marker(0xcc), value as u8]),
        0 | 1 if fits(16) => {
            bytes.push(marker(0xcd));
            bytes.extend((value as u16).to_be_bytes());
        }
        0..=2 if fits(32) => {
            bytes.push(marker(0xce));
            bytes.extend((value as u32).to_be_bytes());
        }
        _ if fits(64) => {
            bytes.push(marker(0xcf));
            bytes.extend(value.to_be_bytes());
        }
        _ => put(bytes, value, 6),
    }
}

fn put_array(bytes: &mut Vec<u8>, len: u32, form: u8) {
    match form % 3 {
        0 if len < 16 => bytes.push(0x90 | len as u8),
        0 | 1 => {
            bytes.push(0xdc);
            bytes.extend((len as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0xdd);
            bytes.extend(len.to_be_bytes());
        }
    }
}

/// A descriptor in forms that nobody would choose, but anybody may.
fn in_forms(addresses: &[u64], len: u64, mut form: impl FnMut() -> u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_array(&mut bytes, addresses.len() as u32, form());
    for address in addresses {
        put_array(&mut bytes, 3, form());
        put(&mut bytes, *address, form());
        put(&mut bytes, len, form());
        put(&mut bytes, 0, form());
    }
    bytes
}

fn addresses_of(layout: &Layout) -> Vec<u64> {
    let blocks = 0..u32::try_from(layout.num_blocks()).unwrap();
    blocks
        .map(|block| layout.base() + layout.offset(block))
        .collect()
}

#[test]
fn the_bytes_are_those_of_msgspec() {
    for (base, blocks, len, expected) in WHOLE {
        let region = region(base, blocks, len);
        let bytes = encode(&region).unwrap();
        assert_eq!(hex(&bytes), expected);
        assert_eq!(encoded_len(&region).unwrap(), bytes.len());
        assert_eq!(parse(&bytes, len).unwrap(), region.into());
    }
    for (base, blocks, len, size, hash) in HASHED {
        let region = region(base, blocks, len);
        assert_eq!(encoded_len(&region).unwrap(), size);
        let bytes = encode(&region).unwrap();
        assert_eq!(bytes.len(), size);
        assert_eq!(
            hex(&Sha256::digest(&bytes)[..16]),
            hash,
            "{blocks} x {len} at {base:#x}"
        );
        // A formula again, whatever the number of blocks.
        assert_eq!(parse(&bytes, len).unwrap(), region.into());
    }
}

#[test]
fn more_blocks_than_messagepack_counts_are_refused() {
    let most = region(4096, u32::MAX.into(), 1);
    assert!(encoded_len(&most).unwrap() > 1 << 32);
    let more = region(4096, 1 << 32, 1);
    let error = encoded_len(&more).unwrap_err();
    assert_eq!(error.status, Status::Incompatible);
    for number in ["4294967296", "4294967295"] {
        assert!(error.message.contains(number), "{error}");
    }
    assert_eq!(encode(&more).unwrap_err(), error);
}

#[test]
fn every_truncation_and_any_tail_is_malformed() {
    let addresses = [0x7f0000001000, 0x7f0000003000, 300, 70_000, 5];
    let bytes = in_forms(&addresses, 64, || 0);
    assert_eq!(addresses_of(&parse(&bytes, 64).unwrap()), addresses);
    for len in 0..bytes.len() {
        let (status, message) = refused(&bytes[..len], 64);
        assert_eq!(status, Status::InvalidArg, "{len}: {message}");
        assert!(message.contains("cut short"), "{len}: {message}");
    }
    for tail in [&b"\0"[..], b"\xc0", &bytes] {
        let (status, message) = refused(&[&bytes, tail].concat(), 64);
        assert_eq!(status, Status::InvalidArg);
        let left = format!("{} bytes after its 5 blocks", tail.len());
        assert!(message.contains(&left), "{message}");
    }
}

#[test]
fn refusals_name_the_entry_and_the_value() {
    use Status::{Incompatible, InvalidArg};
    let row = [0x93, 0x05, 0x40, 0x00];
    // In place of the second of three rows.
    let cases: &[(&[u8], Status, &[&str])] = &[
        (
            &[0x93, 0x50, 0x41, 0],
            Incompatible,
            &["length of block 1 is 65,", "is 64"],
        ),
        (
            &[0x93, 0x50, 0x00, 0],
            Incompatible,
            &["length of block 1 is 0,"],
        ),
        (
            &[0x93, 0x50, 0x40, 1],
            Incompatible,
            &["device id of block 1 is 1,"],
        ),
        (
            &[0x93, 0x50, 0xff, 0],
            InvalidArg,
            &["length of block 1 is -1,"],
        ),
        (
            &[0x93, 0x50, 0x40, 0xe0],
            InvalidArg,
            &["device id of block 1 is -32,"],
        ),
        (
            &[0x93, 0xd1, 0x80, 0, 0x40, 0],
            InvalidArg,
            &["address of block 1 is -32768,"],
        ),
        (&[0x93, 0xc0, 0x40, 0, 0], InvalidArg, &["address", "Null"]),
        (&[0x93, 0xc3, 0x40, 0, 0], InvalidArg, &["address", "True"]),
        (
            &[0x93, 0xca, 0, 0, 0, 0, 0x40, 0],
            InvalidArg,
            &["address", "F32"],
        ),
        (
            &[0x93, 0x50, 0xa1, 0x40, 0],
            InvalidArg,
            &["length", "FixStr"],
        ),
        (
            &[0x93, 0x50, 0x40, 0xc4, 0],
            InvalidArg,
            &["device id", "Bin8"],
        ),
        (&[0x93, 0x91, 0x50, 0x40, 0], InvalidArg, &["FixArray"]),
        (
            &[0x92, 0x50, 0x40, 0x00],
            InvalidArg,
            &["block 1 is an array of 2,"],
        ),
        (
            &[0x94, 0x50, 0x40, 0, 0],
            InvalidArg,
            &["block 1 is an array of 4,"],
        ),
        (&[0x90, 0, 0, 0], InvalidArg, &["block 1 is an array of 0,"]),
        (
            &[0x83, 0x50, 0x40, 0, 0, 0, 0],
            InvalidArg,
            &["array", "FixMap"],
        ),
        (&[0xc7, 3, 0x50, 0x40, 0, 0], InvalidArg, &["array", "Ext8"]),
        (&[0xc1, 0, 0, 0], InvalidArg, &["array", "Reserved"]),
        (&[0x50, 0x40, 0, 0], InvalidArg, &["array", "FixPos"]),
    ];
    for (bad, status, named) in cases {
        let (found, message) = refused(&[&[0x93], &row[..], bad, &row].concat(), 64);
        assert_eq!(found, *status, "{message}");
        assert!(
            message.starts_with("mem_descriptor: ") && message.contains("block 1 "),
            "{message}"
        );
        assert!(named.iter().all(|word| message.contains(word)), "{message}");
        assert!(message.len() < 200, "{message}");
    }
    for (address, named) in [(0, "0x0"), (u64::MAX, "0xffffffffffffffff")] {
        let (status, message) = refused(&in_forms(&[64, 300, address], 64, || 0), 64);
        assert_eq!(status, InvalidArg);
        let named = format!("block 2 is at {named}");
        assert!(message.contains(&named), "{message}");
    }
    for (bytes, named) in [
        (&[0x90][..], "no block"),
        (&[0xdc, 0, 0], "no block"),
        (&[0x80], "FixMap"),
        (&[0xc0], "Null"),
        (&[0x05], "FixPos(5)"),
        (&[0xa3, 0x93, 0, 0], "FixStr"),
        (&[0xdd, 0xff, 0xff, 0xff, 0xff], "4294967295 blocks"),
    ] {
        let (status, message) = refused(bytes, 64);
        assert_eq!(status, InvalidArg);
        assert!(message.contains(named), "{message}");
    }
}

proptest! {
    // Every form of every number, blocks in any place.
    #[test]
    fn any_form_is_taken(
        addresses in prop::collection::vec(
            prop_oneof![1u64..400, 1u64..1 << 40, (u64::MAX - (1 << 33))..u64::MAX - (1 << 32)], 1..40),
        len in prop_oneof![1u64..300, 1u64..1 << 32],
        forms in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let mut forms = forms.iter().copied().cycle();
        let bytes = in_forms(&addresses, len, || forms.next().unwrap());
        let layout = parse(&bytes, len).unwrap();
        prop_assert_eq!(addresses_of(&layout), addresses);
        prop_assert_eq!(layout.block_len(), len);
    }

    #[test]
    fn there_and_back(
        base in prop_oneof![1u64..300, 60_000u64..70_000, (1u64 << 32) - 9000..1 << 32, 1u64..1 << 50],
        blocks in prop_oneof![1u64..20, 1u64..300],
        len in prop_oneof![1u64..300, 60_000u64..70_000, (1u64 << 32) - 9..(1 << 32) + 9],
    ) {
        let region = region(base, blocks, len);
        let bytes = encode(&region).unwrap();
        prop_assert_eq!(bytes.len(), encoded_len(&region).unwrap());
        prop_assert_eq!(parse(&bytes, len).unwrap(), Layout::from(region));
    }

    // Whatever happens to a descriptor: no panic, and what is taken is sound.
    #[test]
    fn mutations_are_refused_or_read_right(
        addresses in prop::collection::vec(1u64..1 << 40, 1..20),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        tail in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let mut bytes = in_forms(&addresses, 64, || 0);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(tail);
        match parse(&bytes, 64) {
            Err(error) => prop_assert!(
                matches!(error.status, Status::InvalidArg | Status::Incompatible), "{}", error
            ),
            Ok(layout) => {
                prop_assert!(layout.num_blocks() as usize <= bytes.len() / SMALLEST_ENTRY);
                for address in addresses_of(&layout) {
                    prop_assert!(address != 0 && address.checked_add(64).is_some());
                    prop_assert!(layout.base() <= address && address + 64 <= layout.end());
                }
            }
        }
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, 64);
    }
}

#[test]
fn a_descriptor_that_no_memory_can_hold_is_refused() {
    assert_eq!(room(usize::MAX).unwrap_err().status, Status::NoMemory);
}
