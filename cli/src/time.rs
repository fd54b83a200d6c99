//! Spans and instants: `15m` and `2026-11-20T19:00:00Z` here, microseconds on the wire. The only place that asks
//! for the time, and that knows time zones.

use jiff::Timestamp;
use jiff::civil;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::{Offset, TimeZone};
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
    /// A date, or a date and a time, by the clocks of a time zone.
    Local(civil::DateTime),
}

impl When {
    /// Returns the instant in microseconds since the epoch. A date and a time without an offset are in UTC.
    pub(crate) fn at(self, now_us: u64) -> u64 {
        self.at_in(now_us, &TimeZone::UTC)
    }

    /// Returns the instant, with dates and times by the clocks of a time zone. A day begins at its first instant. Of
    /// an hour that the clocks have twice, the first one counts; of one that they leave out, the time after it.
    pub(crate) fn at_in(self, now_us: u64, zone: &TimeZone) -> u64 {
        match self {
            When::At(at) => at,
            When::Ago(Span(span)) => now_us.saturating_sub(span),
            When::In(Span(span)) => now_us.saturating_add(span),
            When::Local(local) => {
                let at = zone.to_ambiguous_timestamp(local).compatible();
                at.map_or(0, |at| u64::try_from(at.as_microsecond()).unwrap_or(0))
            }
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            "not an instant: write 2026-11-20T19:00:00Z, 2026-11-20, 2026-11-20T19:00, -2h, +15m or @MICROSECONDS"
                .to_owned()
        };
        if let Some(span) = text.strip_prefix('-') {
            return span.parse().map(When::Ago).map_err(|_| bad());
        }
        if let Some(span) = text.strip_prefix('+') {
            return span.parse().map(When::In).map_err(|_| bad());
        }
        if let Some(micros) = text.strip_prefix('@') {
            return micros.parse().map(When::At).map_err(|_| bad());
        }
        if let Ok(at) = text.parse::<Timestamp>() {
            let at = u64::try_from(at.as_microsecond());
            return at.map(When::At).map_err(|_| "before the epoch".to_owned());
        }
        // A time zone's name in brackets would be read and not be used.
        let local: civil::DateTime =
            if text.contains('[') { None } else { text.parse().ok() }.ok_or_else(bad)?;
        if local.year() < 1970 { Err("before the epoch".to_owned()) } else { Ok(When::Local(local)) }
    }
}

/// Reads the name of a time zone.
pub(crate) fn time_zone(name: &str) -> Result<TimeZone, String> {
    let bad = |_| "not a time zone: write an IANA name, as in UTC, Europe/Berlin or Asia/Kolkata".to_owned();
    if name.eq_ignore_ascii_case("utc") { Ok(TimeZone::UTC) } else { TimeZone::get(name).map_err(bad) }
}

/// Writes an instant as in `2026-11-20T19:00:00Z`, with as many decimals as it takes.
pub(crate) fn rfc3339(at_us: u64) -> String {
    rfc3339_in(at_us, &TimeZone::UTC)
}

/// Writes an instant by the clocks of a time zone, as in `2026-11-20T20:00:00+01:00`.
pub(crate) fn rfc3339_in(at_us: u64, zone: &TimeZone) -> String {
    let at = i64::try_from(at_us).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
    let Some(at) = at else { return format!("@{at_us}") };
    let decimals = match at_us % SECOND {
        0 => 0,
        micros if micros % 1_000 == 0 => 3,
        _ => 6,
    };
    let printer = DateTimePrinter::new().precision(Some(decimals));
    let offset = zone.to_offset(at);
    if offset == Offset::UTC {
        printer.timestamp_to_string(&at)
    } else {
        printer.timestamp_with_offset_to_string(&at, offset)
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
    use super::{SECOND, Span, When, relative, rfc3339, rfc3339_in, time_zone};

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
        for text in [
            "",
            "now",
            "1969-12-31T00:00:00Z",
            "1969-12-31",
            "-",
            "@-1",
            "yesterday",
            "2026-13-01",
            "2026-11-20[Europe/Berlin]",
        ] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_date_begins_at_the_first_instant_that_the_clocks_of_the_time_zone_have() {
        for (text, zone, at) in [
            ("2026-12-01", "UTC", "2026-12-01T00:00:00Z"),
            ("2026-12-01", "utc", "2026-12-01T00:00:00Z"),
            ("2026-12-01", "Asia/Kolkata", "2026-11-30T18:30:00Z"),
            ("2026-12-01", "Asia/Kathmandu", "2026-11-30T18:15:00Z"),
            ("2026-12-01", "America/St_Johns", "2026-12-01T03:30:00Z"),
            ("2026-07-01", "America/St_Johns", "2026-07-01T02:30:00Z"),
            ("2026-12-01T06:30", "Europe/Berlin", "2026-12-01T05:30:00Z"),
            // Midnight is left out in spring.
            ("2026-04-24", "Africa/Cairo", "2026-04-23T22:00:00Z"),
            // The hour from 2 to 3 comes twice in autumn, and never in spring.
            ("2026-10-25T02:30", "Europe/Berlin", "2026-10-25T00:30:00Z"),
            ("2026-03-29T02:30", "Europe/Berlin", "2026-03-29T01:30:00Z"),
            // Half an hour comes twice.
            ("2026-04-05T01:45", "Australia/Lord_Howe", "2026-04-04T14:45:00Z"),
            ("2026-12-01T00:00:00Z", "Asia/Kolkata", "2026-12-01T00:00:00Z"),
        ] {
            let when: When = text.parse().unwrap();
            assert_eq!(rfc3339(when.at_in(0, &time_zone(zone).unwrap())), at, "{text} in {zone}");
        }
        for name in ["", "Europe", "Berlin", "+01:00", "Mars/Phobos"] {
            assert!(time_zone(name).is_err(), "{name}");
        }
    }

    #[test]
    fn instants_are_written_by_the_clocks_of_a_time_zone() {
        let at = 1_795_201_200 * SECOND;
        for (zone, text) in [
            ("UTC", "2026-11-20T19:00:00Z"),
            ("Asia/Kathmandu", "2026-11-21T00:45:00+05:45"),
            ("America/St_Johns", "2026-11-20T15:30:00-03:30"),
        ] {
            assert_eq!(rfc3339_in(at, &time_zone(zone).unwrap()), text);
        }
        assert_eq!(rfc3339(at + 500_000), "2026-11-20T19:00:00.500Z");
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
