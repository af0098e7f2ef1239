//! Descriptors of any bytes: what is taken is what another reading of MessagePack finds there.

use super::{encode, encoded_len, parse};
use crate::error::Status;
use crate::fuzz::SENTENCE;
use crate::fuzz::meter::measured;
use crate::layout::Layout;

/// Bytes that claim to be a memory descriptor.
pub fn descriptor(data: &[u8]) {
    let entries = entries(data);
    let first = entries.as_ref().and_then(|list| Some(list.first()?[1]));
    // That of the region is at least 1.
    for block_len in [first.unwrap_or(0).max(1), 4096] {
        let (result, peak) = measured(|| parse(data, block_len));
        assert!(peak <= 2 * data.len() + SENTENCE, "{peak} bytes");
        let expected = entries.as_ref().and_then(|list| addresses(list, block_len));
        match (result, expected) {
            (Ok(layout), Some(addresses)) => taken(data, block_len, &layout, &addresses, peak),
            (Err(error), None) => assert!(
                matches!(error.status, Status::InvalidArg | Status::Incompatible),
                "{error}"
            ),
            (result, expected) => panic!("{result:?}, but it says {expected:x?}"),
        }
    }
}

fn taken(data: &[u8], block_len: u64, layout: &Layout, addresses: &[u64], peak: usize) {
    assert_eq!(layout.num_blocks(), addresses.len() as u64);
    assert_eq!(layout.block_len(), block_len);
    for (block, address) in addresses.iter().enumerate() {
        assert_eq!(layout.base() + layout.offset(block as u32), *address);
        assert!(address + block_len <= layout.end());
    }
    let in_a_row = addresses
        .windows(2)
        .all(|pair| pair[0] + block_len == pair[1]);
    let Layout::Uniform(region) = layout else {
        return assert!(!in_a_row);
    };
    assert!(in_a_row && peak == 0, "{peak} bytes for a formula");
    let shortest = encode(region).expect("so many blocks were listed");
    assert_eq!(encoded_len(region), Ok(shortest.len()));
    assert!(shortest.len() <= data.len());
    assert_eq!(parse(&shortest, block_len).as_ref(), Ok(layout));
}

/// The addresses, if every block is one that can be taken.
fn addresses(entries: &[[u64; 3]], block_len: u64) -> Option<Vec<u64>> {
    let address = |[address, len, device]: &[u64; 3]| {
        let fits = *len == block_len && *device == 0 && *address != 0;
        let fits = fits && address.checked_add(block_len).is_some();
        fits.then_some(*address)
    };
    let addresses: Option<Vec<u64>> = entries.iter().map(address).collect();
    addresses.filter(|list| !list.is_empty())
}

/// A list of triples of numbers that are not negative, and nothing else.
fn entries(mut bytes: &[u8]) -> Option<Vec<[u64; 3]>> {
    let count = length(&mut bytes)?;
    let mut list = Vec::new();
    for _ in 0..count {
        if length(&mut bytes)? != 3 {
            return None;
        }
        let mut triple = [0; 3];
        for field in &mut triple {
            *field = number(&mut bytes)?;
        }
        list.push(triple);
    }
    bytes.is_empty().then_some(list)
}

fn length(bytes: &mut &[u8]) -> Option<u64> {
    match big_endian(bytes, 1)? {
        marker @ 0x90..=0x9f => Some(marker - 0x90),
        0xdc => big_endian(bytes, 2),
        0xdd => big_endian(bytes, 4),
        _ => None,
    }
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let marker = big_endian(bytes, 1)?;
    let (len, signed) = match marker {
        0x00..=0x7f => return Some(marker),
        0xcc..=0xcf => (1 << (marker - 0xcc), false),
        0xd0..=0xd3 => (1 << (marker - 0xd0), true),
        _ => return None,
    };
    let value = big_endian(bytes, len)?;
    let negative = signed && value >> (8 * len - 1) != 0;
    (!negative).then_some(value)
}

fn big_endian(bytes: &mut &[u8], len: usize) -> Option<u64> {
    let (number, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(
        number
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}
