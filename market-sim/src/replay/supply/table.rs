//! The results of a supply replay, as text, JSON and CSV.

use super::{Replay, Supply};
use kubebid_core::units::Micros;
use kubebid_report::csv::{CsvWriter, number};
use serde::Serialize;
use std::fmt;

/// The result of a supply replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SupplyTable {
    /// The markets of the trace.
    pub markets: Vec<MarketTable>,
    /// The share of the time with a node in at least one region, by instance type.
    pub anywhere: Vec<(String, f64)>,
    /// The result of each bid.
    pub bids: Vec<BidTable>,
}

/// One market of the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MarketTable {
    /// Name of the instance type.
    pub instance_type: String,
    /// Region of the market.
    pub region: String,
    /// Hours for which the supply is known.
    pub hours: f64,
    /// Mean number of nodes.
    pub mean_nodes: f64,
    /// The share of the time with at least one node.
    pub available: f64,
    /// Nodes that went, for each hour of a node; none if there never was one.
    pub lost_per_node_hour: Option<f64>,
}

/// The result of one bid that competes with the others, in any region of its type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BidTable {
    /// Name of the instance type.
    pub instance_type: String,
    /// The bid, as a share of the on-demand price.
    pub share: f64,
    /// The bid in dollars per node-hour.
    pub bid_usd: f64,
    /// Node-time that ran, of what was wanted.
    pub availability: f64,
    /// Nodes that were taken away, in all and for each hour that ran.
    pub lost: u64,
    /// Nodes that were taken away, for each hour that ran; none for a bid that never ran.
    pub preemptions_per_hour: Option<f64>,
    /// Dollars per node-hour that ran; none for a bid that never ran.
    pub mean_paid_usd: Option<f64>,
}

pub(super) fn of(replay: &Replay<'_>) -> SupplyTable {
    let markets =
        replay.markets.iter().map(|((instance_type, region), supply)| market(instance_type, region, supply));
    let anywhere = replay.types.iter().map(|(name, any)| (name.clone(), share(any.some, any.span)));
    let bids = replay.fleets.iter().map(|fleet| {
        let wanted = replay.types[&fleet.instance_type].span * u128::from(replay.settings.nodes);
        let ran = (fleet.running > 0).then(|| hours(fleet.running));
        BidTable {
            instance_type: fleet.instance_type.clone(),
            share: fleet.share,
            bid_usd: fleet.ceiling.0 as f64 / 1e6,
            availability: share(fleet.running, wanted),
            lost: fleet.lost,
            preemptions_per_hour: ran.map(|ran| fleet.lost as f64 / ran),
            mean_paid_usd: ran.map(|ran| fleet.paid_micros as f64 / 1e6 / ran),
        }
    });
    SupplyTable { markets: markets.collect(), anywhere: anywhere.collect(), bids: bids.collect() }
}

fn market(instance_type: &str, region: &str, supply: &Supply) -> MarketTable {
    MarketTable {
        instance_type: instance_type.to_owned(),
        region: region.to_owned(),
        hours: hours(supply.span),
        mean_nodes: share(supply.node_time, supply.span),
        available: share(supply.some, supply.span),
        lost_per_node_hour: (supply.node_time > 0).then(|| supply.lost as f64 / hours(supply.node_time)),
    }
}

fn hours(micros: u128) -> f64 {
    micros as f64 / Micros::HOUR.0 as f64
}

fn share(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl SupplyTable {
    /// Writes one line for each bid.
    pub fn write_csv(&self, to: impl std::io::Write) -> std::io::Result<()> {
        let mut out = CsvWriter::new(to);
        out.row([
            "instance_type",
            "share",
            "bid_usd",
            "availability",
            "lost",
            "preemptions_per_hour",
            "mean_paid_usd",
        ])?;
        for bid in &self.bids {
            out.row([
                bid.instance_type.clone(),
                number(Some(bid.share)),
                number(Some(bid.bid_usd)),
                number(Some(bid.availability)),
                bid.lost.to_string(),
                number(bid.preemptions_per_hour),
                number(bid.mean_paid_usd),
            ])?;
        }
        out.finish()
    }
}

impl fmt::Display for SupplyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
        let bid_name = |bid: &BidTable| format!("{} at {} x on-demand", bid.instance_type, bid.share);
        let market_name = |market: &MarketTable| format!("{}/{}", market.instance_type, market.region);
        let names = self.bids.iter().map(bid_name).chain(self.markets.iter().map(market_name));
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        writeln!(
            f,
            "{:<width$} {:>8} {:>11} {:>10} {:>15}",
            "supply", "hours", "mean nodes", "available", "lost/node-hour"
        )?;
        for m in &self.markets {
            let (name, lost) = (market_name(m), number(m.lost_per_node_hour));
            writeln!(
                f,
                "{name:<width$} {:>8.1} {:>11.2} {:>10.3} {lost:>15}",
                m.hours, m.mean_nodes, m.available
            )?;
        }
        for (name, available) in &self.anywhere {
            writeln!(f, "{:<width$} {available:>31.3}", format!("{name} in any region"))?;
        }
        writeln!(
            f,
            "\n{:<width$} {:>8} {:>13} {:>23} {:>15}",
            "bids", "$/h", "availability", "pre-emptions/running h", "mean paid $/h"
        )?;
        for bid in &self.bids {
            let (name, lost) = (bid_name(bid), number(bid.preemptions_per_hour));
            let paid = number(bid.mean_paid_usd);
            writeln!(
                f,
                "{name:<width$} {:>8.4} {:>13.3} {lost:>23} {paid:>15}",
                bid.bid_usd, bid.availability
            )?;
        }
        Ok(())
    }
}
