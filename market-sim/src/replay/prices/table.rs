//! The results of a price replay by instance type and market, as text, JSON and CSV.

use super::{Bid, GRID, Market, Settings};
use kubebid_report::csv::{CsvWriter, number};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The result of a price replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PriceTable {
    /// The instance types.
    pub types: Vec<TypeTable>,
}

/// The markets of one instance type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeTable {
    /// Name of the instance type.
    pub instance_type: String,
    /// The on-demand price, dollars per node-hour.
    pub on_demand_usd: f64,
    /// The mean over the markets, each counting alike.
    pub mean: Vec<Outcome>,
    /// The markets of the type.
    pub markets: Vec<MarketTable>,
}

/// One market.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MarketTable {
    /// Region of the market.
    pub region: String,
    /// Hours for which there is a price.
    pub hours: f64,
    /// The result of each bid.
    pub bids: Vec<Outcome>,
}

/// The result of one bid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The bid, as a share of the on-demand price, and in dollars per node-hour.
    pub share: f64,
    /// The bid in dollars per node-hour.
    pub bid_usd: f64,
    /// The share of the time for which it ran.
    pub availability: f64,
    /// None for a bid that never ran; of a mean, of those markets where it did.
    pub preemptions_per_hour: Option<f64>,
    /// Dollars per node-hour, while it ran.
    pub mean_paid_usd: Option<f64>,
}

pub(super) fn of(markets: &BTreeMap<(String, String), Market>, settings: &Settings) -> PriceTable {
    let types = settings.on_demand.iter().filter_map(|(instance_type, on_demand)| {
        let of_type = markets.iter().filter(|((name, _), market)| name == instance_type && market.points > 0);
        let tables = of_type.map(|((_, region), market)| MarketTable {
            region: region.clone(),
            hours: hours(market.points),
            bids: market
                .bids
                .iter()
                .zip(&settings.shares)
                .map(|(bid, share)| outcome(bid, *share, market.points))
                .collect(),
        });
        let markets: Vec<MarketTable> = tables.collect();
        let shares = 0..if markets.is_empty() { 0 } else { settings.shares.len() };
        let mean = shares.map(|n| mean(markets.iter().map(|market| market.bids[n]))).collect();
        (!markets.is_empty()).then(|| TypeTable {
            instance_type: instance_type.clone(),
            on_demand_usd: on_demand.0 as f64 / 1e6,
            mean,
            markets,
        })
    });
    PriceTable { types: types.collect() }
}

fn hours(points: u64) -> f64 {
    points as f64 * GRID as f64 / 3.6e9
}

fn outcome(bid: &Bid, share: f64, points: u64) -> Outcome {
    let ran = (bid.ran > 0).then_some(bid.ran);
    Outcome {
        share,
        bid_usd: bid.bid.0 as f64 / 1e6,
        availability: bid.ran as f64 / points as f64,
        preemptions_per_hour: ran.map(|ran| bid.preempted as f64 / hours(ran)),
        mean_paid_usd: ran.map(|ran| bid.paid as f64 / ran as f64 / 1e6),
    }
}

fn mean(outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    let all: Vec<Outcome> = outcomes.collect();
    let of = |figure: fn(&Outcome) -> Option<f64>| {
        let known: Vec<f64> = all.iter().filter_map(figure).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    Outcome {
        availability: of(|o| Some(o.availability)).unwrap_or(0.0),
        preemptions_per_hour: of(|o| o.preemptions_per_hour),
        mean_paid_usd: of(|o| o.mean_paid_usd),
        ..all[0]
    }
}

impl PriceTable {
    /// Writes one line for each type, region and bid; the mean over the regions has none.
    pub fn write_csv(&self, to: impl std::io::Write) -> std::io::Result<()> {
        let mut out = CsvWriter::new(to);
        out.row([
            "instance_type",
            "region",
            "share",
            "bid_usd",
            "availability",
            "preemptions_per_hour",
            "mean_paid_usd",
        ])?;
        for table in &self.types {
            let mean = std::iter::once(("", &table.mean));
            let markets = table.markets.iter().map(|market| (market.region.as_str(), &market.bids));
            for (region, outcomes) in mean.chain(markets) {
                for o in outcomes {
                    let Outcome { share, bid_usd, availability, preemptions_per_hour, mean_paid_usd } = *o;
                    let figures =
                        [Some(share), Some(bid_usd), Some(availability), preemptions_per_hour, mean_paid_usd];
                    let names = [table.instance_type.clone(), region.to_owned()];
                    out.row(names.into_iter().chain(figures.map(number)))?;
                }
            }
        }
        out.finish()
    }
}

impl fmt::Display for PriceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, table) in self.types.iter().enumerate() {
            let between = if n == 0 { "" } else { "\n" };
            let regions: Vec<&str> = table.markets.iter().map(|market| market.region.as_str()).collect();
            writeln!(
                f,
                "{between}{}, on-demand ${} an hour; mean of {}",
                table.instance_type,
                table.on_demand_usd,
                regions.join(", ")
            )?;
            writeln!(
                f,
                "{:>6} {:>12} {:>13} {:>22} {:>16}",
                "x o-d", "bid $/h", "availability", "pre-emptions/running h", "mean paid $/h"
            )?;
            for o in &table.mean {
                writeln!(
                    f,
                    "{:>6} {:>12.4} {:>13.3} {:>22} {:>16}",
                    o.share,
                    o.bid_usd,
                    o.availability,
                    o.preemptions_per_hour.map_or("-".to_owned(), |p| format!("{p:.4}")),
                    o.mean_paid_usd.map_or("-".to_owned(), |p| format!("{p:.4}")),
                )?;
            }
        }
        Ok(())
    }
}
