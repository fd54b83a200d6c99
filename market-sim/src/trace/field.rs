//! The fields of a row: texts that become times, prices and numbers, or an error with line and name.

use super::{TraceError, dollars};
use chrono::DateTime;
use kubebid_core::Price;
use kubebid_core::units::Micros;
use std::ops::RangeInclusive;

/// One field of one row, and what to say of it if it is wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) line: u64,
    pub(super) name: &'static str,
    pub(super) text: &'a str,
}

/// The longest part of a value that a message shows, in characters.
const SHOWN: usize = 60;

/// A price of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TracePrice {
    pub(super) price: Price,
    /// True if the trace has more decimals than a price.
    pub(super) rounded: bool,
}

impl<'a> Field<'a> {
    pub(super) fn wrong(&self, expected: &'static str) -> TraceError {
        TraceError::Field { line: self.line, field: self.name, value: shortened(self.text), expected }
    }

    /// Returns the field, or none if it is empty.
    pub(super) fn filled(self) -> Option<Field<'a>> {
        (!self.text.is_empty()).then_some(self)
    }

    /// Returns the text, which must not be empty.
    pub(super) fn name(&self) -> Result<&'a str, TraceError> {
        if self.text.is_empty() { Err(self.wrong("a name")) } else { Ok(self.text) }
    }

    pub(super) fn time(&self) -> Result<Micros, TraceError> {
        let time = DateTime::parse_from_rfc3339(self.text).ok();
        let micros = time.and_then(|time| u64::try_from(time.timestamp_micros()).ok());
        micros
            .map(Micros)
            .ok_or_else(|| self.wrong("a time with its zone from 1970 on, like 2021-03-04T01:03:13Z"))
    }

    /// Returns the time, which must not be before the last one, and makes it the last one.
    pub(super) fn time_after(&self, last: &mut Micros) -> Result<Micros, TraceError> {
        let time = self.time()?;
        if time < *last {
            let value = self.text.to_owned();
            return Err(TraceError::Unsorted { line: self.line, field: self.name, value });
        }
        *last = time;
        Ok(time)
    }

    /// Returns the price in dollars, rounded to the nearest micro-dollar.
    pub(super) fn dollars(&self) -> Result<TracePrice, TraceError> {
        if let Some(price) = dollars(self.text) {
            return Ok(TracePrice { price, rounded: false });
        }
        let amount = self.number(0.0..=1e9, "a price in dollars from 0 to 1000000000")?;
        // Without an exponent, and without zeros at the end.
        match dollars(&amount.to_string()) {
            Some(price) => Ok(TracePrice { price, rounded: false }),
            None => Ok(TracePrice { price: Price((amount * 1e6).round() as u64), rounded: true }),
        }
    }

    pub(super) fn number(
        &self,
        range: RangeInclusive<f64>,
        expected: &'static str,
    ) -> Result<f64, TraceError> {
        // NaN is in no range.
        let number = self.text.parse::<f64>().ok().filter(|number| range.contains(number));
        // A negative zero becomes zero.
        number.map(|number| number + 0.0).ok_or_else(|| self.wrong(expected))
    }

    /// Returns the number, which must be a whole one; programs also write it as `8.0`.
    pub(super) fn whole(
        &self,
        range: RangeInclusive<u32>,
        expected: &'static str,
    ) -> Result<u32, TraceError> {
        let number = self.number(f64::from(*range.start())..=f64::from(*range.end()), expected)?;
        if number.fract() == 0.0 { Ok(number as u32) } else { Err(self.wrong(expected)) }
    }

    pub(super) fn seconds(&self) -> Result<Micros, TraceError> {
        let seconds = self.number(0.0..=1e10, "a number of seconds from 0 to 10000000000")?;
        Ok(Micros((seconds * 1e6) as u64))
    }
}

/// Returns the begin of a text that is too long to show.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Field<'_> {
        Field { line: 7, name: "x", text }
    }

    #[test]
    fn prices_are_rounded_to_the_nearest_micro_dollar_and_it_is_noted() {
        for (text, micros, rounded) in [
            ("2.50", 2_500_000, false),
            ("0", 0, false),
            ("0.979811", 979_811, false),
            ("0.50000000", 500_000, false),
            ("1e-05", 10, false),
            (".5", 500_000, false),
            ("-0.0", 0, false),
            ("0.9798114", 979_811, true),
            ("0.9798116", 979_812, true),
            ("0.30000000000000004", 300_000, true),
            ("4e-07", 0, true),
            ("6e-07", 1, true),
        ] {
            assert_eq!(
                field(text).dollars().expect(text),
                TracePrice { price: Price(micros), rounded },
                "{text}"
            );
        }
        for text in ["", "free", "-1", "-1e-9", "NaN", "nan", "inf", "-inf", "1e10", "1,5", "$1", "0x10"] {
            let error = field(text).dollars().expect_err(text).to_string();
            assert_eq!(error, format!("line 7, x: {text:?} is not a price in dollars from 0 to 1000000000"));
        }
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        for (text, number) in [("8", 8), ("8.0", 8), ("1e2", 100), ("100", 100)] {
            assert_eq!(field(text).whole(1..=100, "a number").expect(text), number);
        }
        for text in ["", "0", "-1", "101", "8.5", "eight", "NaN", "inf", "1e300"] {
            assert!(field(text).whole(1..=100, "a number").is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_a_zone_and_come_in_order() {
        let mut last = Micros(0);
        for text in ["1970-01-01T00:00:01Z", "1970-01-01 00:00:01+00:00", "1970-01-01T01:00:02.5+01:00"] {
            field(text).time_after(&mut last).expect(text);
        }
        assert_eq!(last, Micros(2_500_000));
        let error =
            field("1970-01-01T00:00:02Z").time_after(&mut last).expect_err("an earlier one").to_string();
        let expected =
            "line 7, x: 1970-01-01T00:00:02Z is earlier than the row before; a trace is sorted by time";
        assert_eq!(error, expected);
        for text in
            ["", "yesterday", "2021-03-04T01:03:13", "2021-03-04", "1614819793", "1969-12-31T23:59:59Z"]
        {
            assert!(field(text).time().is_err(), "{text}");
        }
    }

    #[test]
    fn a_long_value_is_shown_by_its_begin() {
        let error = field(&"é".repeat(1000)).time().expect_err("no time").to_string();
        assert!(error.len() < 300 && error.contains('…'), "{error}");
    }
}
