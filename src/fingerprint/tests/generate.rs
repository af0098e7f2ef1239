//! Texts for the comparison with Python: valid ones full of edges, and damaged ones.

/// A small deterministic generator (splitmix64), so that one seed is one series of texts.
pub(super) struct Generator {
    state: u64,
}

/// Keys that are equal, close, or far apart in one order and not in another.
const KEYS: &[&str] = &[
    "",
    "a",
    "\\u0061",
    "A",
    "aa",
    "a b",
    "\\u0000",
    "\\n",
    "\\t\\b\\f\\r",
    "/",
    "\\/",
    "\\\\",
    "\\\"",
    "~",
    "\u{7f}",
    "\\u007F",
    "\u{80}",
    "é",
    "\\u00e9",
    "\\u00E9",
    "e\u{301}",
    "\u{7ff}",
    "\u{800}",
    "\u{d7ff}",
    "\\ud7ff",
    "\\ud800",
    "\\uDBFF",
    "\\udc00",
    "\\udfff",
    "\\udc00\\ud800",
    "\\ud800a",
    "\\ud800\\ud800\\udc00",
    "\\ud800\\udc00",
    "\u{10000}",
    "\u{e000}",
    "\u{feff}",
    "\u{ffff}",
    "\\uffff",
    "😀",
    "\\ud83d\\ude00",
    "\\uD83D\\uDE00",
    "\\ud83d",
    "\u{10ffff}",
    "\u{2028}",
    "\\u2028",
];

/// Numbers and literals with something particular about them.
const SCALARS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "10",
    "18446744073709551616",
    "-9223372036854775809",
    "0.0",
    "-0.0",
    "0e5",
    "-0e-5",
    "0E+00",
    "1.0",
    "1.50",
    "1e0",
    "1e2",
    "1E2",
    "1e+2",
    "1e-2",
    "1e02",
    "0.1",
    "0.0001",
    "0.00001",
    "0.00012345",
    "1e-4",
    "9.999e-5",
    "1e15",
    "1e16",
    "1e17",
    "123456789012345678.0",
    "9999999999999998.0",
    "9999999999999999.0",
    "1e22",
    "1e23",
    "9007199254740993.0",
    "5e-324",
    "2.4703282292062327e-324",
    "2.4703282292062328e-324",
    "2.2250738585072011e-308",
    "2.2250738585072014e-308",
    "1.7976931348623157e308",
    "1.7976931348623158e308",
    "1.7976931348623159e308",
    "1e308",
    "1e309",
    "1E400",
    "-1e400",
    "1e-400",
    "-1e-400",
    "1e99999999999999999999",
    "1e-99999999999999999999",
    "0e99999999999999999999",
    "5.684341886080801486968994140625e-14",
    "769164797813662.25",
    "NaN",
    "Infinity",
    "-Infinity",
    "true",
    "false",
    "null",
    "{}",
    "[]",
    "\"\"",
    "[ ]",
    "{ }",
];

/// What a damaged text gets, besides its own characters.
const NOISE: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "'",
    "\\",
    "\\u",
    "\\ud83d",
    "\\uD83D\\u",
    "\\x41",
    "\\U0041",
    "\\u00g0",
    "0",
    "00",
    "01",
    "-",
    "+1",
    ".",
    ".5",
    "1.",
    "1.e5",
    "1e",
    "1e+",
    "e",
    "E5",
    "--1",
    "0x1f",
    "1_000",
    "NaN",
    "-NaN",
    "+Infinity",
    "Infinit",
    "nan",
    "inf",
    "True",
    "None",
    "nul",
    "undefined",
    "//",
    "/* */",
    "#",
    " ",
    "\t",
    "\n",
    "\r",
    "\u{b}",
    "\u{c}",
    "\u{a0}",
    "\u{85}",
    "\u{2003}",
    "\u{feff}",
    "\0",
    "\u{1f}",
    "\u{7f}",
    "é",
    "٣",
    "１",
    "😀",
    "\u{ffff}",
];

