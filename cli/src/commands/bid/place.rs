//! `kubebid bid place`

use super::wait::Wait;
use super::{Where, regroup, show};
use crate::args::{Key, NoPrice, Pair, Quiet, map, word};
use crate::commands::{local, market, node_data};
use crate::config::Context;
use crate::failure::{Exit, Failure, note};
use crate::suggestion;
use crate::time::{Span, When, now_us};
use clap::Args;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use kubebid_client::Dollars;
use kubebid_client::v1::bid::UnfilledReason;
use kubebid_client::v1::event::Kind;
use kubebid_client::v1::place_bid_request::{OnPreemption, TimeInForce};
use kubebid_client::v1::{
    Bid, EventFilter, GetAllocationRequest, GetBidRequest, ListEventsRequest, ListMarketsRequest, Market,
    PlaceBidRequest,
};
use kubebid_client::{Code, CombinedQuote, Error, quoted};
use kubebid_strategy::Strategy;
use std::path::PathBuf;

/// The most bytes that an engine accepts.
const NODE_CONFIG: usize = 16 * 1024;

/// Bid for nodes
#[derive(Args)]
#[command(after_help = "\
A bid is a standing order: it takes up to --nodes nodes as they can be had, and never pays more than
--max per node-hour. What it pays is the market price, which others set: see `kubebid price`.

With --strategy the ceiling is 65 % (cost-optimized), 90 % (balanced) or 120 % (availability-optimized)
of the reference price, the last two not below the floor, at least one tick, and never above --max;
without a reference price it is --max. It is chosen once: nothing amends the bid later, as the operator
does.

With --regroup the program stays, and must stay running: it watches the bid and regroups it when a node
is taken away (at the deadline of its notice, or when it is lost) and fewer live nodes and claims are
left than --min-nodes. All its nodes then end, and it waits for its minimum again. Given again with the
same --key, the command goes on watching the same bid.

Examples:
  kubebid bid place h100-8x/eu-west --max 2.50 --nodes 4
  kubebid bid place h100-8x/eu-west h100-8x/us-east --max 2.50 --nodes 4 --min-nodes 2 --for 2h
  kubebid bid place --type h100-8x --max 3 --nodes 1 --ioc --label team=vision
  kubebid bid place --type h100-8x --max 4.50 --nodes 2 --strategy balanced
  kubebid bid place h100-8x/eu-west --max 2.50 --nodes 4 --wait=ready --wait-timeout 1h
  kubebid bid place h100-8x/eu-west --max 2.50 --nodes 16 --min-nodes 16 --regroup after-deadline
  kubebid bid place h100-8x/eu-west --max 2.50 --nodes 1 --node-config ~/.ssh/id_ed25519.pub
  kubebid bid place h100-8x/eu-west --max 2.50 --nodes 1 --key nightly-2026-11-20   do this once
  BID=$(kubebid bid place h100-8x/eu-west --max 2.50 --nodes 1 -q)                  its number, for scripts")]
pub(crate) struct Place {
    #[command(flatten)]
    place: Where,
    /// The most to pay per node-hour, in dollars with up to 6 decimals
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    max: Dollars,
    /// Let a bidding strategy choose the ceiling, at most --max
    #[arg(long, value_name = "STRATEGY", value_parser = strategy())]
    strategy: Option<Strategy>,
    /// Number of nodes in all
    #[arg(long, value_name = "N")]
    nodes: u32,
    /// Number of nodes to get at least at entry, in one market, or none
    #[arg(long, value_name = "N")]
    min_nodes: Option<u32>,
    /// Search for this long by the wall clock, as in 15m; until cancelled where absent
    #[arg(long = "for", value_name = "SPAN", allow_hyphen_values = true, conflicts_with_all = ["until", "ioc"])]
    span: Option<Span>,
    /// Search until this instant of market time, as in 2026-11-20T19:00:00Z
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "ioc")]
    until: Option<When>,
    /// Immediate or cancel: what it does not get at once it does not want
    #[arg(long)]
    ioc: bool,
    /// Treatment of the demand for a node that is taken away: search again, or want one fewer
    #[arg(long, value_name = "WHAT", default_value = "requeue", value_parser = word(&["requeue", "close"], OnPreemption::from_str_name))]
    on_preemption: OnPreemption,
    /// A label, to find and to bill the bid by
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Pair>,
    /// A file for the provider of the nodes, at most 16 KiB: an SSH key, cloud-init user data; - reads standard input
    #[arg(long, value_name = "FILE")]
    node_config: Option<PathBuf>,
    /// Stay, and give back the rest of its nodes when one is taken away and fewer than --min-nodes are left
    #[arg(long, value_enum, value_name = "WHEN", conflicts_with = "ioc")]
    regroup: Option<regroup::When>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    _price: NoPrice,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    key: Key,
}

