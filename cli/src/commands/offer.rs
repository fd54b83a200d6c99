//! `kubebid offer`

use crate::args::{Key, Limit, Whose};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, Sheet, View, money, number, or_dash, plural, text, usd};
use clap::{ArgGroup, Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::{
    GetOfferRequest, GetOfferResponse, ListOffersRequest, Offer as PrintDetail, PutOfferRequest,
    ReportUnitLostRequest, ResumeUnitsRequest, WithdrawUnitRequest, resume_units_request::Units,
};

#[derive(Subcommand)]
pub(crate) enum Offer {
    /// Set one's offer in a market: so many units at this reserve
    #[command(after_help = "\
One account has one offer in a market; this replaces it. Less capacity takes free units at once and
gives notice to the rest; a reserve above a holder's ceiling gives notice too.

Examples:
  kubebid --as provider offer put h100-8x/eu-west --capacity 8 --reserve 1.20
  kubebid --as provider offer put h100-8x/eu-west --capacity 0 --reserve 1.20    withdraw all of it")]
    Put(Put),
    /// List the offers of which there are units, first market first
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one offer with its units
    #[command(visible_alias = "get")]
    Show(Show),
    /// Take one unit back: free, it goes at once; held, after a notice
    #[command(after_help = "\
Examples:
  kubebid --as provider offer withdraw-unit h100-8x/eu-west:moon#4")]
    WithdrawUnit(Unit),
    /// Report that a unit is no more: its allocation ends at once
    #[command(after_help = "\
Examples:
  kubebid --as provider offer unit-lost h100-8x/eu-west:moon#4")]
    UnitLost(Unit),
    /// Make resting units free again, after somebody has looked at their machines
    #[command(after_help = "\
A unit rests after a node on it was not reported ready in time. No bid gets it until it is resumed;
`kubebid offer show MARKET` shows which units rest. A new offer resumes none.

Examples:
  kubebid --as provider offer resume h100-8x/eu-west:moon#4
  kubebid --as provider offer resume --all --market h100-8x/eu-west")]
    Resume(Resume),
}

#[derive(Args)]
#[command(group = ArgGroup::new("units").required(true).args(["unit", "all"]))]
pub(crate) struct Resume {
    /// The unit, as in h100-8x/eu-west:moon#4
    unit: Option<String>,
    /// All resting units of one's offer in --market
    #[arg(long, requires = "market")]
    all: bool,
    /// The market of --all, as in h100-8x/eu-west
    #[arg(long, requires = "all")]
    market: Option<String>,
    #[command(flatten)]
    key: Key,
}

#[derive(Args)]
pub(crate) struct Put {
    /// The market, as in h100-8x/eu-west
    market: String,
    /// Number of units
    #[arg(long, value_name = "N")]
    capacity: u32,
    /// The least to ask per node-hour, in dollars with up to 6 decimals
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    reserve: Dollars,
    #[command(flatten)]
    key: Key,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only those in this market
    #[arg(long, default_value = "", hide_default_value = true)]
    market: String,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args)]
pub(crate) struct Show {
    /// The market, as in h100-8x/eu-west
    market: String,
    /// Offer of this account, as administrator
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args)]
pub(crate) struct Unit {
    /// The unit, as in h100-8x/eu-west:moon#4
    unit: String,
    #[command(flatten)]
    key: Key,
}

