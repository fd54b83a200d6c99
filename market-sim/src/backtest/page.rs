//! The page of a backtest.

use super::{Backtest, Contestant, DemandSettings, Figure, Grid, STEP_MINUTES, Settings};
use kubebid_core::units::Micros;
use kubebid_report::{Axis, Chart, Page, Point, Series, Shape, Table, TimeSeries, Unit};

/// Returns the tables and charts of the results, and what the strategies saw of the first market.
pub fn page(backtest: &Backtest, grids: &[Grid], contestants: &[Contestant], settings: &Settings) -> Page {
    let of = format!("{} jobs,", settings.jobs);
    let mut page = compared_page(backtest, "Bidding strategies on a price trace", &of);
    page.fact("regions", grids.len().to_string());
    page.fact("on-demand price", dollars(settings.on_demand.0 as f64));
    page.fact("maximum bid", dollars(settings.max_bid.0 as f64));
    page.charts.push(seen(&grids[0], contestants, settings));
    page
}

/// Returns the tables and charts of the results in a market of its own.
pub fn page_of_demand(backtest: &Backtest, jobs: usize, market: &DemandSettings) -> Page {
    let of = format!("{jobs} jobs, {:.0} % of which try the strategy,", 100.0 * market.share);
    let mut page = compared_page(backtest, "Bidding strategies in a market", &of);
    page.fact("nodes on offer", market.capacity.to_string());
    page.fact("reserve", dollars(market.reserve.0 as f64));
    page.fact("on-demand price", dollars(market.on_demand.0 as f64));
    page.fact("maximum bid", dollars(market.on_demand.0 as f64 * market.max_bid));
    page
}

fn dollars(micros: f64) -> String {
    format!("${:.4}", micros / 1e6)
}

fn compared_page(backtest: &Backtest, title: &str, of: &str) -> Page {
    let mut page = Page {
        title: title.to_owned(),
        summary: format!(
            "{} seeds of {of} the same jobs for each strategy. A mark is the mean over the seeds, a \
             whisker its 95 % confidence interval.",
            backtest.seeds
        ),
        ..Page::default()
    };
    for (n, entry) in backtest.contestants.iter().enumerate() {
        let mean = |figure, decimals: usize| {
            let estimate = backtest.estimate(n, figure);
            estimate.map_or("-".to_owned(), |estimate| format!("{:.decimals$}", estimate.mean))
        };
        let cost = mean(Figure::CostPerFinishedHour, 3);
        let finished = mean(Figure::Finished, 1);
        page.fact(
            &format!("{}, $ per finished hour; work finished", entry.name),
            format!("{cost}; {finished} %"),
        );
    }
    page.charts.push(cost_and_work(backtest));
    page.charts.extend(Figure::ALL.iter().map(|figure| compared(backtest, *figure)));
    let headings: Vec<String> =
        std::iter::once("strategy").chain(Figure::ALL.map(Figure::label)).map(str::to_owned).collect();
    page.tables.push(Table {
        title: "All figures".to_owned(),
        note: "Mean over the seeds ± half the 95 % confidence interval (Student's t).".to_owned(),
        headings: headings.clone(),
        rows: backtest.rows(|n, figure| backtest.estimate(n, figure)),
    });
    page.tables.push(Table {
        title: format!("More than {}", backtest.contestants[0].name),
        note: "The mean of the differences seed by seed: what the jobs have in common cancels out."
            .to_owned(),
        headings,
        rows: backtest.rows(|n, figure| backtest.difference(n, figure)),
    });
    page
}

/// Draws what each strategy pays against how much of the work it finishes: the best are at the bottom right.
fn cost_and_work(backtest: &Backtest) -> Chart {
    let dot = |n: usize| {
        let cost = backtest.estimate(n, Figure::CostPerFinishedHour)?;
        let finished = backtest.estimate(n, Figure::Finished)?;
        let point = Point { x: finished.mean, y: cost.mean, range: cost.range() };
        Some(Series { name: backtest.contestants[n].name.clone(), points: vec![point] })
    };
    Chart {
        title: "Cost and work done".to_owned(),
        note: "Lower is cheaper, further right is more work finished.".to_owned(),
        shape: Shape::Dots,
        x: Axis::new(Figure::Finished.label(), Unit::Number),
        y: Axis::new(Figure::CostPerFinishedHour.label(), Unit::Dollars),
        series: (0..backtest.contestants.len()).filter_map(dot).collect(),
    }
}

fn compared(backtest: &Backtest, figure: Figure) -> Chart {
    let point = |n: usize| {
        let estimate = backtest.estimate(n, figure)?;
        Some(Point { x: n as f64, y: estimate.mean, range: estimate.range() })
    };
    let points = (0..backtest.contestants.len()).filter_map(point).collect();
    Chart {
        title: figure.label().to_owned(),
        note: String::new(),
        shape: Shape::Bars,
        x: Axis::categories(backtest.contestants.iter().map(|entry| entry.name.clone())),
        y: Axis::new("", if figure == Figure::CostPerFinishedHour { Unit::Dollars } else { Unit::Number }),
        series: vec![Series { name: String::new(), points }],
    }
}

/// Draws the price of a market, and what each strategy would bid there for a new job.
fn seen(grid: &Grid, contestants: &[Contestant], settings: &Settings) -> Chart {
    let at = |step: usize| Micros(grid.begin.0 + step as u64 * STEP_MINUTES * 60_000_000);
    let trail = |name: String, value: &dyn Fn(usize) -> u64| {
        let mut trail = TimeSeries::default();
        for step in 0..grid.prices.len() {
            trail.set(at(step), Some(value(step) as f64 / 1e6));
        }
        trail.series(name, at(grid.prices.len()))
    };
    let mut series = vec![trail("price".to_owned(), &|step| grid.prices[step].0)];
    for contestant in contestants {
        if let Contestant::Strategy(strategy) = contestant {
            let ceiling = |step: usize| {
                strategy.ceiling_micros(settings.max_bid.0, &grid.quote(step, settings.tick_micros))
            };
            let mut line = trail(format!("{strategy} bids"), &ceiling);
            line.points.iter_mut().for_each(|point| point.range = None);
            series.push(line);
        }
    }
    Chart {
        title: format!("What they saw in {}", grid.region),
        note: "The price (its band is least and most of each span) and the ceilings of the strategies."
            .to_owned(),
        shape: Shape::Lines,
        x: Axis::time(),
        y: Axis::new("$ per node-hour", Unit::Dollars).logarithmic(),
        series,
    }
}
