//! The grammar that Python's `json.loads` takes, and the canonical text of what it reads.
//!
//! Nothing here recurses: open arrays and objects are a list, so a small stack is enough for any
//! text.

use super::float;
use super::members::{Members, OpenObject};
use super::strings::{is_high_surrogate, is_plain, join_surrogates, push_escaped, push_sortable};
use crate::error::{Error, Result, Status, fail};

/// How deep objects and arrays may stand in each other, the outermost object included.
///
/// Python 3.11 gives up at about this depth, depending on how deep its caller is.
pub const MAX_NESTING: usize = 992;

/// How many digits an integer may have, as in Python. Numbers with a fraction or an exponent may
/// have any number of digits.
pub const MAX_INT_DIGITS: usize = 4300;

/// What Python's `json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))` gives, for a
/// `text` that is an object.
pub(super) fn canonicalize(text: &str) -> Result<String> {
    let mut canonicalizer = Canonicalizer {
        text,
        at: 0,
        out: String::with_capacity(text.len()),
        open: Vec::new(),
        members: Members::default(),
    };
    canonicalizer.document()?;
    Ok(canonicalizer.members.arrange(canonicalizer.out))
}

struct Canonicalizer<'a> {
    text: &'a str,
    /// How far `text` was read, in bytes; always between two characters.
    at: usize,
    /// The canonical text, but with members in the order of `text`.
    out: String,
    /// Arrays and objects that are not yet closed, outermost first.
    open: Vec<Open>,
    members: Members,
}

enum Open {
    Array,
    Object(OpenObject),
}

/// What may come next, after whitespace.
#[derive(Clone, Copy)]
enum Next {
    /// The first item of an array, or its end.
    FirstItem,
    /// The first key of an object, or its end.
    FirstKey,
    /// A further key.
    Key,
    /// The value of a member, or a further item.
    Value,
    /// A comma, or the end of the innermost array or object.
    CommaOrEnd,
}

/// Where the characters of a string go, besides the canonical text.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Key,
    Value,
}

