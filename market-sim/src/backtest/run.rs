//! Runs one job with one strategy, step by step.

use super::jobs::Job;
use super::{Contestant, Grid, STEP_MINUTES, Settings};
use kubebid_core::Price;
use kubebid_strategy::{AtNotice, Standing, amendment_micros};

/// The result of one job. After its deadline a job seeks no further node and works on only while it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Run {
    pub(super) work_hours: f64,
    /// Work that was done and not lost.
    pub(super) finished_hours: f64,
    pub(super) cost_usd: f64,
    /// Submitted, not done, and without a node that works.
    pub(super) waited_hours: f64,
    pub(super) interruptions: f64,
    pub(super) lost_hours: f64,
    pub(super) missed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    None,
    /// Minutes of boot that are left.
    Booting(u64),
    Working,
    /// Minutes of notice that are left.
    Leaving(u64),
}

pub(super) fn run(grid: &Grid, job: &Job, contestant: Contestant, settings: &Settings) -> Run {
    let mut run = Run { work_hours: job.work_minutes as f64 / 60.0, ..Run::default() };
    if contestant == Contestant::OnDemand {
        run.finished_hours = run.work_hours;
        run.cost_usd = run.work_hours * usd(settings.on_demand);
        run.waited_hours = settings.boot_minutes as f64 / 60.0;
        run.missed = settings.boot_minutes + job.work_minutes > job.deadline_minutes;
        return run;
    }
    let mut node = Node::None;
    let mut ceiling = Price::ZERO;
    let (mut done, mut saved, mut waited, mut passed) = (0, 0, 0, 0);
    for step in job.submitted..grid.prices.len() {
        let price = grid.prices[step];
        let waits = matches!(node, Node::None);
        if waits && passed >= job.deadline_minutes {
            break;
        }
        ceiling = ceiling_at(grid, step, contestant, settings, ceiling, waits);
        if matches!(node, Node::Booting(_) | Node::Working) && price > ceiling {
            match at_notice(grid, step, contestant, settings) {
                Some(raised) => ceiling = raised,
                None => node = Node::Leaving(settings.notice_minutes),
            }
        }
        if waits && price <= ceiling {
            node = Node::Booting(settings.boot_minutes);
        }
        // Within the step: boot, then work, as long as the node is there.
        let mut left = STEP_MINUTES;
        if let Node::Booting(boot) = node {
            let booting = boot.min(left);
            left -= booting;
            waited += booting;
            node = if boot > booting { Node::Booting(boot - booting) } else { Node::Working };
        }
        let there = match node {
            Node::None | Node::Booting(_) => 0,
            Node::Working => left,
            Node::Leaving(notice) => notice.min(left),
        };
        let worked = there.min(job.work_minutes - done);
        done += worked;
        run.cost_usd += usd(price.min(ceiling)) * worked as f64 / 60.0;
        if done == job.work_minutes {
            passed += STEP_MINUTES - (left - worked);
            break;
        }
        passed += STEP_MINUTES;
        waited += left - there;
        saved = saved.max(done - done % settings.checkpoint_minutes.max(1));
        if let Node::Leaving(notice) = node {
            node = Node::Leaving(notice - there);
            if notice == there {
                run.interruptions += 1.0;
                run.lost_hours += (done - saved) as f64 / 60.0;
                (node, done) = (Node::None, saved);
            }
        }
    }
    run.finished_hours = done as f64 / 60.0;
    run.waited_hours = waited as f64 / 60.0;
    run.missed = done < job.work_minutes || passed > job.deadline_minutes;
    run
}

fn ceiling_at(
    grid: &Grid,
    step: usize,
    contestant: Contestant,
    settings: &Settings,
    ceiling: Price,
    waits: bool,
) -> Price {
    let Contestant::Strategy(strategy) = contestant else { return settings.max_bid };
    let wanted = strategy.ceiling_micros(settings.max_bid.0, &grid.quote(step, settings.tick_micros));
    let standing = Standing {
        ceiling_micros: ceiling.0,
        waits,
        tick_micros: settings.tick_micros,
        increment_bps: settings.increment_bps,
    };
    amendment_micros(&standing, wanted).map_or(ceiling, Price)
}

/// Returns the ceiling that keeps the node, if it is worth that; on a trace the price itself is enough.
fn at_notice(grid: &Grid, step: usize, contestant: Contestant, settings: &Settings) -> Option<Price> {
    let Contestant::Strategy(strategy) = contestant else { return None };
    let quote = grid.quote(step, settings.tick_micros);
    match strategy.at_notice(Some(grid.prices[step].0), settings.max_bid.0, &quote) {
        AtNotice::RaiseTo { ceiling_micros } => Some(Price(ceiling_micros)),
        AtNotice::LetGo => None,
    }
}

