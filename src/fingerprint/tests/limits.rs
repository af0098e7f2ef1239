//! Hostile texts: depth, width and length, on a small stack.
//!
//! The sizes are such that nobody would wait for quadratic work to end.

use std::thread;

use super::super::canonical::{MAX_INT_DIGITS, MAX_NESTING, canonicalize};
use super::refusal;

const SMALL_STACK: usize = 128 * 1024;
const LARGE: usize = 10 << 20;

fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(SMALL_STACK).spawn(test);
    thread
        .expect("a thread starts")
        .join()
        .expect("the test passes on a small stack");
}

/// An object in which `levels` objects and arrays stand in each other, itself included.
fn nested(levels: usize, open: &str, close: &str) -> String {
    format!(
        "{{\"a\":{}0{}}}",
        open.repeat(levels - 1),
        close.repeat(levels - 1)
    )
}

#[test]
fn nesting_works_up_to_the_limit_and_not_beyond() {
    on_small_stack(|| {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deepest = nested(MAX_NESTING, open, close);
            assert_eq!(canonicalize(&deepest).unwrap(), deepest);
            let message = refusal(&nested(MAX_NESTING + 1, open, close));
            assert!(message.contains("more than 992 deep"), "{message}");
        }
    });
}

#[test]
fn endless_nesting_is_refused() {
    on_small_stack(|| {
        for open in ["[", "{\"a\":", "[{\"a\":"] {
            refusal(&format!("{{\"a\":{}", open.repeat(LARGE / open.len())));
        }
        refusal(&"[".repeat(LARGE));
    });
}

#[test]
fn disorder_at_every_level_is_brought_in_order() {
    on_small_stack(|| {
        let payload = "x".repeat(LARGE);
        let levels = MAX_NESTING - 1;
        let text = format!(
            "{{\"b\":{}\"{payload}\"{}}}",
            "{\"b\":".repeat(levels),
            ",\"a\":0}".repeat(levels)
        );
        let expected = format!(
            "{{\"b\":{}\"{payload}\"{}}}",
            "{\"a\":0,\"b\":".repeat(levels),
            "}".repeat(levels)
        );
        assert!(canonicalize(&text).unwrap() == expected);
    });
}

#[test]
fn many_equal_keys_leave_the_last_value() {
    on_small_stack(|| {
        let count = LARGE / 16;
        let members: Vec<String> = (0..count).map(|i| format!("\"k{}\":{i}", i % 2)).collect();
        let expected = format!("{{\"k0\":{},\"k1\":{}}}", count - 2, count - 1);
        assert_eq!(
            canonicalize(&format!("{{{}}}", members.join(","))).unwrap(),
            expected
        );
    });
}

#[test]
fn many_long_keys_in_reverse_order_are_sorted() {
    on_small_stack(|| {
        let prefix = "p".repeat(200);
        let members: Vec<String> = (0..LARGE / 256)
            .map(|i| format!("\"{prefix}{i:08}\":{{}}"))
            .collect();
        let reversed: Vec<&str> = members.iter().rev().map(String::as_str).collect();
        let text = format!("{{{}}}", reversed.join(","));
        assert!(canonicalize(&text).unwrap() == format!("{{{}}}", members.join(",")));
    });
}

#[test]
fn many_disordered_objects_side_by_side_are_sorted() {
    on_small_stack(|| {
        let count = LARGE / 16;
        let text = format!("{{\"a\":[{}0]}}", "{\"b\":1,\"a\":2},".repeat(count));
        let expected = format!("{{\"a\":[{}0]}}", "{\"a\":2,\"b\":1},".repeat(count));
        assert!(canonicalize(&text).unwrap() == expected);
    });
}

#[test]
fn long_scalars_are_read_in_one_pass() {
    on_small_stack(|| {
        let digits = "9".repeat(LARGE);
        assert_eq!(
            refusal(&format!("{{\"a\": {digits}}}")),
            format!(
                "config_json, line 1, column 7: an integer of {LARGE} digits, which is more than the \
                 limit of {MAX_INT_DIGITS}; write it as a string"
            )
        );
        let float = format!("{{\"a\":0.{digits}}}");
        assert_eq!(canonicalize(&float).unwrap(), "{\"a\":1.0}");
        let escapes = "\\u00e9".repeat(LARGE / 6);
        let string = format!("{{\"{escapes}\":\"{escapes}\"}}");
        assert!(canonicalize(&string).unwrap() == string);
        refusal(&format!("{{\"a\":\"{}", "\\\\".repeat(LARGE / 2)));
    });
}