impl Offer {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Offer::Put(Put { market, capacity, reserve, key }) => {
                let request = PutOfferRequest {
                    client_key: key.key,
                    market: market.clone(),
                    capacity,
                    reserve_micros: reserve.0,
                };
                let answer = client.put_offer(request).await?;
                out.answer(&answer, |_| format!("{market}: {} at ${reserve}", plural(capacity, "unit")))
            }
            Offer::List(args) => {
                let request = ListOffersRequest {
                    market: args.market,
                    account: args.whose.account(),
                    ..Default::default()
                };
                let answer = client.first(request, args.limit.count()).await?;
                out.answer(&answer, |view| list(&answer.offers, view))?;
                args.limit.note(answer.offers.len(), &answer.next_page_token);
                Ok(())
            }
            Offer::Show(args) => {
                let request =
                    GetOfferRequest { market: args.market, account: args.account, ..Default::default() };
                let answer = client.first(request, args.limit.count()).await?;
                out.answer(&answer, |view| show(&answer, view))?;
                args.limit.note(answer.units.len(), &answer.next_page_token);
                Ok(())
            }
            Offer::WithdrawUnit(Unit { unit, key }) => {
                let request = WithdrawUnitRequest { client_key: key.key, unit: unit.clone() };
                let answer = client.withdraw_unit(request).await?;
                out.answer(&answer, |_| format!("{unit} is withdrawn"))
            }
            Offer::UnitLost(Unit { unit, key }) => {
                let request = ReportUnitLostRequest { client_key: key.key, unit: unit.clone() };
                let answer = client.report_unit_lost(request).await?;
                out.answer(&answer, |_| format!("{unit} is lost"))
            }
            Offer::Resume(Resume { unit, market, key, all: _ }) => {
                let (units, done) = match (unit, market) {
                    (Some(unit), _) => (Units::Unit(unit.clone()), format!("{unit} is free")),
                    (None, market) => {
                        let market = market.unwrap_or_default();
                        (Units::Market(market.clone()), format!("no unit rests in {market}"))
                    }
                };
                let request = ResumeUnitsRequest { client_key: key.key, units: Some(units) };
                let answer = client.resume_units(request).await?;
                out.answer(&answer, |_| done)
            }
        }
    }
}

fn list(offers: &[PrintDetail], view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            text("MARKET"),
            text("PROVIDER"),
            money("RESERVE"),
            number("CAPACITY"),
            number("FREE"),
            number("ALLOCATED"),
            number("NOTICE"),
            number("LEAVING"),
            number("RESTING"),
            text("PUT").wide(),
        ],
    );
    for offer in offers {
        list.row([
            offer.market.clone(),
            offer.provider.clone(),
            Dollars(offer.reserve_micros).to_string(),
            offer.capacity.to_string(),
            offer.free.to_string(),
            offer.allocated.to_string(),
            offer.notice.to_string(),
            offer.leaving.to_string(),
            offer.resting.to_string(),
            view.brief(offer.put_at_us),
        ]);
    }
    list.or("no offers; make one: kubebid offer put MARKET --capacity N --reserve DOLLARS")
}

fn show(answer: &GetOfferResponse, view: &View) -> String {
    let offer = answer.offer.clone().unwrap_or_default();
    let mut sheet = Sheet::new(view);
    sheet
        .line("market", &offer.market)
        .line("provider", &offer.provider)
        .line("reserve", format!("{} per node-hour", usd(Some(offer.reserve_micros))))
        .line("capacity", offer.capacity)
        .line(
            "units",
            format!(
                "{} free, {} allocated, {} under notice, {} leaving, {} resting",
                offer.free, offer.allocated, offer.notice, offer.leaving, offer.resting
            ),
        )
        .line("put", view.when(offer.put_at_us));
    let mut units = List::new(view, &[text("UNIT"), text("STATE"), number("ALLOCATION"), money("RESERVE")]);
    for unit in &answer.units {
        units.row([
            unit.unit.clone(),
            unit.state().as_str_name().to_owned(),
            or_dash(unit.allocation),
            Dollars(unit.reserve_micros).to_string(),
        ]);
    }
    let resume = match offer.resting {
        0 => String::new(),
        1.. => format!(
            "\n\nAfter a look at the machines that rest: kubebid offer resume --all --market {}",
            offer.market
        ),
    };
    view.around(sheet.text(), |sheet| format!("{sheet}\n\n{}{resume}", units.or("no units")))
}
