//! Golden vectors, limits, and comparison with Python.

mod generate;
mod limits;
mod python;

use proptest::prelude::*;
use serde::Deserialize;

use super::canonical::canonicalize;
use super::{compatible, compute};
use crate::error::Status;
use generate::Generator;

/// One entry of `tests/data/fingerprint_golden.json`; refused where there is no fingerprint.
#[derive(Deserialize)]
struct Golden {
    text: String,
    #[serde(default)]
    canonical: Option<String>,
    #[serde(default)]
    fingerprint: Option<String>,
}

fn golden() -> Vec<Golden> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/fingerprint_golden.json"
    );
    let text = std::fs::read_to_string(path).expect(path);
    serde_json::from_str(&text).expect(path)
}

fn refusal(text: &str) -> String {
    let error = compute(Some(text)).expect_err(text);
    assert_eq!(error.status, Status::InvalidArg, "{text}");
    error.message
}

#[test]
fn golden_vectors_hold() {
    let golden = golden();
    assert!(golden.len() > 50);
    for entry in golden {
        assert_eq!(
            canonicalize(&entry.text).ok(),
            entry.canonical,
            "{}",
            entry.text
        );
        assert_eq!(
            compute(Some(&entry.text)).ok(),
            entry.fingerprint,
            "{}",
            entry.text
        );
        if entry.fingerprint.is_none() {
            refusal(&entry.text);
        }
    }
}

#[test]
fn no_configuration_has_no_fingerprint() {
    assert_eq!(compute(None).unwrap(), "");
    assert_eq!(compute(Some("{}")).unwrap(), "");
    assert_eq!(compute(Some(" \t\r\n{ \n} ")).unwrap(), "");
}

#[test]
fn only_two_different_statements_conflict() {
    let (a, b) = ("b38181f3b0d6952d", "0123456789abcdef");
    assert!(compatible(a, a));
    assert!(compatible(a, ""));
    assert!(compatible("", b));
    assert!(compatible("", ""));
    assert!(!compatible(a, b));
}

#[test]
fn a_refusal_names_place_and_remedy() {
    for (text, message) in [
        (
            "",
            "line 1, column 1: expected '{', as config_json is a JSON object, found the end of the text",
        ),
        (
            "[1]",
            "line 1, column 1: expected '{', as config_json is a JSON object, found '['",
        ),
        (
            "\n {'a': 1}",
            "line 2, column 3: expected '\"' that begins a key, or '}', found '\\''",
        ),
        (
            "{\"é\" 1}",
            "line 1, column 6: expected ':' after a key, found '1'",
        ),
        (
            "{\"a\": 1,}",
            "line 1, column 9: expected '\"' that begins a key, found '}'",
        ),
        (
            "{\"a\": [1,]}",
            "line 1, column 10: expected a value, found ']'",
        ),
        (
            "{\"a\": [1 2]}",
            "line 1, column 10: expected ',' or ']' after an item, found '2'",
        ),
        (
            "{\"a\": 01}",
            "line 1, column 8: expected ',' or '}' after a member, found '1'",
        ),
        (
            "{\"a\": 1.}",
            "line 1, column 9: expected a digit after '.', found '}'",
        ),
        (
            "{\"a\": -}",
            "line 1, column 8: expected a digit, or \"Infinity\", after '-', found '}'",
        ),
        (
            "{\"a\": 1e+}",
            "line 1, column 10: expected a digit of an exponent, found '}'",
        ),
        (
            "{\"a\": \"\\x\"}",
            "line 1, column 9: expected one of \" \\ / b f n r t u after a backslash, found 'x'",
        ),
        (
            "{\"a\": \"\\u12é4\"}",
            "line 1, column 12: expected four hexadecimal digits after \\u, found 'é'",
        ),
        (
            "{\"a\": \"\n\"}",
            "line 1, column 8: expected an escape in place of a control character in a string, found '\\n'",
        ),
        (
            "{\"a\": \"b",
            "line 1, column 9: expected '\"' that ends a string, found the end of the text",
        ),
        (
            "{}\n\n{}",
            "line 3, column 1: expected nothing more after the object, found '{'",
        ),
    ] {
        assert_eq!(refusal(text), format!("config_json, {message}"), "{text}");
    }
    assert_eq!(
        refusal("\u{feff}{}"),
        "config_json starts with a byte order mark (U+FEFF): remove it"
    );
}

proptest! {
    #[test]
    fn canonical_text_is_its_own_canonical_text(seed in any::<u64>()) {
        let canonical = canonicalize(&Generator::new(seed).valid()).expect("valid");
        prop_assert_eq!(canonicalize(&canonical), Ok(canonical));
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = compute(Some(&text));
        let _ = compute(Some(&format!("{{\"{text}\":{text}")));
        let _ = compute(Some(&format!("{{{text}}}")));
    }

    #[test]
    fn arbitrary_json_like_text_never_panics(text in "[{}\\[\\]:,\"\\\\u0-9a-fEe.+ -]{0,60}") {
        let _ = compute(Some(&text));
        let _ = compute(Some(&format!("{{\"a\":{text}}}")));
    }
}
