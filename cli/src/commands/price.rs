//! `kubebid price`

use crate::config::Context;
use crate::failure::Failure;
use crate::money::Dollars;
use crate::output::{List, Sheet, View, dollars, number, text};
use clap::Args;
use kubebid_client::v1::{GetMarketPriceRequest, ListMarketsRequest, MarketPrice};

/// The five numbers of markets: what nodes cost
#[derive(Args)]
#[command(after_help = "\
No number alone is \"the price\":
  PRICE      what a holder of a node pays
  ENTRY      the lowest ceiling that gets --nodes nodes now; - where none does
  FLOOR      the lowest reserve of units that stay
  ACCEPTED   the lowest ceiling among nodes held and claims
  LOSING     the highest ceiling among bids that still want a node
  REFERENCE  the price of which 65 % is the median of the last 48 hours: what strategies multiply

Examples:
  kubebid price
  kubebid price h100-8x/eu-west --nodes 4
  kubebid price --type h100-8x -o json")]
pub(crate) struct Price {
    /// The market, as in h100-8x/eu-west; all where absent
    #[arg(conflicts_with = "instance_type")]
    market: Option<String>,
    /// All markets of this instance type
    #[arg(long = "type", value_name = "TYPE")]
    instance_type: Option<String>,
    /// Number of nodes that the entry price is for
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
}

impl Price {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        if self.market.is_none() && self.instance_type.is_none() {
            if self.nodes.is_some() {
                return Err(Failure::usage("--nodes needs a market or --type"));
            }
            let answer = client.all(ListMarketsRequest::default()).await?;
            let prices: Vec<_> = answer.markets.iter().filter_map(|market| market.price.clone()).collect();
            return out.answer(&answer, |view| list(&prices, view));
        }
        let request = GetMarketPriceRequest {
            market: self.market.clone().unwrap_or_default(),
            instance_type: self.instance_type.unwrap_or_default(),
            nodes: self.nodes,
            min_seq: 0,
        };
        let answer = client.get_market_price(request).await?;
        out.answer(&answer, |view| match (&self.market, answer.prices.as_slice()) {
            (Some(_), [price]) => {
                let mut sheet = Sheet::default();
                sheet.line("market", &price.market);
                numbers(&mut sheet, price);
                sheet.line("as of", format!("{}, command {}", view.when(price.at_us), price.seq));
                sheet.text()
            }
            (_, prices) => list(prices, view),
        })
    }
}

fn list(prices: &[MarketPrice], view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            text("MARKET"),
            number("PRICE"),
            number("ENTRY"),
            number("FLOOR"),
            number("ACCEPTED"),
            number("LOSING"),
            number("REFERENCE"),
            number("FREE"),
            number("UNITS"),
            number("ENTRY NODES").wide(),
            number("ALLOCATED").wide(),
            number("NOTICE").wide(),
            number("CLAIMED").wide(),
            text("AS OF").wide(),
        ],
    );
    for price in prices {
        let (numbers, supply) = (price.numbers.unwrap_or_default(), price.supply.unwrap_or_default());
        list.row([
            price.market.clone(),
            dollars(Some(numbers.market_price_micros)),
            dollars(numbers.entry_price_micros),
            dollars(numbers.floor_micros),
            dollars(numbers.lowest_accepted_micros),
            dollars(Some(numbers.highest_losing_micros)),
            dollars(price.reference_price_micros),
            supply.free.to_string(),
            supply.total.to_string(),
            price.entry_nodes.to_string(),
            supply.allocated.to_string(),
            supply.notice.to_string(),
            supply.claimed.to_string(),
            view.brief(price.at_us),
        ]);
    }
    list.or("no markets are open")
}

/// The five numbers and the supply, one a line.
pub(crate) fn numbers(sheet: &mut Sheet, price: &MarketPrice) {
    let (numbers, supply) = (price.numbers.unwrap_or_default(), price.supply.unwrap_or_default());
    let for_nodes = match price.entry_nodes {
        0 | 1 => String::new(),
        nodes => format!(" for {nodes} nodes"),
    };
    sheet
        .line("market price", Dollars(numbers.market_price_micros))
        .line("entry price", format!("{}{for_nodes}", dollars(numbers.entry_price_micros)))
        .line("floor", dollars(numbers.floor_micros))
        .line("lowest accepted", dollars(numbers.lowest_accepted_micros))
        .line("highest losing", Dollars(numbers.highest_losing_micros))
        .line("reference price", dollars(price.reference_price_micros))
        .line(
            "units",
            format!(
                "{}: {} free, {} allocated, {} under notice ({} claimed)",
                supply.total, supply.free, supply.allocated, supply.notice, supply.claimed
            ),
        );
}
