//! Checks of what C passes. A promise about a pointer is made once, where it enters; the types here
//! carry it on.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::NonNull;

use crate::backend::MAX_NAME;
use crate::error::{Result, fail};

/// A struct of more bytes than this was not written by anybody: its size is not initialised.
const MAX_STRUCT: usize = 4096;

/// An integer that C declares as an enum, whatever its value.
///
/// # Safety
/// `T` is a `repr(i32)` enum and the bytes of `value` were initialised.
pub(super) unsafe fn enum_value<T>(value: MaybeUninit<T>) -> i32 {
    const { assert!(size_of::<T>() == size_of::<i32>() && align_of::<T>() == align_of::<i32>()) };
    // SAFETY: an i32 may have any bytes, and these are initialised, as the caller promises.
    unsafe { value.as_ptr().cast::<i32>().read() }
}

/// A `bool` that C may have filled with any byte.
///
/// # Safety
/// The byte of `value` was initialised.
pub(super) unsafe fn bool_value(value: MaybeUninit<bool>) -> bool {
    // SAFETY: a u8 may have any value, and this one is initialised, as the caller promises.
    unsafe { value.as_ptr().cast::<u8>().read() != 0 }
}

/// A NUL-terminated UTF-8 string.
///
/// # Safety
/// `ptr` is NULL or a NUL-terminated string that nobody changes during `'a`.
pub(super) unsafe fn text<'a>(name: &str, ptr: *const c_char) -> Result<&'a str> {
    if ptr.is_null() {
        fail!(InvalidArg, "{name} is NULL");
    }
    // SAFETY: not NULL, hence a string, as the caller promises.
    let bytes = unsafe { CStr::from_ptr(ptr) };
    match bytes.to_str() {
        Ok(text) => Ok(text),
        Err(error) => {
            fail!(
                InvalidArg,
                "{name} is not UTF-8: its byte {} is wrong",
                error.valid_up_to()
            )
        }
    }
}

/// As [`text`], where NULL stands for the default.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn optional_text<'a>(name: &str, ptr: *const c_char) -> Result<Option<&'a str>> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { text(name, ptr) }.map(Some)
}

/// Refuses a name of a peer or an agent that is empty or too long.
pub(super) fn check_name(name: &str, value: &str) -> Result<()> {
    if value.is_empty() {
        fail!(
            InvalidArg,
            "{name} is empty, but a name has 1 to {MAX_NAME} bytes"
        );
    }
    if value.len() > MAX_NAME {
        fail!(
            InvalidArg,
            "{name} has {} bytes, but a name has 1 to {MAX_NAME}",
            value.len()
        );
    }
    Ok(())
}

/// A peer id, as argument `name`.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn id<'a>(name: &str, ptr: *const c_char) -> Result<&'a str> {
    // SAFETY: as the caller promises.
    let id = unsafe { text(name, ptr) }?;
    check_name(name, id)?;
    Ok(id)
}

/// As [`id`], under its usual name.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn peer_id<'a>(ptr: *const c_char) -> Result<&'a str> {
    // SAFETY: as the caller promises.
    unsafe { id("peer_id", ptr) }
}

/// A peer id, or every peer.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn peer_scope<'a>(ptr: *const c_char) -> Result<Option<&'a str>> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { peer_id(ptr) }.map(Some)
}

/// Refuses what no array of `count` elements at `ptr` can be. NULL is such an array when `count` is
/// 0.
fn check_array<T>(name: &str, ptr: *const T, count_name: &str, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    if ptr.is_null() {
        fail!(InvalidArg, "{name} is NULL, but {count_name} is {count}");
    }
    check_aligned(name, ptr)?;
    let fits = count
        .checked_mul(size_of::<T>())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .and_then(|bytes| ptr.addr().checked_add(bytes));
    if fits.is_none() {
        fail!(
            InvalidArg,
            "{count_name} is {count}, but no array of elements of {} bytes is so long",
            size_of::<T>()
        );
    }
    Ok(())
}

fn check_aligned<T>(name: &str, ptr: *const T) -> Result<()> {
    if !ptr.is_aligned() {
        fail!(
            InvalidArg,
            "{name} is {:#x}, which is not a multiple of {}",
            ptr.addr(),
            align_of::<T>()
        );
    }
    Ok(())
}

/// An array that C only lends: plain integers, so that any bytes are valid.
///
/// # Safety
/// `ptr` is NULL, or points to `count` initialised elements that nobody changes during `'a`.
pub(super) unsafe fn slice<'a, T: Copy>(
    name: &str,
    ptr: *const T,
    count_name: &str,
    count: usize,
) -> Result<&'a [T]> {
    check_array(name, ptr, count_name, count)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, aligned, of a possible length, and initialised as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(ptr, count) })
}

