//! Decimal text to the notation that Python's `repr` gives the nearest double.

use std::fmt::Write;

/// More significant digits than any decision between two neighbouring doubles needs (768).
const SIGNIFICANT: usize = 800;
/// Scales beyond 10^±this are infinite or zero, whatever the digits.
const MAX_SCALE: i64 = 1000;

/// Appends `literal`, a JSON number with a fraction or an exponent, in Python's notation.
pub(super) fn push_canonical(out: &mut String, literal: &str) {
    push_repr(out, nearest_double(literal));
}

/// The double nearest to `literal`, ties to even.
///
/// The standard library's parser is exact, but it stops reading exponents at five digits or so. A
/// text such as 0.000…001e100001 has such an exponent and is still an ordinary number, so digits
/// and exponent are settled against each other here, and the parser sees only the short result.
fn nearest_double(literal: &str) -> f64 {
    let (sign, magnitude) = match literal.strip_prefix('-') {
        Some(magnitude) => ("-", magnitude),
        None => ("", literal),
    };
    let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

    let digits = || whole.bytes().chain(fraction.bytes());
    let zeros = digits().take_while(|&digit| digit == b'0').count();
    let mut significant = digits().skip(zeros).map(char::from);
    let mut kept: String = significant.by_ref().take(SIGNIFICANT).collect();
    if significant.any(|digit| digit != '0') {
        // What was cut off must still count as more than nothing: it can decide a tie.
        kept.push('1');
    }
    // The value is 0.KEPT times ten to the power of `scale`.
    let scale = saturating_integer(exponent)
        .saturating_add(whole.len() as i64 - zeros as i64)
        .clamp(-MAX_SCALE, MAX_SCALE);
    format!("{sign}0.{kept}0e{scale}")
        .parse()
        .expect("the text is a decimal number")
}

/// An integer with an optional sign, of any length.
fn saturating_integer(text: &str) -> i64 {
    let magnitude = text
        .trim_start_matches(['+', '-'])
        .bytes()
        .fold(0i64, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(i64::from(digit - b'0'))
        });
    if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    }
}

/// Appends `value`, which is not NaN, as Python's `json.dumps` writes it: the fewest digits that
/// read back as the same double, positional for 1e-4 up to below 1e16.
fn push_repr(out: &mut String, value: f64) {
    if value.is_infinite() {
        return out.push_str(if value < 0.0 { "-Infinity" } else { "Infinity" });
    }
    let scientific = shortest_ties_to_even(value.abs());
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes a decimal exponent");
    if value.is_sign_negative() {
        out.push('-');
    }
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return write!(out, "{mantissa}e{sign}{:02}", exponent.abs())
            .expect("writing to a String does not fail");
    }
    let digits = mantissa.replace('.', "");
    if exponent < 0 {
        out.push_str("0.");
        out.extend((exponent..-1).map(|_| '0'));
        return out.push_str(&digits);
    }
    let whole_len = exponent as usize + 1;
    if digits.len() <= whole_len {
        out.push_str(&digits);
        out.extend((digits.len()..whole_len).map(|_| '0'));
        out.push_str(".0");
    } else {
        out.push_str(&digits[..whole_len]);
        out.push('.');
        out.push_str(&digits[whole_len..]);
    }
}

/// The fewest digits that read back as `magnitude`, in scientific notation; of those, the nearest.
///
/// Two decimals of that length can be equally near (769164797813662.25 ends in .2 or .3). Python
/// takes the even one, the standard library's shortest notation the larger. Notation of a given
/// length goes to even there too, so it is asked second. At a power of two the nearest may be too
/// far away on the narrow side to read back; then the shortest notation was right.
fn shortest_ties_to_even(magnitude: f64) -> String {
    let shortest = format!("{magnitude:e}");
    let digits = shortest
        .bytes()
        .take_while(|&byte| byte != b'e')
        .filter(u8::is_ascii_digit)
        .count();
    let nearest = format!("{magnitude:.*e}", digits - 1);
    if nearest.parse() == Ok(magnitude) {
        nearest
    } else {
        shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(literal: &str) -> String {
        let mut out = String::new();
        push_canonical(&mut out, literal);
        out
    }

    #[test]
    fn notation_is_pythons() {
        for (literal, expected) in [
            ("1.0", "1.0"),
            ("-0.0", "-0.0"),
            ("0e5", "0.0"),
            ("-0E-5", "-0.0"),
            ("1.50", "1.5"),
            ("100.25", "100.25"),
            ("1e2", "100.0"),
            ("0.1", "0.1"),
            ("0.00012", "0.00012"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("0.000012", "1.2e-05"),
            ("9007199254740993.0", "9007199254740992.0"),
            ("9999999999999998.0", "9999999999999998.0"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("12e15", "1.2e+16"),
            ("1E22", "1e+22"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("5e-324", "5e-324"),
            ("2e-324", "0.0"),
            ("769164797813662.25", "769164797813662.2"),
            ("769164797813662.75", "769164797813662.8"),
            ("2.98023223876953125e-8", "2.9802322387695312e-08"),
            (
                "5.684341886080801486968994140625e-14",
                "5.684341886080802e-14",
            ),
            ("1E400", "Infinity"),
            ("-1e400", "-Infinity"),
        ] {
            assert_eq!(canonical(literal), expected, "{literal}");
        }
    }

    #[test]
    fn digits_and_exponent_settle_against_each_other() {
        let zeros = "0".repeat(100_000);
        assert_eq!(canonical(&format!("0.{zeros}1e100001")), "1.0");
        assert_eq!(canonical(&format!("0.{zeros}25e+100000")), "0.25");
        assert_eq!(canonical(&format!("1{zeros}e-100000")), "1.0");
        assert_eq!(canonical(&format!("0e1{zeros}")), "0.0");
        assert_eq!(canonical(&format!("1e1{zeros}")), "Infinity");
        assert_eq!(canonical(&format!("1e-1{zeros}")), "0.0");
        assert_eq!(canonical(&format!("3e{zeros}2")), "300.0");
    }

    #[test]
    fn a_far_digit_decides_a_tie() {
        // Halfway between 2^53 and its upper neighbour; even is below.
        let zeros = "0".repeat(5000);
        assert_eq!(
            canonical(&format!("9007199254740993.{zeros}")),
            "9007199254740992.0"
        );
        assert_eq!(
            canonical(&format!("9007199254740993.{zeros}1")),
            "9007199254740994.0"
        );
    }
}
