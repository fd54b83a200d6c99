//! Checks that are repeated with random numbers.

use fastrand::Rng;
use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};

/// Runs a check with the random numbers of so many seeds, and prints the seed of one that fails.
///
/// # Panics
/// As the check does.
pub fn for_each_seed(seeds: u64, check: impl Fn(&mut Rng) + RefUnwindSafe) {
    for seed in 0..seeds {
        if let Err(panic) = catch_unwind(|| check(&mut Rng::with_seed(seed))) {
            eprintln!("with seed {seed}");
            resume_unwind(panic);
        }
    }
}
