//! `kubebid price`

mod history;
mod live;

use crate::commands::market;
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, Sheet, View, dollars, money, number, text, usd, while_read};
use crate::suggestion;
use crate::time::SECOND;
use clap::{Args, Subcommand};
use kubebid_client::v1::{
    GetMarketPriceRequest, GetMarketPriceResponse, ListMarketsRequest, Market, MarketPrice, PriceNumbers,
};

/// The history after which a reference price is not said to be young.
const DAY: u64 = 86_400 * SECOND;

/// The five numbers of markets: what nodes cost
#[derive(Args)]
#[command(
    after_help = "\
No number alone is \"the price\":
  PRICE      what a holder of a node pays
  ENTRY      the lowest ceiling that gets --nodes nodes now; - where none does
  FLOOR      the lowest reserve of units that stay
  ACCEPTED   the lowest ceiling among nodes held and claims
  LOSING     the highest ceiling among bids that still want a node; - where no bid loses
  REFERENCE  the price of which 65 % is the median of the last 48 hours: what strategies multiply

Examples:
  kubebid price
  kubebid price h100-8x/eu-west --nodes 4
  kubebid price --type h100-8x -o json
  kubebid price --watch                          a table that follows the market
  kubebid price history h100-8x/eu-west --from -24h --bar 1h -o csv",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Price {
    #[command(subcommand)]
    command: Option<PriceCommand>,
    /// The market, as in h100-8x/eu-west; all where absent
    #[arg(conflicts_with = "instance_type")]
    market: Option<String>,
    /// All markets of this instance type
    #[arg(long = "type", value_name = "TYPE")]
    instance_type: Option<String>,
    /// Number of nodes that the entry price is for
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Show the table anew when a price changes, until Ctrl-C
    #[arg(short, long, conflicts_with = "nodes")]
    watch: bool,
}

#[derive(Subcommand)]
enum PriceCommand {
    /// List the prices of the past
    History(history::History),
}

