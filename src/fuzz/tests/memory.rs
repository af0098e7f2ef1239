//! What strangers' bytes can make the library allocate: no more than they are long, whatever they
//! claim; and where there is no memory, the call fails and the process goes on.

use crate::backend::Kind;
use crate::error::Status;
use crate::fuzz::SENTENCE;
use crate::fuzz::meter::{limited, measured};
use crate::handshake::Facts;
use crate::region::Region;
use crate::{descriptor, handshake};

fn region() -> Region {
    Region::new(0x7f00_0000_1000, 100_000, 64).unwrap()
}

/// The blocks of `region()`, the last one moved: no formula gives them.
fn scattered() -> Vec<u8> {
    let mut bytes = descriptor::encode(&region()).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    bytes
}

#[test]
fn blocks_in_a_row_take_no_memory() {
    let bytes = descriptor::encode(&region()).unwrap();
    let (layout, peak) = measured(|| descriptor::parse(&bytes, 64).unwrap());
    assert_eq!(layout.num_blocks(), 100_000);
    assert_eq!(peak, 0);
}

#[test]
fn other_blocks_take_eight_bytes_each() {
    let bytes = scattered();
    let (layout, peak) = measured(|| descriptor::parse(&bytes, 64).unwrap());
    assert_eq!(layout.num_blocks(), 100_000);
    assert!((800_000..800_000 + SENTENCE).contains(&peak), "{peak}");
    // One more registration of it takes nothing.
    let (_copy, peak) = measured(|| layout.clone());
    assert_eq!(peak, 0);
}

#[test]
fn claims_reserve_nothing() {
    let row = [0x93, 0x50, 0x40, 0x00];
    let out_of_row = [0x93, 0x05, 0x40, 0x00];
    for count in [5u32, 1 << 20, u32::MAX] {
        let mut bytes = vec![0xdd];
        bytes.extend(count.to_be_bytes());
        bytes.extend([row, out_of_row, row].concat());
        let (error, peak) = measured(|| descriptor::parse(&bytes, 64).unwrap_err());
        assert_eq!(error.status, Status::InvalidArg);
        assert!(peak < SENTENCE, "{count} blocks: {peak}");
    }
    let facts = Facts {
        backend: Kind::Local,
        fingerprint: String::new(),
        region: region(),
        metadata: vec![7; 100],
    };
    let blob = handshake::export(&facts);
    for at in 0..blob.len() {
        let mut bad = blob.clone();
        bad[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff);
        let (result, peak) = measured(|| handshake::parse(&bad));
        assert!(result.is_err());
        assert!(peak < SENTENCE, "byte {at}: {peak}");
    }
}

#[test]
fn without_memory_the_call_fails() {
    let bytes = scattered();
    let error = limited(700_000, || descriptor::parse(&bytes, 64)).unwrap_err();
    assert_eq!(error.status, Status::NoMemory);
    assert!(error.message.contains("100000 blocks"), "{error}");
    let error = limited(1_000_000, || descriptor::encode(&region())).unwrap_err();
    assert_eq!(error.status, Status::NoMemory);
    assert!(error.message.contains("1200005 bytes"), "{error}");
    // The size alone needs none.
    let (len, peak) = measured(|| descriptor::encoded_len(&region()).unwrap());
    assert_eq!((len, peak), (1_200_005, 0));
}
