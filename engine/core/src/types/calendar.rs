//! The months of UTC, by integers alone (R19).

use crate::types::units::Micros;

/// Returns the first instant of the first month in UTC that begins after `now`. If that is too large for the type,
/// returns the largest instant.
pub(crate) fn next_month(now: Micros) -> Micros {
    let (year, month) = month_of(now.0 / Micros::DAY.0);
    let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    Micros(first_day(year, month).saturating_mul(Micros::DAY.0))
}

/// The days of 400 years, after which the Gregorian calendar repeats.
const ERA: u64 = 146_097;
/// The days from 0000-03-01 to 1970-01-01.
const EPOCH: u64 = 719_468;

/// Returns the year and the month, from 1, of a day that is counted from the epoch. A year is counted from March, so
/// that the leap day is its last.
fn month_of(day: u64) -> (u64, u64) {
    let day = day + EPOCH;
    let (era, day) = (day / ERA, day % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (400 * era + year + u64::from(month <= 2), month)
}

/// Returns the first day of a month, counted from the epoch.
fn first_day(year: u64, month: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year) = (year / 400, year % 400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    era * ERA + 365 * year + year / 4 - year / 100 + (153 * from_march + 2) / 5 - EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other_as_in_a_table_of_their_lengths() {
        let (mut day, mut year) = (0, 1970);
        while year < 2405 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let february = if is_leap { 29 } else { 28 };
            for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                let (first, next) = (Micros(day * Micros::DAY.0), Micros((day + days) * Micros::DAY.0));
                assert_eq!(next_month(first), next, "in {year}");
                assert_eq!(next_month(Micros(next.0 - 1)), next, "in {year}");
                day += days;
            }
            year += 1;
        }
        assert_eq!(next_month(Micros(1_764_201_600_000_000)), Micros(1_764_547_200_000_000), "December 2025");
    }

    #[test]
    fn no_instant_is_too_late_for_the_calendar() {
        assert_eq!(next_month(Micros(u64::MAX)), Micros(u64::MAX));
    }
}
