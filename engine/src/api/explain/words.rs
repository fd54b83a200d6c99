//! Formats prices and times for people.

/// Why a node ended whose bid was regrouped.
pub(super) const REGROUPED: &str = "its tenant regrouped the bid, which waits for its minimum again";

/// Formats micro-dollars as dollars: "$1.5", "$0.0001".
pub(super) fn dollars(micros: u64) -> String {
    let (whole, rest) = (micros / 1_000_000, micros % 1_000_000);
    let cents = format!("{rest:06}");
    let trimmed = cents.trim_end_matches('0');
    format!("${whole}.{trimmed:0<2}")
}

/// Formats an instant of market time as UTC, to the second.
pub(super) fn instant(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Returns the Gregorian date of a day since 1970-01-01 (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Formats a number of nodes: "1 node", "2 nodes".
pub(super) fn nodes(count: u64) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_have_as_many_digits_as_they_need_and_two_at_least() {
        let said: Vec<String> = [0, 100, 1_500_000, 2_857_200, 12_000_000].map(dollars).into();
        assert_eq!(said, ["$0.00", "$0.0001", "$1.50", "$2.8572", "$12.00"]);
    }

    #[test]
    fn instants_are_dates() {
        let said: Vec<String> = [0, 951_782_400, 1_795_204_801].map(|s| instant(s * 1_000_000)).into();
        assert_eq!(said, ["1970-01-01T00:00:00Z", "2000-02-29T00:00:00Z", "2026-11-20T20:00:01Z"]);
    }
}
