//! `kubebid depth`

use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, dollars, number};
use clap::Args;
use kubebid_client::v1::{GetDepthRequest, GetDepthResponse};

/// Demand and supply of a market by price level
#[derive(Args)]
#[command(after_help = "\
Examples:
  kubebid depth h100-8x/eu-west
  kubebid depth h100-8x/eu-west --levels 10")]
pub(crate) struct Depth {
    /// The market, as in h100-8x/eu-west
    market: String,
    /// Number of levels of either side
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1000))]
    levels: u32,
}

impl Depth {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = GetDepthRequest { market: self.market, levels: self.levels, min_seq: 0 };
        let answer = context.client.get_depth(request).await?;
        context.out.answer(&answer, |view| both_sides(&answer, view))
    }
}

fn both_sides(answer: &GetDepthResponse, view: &View) -> String {
    let mut demand =
        List::new(view, &[number("CEILING"), number("UNMET"), number("HELD"), number("CLAIMED")]);
    for level in &answer.demand {
        demand.row([
            dollars(Some(level.ceiling_micros)),
            level.unmet.to_string(),
            level.held.to_string(),
            level.claimed.to_string(),
        ]);
    }
    let mut supply =
        List::new(view, &[number("RESERVE"), number("FREE"), number("ALLOCATED"), number("NOTICE")]);
    for level in &answer.supply {
        supply.row([
            dollars(Some(level.reserve_micros)),
            level.free.to_string(),
            level.allocated.to_string(),
            level.notice.to_string(),
        ]);
    }
    format!(
        "{}, after command {}\n\ndemand\n{}\n\nsupply\n{}",
        answer.market,
        answer.seq,
        demand.or("nobody bids"),
        supply.or("nobody offers")
    )
}
