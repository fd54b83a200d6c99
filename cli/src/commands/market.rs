//! `kubebid market`

use crate::args::{Limit, word};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, Sheet, View, dollars, money, number, text, usd};
use crate::time::Span;
use clap::{Args, Subcommand};
use kubebid_client::v1::market_rules::Pricing;
use kubebid_client::v1::{
    ChangeRulesRequest, CloseMarketRequest, ListMarketsRequest, ListMarketsResponse, Market as PrintDetail,
    MarketRules, OpenMarketRequest,
};
use kubebid_client::{Code, Dollars};

#[derive(Subcommand)]
pub(crate) enum Market {
    /// List markets with their prices, the first opened first
    #[command(after_help = "\
Markets that have ended are shown with --all.

Examples:
  kubebid market list
  kubebid market list --type h100-8x -o wide")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one market: its rules, its five numbers, its units
    #[command(visible_alias = "get")]
    Show {
        /// The market, as in h100-8x/eu-west
        market: String,
    },
    /// Open a market, as administrator
    #[command(after_help = "\
Rules that are left out have their defaults: tick 0.0001, increment 500, ceilings up to 1000000.00,
1000 nodes a bid, minimum runtime 1h, notice 5m, start time-out 15m, minimum charge 5m, no fee.

Examples:
  kubebid --as admin market open h100-8x/eu-west
  kubebid --as admin market open a100-4x/us-east --notice 2m --min-runtime 10m --fee-bps 100")]
    Open {
        /// The market, as in h100-8x/eu-west
        market: String,
        #[command(flatten)]
        rules: RuleFlags,
    },
    /// Close a market, as administrator: it takes no new bids and no more units, and ends when it is empty
    #[command(after_help = "\
Nobody loses a node by it: what holds nodes or waits goes on. Providers take their units back; with the last
one the market ends, and so do the bids that name no other. `market open` opens it again, with its rules.

Examples:
  kubebid --as admin market close h100-8x/eu-wets")]
    Close {
        /// The market, as in h100-8x/eu-west
        market: String,
    },
    /// Show the rules of a market, or, as administrator, change those that are named
    #[command(after_help = "\
Deadlines and protections already given stand.

Examples:
  kubebid market rules h100-8x/eu-west
  kubebid --as admin market rules h100-8x/eu-west --notice 2m")]
    Rules {
        /// The market, as in h100-8x/eu-west
        market: String,
        #[command(flatten)]
        rules: RuleFlags,
    },
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only those of this instance type
    #[arg(long = "type", value_name = "TYPE", default_value = "", hide_default_value = true)]
    instance_type: String,
    /// Only those in this region
    #[arg(long, default_value = "", hide_default_value = true)]
    region: String,
    /// Also those that have ended
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    limit: Limit,
}

/// Rules to set.
#[derive(Args)]
#[command(next_help_heading = "Rules")]
pub(crate) struct RuleFlags {
    /// Every price is a multiple of it; never changed afterwards
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    tick: Option<Dollars>,
    /// Part that a challenger must offer above the ceiling it displaces, in 1/10000 of that
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    increment_bps: Option<u32>,
    /// The highest ceiling that is taken
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    ceiling_max: Option<Dollars>,
    /// Most nodes that one bid may want
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    bid_nodes_max: Option<u32>,
    /// Time for which a node that is ready cannot be displaced
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    min_runtime: Option<Span>,
    /// Time for which a holder keeps a node that was taken from it
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    notice: Option<Span>,
    /// Time that a node may take to become ready
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    start_timeout: Option<Span>,
    /// The least that a released node or a dropped claim is billed for
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    min_charge: Option<Span>,
    /// The marketplace's part of a debit, in 1/10000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=10_000))]
    fee_bps: Option<u32>,
    /// Price that holders pay
    #[arg(long, value_parser = word(&["highest-losing", "lowest-accepted"], Pricing::from_str_name))]
    pricing: Option<Pricing>,
}

impl From<RuleFlags> for MarketRules {
    fn from(rules: RuleFlags) -> Self {
        let micros = |price: Option<Dollars>| price.map(|Dollars(micros)| micros);
        let us = |span: Option<Span>| span.map(|Span(us)| us);
        MarketRules {
            tick_micros: micros(rules.tick),
            increment_bps: rules.increment_bps,
            ceiling_max_micros: micros(rules.ceiling_max),
            bid_nodes_max: rules.bid_nodes_max,
            min_runtime_us: us(rules.min_runtime),
            notice_us: us(rules.notice),
            start_timeout_us: us(rules.start_timeout),
            min_charge_us: us(rules.min_charge),
            fee_bps: rules.fee_bps,
            pricing: rules.pricing.map(i32::from),
        }
    }
}

