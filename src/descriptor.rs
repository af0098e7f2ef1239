//! The memory descriptor: a transport's blocks as MessagePack, as its peers in Python write and read it.
//!
//! An array with one array `[address, length, device id]` for each block. What is written here is byte
//! for byte what Python's msgspec makes of the same list of tuples: every length and number in its
//! shortest form. What is read may have any form that MessagePack allows.

use rmp::Marker;
use rmp::decode::bytes::Bytes;
use rmp::decode::{NumValueReadError, ValueReadError, read_array_len, read_int};
use rmp::encode::{ValueWriteError, write_array_len, write_uint};

use crate::error::{Error, Result, Status, fail};
use crate::layout::Layout;
use crate::region::Region;

/// Host memory; the memory of a GPU would have another number.
const DEVICE: u64 = 0;

/// Numbers in an entry.
const FIELDS: u32 = 3;

/// Bytes of the smallest entry: its own length and three small numbers.
const SMALLEST_ENTRY: usize = 4;

/// What is found where bytes are missing.
const CUT_SHORT: &str = "is cut short";

/// From each of these numbers on, MessagePack takes so many bytes more than the one that it begins
/// with.
const LONGER_FROM: [(u64, u64); 4] = [(1 << 7, 1), (1 << 8, 1), (1 << 16, 2), (1 << 32, 4)];

/// Bytes of what [`encode`] makes of `region`, without making it.
pub fn encoded_len(region: &Region) -> Result<usize> {
    let list = match count(region)? {
        0..16 => 1,
        16..65_536 => 3,
        _ => 5,
    };
    let blocks = region.num_blocks();
    let lens: u64 = LONGER_FROM
        .iter()
        .filter(|(from, _)| *from <= region.block_len())
        .map(|(_, more)| more)
        .sum();
    // Addresses grow: those behind a limit are all blocks but the ones below it.
    let addresses: u64 = LONGER_FROM
        .iter()
        .map(|(from, more)| {
            let below = from
                .saturating_sub(region.base())
                .div_ceil(region.block_len());
            (blocks - below.min(blocks)) * more
        })
        .sum();
    Ok((list + blocks * (SMALLEST_ENTRY as u64 + lens) + addresses) as usize)
}

/// The descriptor of `region`.
pub fn encode(region: &Region) -> Result<Vec<u8>> {
    let blocks = count(region)?;
    let len = encoded_len(region)?;
    let mut bytes = room(len)?;
    write(&mut bytes, region, blocks).expect("a vector takes all that is written");
    debug_assert_eq!(bytes.len(), len);
    Ok(bytes)
}

fn room(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        fail!(NoMemory, "no memory for a descriptor of {len} bytes");
    }
    Ok(bytes)
}

fn write(
    bytes: &mut Vec<u8>,
    region: &Region,
    blocks: u32,
) -> std::result::Result<(), ValueWriteError> {
    write_array_len(bytes, blocks)?;
    for block in 0..u64::from(blocks) {
        write_array_len(bytes, FIELDS)?;
        write_uint(bytes, region.base() + block * region.block_len())?;
        write_uint(bytes, region.block_len())?;
        write_uint(bytes, DEVICE)?;
    }
    Ok(())
}

fn count(region: &Region) -> Result<u32> {
    u32::try_from(region.num_blocks()).map_err(|_| {
        Error::new(
            Status::Incompatible,
            format!(
                "num_blocks is {}, but a memory descriptor lists at most {} blocks",
                region.num_blocks(),
                u32::MAX
            ),
        )
    })
}

/// The blocks that a descriptor of anybody lists, all of `block_len` bytes.
///
/// Takes time as the descriptor is long, and at most twice its bytes of memory; none where the blocks
/// follow on each other.
pub fn parse(descriptor: &[u8], block_len: u64) -> Result<Layout> {
    blocks(descriptor, block_len).map_err(|error| error.context("mem_descriptor"))
}

fn blocks(descriptor: &[u8], block_len: u64) -> Result<Layout> {
    let mut input = Bytes::new(descriptor);
    let count = array_len(&mut input).map_err(|found| {
        malformed(format_args!(
            "it {found}, but must be an array of arrays [address, length, device id]"
        ))
    })?;
    if count == 0 {
        fail!(InvalidArg, "it lists no block, but a peer has at least one");
    }
    let left = input.remaining_slice().len();
    if left / SMALLEST_ENTRY < count as usize {
        fail!(
            InvalidArg,
            "it is cut short: {count} blocks by its own account, in only {left} bytes"
        );
    }
    let addresses = (0..count).map(|block| address(&mut input, block, block_len));
    let layout = Layout::of_blocks(addresses, block_len, count as usize)?;
    let left = input.remaining_slice().len();
    if left > 0 {
        fail!(
            InvalidArg,
            "it goes on for {left} bytes after its {count} blocks"
        );
    }
    Ok(layout)
}

/// The address in the entry of a block.
fn address(input: &mut Bytes<'_>, block: u32, block_len: u64) -> Result<u64> {
    let fields = array_len(input).map_err(|found| {
        malformed(format_args!(
            "block {block} {found}, but must be an array [address, length, device id]"
        ))
    })?;
    if fields != FIELDS {
        fail!(
            InvalidArg,
            "block {block} is an array of {fields}, but must be one of 3: [address, length, device id]"
        );
    }
    let mut field = |name: &str| {
        integer(input).map_err(|found| {
            malformed(format_args!(
                "the {name} of block {block} {found}, but must be an integer from 0 to 2^64 - 1"
            ))
        })
    };
    let (address, len, device) = (field("address")?, field("length")?, field("device id")?);
    if len != block_len {
        fail!(
            Incompatible,
            "the length of block {block} is {len}, but block_len is {block_len} here"
        );
    }
    if device != DEVICE {
        fail!(
            Incompatible,
            "the device id of block {block} is {device}, but only host memory is served, which is {DEVICE}"
        );
    }
    Ok(address)
}

fn malformed(message: impl std::fmt::Display) -> Error {
    Error::new(Status::InvalidArg, message.to_string())
}

/// The length of an array, or what is found in its place.
fn array_len(input: &mut Bytes<'_>) -> std::result::Result<u32, String> {
    read_array_len(input).map_err(|error| match error {
        ValueReadError::TypeMismatch(marker) => foreign(marker),
        _ => CUT_SHORT.to_owned(),
    })
}

/// A number, or what is found in its place.
fn integer(input: &mut Bytes<'_>) -> std::result::Result<u64, String> {
    // Any integer that MessagePack has fits, so that the sentence can show a negative one.
    let found = read_int::<i128, _>(input).map_err(|error| match error {
        NumValueReadError::TypeMismatch(marker) => foreign(marker),
        _ => CUT_SHORT.to_owned(),
    })?;
    u64::try_from(found).map_err(|_| format!("is {found}"))
}

fn foreign(marker: Marker) -> String {
    format!("is MessagePack's {marker:?}")
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
