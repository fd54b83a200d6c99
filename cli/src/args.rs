//! Flags that several commands have, and how words and pairs are read.

use crate::failure::{self, Failure};
use crate::time::{When, now_us, rfc3339_in, time_zone};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser, UnknownArgumentValueParser};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;

/// Returns a parser of a word of the API, written in small letters with dashes.
pub(crate) fn word<E: Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
    read: fn(&str) -> Option<E>,
) -> impl TypedValueParser<Value = E> {
    PossibleValuesParser::new(words)
        .map(move |word| read(&word.to_uppercase().replace('-', "_")).expect("a word of the API"))
}

/// Reads the number of a bid, an allocation or a command.
pub(crate) fn its_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a number, as lists show them in their first column".to_owned())
}

/// A key and a value, written `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair(String, String);

impl std::str::FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Pair(key.to_owned(), value.to_owned())),
            Some(_) | None => Err("write KEY=VALUE".into()),
        }
    }
}

/// Returns pairs as a map. Of several pairs with one key, the last counts.
pub(crate) fn map(pairs: Vec<Pair>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|Pair(key, value)| (key, value)).collect()
}

/// The key of a command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Key {
    /// Idempotency key: repeated with the same key, the command is done once. Random where absent
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    pub(crate) key: String,
}

/// The flag for scripts.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Quiet {
    /// Print numbers only, one a line: for $(…) in a shell
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// The flag that people try for `--max`. It is refused with a tip.
#[derive(Args)]
pub(crate) struct NoPrice {
    #[arg(long = "price", value_name = "DOLLARS", hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--max"))]
    _price: Option<String>,
}

/// The account whose things are shown.
#[derive(Args, Debug, Clone)]
pub(crate) struct Whose {
    /// Only those of this account, as administrator
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// All accounts, as administrator
    #[arg(long, conflicts_with = "account")]
    all_accounts: bool,
}

impl Whose {
    /// Returns the account as requests name it: absent for the caller's own, empty for all.
    pub(crate) fn account(self) -> Option<String> {
        self.account.or_else(|| self.all_accounts.then(String::new))
    }
}

/// Returns states to ask for: those that are named, else those of what is live, else any.
pub(crate) fn states<E: Into<i32>>(named: Vec<E>, all: bool, live: impl IntoIterator<Item = E>) -> Vec<i32> {
    let states = if named.is_empty() && !all { live.into_iter().collect() } else { named };
    states.into_iter().map(Into::into).collect()
}

/// A period.
#[derive(Args)]
pub(crate) struct Period {
    /// Begin of the period: 2026-11-20T19:00:00Z, 2026-11-20 or -2h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<When>,
    /// End of the period, exclusive
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<When>,
    /// Time zone of dates, and of times without an offset: an IANA name, as in Europe/Berlin
    #[arg(long, value_name = "NAME", default_value = "UTC", value_parser = time_zone)]
    pub(crate) time_zone: TimeZone,
}

impl Period {
    /// Returns the bounds as requests have them: 0 for any. A period that ends before it begins is refused.
    pub(crate) fn bounds(&self) -> Result<(u64, u64), Failure> {
        self.bounds_at(now_us())
    }

    fn bounds_at(&self, now: u64) -> Result<(u64, u64), Failure> {
        let [from, to] = [self.from, self.to].map(|when| when.map(|when| when.at_in(now, &self.time_zone)));
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            let [from, to] = [from, to].map(|at| rfc3339_in(at, &self.time_zone));
            return Err(Failure::usage(format!(
                "--from is after --to: a period from {from} to {to} has no time"
            ))
            .next("give the earlier time as --from and the later one as --to"));
        }
        Ok((from.unwrap_or(0), to.unwrap_or(0)))
    }
}

/// The most lines of a list.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// Number of entries to show at most
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl Limit {
    pub(crate) fn count(self) -> usize {
        self.limit as usize
    }

    /// Says on standard error that a list is not whole.
    pub(crate) fn note(self, shown: usize, next: &str) {
        if shown >= self.count() && !next.is_empty() {
            failure::note(format_args!("note: there are more than {shown}; see them with a higher --limit"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pair, Period, map};
    use crate::time::time_zone;

    #[test]
    fn a_period_begins_before_it_ends() {
        let period = |from: &str, to: &str, zone: &str| Period {
            from: Some(from.parse().unwrap()),
            to: Some(to.parse().unwrap()),
            time_zone: time_zone(zone).unwrap(),
        };
        let hour = 3_600_000_000;
        let day = period("1970-02-01", "1970-02-02", "Asia/Kolkata").bounds_at(0).unwrap();
        assert_eq!((day.1 - day.0, day.0 % (24 * hour)), (24 * hour, 24 * hour - 11 * hour / 2));
        assert_eq!(period("@7", "@7", "UTC").bounds_at(0).unwrap(), (7, 7));
        for (from, to) in [("2026-12-02", "2026-12-01"), ("@8", "@7"), ("-1h", "-2h")] {
            let refused = period(from, to, "UTC").bounds_at(100 * hour).unwrap_err().to_string();
            assert!(refused.starts_with("error: --from is after --to"), "{refused}");
        }
    }

    #[test]
    fn pairs_have_a_key() {
        assert_eq!("a=b=c".parse(), Ok(Pair("a".into(), "b=c".into())));
        assert_eq!("a=".parse(), Ok(Pair("a".into(), String::new())));
        assert!("=b".parse::<Pair>().is_err());
        assert!("ab".parse::<Pair>().is_err());
        let pairs = ["a=1", "a=2"].map(|text| text.parse().unwrap());
        assert_eq!(map(pairs.into()).into_values().collect::<Vec<_>>(), ["2"]);
    }
}
