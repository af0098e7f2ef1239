//! Configurations of any bytes. What Python makes of them is asked in the tests; here it is what any
//! reader of JSON would say of the text, the canonical text, and other spellings of the same.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::canonical::canonicalize;
use super::compute;
use crate::error::Status;
use crate::fuzz::meter::measured;
use crate::fuzz::{Input, SENTENCE};

/// How deep texts are spelt anew, which recurses.
const RESPELT_NESTING: usize = 200;
/// More bytes than the members of an object take, for each byte of it. `"":0,` is the shortest one.
const BYTES_EACH: usize = 40;

/// Text that claims to be a configuration. What stands behind a NUL says how it is spelt anew.
pub fn fingerprint(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let text = parts.next().unwrap_or_default();
    let spelling = parts.next().unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let (result, peak) = measured(|| canonicalize(text));
    assert!(peak <= BYTES_EACH * text.len() + SENTENCE, "{peak} bytes");
    let read = serde_json::from_str::<Json>(text);
    let digits = compute(Some(text));
    let canonical = match result {
        Ok(canonical) => canonical,
        Err(error) => {
            assert_eq!(error.status, Status::InvalidArg, "{error}");
            assert_eq!(digits.err(), Some(error));
            // Whatever else reads objects reads fewer of them.
            return assert!(!matches!(read, Ok(Json::Object(_))), "{read:?}");
        }
    };
    check_text(&canonical);
    assert_eq!(canonicalize(&canonical).as_ref(), Ok(&canonical));
    let digits = digits.expect("it has a canonical text");
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match canonical == "{}" {
        true => assert_eq!(digits, ""),
        false => assert!(digits.len() == 16 && digits.bytes().all(is_digit)),
    }
    match read {
        Ok(read) => {
            let again = serde_json::from_str::<Json>(&canonical);
            // It may find the largest doubles too large.
            let again = again.or_else(|error| match canonical.contains("e+308") {
                true => Ok(read.clone().sorted()),
                false => Err(error),
            });
            assert!(read.sorted().is_near(&again.expect("it read the original")));
        }
        Err(error) => assert!(only_python_reads(text, &error), "{error}: {text}"),
    }
    if nesting(&canonical) > RESPELT_NESTING {
        return;
    }
    let spelt = Respelling::of(&canonical, spelling);
    assert_eq!(canonicalize(&spelt).as_ref(), Ok(&canonical), "{spelt:?}");
    assert_eq!(compute(Some(&spelt)), Ok(digits));
}

/// What is true of every canonical text without reading it.
fn check_text(canonical: &str) {
    assert!(canonical.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    let (mut in_string, mut escaped) = (false, false);
    for byte in canonical.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            _ => assert!(in_string || byte != b' ', "white space outside of strings"),
        }
    }
    assert!(!in_string && !escaped);
}

/// Numbers that are none, or too large, halves of surrogate pairs, and depth are Python's alone.
fn only_python_reads(text: &str, error: &serde_json::Error) -> bool {
    let reason = error.to_string();
    ["out of range", "surrogate", "hex escape", "recursion limit"]
        .iter()
        .any(|known| reason.contains(known))
        || ["NaN", "Infinity"].iter().any(|known| text.contains(known))
}

