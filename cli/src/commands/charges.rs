//! `kubebid charges`

use crate::args::{Limit, Pair, Period, Whose, its_number, map};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{Column, List, Sheet, View, money, number, or_dash, pairs, text};
use crate::time::{Span, rfc3339_in};
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use kubebid_client::Dollars;
use kubebid_client::v1::get_statement_response::Sums;
use kubebid_client::v1::{
    Charge, GetStatementRequest, GetStatementResponse, ListAccountsRequest, ListChargesRequest,
};

#[derive(Subcommand)]
pub(crate) enum Charges {
    /// List charges, oldest first; what running nodes have accrued so far comes last
    #[command(after_help = "\
--from and --to choose charges by the time at which they were made; each is whole. What a period
has cost is in charges statement.

Examples:
  kubebid charges list --from -24h
  kubebid charges list --bid 12 -o json      with the price of every hour
  kubebid --as provider charges list         what one earns")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// The sums of an account over a period
    #[command(after_help = "\
A node that runs across an end of the period is cut there: adjacent periods add up to the
whole. The figures of a closed period never change; what is corrected later is taken from
the period in which it is corrected.

Examples:
  kubebid charges statement --from 2026-11-01 --to 2026-12-01
  kubebid charges statement --from 2026-11-01 --to 2026-12-01 --time-zone Asia/Kolkata
  kubebid charges statement --by-label team
  kubebid --as admin charges statement --all-accounts -o csv")]
    Statement(Statement),
}

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    period: Period,
    /// Only those of this market
    #[arg(long, default_value = "", hide_default_value = true)]
    market: String,
    /// Only those of this bid
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = its_number)]
    bid: u64,
    /// Only those of this allocation
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = its_number)]
    alloc: u64,
    /// Only those whose bid has this label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Pair>,
    /// Without what running nodes have accrued
    #[arg(long)]
    final_only: bool,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args)]
pub(crate) struct Statement {
    #[command(flatten)]
    period: Period,
    /// Only bids that have this label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Pair>,
    /// Split the lines by the value of this label
    #[arg(
        long,
        value_name = "KEY",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "all_accounts"
    )]
    by_label: String,
    #[command(flatten)]
    whose: Whose,
}

impl Charges {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Charges::List(args) => {
                let (from_us, to_us) = args.period.bounds()?;
                let request = ListChargesRequest {
                    from_us,
                    to_us,
                    market: args.market,
                    bid: args.bid,
                    allocation: args.alloc,
                    labels: map(args.label),
                    final_only: args.final_only,
                    brief: !out.is_message(),
                    account: args.whose.account(),
                    ..Default::default()
                };
                let answer = client.first(request, args.limit.count()).await?;
                out.answer(&answer, |view| list(&answer.charges, view))?;
                args.limit.note(answer.charges.len(), &answer.next_page_token);
                Ok(())
            }
            Charges::Statement(args) => {
                let (from_us, to_us) = args.period.bounds()?;
                let by_label = args.by_label.clone();
                let account = args.whose.account();
                let zone = args.period.time_zone;
                let request = GetStatementRequest {
                    from_us,
                    to_us,
                    labels: map(args.label),
                    by_label: args.by_label,
                    account: account.clone().filter(|name| !name.is_empty()),
                    ..Default::default()
                };
                if account.is_some_and(|name| name.is_empty()) {
                    return of_all_accounts(context, request).await;
                }
                let answer = client.all(request).await?;
                out.answer(&answer, |view| statement(&answer, &by_label, &zone, view))
            }
        }
    }
}

fn list(charges: &[Charge], view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            number("ALLOC").csv("allocation"),
            number("BID"),
            text("UNIT"),
            text("WHY"),
            text("FROM"),
            number("TIME"),
            money("DEBIT"),
            money("FEE").wide(),
            money("CREDIT"),
            text("TENANT").wide(),
            text("PROVIDER").wide(),
            number("COMMAND").wide(),
            text("LABELS").wide(),
        ],
    );
    for charge in charges {
        list.row([
            or_dash(charge.allocation),
            or_dash(charge.bid),
            charge.unit.clone(),
            charge.reason.map_or("runs", |_| charge.reason().as_str_name()).to_owned(),
            view.brief(charge.from_us),
            Span(charge.to_us.saturating_sub(charge.from_us)).to_string(),
            Dollars(charge.debit_micros).to_string(),
            Dollars(charge.fee_micros).to_string(),
            Dollars(charge.credit_micros).to_string(),
            or_dash(charge.tenant.as_ref()),
            charge.provider.clone(),
            or_dash(charge.seq),
            pairs(&charge.labels),
        ]);
    }
    list.or("no charges")
}

