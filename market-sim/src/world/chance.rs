//! Random numbers: one seed, and a stream of its own for each name, so that another agent does not change the draws of
//! others.

use super::settings::Settings;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

#[derive(Clone, Debug)]
pub(super) struct Chance(ChaCha8Rng);

/// The generator of somebody in a market.
pub(super) fn chance_of(settings: &Settings, market: u32, who: &str) -> Chance {
    Chance::named(settings.seed, &format!("market {market} {who}"))
}

impl Chance {
    pub(super) fn named(seed: u64, name: &str) -> Chance {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
        Chance(generator)
    }

    /// From 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0.random_range(0.0..1.0)
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    pub(super) fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    pub(super) fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    /// At least `least`; the smaller `tail`, the more often much more.
    pub(super) fn pareto(&mut self, least: f64, tail: f64) -> f64 {
        least * (1.0 - self.share()).powf(-1.0 / tail)
    }

    /// An index, as often as its weight.
    pub(super) fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.share() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return index;
            }
        }
        weights.len() - 1
    }
}

/// A level that wanders around 0 and forgets where it was.
#[derive(Clone, Debug)]
pub(super) struct Drift {
    level: f64,
    sigma: f64,
    memory_hours: f64,
}

impl Drift {
    pub(super) fn new(sigma: f64, memory_hours: f64, chance: &mut Chance) -> Drift {
        Drift { level: sigma * chance.normal(), sigma, memory_hours }
    }

    /// Goes on by some hours.
    pub(super) fn after(&mut self, hours: f64, chance: &mut Chance) {
        let kept = (-hours / self.memory_hours).exp();
        self.level = self.level * kept + self.sigma * (1.0 - kept * kept).sqrt() * chance.normal();
    }

    pub(super) fn level(&self) -> f64 {
        self.level
    }

    /// The level as a factor, 1 on average.
    pub(super) fn factor(&self) -> f64 {
        (self.level - self.sigma * self.sigma / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_own_draws_whatever_others_draw() {
        let draws = |name: &str| {
            let mut chance = Chance::named(7, name);
            (0..4).map(|_| chance.share()).collect::<Vec<f64>>()
        };
        let alone = draws("provider 1");
        let mut other = Chance::named(7, "provider 2");
        let _ = other.share();
        assert_eq!(draws("provider 1"), alone);
        assert_ne!(draws("provider 2"), alone);
    }
}
