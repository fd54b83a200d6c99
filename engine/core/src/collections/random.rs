//! A seeded random number generator for tests.

/// Returns a function that draws a number below its argument.
pub(crate) fn below(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |n| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    }
}
