//! A mean over seeds, with its confidence interval.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::fmt;

/// A mean and its 95 % confidence interval, by Student's t.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; none for a single value.
    pub plus_minus: Option<f64>,
}

impl Estimate {
    /// Computes the estimate of some values.
    pub fn of(values: &[f64]) -> Estimate {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        if values.len() < 2 {
            return Estimate { mean, plus_minus: None };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let t = StudentsT::new(0.0, 1.0, n - 1.0).expect("more than no freedom").inverse_cdf(0.975);
        Estimate { mean, plus_minus: Some(t * (variance / n).sqrt()) }
    }

    /// Returns the ends of the interval.
    pub fn range(&self) -> Option<(f64, f64)> {
        self.plus_minus.map(|half| (self.mean - half, self.mean + half))
    }
}

/// Writes as many decimals as the formatter asks for, else three.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(3);
        match self.plus_minus {
            Some(half) => write!(f, "{:.decimals$} ± {half:.decimals$}", self.mean),
            None => write!(f, "{:.decimals$}", self.mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_student() {
        // t(0.975, 4) = 2.776; the standard deviation of 1 to 5 is 1.5811.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(estimate.to_string(), "3.000 ± 1.963");
        assert_eq!(format!("{estimate:.1}"), "3.0 ± 2.0");
        assert_eq!(Estimate::of(&[2.0]).range(), None);
        assert_eq!(Estimate::of(&[2.0, 2.0]).range(), Some((2.0, 2.0)));
    }
}
