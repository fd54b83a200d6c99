//! Demand spikes.

use super::{price, seen_from};
use crate::args::its_number;
use crate::config::Context;
use crate::failure::Failure;
use crate::time::Span;
use clap::{ArgGroup, Args};
use kubebid_client::Dollars;
use kubebid_client::v1::{EndDemandRequest, EndDemandResponse, InjectDemandRequest};

#[derive(Args)]
pub(crate) struct Demand {
    /// The market, as in h100-8x/eu-west
    market: String,
    /// Number of nodes to want
    #[arg(long, value_name = "N")]
    nodes: u32,
    /// The most to pay per node-hour, in dollars with up to 6 decimals: what others have to beat
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    max: Dollars,
    /// Duration by the market's clock, as in 10m
    #[arg(long = "for", value_name = "SPAN", allow_hyphen_values = true)]
    duration: Span,
}

#[derive(Args)]
#[command(group = ArgGroup::new("which").required(true).args(["bid", "all"]))]
pub(crate) struct EndDemand {
    /// The bid of the spike
    #[arg(value_parser = its_number)]
    bid: Option<u64>,
    /// All that are under way
    #[arg(long)]
    all: bool,
}

impl Demand {
    pub(super) async fn run(self, context: &Context, tool: &str) -> Result<(), Failure> {
        let Context { client, out } = context;
        let Demand { market, nodes, max, duration } = self;
        let request = InjectDemandRequest {
            market: market.clone(),
            nodes,
            ceiling_micros: max.0,
            duration_us: duration.0,
        };
        let before = Dollars(price(client, &market, 0).await?);
        let answer = client.inject_demand(request).await?;
        let after = Dollars(price(client, &market, answer.seq).await?);
        out.answer(&answer, |_| {
            let started_us = answer.expire_at_us.saturating_sub(duration.0);
            let missing = nodes.saturating_sub(answer.held + answer.claimed);
            let until = seen_from(answer.expire_at_us, started_us);
            format!(
                "bid {} of kubebid.inject wants {nodes} nodes in {market} for up to ${max}, until {until}\n\
                 nodes: {} at once, {} after the notices of others, {missing} still wanted\n\
                 price: ${before} before, ${after} now\n\
                 end it early: {tool} inject end-demand {}",
                answer.bid, answer.held, answer.claimed, answer.bid
            )
        })
    }
}

impl EndDemand {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let answer = context.client.end_demand(EndDemandRequest { bid: self.bid }).await?;
        context.out.answer(&answer, |_| ended(&answer))
    }
}

fn ended(answer: &EndDemandResponse) -> String {
    if answer.bids.is_empty() {
        return "no demand spike is under way".to_owned();
    }
    let bids: Vec<String> = answer.bids.iter().map(u64::to_string).collect();
    format!("ended bid {}: {} nodes released (command {})", bids.join(", "), answer.released, answer.seq)
}