impl Place {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        if self.regroup.is_some() {
            regroup::check(self.min_nodes, self.nodes)?;
        }
        let until = match (self.span, self.until) {
            (Some(span), _) => Some(When::In(span).at(now_us())),
            (None, Some(when)) => Some(when.at(now_us())),
            (None, None) => None,
        };
        let time_in_force = match (self.ioc, until) {
            (true, _) => TimeInForce::Ioc,
            (false, Some(_)) => TimeInForce::Gtt,
            (false, None) => TimeInForce::Gtc,
        };
        let ceiling = match self.strategy {
            Some(strategy) => chosen(context, strategy, &self.place, self.max).await?,
            None => self.max,
        };
        let node_config = match &self.node_config {
            Some(path) => node_data::file(path, NODE_CONFIG)?,
            None => Vec::new(),
        };
        let request = PlaceBidRequest {
            client_key: self.key.key,
            markets: self.place.markets.clone(),
            instance_type: self.place.instance_type.clone().unwrap_or_default(),
            ceiling_micros: ceiling.0,
            min_nodes: self.min_nodes,
            max_nodes: self.nodes,
            time_in_force: time_in_force.into(),
            expire_at_us: until,
            on_preemption: self.on_preemption.into(),
            labels: map(self.label),
            node_config,
        };
        match context.client.place_bid(request).await {
            Ok(answer) => {
                let watch = match self.regroup {
                    Some(regroup::When::AfterDeadline) => {
                        Some(regroup::Watch::begin(context, answer.bid, answer.seq).await?)
                    }
                    None => None,
                };
                if self.quiet.quiet {
                    context.out.numbers([answer.bid])?;
                    self.wait.run(context, &answer, self.nodes).await?;
                    return watched(watch).await;
                }
                let waited = self.wait.run(context, &answer, self.nodes).await;
                // Ctrl-C once more, while no engine answers.
                let bid = tokio::select! {
                    bid = outcome(context, answer.bid, answer.seq) => bid,
                    () = local::stop_signal() => None,
                };
                context
                    .out
                    .answer(&answer, |_| show::done("placed", answer.bid, answer.repeated, bid.as_ref()))?;
                note_own_nodes(context, bid.as_ref(), answer.seq).await;
                if let Some(bid) = bid
                    && bid.unfilled_reason() == UnfilledReason::NoMarket
                    && let Some(instance_type) = &bid.instance_type
                {
                    suggestion::note_unknown_type(context, instance_type).await;
                }
                waited?;
                watched(watch).await
            }
            Err(error) => Err(off_tick(context, error, &self.place, Some(ceiling)).await),
        }
    }
}

/// Stays with a bid that is to be regrouped.
async fn watched(watch: Option<regroup::Watch<'_>>) -> Result<(), Failure> {
    match watch {
        Some(watch) => watch.run().await,
        None => Ok(()),
    }
}

/// Says on standard error which nodes of the tenant's own lower bids a bid takes by a command: price is the only
/// priority (R17).
pub(super) async fn note_own_nodes(context: &Context, bid: Option<&Bid>, seq: u64) {
    let Some(bid) = bid.filter(|bid| bid.claimed > 0).map(|bid| bid.bid) else { return };
    let filter = EventFilter { kinds: vec!["claimed".to_owned()], bids: vec![bid], ..Default::default() };
    let newest =
        ListEventsRequest { filter: Some(filter), newest_first: true, min_seq: seq, ..Default::default() };
    let Ok(answer) = context.client.list_events(newest).await else { return };
    for event in answer.events.iter().filter(|event| event.seq == seq) {
        let Some(Kind::Claimed(claimed)) = &event.kind else { continue };
        // Only the holder of a node is told its number.
        let Some(allocation) = claimed.allocation.filter(|_| claimed.bid == Some(bid)) else { continue };
        let request = GetAllocationRequest { allocation, min_seq: seq };
        let node = context.client.get_allocation(request).await.ok().and_then(|answer| answer.allocation);
        if let Some(own) = node.and_then(|node| node.bid) {
            note(format_args!(
                "note: it takes node {allocation} of your own bid {own}, whose ceiling is lower, when the notice ends"
            ));
        }
    }
}

