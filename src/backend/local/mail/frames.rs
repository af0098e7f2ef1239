//! What the ring of a lane holds: frames, one after the other, and positions that only grow. Pure.
//!
//! A frame is a 32-bit little-endian word, kind in the top 8 bits and length in the others, and so
//! many bytes. A sender begins with its name; the messages after it are its own.

use crate::backend::{MAX_MESSAGE, MAX_NAME};

/// Bytes of a ring.
pub(super) const RING: u64 = 1 << 20;
/// Bytes in front of a frame's own.
pub(super) const HEAD: usize = 4;
/// The longest frame.
pub(super) const LONGEST: u64 = (HEAD + MAX_MESSAGE) as u64;

/// What the position of the reader becomes when it gives a lane up, and can never be otherwise.
pub(super) const GIVEN_UP: u64 = u64::MAX / 2;

const LENGTH_BITS: u32 = 24;
const NAME: u32 = 1;
const MESSAGE: u32 = 2;

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame<'a> {
    /// The name of who writes from here on.
    Name(&'a str),
    /// A message.
    Message(&'a [u8]),
}

/// A ring holds what no sender of this library writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damaged;

/// What was found, if it makes sense.
pub(super) type Checked<T> = Result<T, Damaged>;

/// Bytes that were written and not yet read.
pub(super) fn waiting(tail: u64, head: u64) -> Checked<u64> {
    match tail.wrapping_sub(head) {
        bytes @ 0..=RING => Ok(bytes),
        _ => Err(Damaged),
    }
}

/// Where the `bytes` bytes from a position on are: offset in the ring, and length. The second stretch
/// is not empty when they run over the ring's end.
pub(super) fn stretches(position: u64, bytes: usize) -> [(u64, usize); 2] {
    let start = position % RING;
    let first = bytes.min((RING - start) as usize);
    [(start, first), (0, bytes - first)]
}

/// Appends a frame to `bytes`.
pub(super) fn append(bytes: &mut Vec<u8>, frame: Frame) {
    let (kind, body) = match frame {
        Frame::Name(name) => (NAME, name.as_bytes()),
        Frame::Message(message) => (MESSAGE, message),
    };
    let word = kind << LENGTH_BITS | body.len() as u32;
    bytes.extend_from_slice(&word.to_le_bytes());
    bytes.extend_from_slice(body);
}

/// Takes the first frame off `bytes`; `None` when it goes on behind them.
pub(super) fn take<'a>(bytes: &mut &'a [u8]) -> Checked<Option<Frame<'a>>> {
    let Some((word, rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let word = u32::from_le_bytes(*word);
    let (kind, len) = (
        word >> LENGTH_BITS,
        (word & ((1 << LENGTH_BITS) - 1)) as usize,
    );
    let fits = match kind {
        NAME => (1..=MAX_NAME).contains(&len),
        MESSAGE => (1..=MAX_MESSAGE).contains(&len),
        _ => false,
    };
    if !fits {
        return Err(Damaged);
    }
    let Some((body, rest)) = rest.split_at_checked(len) else {
        return Ok(None);
    };
    *bytes = rest;
    if kind == MESSAGE {
        return Ok(Some(Frame::Message(body)));
    }
    match std::str::from_utf8(body) {
        // C programs would see another name.
        Ok(name) if !name.contains('\0') => Ok(Some(Frame::Name(name))),
        _ => Err(Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(frame: Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(&mut bytes, frame);
        bytes
    }

    #[test]
    fn frames_come_back_as_they_were() {
        let long = vec![0xff; MAX_MESSAGE];
        let name = "n".repeat(1000);
        let frames = [
            Frame::Name(&name),
            Frame::Message(b"\0"),
            Frame::Message(&long),
            Frame::Name("m"),
            Frame::Message(b"\xff\xfe"),
        ];
        let mut bytes = Vec::new();
        for frame in frames {
            append(&mut bytes, frame);
        }
        let mut rest = &bytes[..];
        for frame in frames {
            assert_eq!(take(&mut rest), Ok(Some(frame)));
        }
        assert_eq!((take(&mut rest), rest.len()), (Ok(None), 0));
    }

    #[test]
    fn what_is_cut_short_is_waited_for() {
        let bytes = framed(Frame::Message(b"message"));
        for len in 0..bytes.len() {
            let mut rest = &bytes[..len];
            assert_eq!(take(&mut rest), Ok(None), "{len}");
            assert_eq!(rest.len(), len);
        }
    }

    #[test]
    fn what_no_sender_writes_is_damage() {
        let word = |kind: u32, len: usize| (kind << LENGTH_BITS | len as u32).to_le_bytes();
        for bytes in [
            word(0, 0),
            word(0, 5),
            word(3, 5),
            word(255, 1),
            word(MESSAGE, 0),
            word(MESSAGE, MAX_MESSAGE + 1),
            word(MESSAGE, (1 << LENGTH_BITS) - 1),
            word(NAME, 1001),
        ] {
            assert_eq!(take(&mut &bytes[..]), Err(Damaged), "{bytes:x?}");
        }
        for name in ["a\0b", "\0"] {
            assert_eq!(take(&mut &framed(Frame::Name(name))[..]), Err(Damaged));
        }
        let mut latin = framed(Frame::Name("ab"));
        *latin.last_mut().unwrap() = 0xe9;
        assert_eq!(take(&mut &latin[..]), Err(Damaged));
    }

    #[test]
    fn positions_that_cannot_be_are_damage() {
        assert_eq!(waiting(7, 7), Ok(0));
        assert_eq!(waiting(RING, 0), Ok(RING));
        assert_eq!(waiting(RING + 1, 0), Err(Damaged));
        assert_eq!(waiting(6, 7), Err(Damaged));
        assert_eq!(waiting(5, u64::MAX), Ok(6));
        assert_eq!(waiting(u64::MAX, 0), Err(Damaged));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_wait_or_are_damage(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            kind in 0..4u8,
            len in 0..120u8,
        ) {
            let _ = take(&mut &bytes[..]);
            let mut framed = vec![len, 0, 0, kind];
            framed.extend(&bytes);
            let mut rest = &framed[..];
            if let Ok(Some(frame)) = take(&mut rest) {
                let mut again = Vec::new();
                append(&mut again, frame);
                prop_assert_eq!([&again[..], rest].concat(), framed);
            }
        }

        #[test]
        fn stretches_cover_the_ring_once(position: u64, bytes in 0..=RING as usize) {
            let [(at, first), (then, second)] = stretches(position, bytes);
            prop_assert_eq!(first + second, bytes);
            prop_assert_eq!((at, then), (position % RING, 0));
            prop_assert!(at + first as u64 <= RING && second as u64 <= at);
        }
    }
}