const SPACES: &[&str] = &[" ", "\n", "\t", "\r", "\r\n", "  ", " \t\n\r "];

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Generator { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A text that is an object to Python.
    pub(super) fn valid(&mut self) -> String {
        let mut out = String::new();
        self.space(&mut out);
        self.object(&mut out, 5);
        self.space(&mut out);
        out
    }

    /// A text that was valid before something happened to it, and seldom still is.
    pub(super) fn damaged(&mut self) -> String {
        let mut text: Vec<char> = self.valid().chars().collect();
        for _ in 0..=self.below(3) {
            let at = self.below(text.len() + 1);
            let end = (at + self.below(4)).min(text.len());
            match self.below(6) {
                0 => text.truncate(at),
                1 => drop(text.drain(at..end)),
                2 => {
                    let again = text[at..end].to_vec();
                    text.splice(at..at, again);
                }
                3 => text[at..end].reverse(),
                4 => drop(text.splice(at..at, self.pick(NOISE).chars())),
                _ => drop(text.splice(at..end, self.pick(NOISE).chars())),
            }
        }
        text.into_iter().collect()
    }

    /// Numbers of every size in many spellings, as one object.
    pub(super) fn numbers(&mut self, count: usize) -> String {
        let numbers: Vec<String> = (0..count).map(|_| self.number()).collect();
        format!("{{\"a\":[{}]}}", numbers.join(","))
    }

    fn space(&mut self, out: &mut String) {
        if self.one_in(4) {
            out.push_str(self.pick(SPACES));
        }
    }

    fn object(&mut self, out: &mut String, depth: usize) {
        out.push('{');
        self.space(out);
        let count = self.below(7);
        for i in 0..count {
            if i > 0 {
                out.push(',');
                self.space(out);
            }
            self.string(out);
            self.space(out);
            out.push(':');
            self.space(out);
            self.value(out, depth);
            self.space(out);
        }
        out.push('}');
    }

    fn array(&mut self, out: &mut String, depth: usize) {
        out.push('[');
        self.space(out);
        for i in 0..self.below(5) {
            if i > 0 {
                out.push(',');
                self.space(out);
            }
            self.value(out, depth);
            self.space(out);
        }
        out.push(']');
    }

    fn value(&mut self, out: &mut String, depth: usize) {
        match self.below(if depth == 0 { 5 } else { 9 }) {
            0 | 1 => out.push_str(self.pick(SCALARS)),
            2 | 3 => {
                let number = self.number();
                out.push_str(&number);
            }
            4 => self.string(out),
            5 => self.array(out, depth - 1),
            _ => self.object(out, depth - 1),
        }
    }

    fn string(&mut self, out: &mut String) {
        out.push('"');
        if self.one_in(4) {
            for _ in 0..self.below(8) {
                self.character(out);
            }
        } else {
            out.push_str(self.pick(KEYS));
        }
        out.push('"');
    }

    fn character(&mut self, out: &mut String) {
        let unit = self.next() & 0xffff;
        match self.below(5) {
            0 => out.push_str(&format!("\\u{unit:04x}")),
            1 => out.push_str(&format!("\\u{unit:04X}")),
            // Surrogates, so that pairs form and fail to form.
            2 => out.push_str(&format!("\\u{:04x}", 0xd800 | unit & 0x07ff)),
            3 => out.push_str(self.pick(KEYS)),
            _ => {
                let code_point = self.below(0x11_0000) as u32;
                let c = char::from_u32(code_point).filter(|&c| c >= ' ' && c != '"' && c != '\\');
                out.push(c.unwrap_or('x'));
            }
        }
    }

    fn number(&mut self) -> String {
        let sign = if self.one_in(3) { "-" } else { "" };
        match self.below(9) {
            // Every double is as likely, in one of the two spellings of the standard library.
            0..=2 => {
                let value = f64::from_bits(self.next() >> 1);
                match value.is_finite() {
                    true if self.one_in(8) => format!("{sign}{value:?}"),
                    true => format!("{sign}{value:e}"),
                    false => format!("{sign}Infinity"),
                }
            }
            // Powers of two, where the neighbours are not equally far.
            3 => {
                let value = f64::from_bits((self.next() % 0x7ff) << 52);
                format!("{sign}{value:.17e}")
            }
            // Halfway between two doubles, or a little off it.
            4 => {
                let half = (1u64 << 53) + 1 + 2 * (self.next() % (1 << 52));
                let tail = self.pick(&["", "0", "1", "00000000000000000000000001"]);
                let scaled = u128::from(half) << self.below(60);
                format!("{sign}{scaled}.0{tail}")
            }
            // A binary fraction: its shortest notation is often equally near to two decimals.
            5 => {
                let numerator = (self.next() >> 11) as f64;
                let value = numerator / (1u64 << self.below(60)) as f64;
                format!("{sign}{value:.60}")
            }
            6 => {
                let digits = 1 + self.below(30);
                format!("{sign}{}", self.digits(digits))
            }
            7 => {
                let (whole, fraction) = (1 + self.below(25), 1 + self.below(25));
                let (whole, fraction) = (self.digits(whole), self.digits(fraction));
                let mark = self.pick(&["", "e0", "E+3", "e-30", "e20", "e-310", "e290"]);
                format!("{sign}{whole}.{fraction}{mark}")
            }
            _ => {
                let digits = 1 + self.below(3);
                let exponent = self.below(800) as i64 - 400;
                format!("{sign}{}e{exponent}", self.digits(digits))
            }
        }
    }

    fn digits(&mut self, count: usize) -> String {
        let first = 1 + self.below(9);
        let rest = (1..count).map(|_| char::from(b'0' + self.below(10) as u8));
        first.to_string().chars().chain(rest).collect()
    }
}
