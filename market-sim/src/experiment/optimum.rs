//! The optimum: a planner that knows every job in advance and moves jobs for free.
//!
//! Time falls into spans in which no job comes or leaves. In each, a job can work at most the whole span, and
//! all together as long as there are units. Which amounts of work can be done together is a polymatroid (a
//! flow from jobs over spans), so filling the jobs from the dearest down, each as far as the dearer ones
//! allow, is exactly optimal (Edmonds 1970). A plan like that is a timetable too, by McNaughton's rule.

use super::run::{Job, Settings};
use kubebid_core::units::Micros;

/// Returns the optimal welfare in micro-dollars: worth less the reserve, of all work done.
pub fn optimum(jobs: &[Job], settings: &Settings) -> f64 {
    let mut order: Vec<usize> = (0..jobs.len()).filter(|n| jobs[*n].worth > settings.reserve).collect();
    order.sort_by_key(|n| (std::cmp::Reverse(jobs[*n].worth), *n));
    let mut plan = Plan::new(jobs, settings.units);
    let gains = order.into_iter().map(|n| {
        let work = plan.fill(n, jobs[n].work.0);
        work as f64 / Micros::HOUR.0 as f64 * (jobs[n].worth.0 - settings.reserve.0) as f64
    });
    gains.sum()
}

/// Points of time that [`bound`] looks at.
const GRID: usize = 256;

/// Returns micro-dollars of welfare that no plan can exceed. Its time grows with the jobs and not with their cube.
///
/// It is the optimum of a planner with fewer constraints: a job may work on several units at once, and from the
/// grid point before it comes to the one after it leaves. Work is then feasible if in each interval the jobs that
/// have to be done inside do not take more than the units can do, which is a polymatroid too.
pub fn bound(jobs: &[Job], settings: &Settings) -> f64 {
    let (Some(first), Some(last)) =
        (jobs.iter().map(|job| job.comes.0).min(), jobs.iter().map(|job| job.leaves.0).max())
    else {
        return 0.0;
    };
    let step = (last - first).div_ceil(GRID as u64 - 1).max(1);
    // What the units can still do from one grid point to another.
    let mut room: Vec<Vec<u64>> = (0..GRID)
        .map(|from| (from..GRID).map(|to| (to - from) as u64 * step * settings.units).collect())
        .collect();
    let mut order: Vec<&Job> = jobs.iter().filter(|job| job.worth > settings.reserve).collect();
    order.sort_by_key(|job| std::cmp::Reverse(job.worth));
    let gains = order.into_iter().map(|job| {
        let comes = ((job.comes.0 - first) / step) as usize;
        let leaves = (job.leaves.0 - first).div_ceil(step) as usize;
        let around = (0..=comes).flat_map(|from| &room[from][leaves - from..]);
        let work = around.copied().min().unwrap_or(0).min(job.work.0);
        for from in 0..=comes {
            room[from][leaves - from..].iter_mut().for_each(|room| *room -= work);
        }
        work as f64 / Micros::HOUR.0 as f64 * (job.worth.0 - settings.reserve.0) as f64
    });
    gains.sum()
}

/// The flow so far. A job's total never falls: later ones only move it between spans.
struct Plan {
    lengths: Vec<u64>,
    /// Unit-time that is left in each span.
    left: Vec<u64>,
    /// The spans in which each job is present, and below how much it does in each.
    present: Vec<std::ops::Range<usize>>,
    flow: Vec<Vec<u64>>,
    /// The jobs that are present in each span.
    there: Vec<Vec<usize>>,
}

impl Plan {
    fn new(jobs: &[Job], units: u64) -> Plan {
        let mut times: Vec<u64> = jobs.iter().flat_map(|job| [job.comes.0, job.leaves.0]).collect();
        times.sort_unstable();
        times.dedup();
        let lengths: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let left = lengths.iter().map(|length| length * units).collect();
        let at = |time: u64| times.partition_point(|other| *other < time);
        let present: Vec<_> = jobs.iter().map(|job| at(job.comes.0)..at(job.leaves.0)).collect();
        let flow = present.iter().map(|spans| vec![0; spans.len()]).collect();
        let mut there = vec![Vec::new(); lengths.len()];
        for (n, spans) in present.iter().enumerate() {
            spans.clone().for_each(|span| there[span].push(n));
        }
        Plan { lengths, left, present, flow, there }
    }

    /// Gives the job as much work as there is room for, at most `work`.
    fn fill(&mut self, job: usize, work: u64) -> u64 {
        let mut done = 0;
        while done < work {
            match self.augment(job, work - done) {
                0 => break,
                more => done += more,
            }
        }
        done
    }