fn strategy() -> impl clap::builder::TypedValueParser<Value = Strategy> {
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::name))
        .map(|name| name.parse().expect("one of the names above"))
}

/// Returns the ceiling that a strategy bids in these markets: the whole maximum where no market has a price yet.
async fn chosen(
    context: &Context,
    strategy: Strategy,
    place: &Where,
    max: Dollars,
) -> Result<Dollars, Failure> {
    let mut markets = Vec::new();
    if let Some(instance_type) = &place.instance_type {
        markets.extend(of_type(context, instance_type).await?);
    }
    for market in &place.markets {
        markets.push(market::find(context, market).await?);
    }
    let Some(CombinedQuote { quote, .. }) = quoted(&markets) else { return Ok(max) };
    match strategy.ceiling_micros(max.0, &quote) {
        0 => Err(Failure::usage(format!(
            "--max is below the tick of the markets, {} dollars: nothing can be bid",
            Dollars(quote.tick_micros)
        ))),
        ceiling => Ok(Dollars(ceiling)),
    }
}

async fn of_type(context: &Context, instance_type: &str) -> Result<Vec<Market>, Error> {
    let request = ListMarketsRequest { instance_type: instance_type.to_owned(), ..Default::default() };
    Ok(context.client.all(request).await?.markets)
}

/// Reads how a bid stands after its command, for people. The command is done even if this fails.
pub(super) async fn outcome(context: &Context, bid: u64, seq: u64) -> Option<Bid> {
    if context.out.is_message() {
        return None;
    }
    let answer = context.client.get_bid(GetBidRequest { bid, min_seq: seq }).await;
    answer.ok().and_then(|answer| answer.bid)
}

/// Names the ticks next to a ceiling that is between two: the engine says only that it is no tick.
pub(super) async fn off_tick(
    context: &Context,
    error: Error,
    place: &Where,
    ceiling: Option<Dollars>,
) -> Failure {
    let (Some(Code::NotATick), Some(ceiling)) = (error.code(), ceiling) else { return error.into() };
    let mut markets = Vec::new();
    if let Some(instance_type) = &place.instance_type {
        markets.extend(of_type(context, instance_type).await.unwrap_or_default());
    }
    for market in &place.markets {
        markets.extend(market::find(context, market).await.ok());
    }
    for market in markets {
        let tick = market.rules.unwrap_or_default().tick_micros();
        if let Some((what, next)) = nearest(&market.market, tick, ceiling) {
            return Failure::new(Exit::Refused, format!("NOT_A_TICK: {what}")).next(next);
        }
    }
    error.into()
}

/// Returns what is wrong with a ceiling in a market, and what to ask for instead, or None if it is a multiple.
fn nearest(market: &str, tick: u64, ceiling: Dollars) -> Option<(String, String)> {
    let off = ceiling.0.checked_rem(tick).filter(|off| *off > 0)?;
    let below = ceiling.0 - off;
    let what = format!("--max ${ceiling} is not a multiple of the tick ${} of {market}", Dollars(tick));
    let next = match below.checked_add(tick) {
        Some(above) => format!("ask for --max {} or --max {}", Dollars(below), Dollars(above)),
        None => format!("ask for --max {}", Dollars(below)),
    };
    Some((what, next))
}

#[cfg(test)]
mod tests {
    use super::nearest;
    use kubebid_client::Dollars;

    #[test]
    fn a_ceiling_between_two_ticks_is_told_which() {
        let (what, next) = nearest("h100-8x/eu-west", 100, Dollars(2_500_050)).unwrap();
        assert_eq!(what, "--max $2.50005 is not a multiple of the tick $0.0001 of h100-8x/eu-west");
        assert_eq!(next, "ask for --max 2.50 or --max 2.5001");
        assert_eq!(nearest("m/r", 100, Dollars(2_500_000)), None);
        assert_eq!(nearest("m/r", 0, Dollars(1)), None, "an engine without a tick");
        assert!(nearest("m/r", 100, Dollars(u64::MAX)).is_some());
    }
}
