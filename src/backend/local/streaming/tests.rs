use super::*;
use crate::backend::local::copy::Memory;
use crate::backend::local::mapping::{page_size, unmap};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

/// Memory between two pages that nobody may touch.
struct Fenced {
    space: usize,
    len: usize,
}

impl Fenced {
    fn new(pages: usize) -> Fenced {
        let page = page_size() as usize;
        let len = (pages + 2) * page;
        let nothing = ProtFlags::empty();
        // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
        let space = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, nothing, MapFlags::PRIVATE).unwrap() as usize
        };
        let rights = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: inside the range just mapped.
        unsafe { mprotect((space + page) as *mut _, pages * page, rights).unwrap() };
        Fenced { space, len }
    }

    fn inside(&self) -> std::ops::Range<usize> {
        let page = page_size() as usize;
        self.space + page..self.space + self.len - page
    }

    fn bytes(&mut self) -> &mut [u8] {
        let inside = self.inside();
        // SAFETY: mapped as long as this value lives, readable and writable; the tests look at them
        // only between copies.
        unsafe { std::slice::from_raw_parts_mut(inside.start as *mut u8, inside.len()) }
    }

    fn memory(&self, at: usize, len: usize) -> Memory {
        let inside = self.inside();
        assert!(at + len <= inside.len());
        // SAFETY: mapped as long as this value lives.
        unsafe { Memory::new((inside.start + at) as u64, len as u64) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody refers to it any more.
        unsafe { unmap(self.space, self.len) };
    }
}

/// Copies `len` bytes, as a block of that length.
fn copy(mover: Mover, to: Memory, from: Memory, len: usize) {
    let mut queue = Queue::new(mover);
    queue.push(Stretch::new(to, 0, from, 0, len as u64), 0, len as u64);
    queue.finish();
}

/// Whatever the ends: hard at the border of what is mapped, on both sides and at both ends.
#[test]
fn nothing_outside_is_touched() {
    let short: Vec<usize> = (1..200)
        .chain([255, 256, 257, 1023, 4095, 4096, 4097])
        .collect();
    let skips: Vec<usize> = (0..66).collect();
    at_the_borders(2, &short, &skips);
    at_the_borders(
        40,
        &[131_072, 131_100, 40 * page_size() as usize],
        &[0, 1, 33, 64],
    );
}

fn at_the_borders(pages: usize, lens: &[usize], skips: &[usize]) {
    let (mut source, mut target) = (Fenced::new(pages), Fenced::new(pages));
    let whole = source.bytes().len();
    let content: Vec<u8> = (0..whole).map(|at| (at * 31 + at / 256) as u8).collect();
    source.bytes().copy_from_slice(&content);
    let untouched = vec![0xee; whole];
    for (mover, len) in Mover::all().flat_map(|mover| lens.iter().map(move |len| (mover, *len))) {
        for skip in skips.iter().filter(|skip| **skip + len <= whole) {
            let (low, high) = (*skip, whole - skip - len);
            let (first, last) = (0, whole - len);
            for (from, to) in [
                (low, first),
                (high, last),
                (low, last),
                (first, high),
                (last, low),
            ] {
                target.bytes().copy_from_slice(&untouched);
                copy(mover, target.memory(to, len), source.memory(from, len), len);
                let is = &*std::hint::black_box(target.bytes());
                let what = format!("{len} bytes from {from} to {to} by {mover:?}");
                assert!(is[to..to + len] == content[from..from + len], "{what}");
                assert!(is[..to] == untouched[..to], "{what}");
                assert!(is[to + len..] == untouched[to + len..], "{what}");
            }
        }
    }
}

#[test]
fn onto_itself_changes_nothing() {
    let mut memory = Fenced::new(40);
    let content: Vec<u8> = (0..memory.bytes().len())
        .map(|at| (at * 31 + at / 256) as u8)
        .collect();
    memory.bytes().copy_from_slice(&content);
    for mover in Mover::all() {
        for (skip, len) in [(0, 150_000), (5, 4096), (64, 131_073)] {
            let stretch = memory.memory(skip, len);
            copy(mover, stretch, stretch, len);
            assert!(*std::hint::black_box(memory.bytes()) == content[..]);
        }
    }
}

/// The best known way where the processor has one, and for what is large.
#[test]
fn only_what_is_large() {
    let best = Mover::find().map(|mover| mover.name);
    assert_eq!(suitable(64 << 20, 4096).map(|mover| mover.name), best);
    assert!(suitable(WARM_BYTES, 4096).is_none());
    assert!(suitable(64 << 20, 512).is_none());
    #[cfg(target_arch = "x86_64")]
    assert_eq!(best.is_some(), std::is_x86_feature_detected!("avx2"));
}

/// Contiguous memory is cut into few stretches, which begin and end with blocks.
#[test]
fn blocks_are_cut_where_they_always_are() {
    let memory = Fenced::new(1024);
    let Some(mover) = Mover::find() else { return };
    let lens = |block_len: u64, at: u64, len: usize, skip: usize| {
        let to = memory.memory(skip, len);
        let mut queue = Queue::new(mover);
        queue.push(Stretch::new(to, 0, to, 0, len as u64), at, block_len);
        let stretches = &queue.stretches[..queue.count];
        stretches.iter().map(Stretch::len).collect::<Vec<_>>()
    };
    let kib = 1usize << 10;
    assert_eq!(lens(4096, 0, 256 * kib, 0), [128 * kib, 128 * kib]);
    assert_eq!(lens(4096, 64, 8 * kib, 64), [8 * kib]);
    assert_eq!(
        lens(96 << 10, 0, 256 * kib, 0),
        [96 * kib, 96 * kib, 64 * kib]
    );
    assert_eq!(lens(96 << 10, 64 << 10, 100 * kib, 0), [32 * kib, 68 * kib]);
    assert_eq!(lens(4096, 0, 12 * kib, 1), [4 * kib, 4 * kib, 4 * kib]);
    assert_eq!(lens(5000, 0, 12_000, 0), [5000, 5000, 2000]);
    assert_eq!(lens(300_000, 0, 256 * kib, 0), [128 * kib, 128 * kib]);
    assert_eq!(
        lens(300_000, 100_000, 256 * kib, 0),
        [31_072, 131_072, 37_856, 62_144]
    );
}