fn usd(price: Price) -> f64 {
    price.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubebid_core::units::Micros;
    use kubebid_strategy::Strategy;

    const SETTINGS: Settings = Settings {
        on_demand: Price(4_000_000),
        max_bid: Price(2_000_000),
        jobs: 1,
        work_hours: 1.0,
        work_spread: 0.0,
        slack: (2.0, 2.0),
        boot_minutes: 5,
        notice_minutes: 5,
        checkpoint_minutes: 15,
        increment_bps: 500,
        tick_micros: 100,
    };

    /// Prices in dollars for so many steps each; the reference is 1.00, the floor 0.50.
    fn played(prices: &[(usize, u64)], contestant: Contestant) -> Run {
        let prices: Vec<Price> =
            prices.iter().flat_map(|(steps, cents)| vec![Price(cents * 10_000); *steps]).collect();
        let grid = Grid {
            region: "a".to_owned(),
            begin: Micros(0),
            reference: vec![Price(1_000_000); prices.len()],
            floor: vec![Price(500_000); prices.len()],
            prices,
        };
        let job = Job { grid: 0, submitted: 0, work_minutes: 60, deadline_minutes: 120 };
        run(&grid, &job, contestant, &SETTINGS)
    }

    #[test]
    fn a_job_that_nobody_disturbs_pays_the_price_and_waits_for_its_node_only() {
        let run = played(&[(20, 50)], Contestant::Strategy(Strategy::Balanced));
        let expected = Run {
            work_hours: 1.0,
            finished_hours: 1.0,
            cost_usd: 0.5,
            waited_hours: 1.0 / 12.0,
            ..Run::default()
        };
        assert!((run.cost_usd - 0.5).abs() < 1e-9);
        assert_eq!(Run { cost_usd: 0.5, ..run }, expected);
    }

    #[test]
    fn balanced_stays_up_to_120_percent_of_the_reference_and_then_loses_what_no_checkpoint_has() {
        let mild = played(&[(3, 50), (20, 120)], Contestant::Strategy(Strategy::Balanced));
        assert_eq!((mild.interruptions, mild.missed), (0.0, false));
        // Boot, then 10 minutes of work and 5 under notice: one checkpoint, nothing lost.
        let spike = played(&[(3, 50), (3, 121), (40, 50)], Contestant::Strategy(Strategy::Balanced));
        assert_eq!((spike.interruptions, spike.lost_hours), (1.0, 0.0));
        // 15 minutes of work and 5 under notice: those are lost. It waits for the price, then boots again.
        let spike = played(&[(4, 50), (3, 121), (40, 50)], Contestant::Strategy(Strategy::Balanced));
        assert_eq!((spike.interruptions, spike.lost_hours), (1.0, 5.0 / 60.0));
        assert_eq!(spike.waited_hours, (5.0 + 10.0 + 5.0) / 60.0);
        let stays =
            played(&[(4, 50), (3, 121), (40, 50)], Contestant::Strategy(Strategy::AvailabilityOptimized));
        assert_eq!(stays.interruptions, 0.0);
    }

    #[test]
    fn after_the_deadline_a_job_keeps_its_node_and_seeks_no_other() {
        // It begins ten minutes before its deadline of two hours, and finishes late.
        let late = played(&[(22, 201), (40, 50)], Contestant::MaxBid);
        assert_eq!((late.missed, late.finished_hours), (true, 1.0));
        // The price is too high until the deadline has passed.
        let never = played(&[(24, 201), (40, 50)], Contestant::MaxBid);
        assert_eq!((never.missed, never.finished_hours), (true, 0.0));
    }

    #[test]
    fn who_waits_too_long_misses_the_deadline() {
        let run = played(&[(60, 70)], Contestant::Strategy(Strategy::CostOptimized));
        assert_eq!((run.missed, run.cost_usd, run.waited_hours), (true, 0.0, 2.0));
        assert_eq!(run.finished_hours, 0.0);
        assert!(!played(&[(60, 70)], Contestant::MaxBid).missed);
        assert!(played(&[(60, 201)], Contestant::MaxBid).missed);
        assert_eq!(played(&[(60, 201)], Contestant::OnDemand).cost_usd, 4.0);
    }
}
