//! The jobs of one seed.

use super::{Grid, STEP_MINUTES, Settings};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal};

/// One node's work in one region. Steps are those of the region's grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) grid: usize,
    pub(super) submitted: usize,
    pub(super) work_minutes: u64,
    pub(super) deadline_minutes: u64,
}

/// Draws jobs anywhere in the trace with a day to look back on and room for the deadline.
pub(super) fn draw(grids: &[Grid], settings: &Settings, rng: &mut impl Rng) -> Vec<Job> {
    (0..settings.jobs).map(|_| draw_one(grids, settings, rng)).collect()
}

fn draw_one(grids: &[Grid], settings: &Settings, rng: &mut impl Rng) -> Job {
    let grid = rng.random_range(0..grids.len());
    let steps = grids[grid].prices.len() as u64;
    let first = grids[grid].first() as u64;
    let (least, most) = settings.slack;
    let slack = least + (most - least) * rng.random_range(0.0..1.0);
    // Work that the trace has no room for is shortened to the room that there is.
    let room = ((steps - first) * STEP_MINUTES) as f64 / slack / 2.0;
    let work = LogNormal::new((settings.work_hours * 60.0).ln(), settings.work_spread);
    let work = work.expect("a finite spread").sample(rng);
    let work_minutes = (work.min(room) as u64).max(STEP_MINUTES);
    let deadline_minutes = (work_minutes as f64 * slack) as u64;
    let last = steps.saturating_sub(deadline_minutes.div_ceil(STEP_MINUTES) + 1).max(first + 1);
    let submitted = rng.random_range(first..last) as usize;
    Job { grid, submitted, work_minutes, deadline_minutes }
}