/// Where one result goes.
pub(super) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// A required result.
    ///
    /// # Safety
    /// `ptr` is NULL or misaligned, or points to writable memory for a `T`.
    pub(super) unsafe fn new(name: &str, ptr: *mut T) -> Result<Out<T>> {
        check_aligned(name, ptr)?;
        match NonNull::new(ptr) {
            Some(ptr) => Ok(Out(ptr)),
            None => fail!(InvalidArg, "{name} is NULL"),
        }
    }

    /// Stores the result. The old bytes are not looked at.
    pub(super) fn write(&self, value: T) {
        // SAFETY: writable and aligned by the promise made to `new`.
        unsafe { self.0.write(value) };
    }
}

/// Where up to `cap` results go.
pub(super) struct OutArray<T> {
    ptr: *mut T,
    cap: usize,
}

impl<T> OutArray<T> {
    /// A caller's array, which may be NULL when `cap` is 0.
    ///
    /// # Safety
    /// `ptr` is NULL or misaligned, or points to writable memory for `cap` elements.
    pub(super) unsafe fn new(
        name: &str,
        ptr: *mut T,
        cap_name: &str,
        cap: usize,
    ) -> Result<OutArray<T>> {
        check_array(name, ptr, cap_name, cap)?;
        Ok(OutArray { ptr, cap })
    }

    /// Stores element `at`.
    pub(super) fn write(&self, at: usize, value: T) {
        assert!(at < self.cap, "element {at} for an array of {}", self.cap);
        // SAFETY: below `cap`, so writable by the promise made to `new`.
        unsafe { self.ptr.add(at).write(value) };
    }
}

impl OutArray<u8> {
    /// Stores `bytes` from element `at` on, and says where that is.
    fn copy(&self, at: usize, bytes: &[u8]) -> *const u8 {
        let room = self.cap.checked_sub(at);
        assert!(
            room.is_some_and(|room| bytes.len() <= room),
            "{} bytes from {at} on in an array of {}",
            bytes.len(),
            self.cap
        );
        let place = self.ptr.wrapping_add(at);
        // SAFETY: inside the array, so writable by the promise made to `new`; `bytes` are ours, hence
        // elsewhere. Of NULL nothing is written.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        place
    }
}

/// "Fill a buffer": where bytes go whose number the caller learns even if they do not fit.
pub(super) struct Fill {
    buf: OutArray<u8>,
    len: Out<usize>,
    cap_name: &'static str,
    len_name: &'static str,
}

impl Fill {
    /// The usual (buf, cap, len).
    ///
    /// # Safety
    /// As [`Fill::named`].
    pub(super) unsafe fn new(buf: *mut c_void, cap: usize, len: *mut usize) -> Result<Fill> {
        // SAFETY: as the caller promises.
        unsafe { Fill::named(["buf", "cap", "len"], buf.cast(), cap, len) }
    }

    /// Arguments of these names.
    ///
    /// # Safety
    /// `buf` is NULL or points to `cap` writable bytes; `len` is as for [`Out::new`].
    pub(super) unsafe fn named(
        [buf_name, cap_name, len_name]: [&'static str; 3],
        buf: *mut u8,
        cap: usize,
        len: *mut usize,
    ) -> Result<Fill> {
        // SAFETY: as the caller promises.
        unsafe {
            Ok(Fill {
                len: Out::new(len_name, len)?,
                buf: OutArray::new(buf_name, buf, cap_name, cap)?,
                cap_name,
                len_name,
            })
        }
    }

    /// Refuses what does not fit, and says how much it is.
    pub(super) fn check(&self, needed: usize) -> Result<()> {
        if self.buf.cap < needed {
            self.len.write(needed);
            fail!(
                BufferTooSmall,
                "{} is {}, but {needed} bytes are needed; {} says so too",
                self.cap_name,
                self.buf.cap,
                self.len_name
            );
        }
        Ok(())
    }

    /// Stores `bytes`, and their number.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.check(bytes.len())?;
        self.len.write(bytes.len());
        self.buf.copy(0, bytes);
        Ok(())
    }
}

/// Memory that is handed out from its start on.
pub(super) struct Arena {
    buf: OutArray<u8>,
    used: usize,
}

impl Arena {
    /// A caller's memory, which may be NULL when `cap` is 0.
    ///
    /// # Safety
    /// As [`OutArray::new`].
    pub(super) unsafe fn new(
        name: &str,
        ptr: *mut u8,
        cap_name: &str,
        cap: usize,
    ) -> Result<Arena> {
        // SAFETY: as the caller promises.
        let buf = unsafe { OutArray::new(name, ptr, cap_name, cap) }?;
        Ok(Arena { buf, used: 0 })
    }

    /// Bytes that are handed out.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.buf.cap - self.used
    }

    /// Stores `bytes`, of which there are no more than are left, and says where.
    pub(super) fn push(&mut self, bytes: &[u8]) -> *const u8 {
        let place = self.buf.copy(self.used, bytes);
        self.used += bytes.len();
        place
    }
}