/// Prints the statement of each account, over one period.
async fn of_all_accounts(context: &Context, request: GetStatementRequest) -> Result<(), Failure> {
    let Context { client, out } = context;
    let mut statements = Vec::new();
    for account in client.all(ListAccountsRequest::default()).await?.accounts {
        let request = GetStatementRequest { account: Some(account.name), ..request.clone() };
        statements.push(client.all(request).await?);
    }
    out.answer(&statements, |view| {
        let columns: Vec<_> = [text("ACCOUNT")].into_iter().chain(sums()).collect();
        let mut list = List::new(view, &columns);
        for answer in &statements {
            let sums = sum(&answer.charged, &answer.accrued, &answer.corrected);
            list.row([answer.account.clone()].into_iter().chain(sums).collect::<Vec<_>>());
        }
        list.or("no accounts")
    })
}

/// The columns of sums.
fn sums() -> [Column; 8] {
    [
        money("DEBIT"),
        money("CREDIT"),
        money("FEE").wide(),
        number("NODE TIME"),
        money("ACCRUED DEBIT"),
        money("ACCRUED CREDIT"),
        money("CORRECTED DEBIT").wide(),
        money("CORRECTED CREDIT").wide(),
    ]
}

/// Returns the cells of sums. What was charged is less what is corrected, so that the periods of a year add up to it.
fn sum(charged: &Option<Sums>, accrued: &Option<Sums>, corrected: &Option<Sums>) -> [String; 8] {
    let [charged, accrued, corrected] = [charged, accrued, corrected].map(|sums| sums.unwrap_or_default());
    let time = i128::from(charged.node_time_us) - i128::from(corrected.node_time_us);
    let span = Span(u64::try_from(time.unsigned_abs()).unwrap_or(u64::MAX));
    [
        less(charged.debit_micros, corrected.debit_micros),
        less(charged.credit_micros, corrected.credit_micros),
        less(charged.fee_micros, corrected.fee_micros),
        format!("{}{span}", if time < 0 { "-" } else { "" }),
        Dollars(accrued.debit_micros).to_string(),
        Dollars(accrued.credit_micros).to_string(),
        Dollars(corrected.debit_micros).to_string(),
        Dollars(corrected.credit_micros).to_string(),
    ]
}

/// Returns a difference of amounts, which may be below 0.
fn less(amount: u64, taken: u64) -> String {
    let sign = if taken > amount { "-" } else { "" };
    format!("{sign}{}", Dollars(amount.abs_diff(taken)))
}

fn statement(answer: &GetStatementResponse, by_label: &str, zone: &TimeZone, view: &View) -> String {
    let mut sheet = Sheet::new(view);
    let when = |at_us| if *zone == TimeZone::UTC { view.when(at_us) } else { rfc3339_in(at_us, zone) };
    sheet
        .line("account", &answer.account)
        .line("from", if answer.from_us == 0 { "the beginning".to_owned() } else { when(answer.from_us) })
        .line("to", when(answer.to_us))
        .line("closed", if answer.closed { "yes" } else { "no" });
    let split = !by_label.is_empty();
    let mut columns = vec![text("MARKET")];
    columns.extend(split.then(|| text("LABEL")));
    columns.extend(sums());
    let mut list = List::new(view, &columns);
    let mut row = |market: &str, value: String, sums: [String; 8]| {
        let mut cells = vec![market.to_owned()];
        cells.extend(split.then_some(value));
        cells.extend(sums);
        list.row(cells);
    };
    for line in &answer.lines {
        let value = match (&line.label_value, by_label) {
            (Some(value), label) => format!("{label}={value}"),
            (None, _) => "-".to_owned(),
        };
        row(&line.market, value, sum(&line.charged, &line.accrued, &line.corrected));
    }
    row("all", "-".to_owned(), sum(&answer.charged, &answer.accrued, &answer.corrected));
    view.around(list.or(""), |list| format!("{}\n\n{list}", sheet.text()))
}
