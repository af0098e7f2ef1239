//! Memory that a test can look into while other processes use it, and what it is filled with.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

/// Memory that several processes can map.
pub struct Memory {
    pub path: PathBuf,
    base: *mut u8,
    pub len: usize,
    owner: bool,
}

// SAFETY: it is a plain mapping; the tests look at bytes while others write them, volatile.
unsafe impl Send for Memory {}

impl Memory {
    /// New memory of zeros.
    pub fn new(len: usize) -> Memory {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        // Processes that were killed leave theirs behind, and pids come again.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap().as_nanos();
        let name = format!("dt-nixl-test-{}-{next}-{now}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(len as u64).unwrap();
        Memory::map(path, &file, len, true)
    }

    /// Memory of another process.
    pub fn open(path: &Path, len: usize) -> Memory {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        Memory::map(path.to_owned(), &file, len, false)
    }

    fn map(path: PathBuf, file: &File, len: usize, owner: bool) -> Memory {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        Memory {
            path,
            base: base.unwrap().cast(),
            len,
            owner,
        }
    }

    pub fn base(&self) -> u64 {
        self.base as u64
    }

    // Other processes write it at the same time: exclusive it is not, whatever the type says.
    #[allow(clippy::mut_from_ref)]
    pub fn bytes(&self) -> &mut [u8] {
        // SAFETY: the mapping lives as long as `self`; it is bytes, of which any value is valid.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }

    #[allow(clippy::mut_from_ref)]
    pub fn block(&self, index: u32, len: usize) -> &mut [u8] {
        let start = index as usize * len;
        &mut self.bytes()[start..start + len]
    }

    /// Every block gets bytes that only this block and `seed` give.
    pub fn fill(&self, seed: u64, block_len: usize) {
        for (index, block) in self.bytes().chunks_mut(block_len).enumerate() {
            fill(block, seed, index as u32);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.owner {
            let _ = std::fs::remove_file(&self.path);
        }
        // SAFETY: the mapping was made by `map` and is not used any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// A generator whose words only this block and `seed` give.
struct Pattern(u64);

impl Pattern {
    fn new(seed: u64, index: u32) -> Pattern {
        let mixed = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(u64::from(index).wrapping_mul(0xd1b5_4a32_d192_ed03));
        Pattern(mixed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub fn fill(block: &mut [u8], seed: u64, index: u32) {
    let mut words = Pattern::new(seed, index);
    for bytes in block.chunks_mut(8) {
        bytes.copy_from_slice(&words.next().to_le_bytes()[..bytes.len()]);
    }
}

/// Whether `block` holds what [`fill`] gives.
pub fn holds(block: &[u8], seed: u64, index: u32) -> bool {
    let mut expected = vec![0; block.len()];
    fill(&mut expected, seed, index);
    block == expected
}

pub fn is_zero(block: &[u8]) -> bool {
    block == vec![0; block.len()]
}

/// A permutation of `0..count`.
pub fn permutation(count: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = Pattern::new(seed, 1);
    for at in (1..count as usize).rev() {
        order.swap(at, (random.next() >> 16) as usize % (at + 1));
    }
    order
}
