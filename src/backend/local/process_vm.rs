//! Copies between two address spaces by `process_vm_readv` and `process_vm_writev`: the way to memory
//! that cannot be mapped.

use rustix::io::Errno;

use super::copy::Memory;
use super::errno::{failed, of_io};
use super::{permission, threads};
use crate::backend::Direction;
use crate::error::{Error, Result, Status, fail};
use crate::extents::Cursor;
use crate::layout::Layout;

/// Most that one `process_vm` call moves; more at once is not faster.
const CALL_BYTES: u64 = 1 << 20;
/// Most pieces in one `process_vm` call, the fuse among them. For the kernel alone 64 are enough; here the
/// fuse, and the look at the peer before each call, are spread over twice as many.
const CALL_PIECES: usize = 128;

/// The way into one process.
#[derive(Debug)]
pub(super) struct ProcessVm {
    pid: u32,
    /// Address of the peer's fuse.
    fuse: usize,
    base: u64,
    len: u64,
}

impl ProcessVm {
    /// Finds out whether the kernel permits it, by reading the first and the last byte, and by
    /// writing to the fuse, where nothing of worth is.
    pub(super) fn open(pid: u32, fuse: u64, remote: &Layout) -> Result<ProcessVm> {
        let way = ProcessVm {
            pid,
            fuse: fuse as usize,
            base: remote.base(),
            len: remote.span(),
        };
        let mut bytes = [0u8; 2];
        let start = bytes.as_mut_ptr() as usize;
        for (offset, local) in [(0, start), (way.len - 1, start + 1)] {
            let mut batch = Batch::new();
            batch.push(local, way.at(offset, 1), 1);
            // SAFETY: the local side is one byte of `bytes`.
            match unsafe { way.call(&mut batch, Direction::Read) } {
                Ok(1) => {}
                Ok(_) | Err(Errno::FAULT) => fail!(
                    Incompatible,
                    "the peer's region is not mapped at {:#x} in process {pid}",
                    way.base + offset
                ),
                Err(errno) => return Err(failure(pid, errno)),
            }
        }
        // SAFETY: the batch is empty, so nothing but the fuse is touched.
        match unsafe { way.call(&mut Batch::new(), Direction::Write) } {
            Ok(_) => Ok(way),
            Err(errno) => Err(failure(pid, errno)),
        }
    }

    fn at(&self, offset: u64, len: u64) -> usize {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(
            inside,
            "{len} bytes at {offset} are outside of the peer's {} bytes",
            self.len
        );
        (self.base + offset) as usize
    }

    /// One call for a batch.
    ///
    /// # Safety
    ///
    /// See [`Batch::call`].
    unsafe fn call(&self, batch: &mut Batch, direction: Direction) -> rustix::io::Result<usize> {
        // SAFETY: by the promise of the caller.
        let mut call = |thread| unsafe { batch.call(thread, self.fuse, direction) };
        let mut result = call(self.pid);
        // Either the process has no memory any more, or its first thread has ended.
        if result == Err(Errno::SRCH) {
            for thread in threads::others(self.pid)? {
                result = call(thread);
                if result != Err(Errno::SRCH) {
                    break;
                }
            }
        }
        result
    }

    /// Moves at most what one call moves.
    pub(super) fn step(
        &self,
        local: Memory,
        direction: Direction,
        cursor: &mut Cursor,
    ) -> Result<()> {
        let mut batch = Batch::new();
        let mut left = CALL_BYTES;
        while left > 0 && !batch.is_full() {
            let Some(piece) = cursor.next_piece(left) else {
                break;
            };
            left -= piece.len;
            let (here, there) = (
                local.at(piece.local, piece.len),
                self.at(piece.remote, piece.len),
            );
            batch.push(here, there, piece.len as usize);
        }
        // A call may end early, at the end of any page: it goes on from there.
        while !batch.is_empty() {
            // SAFETY: `Memory::at` gave the local addresses: they are mapped, readable and writable.
            match unsafe { self.call(&mut batch, direction) } {
                Ok(0) => return Err(failure(self.pid, Errno::FAULT)),
                Ok(moved) => batch.advance(moved),
                Err(errno) => return Err(failure(self.pid, errno)),
            }
        }
        Ok(())
    }
}

