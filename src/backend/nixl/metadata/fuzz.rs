//! NIXL blobs of any bytes: what is taken is written back byte for byte, and what it covers is what a
//! look at every block finds.

use super::*;
use crate::backend::nixl::address::Form;
use crate::fuzz::meter::measured;
use crate::fuzz::{Input, SENTENCE};
use crate::region::Region;

/// Bytes that claim to be an agent's metadata; and numbers for registrations and blocks.
pub fn nixl_metadata(data: &[u8]) {
    let (result, peak) = measured(|| Metadata::parse(data, "UCX"));
    assert!(peak <= 4 * data.len() + SENTENCE, "{peak} bytes");
    match result {
        Ok(metadata) => taken(data, &metadata),
        Err(error) => assert!(
            matches!(error.status, Status::InvalidArg | Status::Incompatible),
            "{error}"
        ),
    }
    blocks(&mut Input::new(data));
    address(data);
}

fn taken(blob: &[u8], metadata: &Metadata) {
    assert!((1..=MAX_NAME).contains(&metadata.agent.len()) && !metadata.agent.contains('\0'));
    assert!((1..=MAX_ADDRESS).contains(&metadata.address.len()));
    assert!(metadata.renamed(metadata.agent) == blob);
    let other = metadata.renamed("another name");
    let again = Metadata::parse(&other, "UCX").expect("only the name has changed");
    assert_eq!(again.agent, "another name");
    assert!(again.address == metadata.address && again.regions == metadata.regions);
    let bare = metadata.without_memory("another name");
    assert!(bare.len() <= other.len() + NO_MEMORY.len());
    assert!(Metadata::parse(&bare, "UCX").is_err());
    assert!(Metadata::parse(blob, "LIBFABRIC").is_err());
    for &(start, end) in metadata.regions.iter().take(8) {
        assert!(start != 0 && start < end);
        let whole = Region::new(start, 1, end - start).expect("it has addresses");
        assert!(metadata.check_covers(&whole.into()).is_ok());
    }
    for pair in metadata.regions.windows(2).take(8) {
        let (start, end) = (pair[0].0.min(pair[1].0), pair[0].1.max(pair[1].1));
        let span = Region::new(start, 1, end - start).expect("it has addresses");
        let inside = |region: &(u64, u64)| region.0 <= start && end <= region.1;
        let covered = metadata.check_covers(&span.into()).is_ok();
        assert_eq!(covered, metadata.regions.iter().any(inside));
    }
    address(metadata.address);
}

/// Coverage against its definition: every block lies in one registration, and the parts of any
/// stretch of blocks are its bytes in order, each in one registration.
fn blocks(input: &mut Input) {
    let origin = [1, 1 << 40, u64::MAX - 600][input.below(3)];
    let block_len = 1 + input.below(12) as u64;
    let count = 1 + input.below(12);
    let registered = input.below(8);
    let mut near = |limit| origin + input.below(limit) as u64;
    let regions: Vec<_> = (0..registered)
        .map(|_| (near(128), near(40) - origin))
        .map(|(start, len)| (start, start + len + 1))
        .collect();
    let mut addresses: Vec<u64> = (0..count).map(|_| near(160)).collect();
    if input.one_in(2) {
        addresses = (0..count as u64)
            .map(|i| addresses[0] + i * block_len)
            .collect();
    }
    let each = addresses.iter().copied().map(Ok);
    let remote = Layout::of_blocks(each, block_len, count).expect("all have addresses");
    let inside = |at: u64, len: u64| {
        let mut all = regions.iter();
        all.any(|(start, end)| *start <= at && at + len <= *end)
    };
    let outside = addresses.iter().position(|at| !inside(*at, block_len));
    let coverage = match Coverage::new(&regions, &remote) {
        Err((block, at)) => {
            assert_eq!(Some(block as usize), outside);
            return assert_eq!(at, addresses[block as usize]);
        }
        Ok(coverage) => coverage,
    };
    assert_eq!(outside, None);
    for first in 0..addresses.len() {
        for last in first..addresses.len() {
            let len = (last - first + 1) as u64 * block_len;
            if addresses[last] + block_len != addresses[first] + len {
                break;
            }
            let mut at = addresses[first];
            for (address, part) in coverage.parts(at - remote.base(), len) {
                assert_eq!(address, at);
                assert!(part > 0 && inside(address, part));
                at += part;
            }
            assert_eq!(at, addresses[first] + len);
        }
    }
}

/// Worker addresses: one is like itself, and no beginning of it, and nothing behind it, is.
fn address(bytes: &[u8]) {
    let form = Form::of(bytes);
    assert!(bytes.is_empty() || form.fits(bytes));
    if !form.is_known() {
        return;
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(!form.fits(&longer));
    for len in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
        assert!(!form.fits(&bytes[..len]), "cut to {len}");
    }
}
