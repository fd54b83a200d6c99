//! Random numbers: one seed, and a stream of its own for each name, so that a further participant does not change the
//! draws of the others.

use super::settings::Settings;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, LogNormal, Pareto, StandardNormal};

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct RandomStream(ChaCha8Rng);

/// Returns the stream of random numbers of one participant of a market.
pub(super) fn stream_of(settings: &Settings, market: u32, who: &str) -> RandomStream {
    RandomStream::named(settings.seed, &format!("market {market} {who}"))
}

impl RandomStream {
    pub(crate) fn named(seed: u64, name: &str) -> RandomStream {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
        RandomStream(generator)
    }

    /// Draws a number from 0 to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0.random_range(0.0..1.0)
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    /// Draws from any distribution.
    pub(super) fn draw<T>(&mut self, distribution: &impl Distribution<T>) -> T {
        distribution.sample(&mut self.0)
    }

    /// Draws from the standard normal distribution.
    pub(super) fn normal(&mut self) -> f64 {
        self.draw(&StandardNormal)
    }

    /// Draws from a lognormal distribution; `sigma` is the standard deviation of the logarithm.
    pub(super) fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        self.draw(&LogNormal::new(median.ln(), sigma).expect("a finite spread"))
    }

    /// Draws from an exponential distribution.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        self.draw(&Exp::new(1.0 / mean).expect("a mean above 0"))
    }

    /// Draws from a Pareto distribution: at least `least`; the smaller `tail`, the heavier the tail.
    pub(super) fn pareto(&mut self, least: f64, tail: f64) -> f64 {
        self.draw(&Pareto::new(least, tail).expect("a scale and a shape above 0"))
    }
}

/// An Ornstein–Uhlenbeck process: a level that wanders around 0 and returns to it over `memory_hours`.
#[derive(Clone, Debug)]
pub(super) struct OrnsteinUhlenbeck {
    level: f64,
    sigma: f64,
    memory_hours: f64,
}

impl OrnsteinUhlenbeck {
    pub(super) fn new(sigma: f64, memory_hours: f64, random: &mut RandomStream) -> OrnsteinUhlenbeck {
        OrnsteinUhlenbeck { level: sigma * random.normal(), sigma, memory_hours }
    }

    /// Moves the process on by some hours.
    pub(super) fn after(&mut self, hours: f64, random: &mut RandomStream) {
        let kept = (-hours / self.memory_hours).exp();
        self.level = self.level * kept + self.sigma * (1.0 - kept * kept).sqrt() * random.normal();
    }

    pub(super) fn level(&self) -> f64 {
        self.level
    }

    /// Returns the level as a factor, 1 on average.
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
            let mut random = RandomStream::named(7, name);
            (0..4).map(|_| random.share()).collect::<Vec<f64>>()
        };
        let alone = draws("provider 1");
        let mut other = RandomStream::named(7, "provider 2");
        let _ = other.share();
        assert_eq!(draws("provider 1"), alone);
        assert_ne!(draws("provider 2"), alone);
    }
}