impl Market {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Market::List(args) => {
                let request = ListMarketsRequest {
                    instance_type: args.instance_type,
                    region: args.region,
                    include_ended: args.all,
                    ..Default::default()
                };
                let answer = client.first(request, args.limit.count()).await?;
                out.answer(&answer, |view| list(&answer, view))?;
                args.limit.note(answer.markets.len(), &answer.next_page_token);
            }
            Market::Show { market } => {
                let shown = find(context, &market).await?;
                out.answer(&shown, |view| show(&shown, view))?;
            }
            Market::Open { market, rules } => {
                let request = OpenMarketRequest { market: market.clone(), rules: Some(rules.into()) };
                let answer = client.open_market(request).await?;
                out.answer(&answer, |_| format!("opened {market}"))?;
            }
            Market::Close { market } => {
                let answer = client.close_market(CloseMarketRequest { market: market.clone() }).await?;
                let ended = !out.is_message() && has_ended(context, &market, answer.seq).await;
                let state = if ended { "it was empty, and has ended" } else { "it ends when it is empty" };
                out.answer(&answer, |_| format!("closed {market}: {state}"))?;
            }
            Market::Rules { market, rules } => {
                let rules = MarketRules::from(rules);
                if rules == MarketRules::default() {
                    let shown = find(context, &market).await?.rules.unwrap_or_default();
                    out.answer(&shown, |view| rules_of(&shown, view).text())?;
                } else {
                    let request = ChangeRulesRequest { market: market.clone(), rules: Some(rules) };
                    let answer = client.change_rules(request).await?;
                    out.answer(&answer, |_| format!("changed {market}"))?;
                }
            }
        }
        Ok(())
    }
}

/// One market by its name: there is no method for it, and a type has few regions.
pub(crate) async fn find(context: &Context, market: &str) -> Result<PrintDetail, Failure> {
    let (instance_type, region) = market.split_once('/').unwrap_or((market, ""));
    let request = ListMarketsRequest {
        instance_type: instance_type.to_owned(),
        region: region.to_owned(),
        include_ended: true,
        ..Default::default()
    };
    let markets = context.client.all(request).await?.markets;
    markets.into_iter().find(|shown| shown.market == market).ok_or_else(|| {
        Failure::unknown(Code::UnknownMarket, format!("there is no market {market}"))
            .next("see what is open: kubebid market list")
    })
}

/// Returns true if a market has ended after a command. The command is done even if this cannot be read.
async fn has_ended(context: &Context, market: &str, min_seq: u64) -> bool {
    let listed = context.client.all(ListMarketsRequest { min_seq, ..Default::default() }).await;
    listed.is_ok_and(|listed| listed.markets.iter().all(|other| other.market != market))
}

fn list(answer: &ListMarketsResponse, view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            text("MARKET"),
            text("STATE"),
            money("PRICE"),
            money("ENTRY"),
            money("FLOOR"),
            number("FREE"),
            number("UNITS"),
            money("TICK"),
            text("MIN RUNTIME"),
            text("NOTICE"),
            number("INCREMENT BPS").wide(),
            text("OPENED").wide(),
        ],
    );
    for market in &answer.markets {
        let price = market.price.clone().unwrap_or_default();
        let (numbers, supply) = (price.numbers.unwrap_or_default(), price.supply.unwrap_or_default());
        let rules = market.rules.unwrap_or_default();
        list.row([
            market.market.clone(),
            market.state().as_str_name().to_owned(),
            dollars(Some(numbers.market_price_micros)),
            dollars(numbers.entry_price_micros),
            dollars(numbers.floor_micros),
            supply.free.to_string(),
            supply.total.to_string(),
            dollars(rules.tick_micros),
            Span(rules.min_runtime_us()).to_string(),
            Span(rules.notice_us()).to_string(),
            rules.increment_bps().to_string(),
            view.brief(market.opened_at_us),
        ]);
    }
    list.or("no markets are open; an administrator opens one: kubebid --as admin market open TYPE/REGION")
}

fn show(market: &PrintDetail, view: &View) -> String {
    let mut sheet = Sheet::new(view);
    sheet
        .line("market", &market.market)
        .line("state", market.state().as_str_name())
        .line("opened", view.when(market.opened_at_us));
    if let Some(price) = &market.price {
        super::price::numbers(&mut sheet, price);
    }
    let rules = rules_of(&market.rules.unwrap_or_default(), view);
    view.around(sheet.text(), |sheet| format!("{sheet}\n\nrules\n{}", rules.text()))
}

fn rules_of(rules: &MarketRules, view: &View) -> Sheet {
    let mut sheet = Sheet::new(view);
    sheet
        .line("tick", usd(rules.tick_micros))
        .some("increment bps", rules.increment_bps)
        .line("highest ceiling", usd(rules.ceiling_max_micros))
        .some("nodes a bid", rules.bid_nodes_max)
        .some("minimum runtime", rules.min_runtime_us.map(Span))
        .some("notice", rules.notice_us.map(Span))
        .some("start time-out", rules.start_timeout_us.map(Span))
        .some("minimum charge", rules.min_charge_us.map(Span))
        .some("fee bps", rules.fee_bps)
        .some("pricing", rules.pricing.map(|_| rules.pricing().as_str_name()));
    sheet
}
