//! What strangers' bytes can make the library allocate: no more than they are long, whatever they
//! claim; and where there is no memory, the call fails and the process goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use datatransport::backend::Kind;
use datatransport::error::Status;
use datatransport::handshake::Facts;
use datatransport::region::Region;
use datatransport::{descriptor, handshake};
use proptest::prelude::*;

/// Counts what the current thread allocates, and refuses what is beyond its limit.
struct Counting;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

// SAFETY: every call goes on to `System` as it came; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: as the trait asks; a null pointer says that there is no memory.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.get().wrapping_add(layout.size());
        if layout.size() > LIMIT.get() {
            return std::ptr::null_mut();
        }
        IN_USE.set(in_use);
        // What was allocated before the measurement may be freed in it.
        if in_use <= isize::MAX as usize {
            PEAK.set(PEAK.get().max(in_use));
        }
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as the trait asks.
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get().wrapping_sub(layout.size()));
        // SAFETY: `alloc` had it from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, and the most bytes that it had at one time.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    IN_USE.set(0);
    PEAK.set(0);
    let result = work();
    (result, PEAK.get())
}

/// `work` where no allocation may be larger than `limit` bytes.
fn limited<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    LIMIT.set(limit);
    let result = work();
    LIMIT.set(usize::MAX);
    result
}

/// Room for an error's sentence.
const SENTENCE: usize = 2048;

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
fn the_counter_counts() {
    let (len, peak) = measured(|| {
        drop(vec![0u8; 5000]);
        vec![0u8; 3000].len()
    });
    assert_eq!(len, 3000);
    assert!((5000..7000).contains(&peak), "{peak}");
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

proptest! {
    #[test]
    fn mutations_allocate_no_more_than_they_are_long(
        edits in prop::collection::vec((0usize..80, any::<u8>()), 1..5),
        cut in 0usize..=1203,
    ) {
        let few = Region::new(0x7f00_0000_1000, 100, 64).unwrap();
        let mut bytes = descriptor::encode(&few).unwrap();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut);
        let (_result, peak) = measured(|| descriptor::parse(&bytes, 64));
        prop_assert!(peak <= 2 * bytes.len() + SENTENCE, "{} of {}", peak, bytes.len());
    }
}