    /// Adds flow along one shortest path of jobs that make room for one another, ending in a span with time left.
    fn augment(&mut self, job: usize, most: u64) -> u64 {
        // By span: the job that reaches it, and the span that this job gives up (none for the first).
        let mut reached: Vec<Option<(usize, Option<usize>)>> = vec![None; self.lengths.len()];
        let mut seen = vec![false; self.present.len()];
        let mut queue = std::collections::VecDeque::from([(job, None)]);
        seen[job] = true;
        while let Some((by, gives_up)) = queue.pop_front() {
            for span in self.present[by].clone() {
                let free = self.lengths[span] - self.flow[by][span - self.present[by].start];
                if reached[span].is_some() || free == 0 {
                    continue;
                }
                reached[span] = Some((by, gives_up));
                if self.left[span] > 0 {
                    return self.push(span, &reached, most);
                }
                for other in self.there[span].iter().copied() {
                    let works = self.flow[other][span - self.present[other].start] > 0;
                    if works && !seen[other] {
                        seen[other] = true;
                        queue.push_back((other, Some(span)));
                    }
                }
            }
        }
        0
    }

    fn push(&mut self, end: usize, reached: &[Option<(usize, Option<usize>)>], most: u64) -> u64 {
        let mut amount = most.min(self.left[end]);
        let mut path = Vec::new();
        let mut next = Some(end);
        while let Some(span) = next {
            let (by, gives_up) = reached[span].expect("on the path");
            let start = self.present[by].start;
            amount = amount.min(self.lengths[span] - self.flow[by][span - start]);
            if let Some(given) = gives_up {
                amount = amount.min(self.flow[by][given - start]);
            }
            path.push((by, span, gives_up));
            next = gives_up;
        }
        for (by, span, gives_up) in path {
            let start = self.present[by].start;
            self.flow[by][span - start] += amount;
            if let Some(given) = gives_up {
                self.flow[by][given - start] -= amount;
            }
        }
        self.left[end] -= amount;
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubebid_core::Price;

    fn job(comes: u64, leaves: u64, work: u64, dollars: u64) -> Job {
        let hours = |hours: u64| Micros(hours * Micros::HOUR.0);
        let (comes, leaves, work) = (hours(comes), hours(leaves), hours(work));
        Job { comes, leaves, work, worth: Price(dollars * 1_000_000), shades: false }
    }

    fn dollars(units: u64, jobs: &[Job]) -> f64 {
        optimum(jobs, &Settings { units, ..Settings::default() }) / 1e6
    }

    #[test]
    fn the_dearest_work_is_done_and_the_reserve_is_a_cost() {
        assert_eq!(dollars(1, &[job(0, 2, 2, 3), job(0, 2, 2, 5)]), 8.0);
        assert_eq!(dollars(2, &[job(0, 2, 2, 3), job(0, 2, 2, 5)]), 12.0);
        assert_eq!(dollars(2, &[job(0, 2, 2, 1)]), 0.0);
    }

    #[test]
    fn who_can_wait_makes_room_for_who_cannot() {
        // The dear one may work later, the cheap one only now.
        assert_eq!(dollars(1, &[job(0, 4, 2, 5), job(0, 2, 2, 3)]), 8.0 + 4.0);
        // Three in a row push one another along.
        assert_eq!(dollars(1, &[job(0, 3, 1, 9), job(0, 2, 1, 8), job(0, 1, 1, 7)]), 8.0 + 7.0 + 6.0);
    }

    #[test]
    fn no_job_works_on_two_units_at_once() {
        assert_eq!(dollars(2, &[job(0, 1, 2, 5)]), 4.0);
    }

    /// Compares with every timetable by the hour of three jobs with random windows.
    #[test]
    fn it_is_the_best_of_all_timetables() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let jobs: Vec<Job> = (0..4)
                .map(|_| {
                    let comes = random(3);
                    job(comes, comes + 1 + random(4 - comes), 1 + random(3), 2 + random(5))
                })
                .collect();
            let units = 1 + random(2);
            assert_eq!(dollars(units, &jobs), brute_force(&jobs, units, 0, &mut [0; 4]), "{units} {jobs:?}");
        }
    }

    #[test]
    fn no_plan_exceeds_the_bound_and_the_best_one_comes_near() {
        for seed in 0..10 {
            let settings = Settings { hours: 24, ..Settings::default() };
            let jobs = crate::experiment::draw(&settings, seed);
            let (best, bound) = (optimum(&jobs, &settings), bound(&jobs, &settings));
            assert!((best..=1.05 * best).contains(&bound), "{seed}: {best} {bound}");
        }
        assert_eq!(bound(&[], &Settings::default()), 0.0);
    }

    fn brute_force(jobs: &[Job], units: u64, hour: u64, done: &mut [u64; 4]) -> f64 {
        if hour == 5 {
            return 0.0;
        }
        let mut best = 0.0_f64;
        for chosen in 0..16_u64 {
            let fits = |n: usize| {
                let (at, job) = (Micros(hour * Micros::HOUR.0), &jobs[n]);
                job.comes <= at && at < job.leaves && done[n] * Micros::HOUR.0 < job.work.0
            };
            let who: Vec<usize> = (0..4).filter(|n| chosen >> n & 1 == 1).collect();
            if who.len() as u64 > units || !who.iter().all(|n| fits(*n)) {
                continue;
            }
            who.iter().for_each(|n| done[*n] += 1);
            let gain: f64 = who.iter().map(|n| jobs[*n].worth.0 as f64 / 1e6 - 1.0).sum();
            best = best.max(gain + brute_force(jobs, units, hour + 1, done));
            who.iter().for_each(|n| done[*n] -= 1);
        }
        best
    }
}
