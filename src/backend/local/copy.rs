//! Copies between two stretches of memory that this process can address.

/// A stretch of memory of this process's address space. Making one is a promise; using it is safe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    address: usize,
    len: u64,
}

impl Memory {
    /// The `len` bytes from `address` on.
    ///
    /// # Safety
    ///
    /// They are mapped, readable and writable, whenever a [`Stretch`] of this value is copied. Others
    /// may read and write them at the same time: no Rust reference to them exists.
    pub(super) unsafe fn new(address: u64, len: u64) -> Memory {
        Memory {
            address: address as usize,
            len,
        }
    }

    /// The address of `offset`, behind which `len` bytes of this memory follow.
    ///
    /// Panics when they do not: runs are checked against the regions long before.
    pub(super) fn at(&self, offset: u64, len: u64) -> usize {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(
            inside,
            "{len} bytes at {offset} are outside of memory of {} bytes",
            self.len
        );
        self.address + offset as usize
    }
}

/// A copy to be made. Making one is safe, and so is the copying, by the promise of [`Memory::new`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    to: usize,
    from: usize,
    len: usize,
}

impl Stretch {
    /// Nothing.
    pub(super) const NONE: Stretch = Stretch {
        to: 0,
        from: 0,
        len: 0,
    };

    /// `len` bytes at one offset of one memory, to one of another. The two may overlap, as a transport
    /// may be its own peer: memory is safe then, but the content of a destination that is a source
    /// besides is anybody's guess, since larger transfers come in several of these.
    pub(super) fn new(
        to: Memory,
        to_offset: u64,
        from: Memory,
        from_offset: u64,
        len: u64,
    ) -> Stretch {
        Stretch {
            to: to.at(to_offset, len),
            from: from.at(from_offset, len),
            len: len as usize,
        }
    }

    /// First address of the destination.
    pub(super) fn to(&self) -> usize {
        self.to
    }

    /// First address of the source.
    pub(super) fn from(&self) -> usize {
        self.from
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes off the first `len` bytes, or all if there are fewer.
    pub(super) fn take(&mut self, len: usize) -> Stretch {
        let first = Stretch {
            len: len.min(self.len),
            ..*self
        };
        self.to += first.len;
        self.from += first.len;
        self.len -= first.len;
        first
    }

    /// Copies it.
    pub(super) fn copy(&self) {
        if self.len == 0 {
            return;
        }
        let (to, from) = (
            self.to as *mut libc::c_void,
            self.from as *const libc::c_void,
        );
        // SAFETY: both ranges lie inside memory that is mapped now, by the promise made at
        // `Memory::new`. Bytes that another process changes meanwhile arrive in some
        // mixture, which is its own fault: memmove itself depends on no content.
        unsafe { libc::memmove(to, from, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory_of(bytes: &mut [u8]) -> Memory {
        // SAFETY: the tests keep `bytes` alive and look at them only between copies.
        unsafe { Memory::new(bytes.as_mut_ptr() as u64, bytes.len() as u64) }
    }

    #[test]
    fn copies_exactly_the_bytes_asked_for() {
        let mut from: Vec<u8> = (0..100).collect();
        let mut to = vec![255u8; 100];
        Stretch::new(memory_of(&mut to), 10, memory_of(&mut from), 20, 5).copy();
        assert_eq!(to[10..15], [20, 21, 22, 23, 24]);
        assert!(to[..10].iter().chain(&to[15..]).all(|byte| *byte == 255));
    }

    #[test]
    fn onto_itself_changes_nothing() {
        let mut bytes: Vec<u8> = (0..100).collect();
        let memory = memory_of(&mut bytes);
        Stretch::new(memory, 10, memory, 10, 80).copy();
        assert!(bytes.iter().copied().eq(0..100));
    }

    #[test]
    fn never_outside() {
        let mut bytes = vec![0u8; 64];
        let memory = memory_of(&mut bytes);
        for (offset, len) in [(64, 1), (0, 65), (u64::MAX, 2), (63, 2)] {
            assert!(std::panic::catch_unwind(|| memory.at(offset, len)).is_err());
        }
        assert_eq!(memory.at(63, 1), memory.at(0, 0) + 63);
    }
}