impl Price {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        if let Some(PriceCommand::History(history)) = self.command {
            return history.run(context).await;
        }
        if self.watch {
            let prices = live::run(context, self.market.as_deref(), self.instance_type.as_deref());
            return while_read(prices).await;
        }
        if self.market.is_none() && self.instance_type.is_none() {
            if self.nodes.is_some() {
                return Err(Failure::usage("--nodes needs a market or --type"));
            }
            let answer = client.all(ListMarketsRequest::default()).await?;
            let prices: Vec<_> = answer.markets.iter().filter_map(|market| market.price.clone()).collect();
            return out.answer(&answer, |view| {
                let note =
                    young(&answer.markets, view).map_or_else(String::new, |young| format!("\n{young}"));
                view.around(list(&prices, view), |list| format!("{list}{note}"))
            });
        }
        let request = GetMarketPriceRequest {
            market: self.market.clone().unwrap_or_default(),
            instance_type: self.instance_type.clone().unwrap_or_default(),
            nodes: self.nodes,
            min_seq: 0,
        };
        let answer = client.get_market_price(request).await?;
        if let Some(instance_type) = self.instance_type.filter(|_| answer.prices.is_empty()) {
            suggestion::note_unknown_type(context, &instance_type).await;
        }
        let begin = match &self.market {
            Some(market) if !out.is_message() => market::find(context, market).await.ok(),
            _ => None,
        };
        out.answer(&answer, |view| match (&self.market, answer.prices.as_slice()) {
            (Some(_), [price]) => {
                let mut sheet = Sheet::new(view);
                sheet.line("market", &price.market);
                numbers(&mut sheet, price);
                let since = begin.as_ref().and_then(of_less_than_a_day);
                sheet.some("reference since", since.map(|opened_us| view.when(opened_us)));
                sheet.line("as of", view.when(price.at_us));
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
            money("PRICE"),
            money("ENTRY"),
            money("FLOOR"),
            money("ACCEPTED"),
            money("LOSING"),
            money("REFERENCE"),
            number("FREE"),
            number("UNITS"),
            number("ENTRY NODES").wide(),
            number("ALLOCATED").wide(),
            number("NOTICE").wide(),
            number("CLAIMED").wide(),
            number("RESTING").wide(),
            text("AS OF").wide(),
        ],
    );
    for price in prices {
        let (numbers, supply) = (price.numbers.unwrap_or_default(), price.supply.unwrap_or_default());
        let [now, entry, floor, accepted, losing] = cells(&numbers);
        list.row([
            price.market.clone(),
            now,
            entry,
            floor,
            accepted,
            losing,
            dollars(price.reference_price_micros),
            supply.free.to_string(),
            supply.total.to_string(),
            price.entry_nodes.to_string(),
            supply.allocated.to_string(),
            supply.notice.to_string(),
            supply.claimed.to_string(),
            supply.resting.to_string(),
            view.brief(price.at_us),
        ]);
    }
    list.or("no markets are open")
}

/// Returns the five numbers, for columns of money: price, entry, floor, accepted, losing.
pub(crate) fn cells(numbers: &PriceNumbers) -> [String; 5] {
    [
        Some(numbers.market_price_micros),
        numbers.entry_price_micros,
        numbers.floor_micros,
        numbers.lowest_accepted_micros,
        losing(numbers),
    ]
    .map(dollars)
}

/// Returns the highest losing ceiling; None where no bid loses.
fn losing(numbers: &PriceNumbers) -> Option<u64> {
    Some(numbers.highest_losing_micros).filter(|micros| *micros > 0)
}

/// Returns when a market was opened, if its reference price is of less than a day for that.
fn of_less_than_a_day(market: &Market) -> Option<u64> {
    let price = market.price.as_ref().filter(|price| price.reference_price_micros.is_some())?;
    (price.at_us.saturating_sub(market.opened_at_us) < DAY).then_some(market.opened_at_us)
}

/// Says in how many markets the reference price is of less than a day, and since when.
fn young(markets: &[Market], view: &View) -> Option<String> {
    let opened: Vec<_> = markets.iter().filter_map(of_less_than_a_day).collect();
    let first = view.brief(*opened.iter().min()?);
    Some(match opened.len() {
        1 => format!("REFERENCE covers less than a day in one market, which was opened {first}"),
        count => format!("REFERENCE covers less than a day in {count} markets; the first was opened {first}"),
    })
}

/// Reads the prices of a market, of the markets of a type, or of all.
async fn prices(
    context: &Context,
    market: Option<&str>,
    instance_type: Option<&str>,
) -> Result<GetMarketPriceResponse, Failure> {
    if market.is_none() && instance_type.is_none() {
        let answer = context.client.all(ListMarketsRequest::default()).await?;
        let prices = answer.markets.into_iter().filter_map(|market| market.price).collect();
        return Ok(GetMarketPriceResponse { seq: answer.seq, prices, ..Default::default() });
    }
    let request = GetMarketPriceRequest {
        market: market.unwrap_or_default().to_owned(),
        instance_type: instance_type.unwrap_or_default().to_owned(),
        ..Default::default()
    };
    Ok(context.client.get_market_price(request).await?)
}

/// The five numbers and the supply, one a line.
pub(crate) fn numbers(sheet: &mut Sheet, price: &MarketPrice) {
    let (numbers, supply) = (price.numbers.unwrap_or_default(), price.supply.unwrap_or_default());
    let for_nodes = match price.entry_nodes {
        0 | 1 => String::new(),
        nodes => format!(" for {nodes} nodes"),
    };
    sheet
        .line("market price", usd(Some(numbers.market_price_micros)))
        .line("entry price", format!("{}{for_nodes}", usd(numbers.entry_price_micros)))
        .line("floor", usd(numbers.floor_micros))
        .line("lowest accepted", usd(numbers.lowest_accepted_micros))
        .line("highest losing", usd(losing(&numbers)))
        .line("reference price", usd(price.reference_price_micros))
        .line(
            "units",
            format!(
                "{}: {} free, {} allocated, {} under notice ({} claimed), {} resting",
                supply.total, supply.free, supply.allocated, supply.notice, supply.claimed, supply.resting
            ),
        );
}
