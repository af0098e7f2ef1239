//! The sentence about the last failure of a thread.

use std::cell::Cell;
use std::ffi::c_char;

/// Room for one sentence of a failure, its NUL included.
const LINE: usize = 512;
pub(super) type Line = [u8; LINE];

/// No sentence.
pub(super) const EMPTY: Line = [0; LINE];

// Plain bytes have no destructor, so this can be used until a thread has really ended, also by
// destructors of the caller's own thread-local data.
thread_local! {
    static LAST_ERROR: Cell<Line> = const { Cell::new(EMPTY) };
}

/// What went wrong in the last call that failed on the calling thread: one line of UTF-8, shorter
/// than 512 bytes, that names the argument, the value and the limit, and where there is one, the
/// remedy. The text is for people; programs decide by status.
///
/// A call that succeeds leaves it as it was. Each thread has its own.
///
/// @return never NULL; "" if nothing has failed on this thread yet. The memory is the library's and
///         is rewritten by the next call that fails on this thread; it goes away with the thread.
#[unsafe(no_mangle)]
pub extern "C" fn dt_last_error() -> *const c_char {
    LAST_ERROR.with(|line| line.as_ptr().cast_const().cast())
}

/// Something has failed on this thread.
pub(super) fn set(message: &str) {
    LAST_ERROR.set(line(message));
}

/// `message` as one NUL-terminated line, cut between characters where it is too long.
pub(super) fn line(message: &str) -> Line {
    let mut line = [0; LINE];
    let mut end = 0;
    for c in message.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if end + c.len_utf8() >= LINE {
            break;
        }
        end += c.encode_utf8(&mut line[end..]).len();
    }
    line
}

pub(super) fn text(line: &Line) -> &str {
    let end = line.iter().position(|byte| *byte == 0).unwrap_or(LINE);
    std::str::from_utf8(&line[..end]).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_one_line_of_whole_characters() {
        assert_eq!(text(&line("a\nb\0c\td")), "a b c d");
        assert_eq!(text(&line(&"x".repeat(600))).len(), LINE - 1);
        // 511 is not a multiple of 3, so the last character does not fit as a whole.
        let cut = line(&"\u{20ac}".repeat(300));
        assert_eq!(text(&cut), "\u{20ac}".repeat(170));
        assert_eq!(text(&line("")), "");
    }
}