fn failure(pid: u32, errno: Errno) -> Error {
    match errno {
        Errno::SRCH => Error::new(Status::PeerLost, format!("process {pid} is gone")),
        // `dt_last_error` shows little more than this, and the reason for process_vm has to fit, too.
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => Error::new(
            Status::Unavailable,
            format!(
                "permission to use process_vm on process {pid} is missing ({}): give both one uid, gid and set of \
                 capabilities, keep the peer dumpable, set kernel.yama.ptrace_scope to 0 or have CAP_SYS_PTRACE here, \
                 let seccomp permit process_vm_readv and _writev; or use dt_region_alloc there",
                permission::reason_to_copy(pid, errno)
            ),
        ),
        Errno::FAULT => Error::new(
            Status::Backend,
            format!("the peer's memory is not mapped in process {pid}"),
        ),
        _ => failed(format!("process_vm on process {pid}"), errno),
    }
}

/// The pieces of one call: pairs of equally long stretches here and there. The place before the
/// first piece that is left is always free: there the fuse goes.
struct Batch {
    here: [libc::iovec; CALL_PIECES],
    there: [libc::iovec; CALL_PIECES],
    /// The pieces that are left.
    first: usize,
    end: usize,
}

impl Batch {
    fn new() -> Batch {
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Batch {
            here: [none; CALL_PIECES],
            there: [none; CALL_PIECES],
            first: 1,
            end: 1,
        }
    }

    fn is_full(&self) -> bool {
        self.end == CALL_PIECES
    }

    fn is_empty(&self) -> bool {
        self.first == self.end
    }

    fn push(&mut self, here: usize, there: usize, len: usize) {
        self.here[self.end] = libc::iovec {
            iov_base: here as *mut _,
            iov_len: len,
        };
        self.there[self.end] = libc::iovec {
            iov_base: there as *mut _,
            iov_len: len,
        };
        self.end += 1;
    }

