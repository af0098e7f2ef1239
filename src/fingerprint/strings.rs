//! Code points as Python writes them, and as bytes that sort as Python sorts them.
//!
//! A code point is a `u32` here and not a `char`: JSON escapes can spell a lone surrogate, which
//! Python keeps and a `char` cannot be.

use std::fmt::Write;

/// Whether `byte` stands for itself in the canonical text.
pub(super) fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Appends `code_point` as it stands between quotes in the canonical text.
pub(super) fn push_escaped(out: &mut String, code_point: u32) {
    let short = match code_point {
        0x08 => "\\b",
        0x09 => "\\t",
        0x0a => "\\n",
        0x0c => "\\f",
        0x0d => "\\r",
        0x22 => "\\\"",
        0x5c => "\\\\",
        0x20..=0x7e => return out.extend(char::from_u32(code_point)),
        0x1_0000.. => {
            let offset = code_point - 0x1_0000;
            push_unit(out, 0xd800 + (offset >> 10));
            return push_unit(out, 0xdc00 + (offset & 0x3ff));
        }
        _ => return push_unit(out, code_point),
    };
    out.push_str(short);
}

fn push_unit(out: &mut String, unit: u32) {
    write!(out, "\\u{unit:04x}").expect("writing to a String does not fail");
}

/// Appends `code_point` in UTF-8, extended to surrogates by the same rule as for their neighbours.
///
/// The order of such bytes is the order of the code points, lone surrogates included.
pub(super) fn push_sortable(key: &mut Vec<u8>, code_point: u32) {
    match char::from_u32(code_point) {
        Some(c) => key.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None => {
            let six_bits = |shift: u32| 0x80 | (code_point >> shift & 0x3f) as u8;
            key.extend_from_slice(&[0xe0 | (code_point >> 12) as u8, six_bits(6), six_bits(0)]);
        }
    }
}

/// The code point of an escaped pair, if `high` and `low` are one.
pub(super) fn join_surrogates(high: u32, low: u32) -> Option<u32> {
    let is_pair = is_high_surrogate(high) && matches!(low, 0xdc00..=0xdfff);
    is_pair.then(|| 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
}

/// Whether `unit` can be the first half of a pair.
pub(super) fn is_high_surrogate(unit: u32) -> bool {
    matches!(unit, 0xd800..=0xdbff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(code_point: u32) -> String {
        let mut out = String::new();
        push_escaped(&mut out, code_point);
        out
    }

    #[test]
    fn escapes_are_pythons() {
        assert_eq!(escaped(0x41), "A");
        assert_eq!(escaped(0x2f), "/");
        assert_eq!(escaped(0x7e), "~");
        assert_eq!(escaped(0x7f), "\\u007f");
        assert_eq!(escaped(0x00), "\\u0000");
        assert_eq!(escaped(0x1f), "\\u001f");
        assert_eq!(escaped(0xe9), "\\u00e9");
        assert_eq!(escaped(0xffff), "\\uffff");
        assert_eq!(escaped(0x1_0000), "\\ud800\\udc00");
        assert_eq!(escaped(0x10_ffff), "\\udbff\\udfff");
    }

    #[test]
    fn bytes_sort_as_code_points_do() {
        let edges = [
            0, 0x1f, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xd800, 0xdbff, 0xdc00, 0xdfff, 0xe000,
            0xfeff, 0xffff, 0x1_0000, 0x10_ffff,
        ];
        let bytes = edges.map(|code_point| {
            let mut key = Vec::new();
            push_sortable(&mut key, code_point);
            key
        });
        assert!(bytes.is_sorted_by(|a, b| a < b), "{bytes:x?}");
    }

    #[test]
    fn only_high_then_low_is_a_pair() {
        assert_eq!(join_surrogates(0xd83d, 0xde00), Some(0x1_f600));
        assert_eq!(join_surrogates(0xde00, 0xd83d), None);
        assert_eq!(join_surrogates(0xd83d, 0xd83d), None);
        assert_eq!(join_surrogates(0xd83d, 0x41), None);
    }
}
