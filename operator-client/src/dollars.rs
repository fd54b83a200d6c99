//! Dollars as people write them, micro-dollars on the wire. No floats on the way.

use std::fmt;
use std::str::FromStr;

const MICROS: u64 = 1_000_000;

/// An amount, or a price per node-hour: written `2.50`, kept as whole micro-dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub u64);

/// Why a text is no amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DollarsError(String);

impl FromStr for Dollars {
    type Err = DollarsError;

    fn from_str(text: &str) -> Result<Dollars, DollarsError> {
        read(text).map_err(DollarsError)
    }
}

fn read(text: &str) -> Result<Dollars, String> {
    let digits = text.strip_prefix('$').unwrap_or(text);
    if digits.starts_with('-') {
        return Err("no price is negative".into());
    }
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || digits.ends_with('.') {
        return Err("not a price: write dollars, as in 2.50".into());
    }
    if part.len() > 6 {
        return Err("more than 6 decimals: prices are whole micro-dollars".into());
    }
    let too_large = || format!("more than the largest price, {}", Dollars(u64::MAX));
    let micros: u64 = format!("{part:0<6}").parse().map_err(|_| too_large())?;
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(MICROS));
    whole.and_then(|whole| whole.checked_add(micros)).map(Dollars).ok_or_else(too_large)
}

impl fmt::Display for Dollars {
    /// Two decimals at least, six at most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = format!("{:06}", self.0 % MICROS);
        let (cents, rest) = micros.split_at(2);
        f.pad(&format!("{}.{cents}{}", self.0 / MICROS, rest.trim_end_matches('0')))
    }
}

#[cfg(test)]
mod tests {
    use super::Dollars;

    #[test]
    fn dollars_are_read_exactly() {
        for (text, micros) in [
            ("2.50", 2_500_000),
            ("$2.50", 2_500_000),
            ("0", 0),
            ("0.000001", 1),
            ("3", 3_000_000),
            ("2.8572", 2_857_200),
            ("18446744073709.551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Dollars(micros)), "{text}");
        }
    }

    #[test]
    fn what_is_no_price_is_said_so() {
        for (text, why) in [
            ("", "not a price"),
            (".", "not a price"),
            (".5", "not a price"),
            ("2.", "not a price"),
            ("NaN", "not a price"),
            ("inf", "not a price"),
            ("1e3", "not a price"),
            ("+1", "not a price"),
            ("1,5", "not a price"),
            ("1 ", "not a price"),
            ("1.2.3", "not a price"),
            ("٣", "not a price"),
            ("-1", "negative"),
            ("$-1", "negative"),
            ("2.0000001", "6 decimals"),
            ("18446744073709.551616", "largest"),
            ("99999999999999999999", "largest"),
        ] {
            let said = text.parse::<Dollars>().unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn dollars_are_written_with_two_to_six_decimals() {
        for (micros, text) in [
            (0, "0.00"),
            (2_500_000, "2.50"),
            (2_857_200, "2.8572"),
            (1, "0.000001"),
            (100_000_000, "100.00"),
        ] {
            assert_eq!(Dollars(micros).to_string(), text);
            assert_eq!(text.parse(), Ok(Dollars(micros)));
        }
    }
}