    /// Takes `bytes` off the front.
    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 && !self.is_empty() {
            let len = self.here[self.first].iov_len;
            if bytes < len {
                for side in [&mut self.here[self.first], &mut self.there[self.first]] {
                    side.iov_base = (side.iov_base as usize + bytes) as *mut _;
                    side.iov_len -= bytes;
                }
                return;
            }
            bytes -= len;
            self.first += 1;
        }
    }

    /// One system call, behind the fuse; the bytes that it moved, or the error number.
    ///
    /// # Safety
    ///
    /// The stretches here are mapped, and may be written when `direction` is `Read`. The ones there
    /// may be anything: the kernel checks them.
    unsafe fn call(
        &mut self,
        pid: u32,
        fuse: usize,
        direction: Direction,
    ) -> std::result::Result<usize, Errno> {
        let mut spare = 0u8;
        let before = self.first - 1;
        self.here[before] = libc::iovec {
            iov_base: (&raw mut spare).cast(),
            iov_len: 1,
        };
        self.there[before] = libc::iovec {
            iov_base: fuse as *mut _,
            iov_len: 1,
        };
        let here = &self.here[before..self.end];
        let there = &self.there[before..self.end];
        let count = here.len() as libc::c_ulong;
        let pid = pid as libc::pid_t;
        // SAFETY: both pointers lead to `count` iovecs; of the memory that they name, see above;
        // `spare` lives until the end of this function.
        let moved = unsafe {
            match direction {
                Direction::Write => {
                    libc::process_vm_writev(pid, here.as_ptr(), count, there.as_ptr(), count, 0)
                }
                Direction::Read => {
                    libc::process_vm_readv(pid, here.as_ptr(), count, there.as_ptr(), count, 0)
                }
            }
        };
        match usize::try_from(moved) {
            // The byte of the fuse is none of the transfer's.
            Ok(moved) => Ok(moved.saturating_sub(1)),
            Err(_) => Err(of_io(&std::io::Error::last_os_error())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::local::alloc;
    use crate::backend::local::copy::Stretch;
    use crate::backend::local::fuse::Fuse;
    use crate::backend::local::mapping::page_size;
    use crate::extents::Runs;
    use crate::region::Region;
    use proptest::prelude::*;
    use std::process::id;

    proptest! {
        // Whatever counts the kernel returns, the batch goes on with the next byte.
        #[test]
        fn batches_go_on_where_they_ended(
            lens in prop::collection::vec(1usize..50, 1..CALL_PIECES),
            cuts in prop::collection::vec(1usize..120, 1..400),
        ) {
            let mut batch = Batch::new();
            let mut want = Vec::new();
            for (i, len) in lens.iter().enumerate() {
                batch.push(1000 * (i + 1), 5_000_000 + 2000 * (i + 1), *len);
                want.extend((0..*len).map(|k| (1000 * (i + 1) + k, 5_000_000 + 2000 * (i + 1) + k)));
            }
            let mut got = Vec::new();
            for cut in cuts {
                let before: Vec<_> = bytes_left(&batch);
                let cut = cut.min(before.len());
                got.extend(&before[..cut]);
                batch.advance(cut);
                prop_assert_eq!(&bytes_left(&batch)[..], &before[cut..]);
            }
            got.extend(bytes_left(&batch));
            prop_assert_eq!(got, want);
        }
    }

    fn bytes_left(batch: &Batch) -> Vec<(usize, usize)> {
        (batch.first..batch.end)
            .flat_map(|i| {
                let (here, there) = (batch.here[i], batch.there[i]);
                assert_eq!(here.iov_len, there.iov_len);
                (0..here.iov_len)
                    .map(move |k| (here.iov_base as usize + k, there.iov_base as usize + k))
            })
            .collect()
    }

    #[test]
    fn a_region_that_is_not_mapped_is_found_at_once() {
        let page = page_size() as usize;
        let (address, _file) = alloc::alloc(2 * page).unwrap();
        let region = Region::new(address as u64, 2, page as u64).unwrap();
        let whole = Layout::from(region);
        let fuse = Fuse::create().unwrap();
        assert!(ProcessVm::open(id(), fuse.address(), &whole).is_ok());
        // SAFETY: the second page of memory that only this test knows of, and never touches.
        unsafe { alloc::free(address + page, page) };
        let error = ProcessVm::open(id(), fuse.address(), &whole).unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        assert!(error.message.contains("not mapped"), "{error}");
        // The hole met in the middle of a transfer.
        let mut here = vec![0u8; 2 * page];
        // SAFETY: `here` lives until the end of the test.
        let memory = unsafe { Memory::new(here.as_mut_ptr() as u64, here.len() as u64) };
        let way = ProcessVm {
            pid: id(),
            fuse: fuse.address() as usize,
            base: whole.base(),
            len: whole.span(),
        };
        let runs = Runs::of(&[0, 1], &[0, 1], &region, &whole).unwrap();
        let mut cursor = Cursor::new(runs);
        let error = way.step(memory, Direction::Write, &mut cursor).unwrap_err();
        assert_eq!(error.status, Status::Backend);
        // SAFETY: the first page, mapped until here and not used below.
        unsafe { alloc::free(address, page) };
    }

    #[test]
    fn nothing_is_copied_behind_a_blown_fuse() {
        let page = page_size() as usize;
        let (address, _file) = alloc::alloc(page).unwrap();
        let region = Region::new(address as u64, 1, page as u64).unwrap();
        let whole = Layout::from(region);
        let fuse = Fuse::create().unwrap();
        let way = ProcessVm::open(id(), fuse.address(), &whole).unwrap();
        let mut here = vec![7u8; page];
        // SAFETY: `here` lives until the end of the test.
        let memory = unsafe { Memory::new(here.as_mut_ptr() as u64, page as u64) };
        let mut there = vec![0u8; page];
        // SAFETY: as above.
        let other = unsafe { Memory::new(there.as_mut_ptr() as u64, page as u64) };
        // SAFETY: the memory of `alloc`, mapped until the end of the test.
        let target = unsafe { Memory::new(address as u64, page as u64) };
        let step = |direction| {
            let runs = Runs::of(&[0], &[0], &region, &whole).unwrap();
            way.step(memory, direction, &mut Cursor::new(runs))
        };
        let content = || {
            Stretch::new(other, 0, target, 0, page as u64).copy();
            there.clone()
        };
        step(Direction::Write).unwrap();
        assert_eq!(content(), vec![7; page]);
        here.fill(9);
        fuse.blow();
        for direction in [Direction::Write, Direction::Read] {
            assert_eq!(step(direction).unwrap_err().status, Status::Backend);
        }
        assert_eq!(content(), vec![7; page]);
        assert_eq!(here, vec![9; page]);
        // SAFETY: not used below.
        unsafe { alloc::free(address, page) };
    }

    #[test]
    fn failures_say_what_to_do() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let region = Region::new(4096, 1, 1).unwrap().into();
        assert_eq!(
            ProcessVm::open(child.id(), 4096, &region)
                .unwrap_err()
                .status,
            Status::PeerLost
        );
        for errno in [Errno::PERM, Errno::NOSYS] {
            let error = failure(4_194_303, errno);
            assert_eq!(error.status, Status::Unavailable);
            assert!(error.message.len() < 340, "{}", error.message.len());
            for word in [
                "uid",
                "dumpable",
                "yama.ptrace_scope",
                "CAP_SYS_PTRACE",
                "seccomp",
                "dt_region_alloc",
            ] {
                assert!(error.message.contains(word), "{word} in {error}");
            }
        }
    }
}
