//! `kubebid depth`

use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, dollars, money, number, text};
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
    if !view.is_for_people() {
        return rows(answer, view);
    }
    let mut demand = List::new(view, &[money("CEILING"), number("UNMET"), number("HELD"), number("CLAIMED")]);
    for level in &answer.demand {
        let nodes = [level.unmet, level.held, level.claimed].map(|nodes| nodes.to_string());
        demand.row([dollars(Some(level.ceiling_micros))].into_iter().chain(nodes).collect::<Vec<_>>());
    }
    let mut supply =
        List::new(view, &[money("RESERVE"), number("FREE"), number("ALLOCATED"), number("NOTICE")]);
    for level in &answer.supply {
        let units = [level.free, level.allocated, level.notice].map(|units| units.to_string());
        supply.row([dollars(Some(level.reserve_micros))].into_iter().chain(units).collect::<Vec<_>>());
    }
    format!(
        "{}\n\ndemand\n{}\n\nsupply\n{}",
        answer.market,
        demand.or("nobody bids"),
        supply.or("nobody offers")
    )
}

/// Returns both sides as one table, for programs.
fn rows(answer: &GetDepthResponse, view: &View) -> String {
    let numbers = ["UNMET", "HELD", "CLAIMED", "FREE", "ALLOCATED", "NOTICE"].map(number);
    let columns: Vec<_> = [text("SIDE"), money("PRICE")].into_iter().chain(numbers).collect();
    let mut list = List::new(view, &columns);
    let mut row = |side: &str, micros: u64, nodes: [String; 6]| {
        let head = [side.to_owned(), dollars(Some(micros))];
        list.row(head.into_iter().chain(nodes).collect::<Vec<_>>());
    };
    let none = String::new;
    for level in &answer.demand {
        let [unmet, held, claimed] = [level.unmet, level.held, level.claimed].map(|nodes| nodes.to_string());
        row("demand", level.ceiling_micros, [unmet, held, claimed, none(), none(), none()]);
    }
    for level in &answer.supply {
        let [free, allocated, notice] =
            [level.free, level.allocated, level.notice].map(|units| units.to_string());
        row("supply", level.reserve_micros, [none(), none(), none(), free, allocated, notice]);
    }
    list.or("")
}
