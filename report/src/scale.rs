//! Scales of a chart: from values to positions, round ticks, number formats.

use super::{Axis, Unit};
use chrono::DateTime;

/// One axis of a chart, laid over `from..to` on the paper.
#[derive(Debug)]
pub(super) struct Scale<'a> {
    axis: &'a Axis,
    pub(super) low: f64,
    pub(super) high: f64,
    from: f64,
    to: f64,
}

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
const TIME_STEPS: [f64; 17] = [
    MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    3.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    5.0 * DAY,
    7.0 * DAY,
    14.0 * DAY,
    30.0 * DAY,
    90.0 * DAY,
    365.0 * DAY,
];

impl<'a> Scale<'a> {
    /// Makes a scale along x: exactly the range of the values, or the middle of each category.
    pub(super) fn along(axis: &'a Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale<'a> {
        let (mut low, mut high) = extremes(values);
        if !axis.categories.is_empty() {
            (low, high) = (-0.5, axis.categories.len() as f64 - 0.5);
        } else if low >= high {
            (low, high) = (low - 0.5, high + 0.5);
        }
        Scale { axis, low, high, from, to }
    }

    /// Makes a scale along y: from 0 if that is not far, to a round number above; logarithmic, between round numbers.
    pub(super) fn up(axis: &'a Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale<'a> {
        let (mut low, mut high) = extremes(values.filter(|value| !axis.logarithmic || *value > 0.0));
        if axis.logarithmic {
            (low, high) = (round_down(low), round_step(high));
            if low >= high {
                high = low * 10.0;
            }
        } else {
            low = if low < 0.0 || low > 0.8 * high { low } else { 0.0 };
            if low >= high {
                (low, high) = if high > 0.0 { (0.0, high) } else { (low, low + 1.0) };
            }
            let step = round_step((high - low) / 4.0);
            (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        }
        Scale { axis, low, high, from, to }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.axis.logarithmic {
            (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Returns the ticks: their positions and labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        if !self.axis.categories.is_empty() {
            return self
                .axis
                .categories
                .iter()
                .enumerate()
                .map(|(n, name)| (n as f64, name.clone()))
                .collect();
        }
        if self.axis.unit == Unit::Time {
            return self.time_ticks();
        }
        if self.axis.logarithmic {
            let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
            let steps: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let values = (first..=last).flat_map(|n| steps.iter().map(move |step| step * 10f64.powi(n)));
            let inside = values.filter(|value| (self.low * 0.999..=self.high * 1.001).contains(value));
            return inside.map(|value| (value, self.write(value, value))).collect();
        }
        let step = round_step((self.high - self.low) / 4.0);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).map(|value| (value, self.write(value, step))).collect()
    }

    fn time_ticks(&self) -> Vec<(f64, String)> {
        let span = self.high - self.low;
        // A label with day and hour is long.
        let fits = |step: &f64| span / step <= if *step < DAY && span > DAY { 4.0 } else { 8.0 };
        let step = TIME_STEPS.into_iter().find(fits).unwrap_or(365.0 * DAY);
        let format = if step < DAY && span <= DAY {
            "%H:%M"
        } else if step < DAY {
            "%-d %b %H:%M"
        } else {
            "%-d %b %Y"
        };
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        let ticks = (first..=last).map(|n| n as f64 * step);
        ticks.map(|at| (at, time(at, format))).collect()
    }

    /// Writes a tick's value, as exact as its step.
    fn write(&self, value: f64, step: f64) -> String {
        match self.axis.unit {
            Unit::Share => format!("{} %", plain(value * 100.0, step * 100.0)),
            Unit::Dollars => format!("{}${}", if value < 0.0 { "-" } else { "" }, plain(value.abs(), step)),
            Unit::Hours => format!("{} h", plain(value, step)),
            Unit::Time | Unit::Number => plain(value, step),
        }
    }
}

pub(super) fn time(seconds: f64, format: &str) -> String {
    DateTime::from_timestamp(seconds as i64, 0).map_or_else(String::new, |at| at.format(format).to_string())
}

/// Thousands are k, M and G; as many decimals as the step needs.
fn plain(value: f64, step: f64) -> String {
    let (divisor, letter) = match value.abs() {
        value if value >= 1e9 => (1e9, "G"),
        value if value >= 1e6 => (1e6, "M"),
        value if value >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let decimals = (-(step / divisor).log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{:.*}", decimals, value / divisor);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// Returns the power of ten at or below.
fn floor_log(value: f64) -> f64 {
    10f64.powf(value.max(f64::MIN_POSITIVE).log10().floor())
}

/// Returns 1, 2 or 5 times a power of ten, at or below.
fn round_down(value: f64) -> f64 {
    let unit = floor_log(value);
    [5.0, 2.0].into_iter().find(|factor| factor * unit <= value * 1.001).unwrap_or(1.0) * unit
}

/// Returns 1, 2 or 5 times a power of ten, at or above.
fn round_step(least: f64) -> f64 {
    let unit = floor_log(least.max(f64::MIN_POSITIVE));
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * unit >= least * 0.999).unwrap_or(10.0);
    factor * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale<'_>) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_say_their_unit() {
        let dollars = Axis::new("", Unit::Dollars);
        let scale = Scale::up(&dollars, [0.1, 3.7].into_iter(), 100.0, 0.0);
        assert_eq!(labels(&scale), ["$0", "$1", "$2", "$3", "$4"]);
        assert_eq!((scale.place(0.0), scale.place(4.0)), (100.0, 0.0));
        assert_eq!(
            labels(&Scale::up(&dollars, [-0.1, 0.1].into_iter(), 0.0, 1.0)),
            ["-$0.1", "-$0.05", "$0", "$0.05", "$0.1"]
        );
        let share = Axis::new("", Unit::Share);
        assert_eq!(labels(&Scale::up(&share, [0.93, 0.99].into_iter(), 0.0, 1.0)).first().unwrap(), "92 %");
        let log = dollars.clone().logarithmic();
        assert_eq!(labels(&Scale::up(&log, [0.03, 20.0].into_iter(), 0.0, 1.0)), ["$0.1", "$1", "$10"]);
        assert_eq!(
            labels(&Scale::up(&log, [0.03, 0.2].into_iter(), 0.0, 1.0)),
            ["$0.02", "$0.05", "$0.1", "$0.2"]
        );
        let many = Axis::new("", Unit::Number);
        assert_eq!(labels(&Scale::up(&many, [0.0, 40_000.0].into_iter(), 0.0, 1.0))[1], "10k");
    }

    #[test]
    fn times_are_round_in_hours_or_days() {
        let time = Axis::time();
        let hours = Scale::along(&time, [3600.0, 8.0 * 3600.0].into_iter(), 0.0, 1.0);
        assert_eq!(labels(&hours)[..2], ["01:00", "02:00"]);
        let days = Scale::along(&time, [0.0, 3.0 * 86_400.0].into_iter(), 0.0, 1.0);
        assert_eq!(labels(&days)[1..], ["2 Jan 1970", "3 Jan 1970", "4 Jan 1970"]);
        let weeks = Scale::along(&time, [0.0, 50.0 * 86_400.0].into_iter(), 0.0, 1.0);
        assert_eq!(labels(&weeks)[1], "8 Jan 1970");
    }

    #[test]
    fn nothing_and_one_value_have_a_scale_too() {
        let axis = Axis::new("", Unit::Number);
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![-1.0], vec![f64::NAN]] {
            for scale in [
                Scale::up(&axis, values.iter().copied(), 0.0, 1.0),
                Scale::along(&axis, values.iter().copied(), 0.0, 1.0),
            ] {
                assert!(scale.low < scale.high, "{values:?}");
                assert!(!scale.ticks().is_empty(), "{values:?}");
            }
        }
    }
}
