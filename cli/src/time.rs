//! Spans and instants: `15m` and `2026-11-20T19:00:00Z` here, microseconds on the wire. The only place that asks
//! for the time.

use chrono::{DateTime, SecondsFormat, Utc};
use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// A second, in microseconds.
pub(crate) const SECOND: u64 = 1_000_000;

/// The units of spans, largest first, in microseconds.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000),
    ("us", 1),
];

/// The distance beyond which an instant is not of this clock's time.
const FAR: u64 = 366 * 86_400 * SECOND;

#[expect(clippy::disallowed_methods, reason = "people think in wall time; nothing of it is journaled")]
/// Returns the time of the wall clock, in microseconds since the epoch.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A span of time, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) u64);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "as in 30s, 15m or 1h30m";
        if text == "0" {
            return Ok(Span(0));
        }
        if text.starts_with('-') {
            return Err(format!("a span is not negative: {EXAMPLE}"));
        }
        let mut rest = text;
        let mut sum = 0_u64;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
            let (count, unit) = (&rest[..digits], &rest[digits..digits + letters]);
            if digits == 0 || (letters == 0 && rest.len() > digits) {
                return Err(format!("not a span of time: write it {EXAMPLE}"));
            }
            let Some((_, length)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
                return Err(format!("say the unit, one of d, h, m, s, ms, us: {EXAMPLE}"));
            };
            let part = count.parse::<u64>().ok().and_then(|count| count.checked_mul(length));
            sum = part.and_then(|part| sum.checked_add(part)).ok_or("too long a span")?;
            rest = &rest[digits + letters..];
        }
        if text.is_empty() { Err(format!("a span is not empty: {EXAMPLE}")) } else { Ok(Span(sum)) }
    }
}

impl fmt::Display for Span {
    /// The two largest units that are not 0. A span of a millisecond or more is written without its microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut written = 0;
        for (name, length) in UNITS {
            let count = rest / length;
            rest %= length;
            if count > 0 && written < 2 && (length > 1 || written == 0) {
                write!(f, "{count}{name}")?;
                written += 1;
            } else if written == 1 {
                break;
            }
        }
        if written == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

/// An instant as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    At(u64),
    Ago(Span),
    In(Span),
}

impl When {
    /// Returns the instant in microseconds since the epoch.
    pub(crate) fn at(self, now_us: u64) -> u64 {
        match self {
            When::At(at) => at,
            When::Ago(Span(span)) => now_us.saturating_sub(span),
            When::In(Span(span)) => now_us.saturating_add(span),
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "not an instant: write 2026-11-20T19:00:00Z, -2h, +15m or @MICROSECONDS".to_owned();
        if let Some(span) = text.strip_prefix('-') {
            return span.parse().map(When::Ago).map_err(|_| bad());
        }
        if let Some(span) = text.strip_prefix('+') {
            return span.parse().map(When::In).map_err(|_| bad());
        }
        if let Some(micros) = text.strip_prefix('@') {
            return micros.parse().map(When::At).map_err(|_| bad());
        }
        let at = DateTime::parse_from_rfc3339(text).map_err(|_| bad())?;
        u64::try_from(at.timestamp_micros()).map(When::At).map_err(|_| "before the epoch".to_owned())
    }
}

/// Writes an instant as in `2026-11-20T19:00:00Z`, with as many decimals as it takes.
pub(crate) fn rfc3339(at_us: u64) -> String {
    match i64::try_from(at_us).ok().and_then(DateTime::<Utc>::from_timestamp_micros) {
        Some(at) => at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        None => format!("@{at_us}"),
    }
}

/// Writes an instant without the parts of its second.
pub(crate) fn to_the_second(at_us: u64) -> String {
    rfc3339(at_us / SECOND * SECOND)
}

/// Writes an instant without the parts of its millisecond.
pub(crate) fn to_the_millisecond(at_us: u64) -> String {
    rfc3339(at_us / 1_000 * 1_000)
}

/// Writes how far an instant is, as in `in 4m12s` or `3s ago`. Returns None if it is more than a year.
pub(crate) fn relative(at_us: u64, now_us: u64) -> Option<String> {
    let seconds = |span: u64| Span(span / SECOND * SECOND);
    match at_us.abs_diff(now_us) {
        FAR.. => None,
        span if at_us > now_us => Some(format!("in {}", seconds(span))),
        span => Some(format!("{} ago", seconds(span))),
    }
}

#[cfg(test)]
mod tests {
    use super::{SECOND, Span, When, relative, rfc3339};

    #[test]
    fn spans_are_read_with_their_units() {
        for (text, micros) in [
            ("0", 0),
            ("30s", 30 * SECOND),
            ("15m", 900 * SECOND),
            ("1h30m", 5_400 * SECOND),
            ("2d", 172_800 * SECOND),
            ("250ms", 250_000),
            ("7us", 7),
        ] {
            assert_eq!(text.parse(), Ok(Span(micros)), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_said_so() {
        for (text, why) in [
            ("", "empty"),
            ("15", "say the unit"),
            ("15min", "say the unit"),
            ("m", "not a span"),
            ("1.5h", "not a span"),
            ("-1s", "negative"),
            ("1s 2m", "not a span"),
            ("99999999999999d", "too long"),
            ("1é", "not a span"),
        ] {
            let said = text.parse::<Span>().unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn spans_are_written_short() {
        for (micros, text) in [
            (0, "0s"),
            (900 * SECOND, "15m"),
            (252 * SECOND, "4m12s"),
            (90_061 * SECOND, "1d1h"),
            (3_605 * SECOND, "1h"),
            (1_500_000, "1s500ms"),
            (345_120, "345ms"),
            (7, "7us"),
        ] {
            assert_eq!(Span(micros).to_string(), text);
        }
    }

    #[test]
    fn instants_are_absolute_or_relative() {
        let now = 1_000_000 * SECOND;
        for (text, at) in [
            ("2026-11-20T19:00:00Z", 1_795_201_200 * SECOND),
            ("2026-11-20T20:00:00+01:00", 1_795_201_200 * SECOND),
            ("-2h", now - 7_200 * SECOND),
            ("+15m", now + 900 * SECOND),
            ("@42", 42),
        ] {
            assert_eq!(text.parse::<When>().map(|when| when.at(now)), Ok(at), "{text}");
        }
        for text in ["", "now", "1969-12-31T00:00:00Z", "-", "@-1", "yesterday"] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
    }

    #[test]
    fn instants_are_written_in_utc_and_by_how_far_they_are() {
        assert_eq!(rfc3339(1_795_201_200 * SECOND), "2026-11-20T19:00:00Z");
        assert_eq!(rfc3339(1), "1970-01-01T00:00:00.000001Z");
        assert_eq!(rfc3339(u64::MAX), "@18446744073709551615");
        let now = 10_000_000_000 * SECOND;
        assert_eq!(relative(now + 252 * SECOND + 7, now).unwrap(), "in 4m12s");
        assert_eq!(relative(now - 3 * SECOND, now).unwrap(), "3s ago");
        assert_eq!(relative(now, now).unwrap(), "0s ago");
        assert_eq!(relative(0, now), None);
    }
}