impl Canonicalizer<'_> {
    fn document(&mut self) -> Result<()> {
        if self.text.starts_with('\u{feff}') {
            fail!(
                InvalidArg,
                "config_json starts with a byte order mark (U+FEFF): remove it"
            );
        }
        self.skip_whitespace();
        if self.peek() != Some(b'{') {
            return Err(self.expected("'{', as config_json is a JSON object"));
        }
        let mut next = self.value()?;
        while !self.open.is_empty() {
            self.skip_whitespace();
            next = self.step(next)?;
        }
        self.skip_whitespace();
        if self.at < self.text.len() {
            return Err(self.expected("nothing more after the object"));
        }
        Ok(())
    }

    /// Reads one thing that `next` allows; something is open.
    fn step(&mut self, next: Next) -> Result<Next> {
        match (next, self.peek()) {
            (Next::FirstItem, Some(b']')) | (Next::FirstKey, Some(b'}')) => Ok(self.close()),
            (Next::FirstItem | Next::Value, _) => self.value(),
            (Next::FirstKey, _) => self.key("'\"' that begins a key, or '}'"),
            (Next::Key, _) => self.key("'\"' that begins a key"),
            (Next::CommaOrEnd, found) => self.comma_or_end(found),
        }
    }

    fn comma_or_end(&mut self, found: Option<u8>) -> Result<Next> {
        match (self.open.last(), found) {
            (Some(Open::Array), Some(b']')) => Ok(self.close()),
            (Some(Open::Array), Some(b',')) => {
                self.copy(1);
                Ok(Next::Value)
            }
            (Some(Open::Array), _) => Err(self.expected("',' or ']' after an item")),
            (_, Some(b'}')) => {
                self.members.end_value(self.out.len());
                Ok(self.close())
            }
            (_, Some(b',')) => {
                self.members.end_value(self.out.len());
                self.copy(1);
                Ok(Next::Key)
            }
            (_, _) => Err(self.expected("',' or '}' after a member")),
        }
    }

    /// The key of a member and the colon after it.
    fn key(&mut self, what: &str) -> Result<Next> {
        if self.peek() != Some(b'"') {
            return Err(self.expected(what));
        }
        self.members.begin(self.out.len());
        self.string(Role::Key)?;
        self.members.end_key();
        self.skip_whitespace();
        if self.peek() != Some(b':') {
            return Err(self.expected("':' after a key"));
        }
        self.copy(1);
        Ok(Next::Value)
    }

    /// A whole scalar, or the opening bracket of an array or object.
    fn value(&mut self) -> Result<Next> {
        match self.peek() {
            Some(b'{') => {
                self.check_nesting()?;
                let object = self.members.open(self.out.len());
                self.open.push(Open::Object(object));
                self.copy(1);
                return Ok(Next::FirstKey);
            }
            Some(b'[') => {
                self.check_nesting()?;
                self.copy(1);
                self.open.push(Open::Array);
                return Ok(Next::FirstItem);
            }
            Some(b'"') => self.string(Role::Value)?,
            _ => match self.literal() {
                Some(literal) => self.copy(literal.len()),
                None => self.number()?,
            },
        }
        Ok(Next::CommaOrEnd)
    }

    fn literal(&self) -> Option<&'static str> {
        let rest = &self.text[self.at..];
        ["true", "false", "null", "NaN", "Infinity", "-Infinity"]
            .into_iter()
            .find(|literal| rest.starts_with(literal))
    }

    fn check_nesting(&self) -> Result<()> {
        if self.open.len() == MAX_NESTING {
            fail!(
                InvalidArg,
                "config_json, {}: objects and arrays stand more than {MAX_NESTING} deep in each other, \
                 which is the limit",
                self.position()
            );
        }
        Ok(())
    }

    /// The innermost array or object ends with the byte that is next.
    fn close(&mut self) -> Next {
        if let Some(Open::Object(object)) = self.open.pop() {
            self.members.close(object, self.out.len());
        }
        self.copy(1);
        Next::CommaOrEnd
    }

    fn number(&mut self) -> Result<()> {
        let start = self.at;
        let negative = self.skip_if(|byte| byte == b'-');
        let first_digit = self.at;
        if !self.skip_if(|byte| byte == b'0') {
            let what = if negative {
                "a digit, or \"Infinity\", after '-'"
            } else {
                "a value"
            };
            self.digits(what)?;
        }
        let digits = self.at - first_digit;
        let mut integer = true;
        if self.skip_if(|byte| byte == b'.') {
            integer = false;
            self.digits("a digit after '.'")?;
        }
        if self.skip_if(|byte| matches!(byte, b'e' | b'E')) {
            integer = false;
            self.skip_if(|byte| matches!(byte, b'+' | b'-'));
            self.digits("a digit of an exponent")?;
        }
        let number = &self.text[start..self.at];
        if !integer {
            float::push_canonical(&mut self.out, number);
        } else if digits > MAX_INT_DIGITS {
            self.at = start;
            fail!(
                InvalidArg,
                "config_json, {}: an integer of {digits} digits, which is more than the limit of \
                 {MAX_INT_DIGITS}; write it as a string",
                self.position()
            );
        } else {
            self.out.push_str(if number == "-0" { "0" } else { number });
        }
        Ok(())
    }

    /// One digit or more; `what` was expected if there is none.
    fn digits(&mut self, what: &str) -> Result<()> {
        let rest = &self.text.as_bytes()[self.at..];
        match rest.iter().take_while(|byte| byte.is_ascii_digit()).count() {
            0 => Err(self.expected(what)),
            digits => {
                self.at += digits;
                Ok(())
            }
        }
    }

    /// A string; its opening quote is next.
    fn string(&mut self, role: Role) -> Result<()> {
        self.copy(1);
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let plain = rest.iter().take_while(|&&byte| is_plain(byte)).count();
            if role == Role::Key {
                self.members.key_bytes().extend_from_slice(&rest[..plain]);
            }
            self.copy(plain);
            let code_point = match self.text[self.at..].chars().next() {
                Some('"') => break,
                Some('\\') => self.escape()?,
                Some('\0'..='\x1f') => {
                    return Err(
                        self.expected("an escape in place of a control character in a string")
                    );
                }
                Some(other) => {
                    self.at += other.len_utf8();
                    u32::from(other)
                }
                None => return Err(self.expected("'\"' that ends a string")),
            };
            push_escaped(&mut self.out, code_point);
            if role == Role::Key {
                push_sortable(self.members.key_bytes(), code_point);
            }
        }
        self.copy(1);
        Ok(())
    }

    /// The code point of an escape, or of two that are a surrogate pair; its backslash is next.
    fn escape(&mut self) -> Result<u32> {
        self.at += 1;
        let code_point = match self.peek() {
            Some(b'u') => return self.unicode_escape(),
            Some(b'b') => 0x08,
            Some(b't') => 0x09,
            Some(b'n') => 0x0a,
            Some(b'f') => 0x0c,
            Some(b'r') => 0x0d,
            Some(byte @ (b'"' | b'\\' | b'/')) => u32::from(byte),
            _ => return Err(self.expected("one of \" \\ / b f n r t u after a backslash")),
        };
        self.at += 1;
        Ok(code_point)
    }

    fn unicode_escape(&mut self) -> Result<u32> {
        let unit = self.hex_digits()?;
        if !is_high_surrogate(unit) || !self.text[self.at..].starts_with("\\u") {
            return Ok(unit);
        }
        let second = self.at;
        self.at += 1;
        let low = self.hex_digits()?;
        Ok(join_surrogates(unit, low).unwrap_or_else(|| {
            self.at = second;
            unit
        }))
    }

    /// The four digits after the `u` that is next.
    fn hex_digits(&mut self) -> Result<u32> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.expected("four hexadecimal digits after \\u"));
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn skip_whitespace(&mut self) {
        while self.skip_if(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {}
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over the next byte, which is ASCII, if it is `wanted`.
    fn skip_if(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        let found = self.peek().is_some_and(wanted);
        self.at += usize::from(found);
        found
    }

    /// Passes over `len` bytes that stand for themselves in the canonical text.
    fn copy(&mut self, len: usize) {
        self.out.push_str(&self.text[self.at..self.at + len]);
        self.at += len;
    }

    fn expected(&self, what: &str) -> Error {
        let found = match self.text[self.at..].chars().next() {
            Some(found) => format!("{found:?}"),
            None => "the end of the text".to_owned(),
        };
        let position = self.position();
        Error::new(
            Status::InvalidArg,
            format!("config_json, {position}: expected {what}, found {found}"),
        )
    }

    /// The place in `text`, counted as Python's own messages count it.
    fn position(&self) -> String {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[line_start..].chars().count() + 1;
        format!("line {line}, column {column}")
    }
}