/// Reads the `struct_size` at the front of a struct, before anything else of it is touched.
///
/// # Safety
/// `ptr` is NULL or misaligned, or points to a struct that starts with its size.
pub(super) unsafe fn struct_size<T>(name: &str, ptr: *const T, first: usize) -> Result<usize> {
    if ptr.is_null() {
        fail!(InvalidArg, "{name} is NULL");
    }
    check_aligned(name, ptr)?;
    // SAFETY: every such struct starts with a size_t, as the caller promises.
    let size = unsafe { ptr.cast::<usize>().read() };
    if size < first {
        fail!(
            InvalidArg,
            "{name}->struct_size is {size}, but the first version has {first} bytes; \
             set it to sizeof *{name}"
        );
    }
    if size > MAX_STRUCT {
        fail!(
            InvalidArg,
            "{name}->struct_size is {size}, but no version has more than {MAX_STRUCT} bytes; \
             set it to sizeof *{name}"
        );
    }
    Ok(size)
}

/// Position of the first byte that is not 0 in what a larger struct has beyond `T`.
///
/// # Safety
/// `ptr` points to `size` readable bytes.
pub(super) unsafe fn unknown_tail<T>(ptr: *const T, size: usize) -> Option<usize> {
    (size_of::<T>()..size).find(|at| {
        // SAFETY: below `size`, so readable, as the caller promises.
        unsafe { ptr.cast::<u8>().add(*at).read() != 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    #[test]
    fn arrays_that_cannot_be_are_refused() {
        let words = [1u32, 2];
        let refuse = |ptr: *const u32, count| {
            // SAFETY: each is refused before it is read.
            let error = unsafe { slice("idxs", ptr, "count", count) }.unwrap_err();
            assert_eq!(error.status, Status::InvalidArg);
            error.message
        };
        assert_eq!(refuse(std::ptr::null(), 2), "idxs is NULL, but count is 2");
        assert!(refuse(words.as_ptr().wrapping_byte_add(1), 1).ends_with("not a multiple of 4"));
        assert!(refuse(words.as_ptr(), usize::MAX).starts_with("count is 18446744073709551615"));
        assert!(refuse(words.as_ptr(), isize::MAX as usize / 4 + 1).starts_with("count is"));
        // SAFETY: NULL without elements, and a real array.
        unsafe {
            assert!(
                slice("idxs", std::ptr::null::<u32>(), "count", 0)
                    .unwrap()
                    .is_empty()
            );
            assert_eq!(slice("idxs", words.as_ptr(), "count", 2).unwrap(), words);
        }
    }

    #[test]
    fn text_names_the_wrong_byte() {
        // SAFETY: a NUL-terminated string.
        let error = unsafe { text("s", c"ab\xffc".as_ptr()) }.unwrap_err();
        assert_eq!(error.message, "s is not UTF-8: its byte 2 is wrong");
        assert!(check_name("n", &"x".repeat(1000)).is_ok());
        assert!(check_name("n", &"x".repeat(1001)).is_err());
        assert!(check_name("n", "").is_err());
    }

    #[test]
    fn any_byte_is_a_bool_and_any_int_an_enum() {
        for byte in [0u8, 1, 2, 255] {
            let mut value = MaybeUninit::<bool>::uninit();
            // SAFETY: the one byte of it is written, then read.
            let got = unsafe {
                value.as_mut_ptr().cast::<u8>().write(byte);
                bool_value(value)
            };
            assert_eq!(got, byte != 0);
        }
        let mut value = MaybeUninit::<super::super::transport::dt_backend>::uninit();
        // SAFETY: its four bytes are written, then read.
        let got = unsafe {
            value.as_mut_ptr().cast::<i32>().write(-77);
            enum_value(value)
        };
        assert_eq!(got, -77);
    }

    #[test]
    fn an_arena_is_filled_from_its_start() {
        let mut memory = [7u8; 8];
        // SAFETY: real memory; NULL without bytes.
        let (mut arena, none) = unsafe {
            let ptr = memory.as_mut_ptr();
            (
                Arena::new("arena", ptr, "arena_cap", 5).unwrap(),
                Arena::new("arena", std::ptr::null_mut(), "arena_cap", 0).unwrap(),
            )
        };
        assert_eq!(none.left(), 0);
        let (first, second) = (arena.push(&[1, 2, 3]), arena.push(&[4, 5]));
        assert_eq!((arena.used(), arena.left()), (5, 0));
        assert_eq!(second.addr() - first.addr(), 3);
        assert_eq!(memory, [1, 2, 3, 4, 5, 7, 7, 7]);
    }

    #[test]
    #[should_panic(expected = "1 bytes from 2 on in an array of 2")]
    fn an_arena_is_never_overrun() {
        let mut memory = [0u8; 2];
        // SAFETY: real memory.
        let mut arena = unsafe { Arena::new("arena", memory.as_mut_ptr(), "cap", 2) }.unwrap();
        arena.push(&[1, 2]);
        arena.push(&[3]);
    }

    #[test]
    #[should_panic(expected = "element 2 for an array of 2")]
    fn an_array_is_never_overrun() {
        let mut words = [0u64; 2];
        // SAFETY: a real array.
        let out = unsafe { OutArray::new("buf", words.as_mut_ptr(), "cap", 2) }.unwrap();
        out.write(1, 7);
        out.write(2, 7);
    }
}
