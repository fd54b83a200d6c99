//! `kubebid inject`

mod demand;
mod supply;

use crate::config::Context;
use crate::failure::Failure;
use crate::time::{relative, rfc3339, to_the_second};
use clap::{Args, Subcommand};
use kubebid_client::v1::{GetMarketPriceRequest, SetClockRateRequest};
use kubebid_client::{Client, Error};

#[derive(Subcommand)]
#[command(after_help = "\
For administrators, on engines that were started with --allow-inject, or KUBEBID_ALLOW_INJECT=true;
with `kubebid up` drills are on. What is injected are ordinary commands of the market: nodes are
lost, prices move and bills are written as if it were real, and `kubebid explain` explains it.
See docs/drills.md.

Examples:
  kubebid --as admin inject preempt 12                         does my workload survive this?
  kubebid --as admin inject outage sim-provider-1 --for 5m
  kubebid --as admin inject demand h100-8x/eu-west --nodes 8 --max 30 --for 10m
  kubebid --as admin inject rate 60                            a minute of market time a second")]
pub(crate) enum Inject {
    /// A demand spike: bids for nodes that nobody needs, for a while
    #[command(after_help = "\
One bid of the account kubebid.inject. It takes free nodes and displaces lower bids by the rules,
after their notices; what it gets counts as running at once and is billed to that account. When the
time is over the bid expires and the engine releases its nodes, also if it was restarted in between.

Examples:
  kubebid --as admin inject demand h100-8x/eu-west --nodes 8 --max 30 --for 10m")]
    Demand(demand::Demand),
    /// End a demand spike before its time, or all of them
    #[command(after_help = "\
Examples:
  kubebid --as admin inject end-demand 42
  kubebid --as admin inject end-demand --all")]
    EndDemand(demand::EndDemand),
    /// A supply loss: units of a market are gone
    #[command(after_help = "\
Free units go first, then those under notice, then those of the lowest ceilings. Nodes on them end
at once, protected or not, as when a machine dies; with --with-notice their holders get the market's
notice, as when a provider wants machines back.

Examples:
  kubebid --as admin inject supply-loss h100-8x/eu-west --units 6
  kubebid --as admin inject supply-loss h100-8x/eu-west --units 6 --with-notice --for 20m")]
    SupplyLoss(supply::SupplyLoss),
    /// An outage: all units of a provider are gone at once
    #[command(after_help = "\
Examples:
  kubebid --as admin inject outage sim-provider-1 --for 5m
  kubebid --as admin inject outage sim-provider-1 --market h100-8x/eu-west")]
    Outage(supply::Outage),
    /// Put offers again as their providers last put them
    #[command(after_help = "\
This undoes supply-loss, outage and preempt. Units that are still leaving stay after all; those that
are gone come back as new units with new numbers. Offers that have enough stay as they are. Each
drill prints the restore that undoes it; without --capacity also units that really broke are back.

Examples:
  kubebid --as admin inject restore h100-8x/eu-west --provider sim-provider-1 --capacity 4
  kubebid --as admin inject restore --provider sim-provider-1")]
    Restore(supply::Restore),
    /// Take this very node from its holder
    #[command(after_help = "\
Its unit is withdrawn on behalf of its provider: the holder gets a notice CAPACITY_WITHDRAWN, and
the node ends after the market's notice or its protection, whichever is later. With --at-once the
unit is lost instead, without a notice.

Examples:
  kubebid --as admin alloc list --all-accounts      which nodes there are
  kubebid --as admin inject preempt 12
  kubebid --as admin inject preempt 12 --at-once")]
    Preempt(supply::Preempt),
    /// Make a stepped clock move by itself, or stand still
    #[command(after_help = "\
For engines with `serve --clock stepped`. The clock moves every quarter of a second;
`kubebid admin advance-time` works beside it. After a restart of the engine it stands still.

Examples:
  kubebid --as admin inject rate 60      a minute of market time a second
  kubebid --as admin inject rate 0       stand still
  kubebid --as admin inject rate         how fast it moves")]
    Rate(Rate),
}

#[derive(Args)]
pub(crate) struct Rate {
    /// Seconds of market time a second, up to 1000000; 0 to stand still
    #[arg(allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    rate: Option<u32>,
}

impl Inject {
    /// `tool` is what the commands begin with that undo it.
    pub(crate) async fn run(self, context: &Context, tool: &str) -> Result<(), Failure> {
        match self {
            Inject::Demand(args) => args.run(context, tool).await,
            Inject::EndDemand(args) => args.run(context).await,
            Inject::SupplyLoss(args) => args.run(context, tool).await,
            Inject::Outage(args) => args.run(context, tool).await,
            Inject::Restore(args) => args.run(context).await,
            Inject::Preempt(args) => args.run(context, tool).await,
            Inject::Rate(args) => args.run(context).await,
        }
    }
}

impl Rate {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let answer = context.client.set_clock_rate(SetClockRateRequest { rate: self.rate }).await?;
        context.out.answer(&answer, |_| {
            let how = match answer.rate {
                0 => "stands still".to_owned(),
                1 => "moves 1 second a second".to_owned(),
                rate => format!("moves {rate} seconds a second"),
            };
            format!("the clock {how}; it is {}", rfc3339(answer.at_us))
        })
    }
}

/// The market price, with at least this command in it.
async fn price(client: &Client, market: &str, min_seq: u64) -> Result<u64, Error> {
    let request = GetMarketPriceRequest { market: market.to_owned(), min_seq, ..Default::default() };
    let answer = client.get_market_price(request).await?;
    let numbers = answer.prices.first().and_then(|price| price.numbers.as_ref());
    Ok(numbers.map_or(0, |numbers| numbers.market_price_micros))
}

/// An instant of market time, seen from another.
fn seen_from(at_us: u64, now_us: u64) -> String {
    if at_us <= now_us {
        return "at once".to_owned();
    }
    match relative(at_us, now_us) {
        Some(relative) => format!("{} ({relative})", to_the_second(at_us)),
        None => to_the_second(at_us),
    }
}
