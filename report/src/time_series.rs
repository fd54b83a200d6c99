//! A quantity over time in bounded memory: time-weighted means of equal spans, with least and most.

use super::{Point, Series};
use kubebid_core::units::Micros;

/// More spans than this are more than a chart can show.
const SPANS: usize = 1500;

/// A quantity over time. When it has too many spans it joins them two by two.
#[derive(Clone, Debug, Default)]
pub struct TimeSeries {
    spans: Vec<Span>,
    /// Width of each span, in microseconds.
    width: u64,
    begin: Micros,
    since: Micros,
    value: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    /// Value × microseconds, and those microseconds.
    sum: f64,
    known: u64,
    low: f64,
    high: f64,
}

impl Span {
    const EMPTY: Span = Span { sum: 0.0, known: 0, low: f64::INFINITY, high: f64::NEG_INFINITY };

    fn join(self, other: Span) -> Span {
        Span {
            sum: self.sum + other.sum,
            known: self.known + other.known,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}

impl TimeSeries {
    /// Sets the quantity from `at` on; `None` is unknown. Times do not go back.
    pub fn set(&mut self, at: Micros, value: Option<f64>) {
        if self.width == 0 {
            (self.width, self.begin, self.since) = (Micros::seconds(60).0, at, at);
        }
        self.pass(at);
        self.value = value;
        // A value that holds for no time at all still counts for least and most.
        if let Some(value) = value {
            let span = self.span_at(at);
            (span.low, span.high) = (span.low.min(value), span.high.max(value));
        }
    }

    /// Counts the value that held up to `at`.
    fn pass(&mut self, at: Micros) {
        let Some(value) = self.value else {
            self.since = at;
            return;
        };
        while self.since < at {
            self.span_at(at);
            let number = (self.since.0 - self.begin.0) / self.width;
            let until = at.0.min(self.begin.0 + (number + 1) * self.width);
            let passed = until - self.since.0;
            let span = &mut self.spans[number as usize];
            *span = span.join(Span { sum: value * passed as f64, known: passed, low: value, high: value });
            self.since = Micros(until);
        }
    }

    /// Returns the span of an instant, made if need be.
    fn span_at(&mut self, at: Micros) -> &mut Span {
        while ((at.0 - self.begin.0) / self.width) as usize >= SPANS {
            self.width *= 2;
            let pairs = self.spans.chunks(2).map(|pair| pair.iter().copied().fold(Span::EMPTY, Span::join));
            self.spans = pairs.collect();
        }
        let number = ((at.0 - self.begin.0) / self.width) as usize;
        if number >= self.spans.len() {
            self.spans.resize(number + 1, Span::EMPTY);
        }
        &mut self.spans[number]
    }

    /// Returns a series up to `end`: a point in the middle of each span in which the value was known.
    pub fn series(mut self, name: impl Into<String>, end: Micros) -> Series {
        self.pass(end);
        let points = self.spans.iter().enumerate().filter(|(_, span)| span.known > 0).map(|(n, span)| {
            let middle = self.begin.0 as f64 + (n as f64 + 0.5) * self.width as f64;
            let range = (span.low < span.high).then_some((span.low, span.high));
            Point { x: middle / 1e6, y: span.sum / span.known as f64, range }
        });
        Series { name: name.into(), points: points.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(minutes: u64) -> Micros {
        Micros::seconds(60 * minutes)
    }

    #[test]
    fn a_span_has_the_mean_by_time_and_the_extremes() {
        let mut trail = TimeSeries::default();
        trail.set(minutes(0), Some(1.0));
        trail.set(Micros::seconds(45), Some(5.0));
        trail.set(minutes(1), None);
        trail.set(minutes(3), Some(7.0));
        let points = trail.series("", minutes(4)).points;
        assert_eq!(points.len(), 2);
        assert_eq!(points[0], Point { x: 30.0, y: 2.0, range: Some((1.0, 5.0)) });
        assert_eq!(points[1], Point { x: 210.0, y: 7.0, range: None });
    }

    #[test]
    fn a_year_takes_no_more_memory_than_a_day_and_keeps_its_mean() {
        let mut trail = TimeSeries::default();
        for hour in 0..24 * 365 {
            trail.set(minutes(60 * hour), Some(if hour % 2 == 0 { 1.0 } else { 3.0 }));
        }
        let points = trail.series("", minutes(60 * 24 * 365)).points;
        assert!(points.len() <= SPANS);
        let mean = points.iter().map(|point| point.y).sum::<f64>() / points.len() as f64;
        assert!((mean - 2.0).abs() < 0.02, "{mean}");
    }
}