fn nesting(canonical: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for token in Tokens(canonical) {
        match token {
            "{" | "[" => depth += 1,
            "}" | "]" => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// A canonical text in pieces: strings with their quotes, scalars, and single characters.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.0.as_bytes();
        let len = match bytes.first()? {
            b'"' => {
                let mut end = 1;
                while bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                end + 1
            }
            b'{' | b'}' | b'[' | b']' | b':' | b',' => 1,
            _ => {
                let ends = |byte: &u8| b",]}".contains(byte);
                bytes.iter().position(ends).unwrap_or(bytes.len())
            }
        };
        let (token, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(token)
    }
}

/// The same configuration in other words: members in another order and repeated, white space, escapes.
struct Respelling<'a> {
    tokens: std::iter::Peekable<Tokens<'a>>,
    choices: Input<'a>,
}

impl<'a> Respelling<'a> {
    fn of(canonical: &'a str, choices: &'a [u8]) -> String {
        let mut respelling = Respelling {
            tokens: Tokens(canonical).peekable(),
            choices: Input::new(choices),
        };
        let mut out = String::new();
        respelling.value(&mut out);
        out
    }

    fn token(&mut self) -> &'a str {
        self.tokens.next().expect("canonical text is whole")
    }

    fn space(&mut self, out: &mut String) {
        let all = ["", " ", "\n", "\t", "\r\n ", ""];
        out.push_str(all[self.choices.below(all.len())]);
    }

    fn value(&mut self, out: &mut String) {
        self.space(out);
        match self.token() {
            "{" => {
                let members = self.list("}", Respelling::member);
                self.braced(out, "{", members, "}");
            }
            "[" => {
                let items = self.list("]", |respelling| {
                    let mut item = String::new();
                    respelling.value(&mut item);
                    item
                });
                self.braced(out, "[", items, "]");
            }
            scalar => self.scalar(out, scalar),
        }
        self.space(out);
    }

    fn list(&mut self, end: &str, mut one: impl FnMut(&mut Self) -> String) -> Vec<String> {
        let mut list = Vec::new();
        loop {
            match self.tokens.peek().copied() {
                Some(token) if token == end => break,
                Some(",") => {
                    self.token();
                }
                _ => list.push(one(self)),
            }
        }
        self.token();
        if end == "}" {
            self.disorder(&mut list);
        }
        list
    }

    fn member(&mut self) -> String {
        let mut member = String::new();
        self.space(&mut member);
        let key = self.token();
        self.scalar(&mut member, key);
        self.space(&mut member);
        member.push_str(self.token());
        self.value(&mut member);
        if self.choices.one_in(8) {
            // An earlier value of the same key does not count.
            return format!("{key}:[{{\"\":0}}],{member}");
        }
        member
    }

    fn disorder(&mut self, members: &mut [String]) {
        if members.is_empty() {
            return;
        }
        match self.choices.below(3) {
            0 => {}
            1 => members.reverse(),
            _ => {
                let by = self.choices.below(256) % members.len();
                members.rotate_left(by);
            }
        }
    }

    fn braced(&mut self, out: &mut String, open: &str, list: Vec<String>, close: &str) {
        out.push_str(open);
        self.space(out);
        out.push_str(&list.join(","));
        out.push_str(close);
    }

    fn scalar(&mut self, out: &mut String, token: &str) {
        if !token.starts_with('"') {
            return self.number(out, token);
        }
        let mut rest = token;
        while let Some(first) = rest.chars().next() {
            let len = match first {
                '\\' if rest[1..].starts_with('u') => 6,
                '\\' => 2,
                _ => 1,
            };
            let (piece, after) = rest.split_at(len);
            let quote = piece.len() == 1 && first == '"';
            match piece.len() {
                1 if !quote && self.choices.one_in(4) => {
                    out.push_str(&format!("\\u{:04X}", u32::from(first)));
                }
                6 if self.choices.one_in(4) => {
                    out.push_str("\\u");
                    out.push_str(&piece[2..].to_uppercase());
                }
                _ => out.push_str(piece),
            }
            rest = after;
        }
    }

    /// More zeros behind the point, a larger exponent sign: the same double.
    fn number(&mut self, out: &mut String, token: &str) {
        let digits = token
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        out.push_str(token);
        if digits && token.contains('.') && self.choices.one_in(3) {
            out.push_str(["0", "000", "e0", "E+00"][self.choices.below(4)]);
        }
    }
}

/// JSON as serde_json reads it, members as they stand.
#[derive(Clone, PartialEq, Debug)]
enum Json {
    Scalar(&'static str),
    Whole(i128),
    Float(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// With members in order; the last of those with the same key counts.
    fn sorted(self) -> Json {
        match self {
            Json::Array(items) => Json::Array(items.into_iter().map(Json::sorted).collect()),
            Json::Object(members) => {
                let mut map = std::collections::BTreeMap::new();
                map.extend(members);
                let sorted = map.into_iter().map(|(key, value)| (key, value.sorted()));
                Json::Object(sorted.collect())
            }
            scalar => scalar,
        }
    }

    /// The same, but for the last bits of numbers: serde_json does not always find the nearest double.
    fn is_near(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Array(one), Json::Array(two)) => {
                one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.is_near(two))
            }
            (Json::Object(one), Json::Object(two)) => {
                let same = |((key, value), (key2, value2)): (&(_, Json), &(String, Json))| {
                    let key: &String = key;
                    key == key2 && value.is_near(value2)
                };
                one.len() == two.len() && one.iter().zip(two).all(same)
            }
            (Json::Float(one), Json::Float(two)) => one.to_bits().abs_diff(two.to_bits()) <= 8,
            // Python has no -0 among its integers.
            (Json::Float(one), Json::Whole(0)) => *one == 0.0 && one.is_sign_negative(),
            (one, two) => one == two,
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(AnyJson)
    }
}

struct AnyJson;

impl<'de> Visitor<'de> for AnyJson {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Scalar(if value { "true" } else { "false" }))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Scalar("null"))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Whole(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Whole(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(member) = members.next_entry()? {
            list.push(member);
        }
        Ok(Json::Object(list))
    }
}
