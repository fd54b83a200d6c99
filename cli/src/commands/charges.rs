//! `kubebid charges`

use crate::args::{Limit, Pair, Period, Whose, its_number, map};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{Column, List, Sheet, View, money, number, or_dash, pairs, text};
use crate::time::Span;
use clap::{Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::get_statement_response::Sums;
use kubebid_client::v1::{
    Charge, GetStatementRequest, GetStatementResponse, ListAccountsRequest, ListChargesRequest,
};

#[derive(Subcommand)]
pub(crate) enum Charges {
    /// List charges, oldest first; what running nodes have accrued so far comes last
    #[command(after_help = "\
Examples:
  kubebid charges list --from -24h
  kubebid charges list --bid 12 -o json      with the price of every hour
  kubebid --as provider charges list         what one earns")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// The sums of an account over a period
    #[command(after_help = "\
Examples:
  kubebid charges statement --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z
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
                let (from_us, to_us) = args.period.bounds();
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
                let (from_us, to_us) = args.period.bounds();
                let by_label = args.by_label.clone();
                let account = args.whose.account();
                let request = GetStatementRequest {
                    from_us,
                    to_us,
                    labels: map(args.label),
                    by_label: args.by_label,
                    account: account.clone().filter(|name| !name.is_empty()),
                    min_seq: 0,
                };
                if account.is_some_and(|name| name.is_empty()) {
                    return of_all_accounts(context, request).await;
                }
                let answer = client.get_statement(request).await?;
                out.answer(&answer, |view| statement(&answer, &by_label, view))
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
        statements.push(client.get_statement(request).await?);
    }
    out.answer(&statements, |view| {
        let columns: Vec<_> = [text("ACCOUNT")].into_iter().chain(sums()).collect();
        let mut list = List::new(view, &columns);
        for answer in &statements {
            let (charged, accrued) = (answer.charged.unwrap_or_default(), answer.accrued.unwrap_or_default());
            let cells = [answer.account.clone()].into_iter().chain(sum(&charged, &accrued));
            list.row(cells.collect::<Vec<_>>());
        }
        list.or("no accounts")
    })
}

/// The columns of sums.
fn sums() -> [Column; 6] {
    [
        money("DEBIT"),
        money("CREDIT"),
        money("FEE").wide(),
        number("NODE TIME"),
        money("ACCRUED DEBIT"),
        money("ACCRUED CREDIT"),
    ]
}

fn sum(charged: &Sums, accrued: &Sums) -> [String; 6] {
    [
        Dollars(charged.debit_micros).to_string(),
        Dollars(charged.credit_micros).to_string(),
        Dollars(charged.fee_micros).to_string(),
        Span(charged.node_time_us).to_string(),
        Dollars(accrued.debit_micros).to_string(),
        Dollars(accrued.credit_micros).to_string(),
    ]
}

fn statement(answer: &GetStatementResponse, by_label: &str, view: &View) -> String {
    let mut sheet = Sheet::new(view);
    sheet
        .line("account", &answer.account)
        .line(
            "from",
            if answer.from_us == 0 { "the beginning".to_owned() } else { view.when(answer.from_us) },
        )
        .line("to", view.when(answer.to_us));
    let split = !by_label.is_empty();
    let mut columns = vec![text("MARKET")];
    columns.extend(split.then(|| text("LABEL")));
    columns.extend(sums());
    let mut list = List::new(view, &columns);
    let mut row = |market: &str, value: String, charged: &Option<Sums>, accrued: &Option<Sums>| {
        let (charged, accrued) = (charged.unwrap_or_default(), accrued.unwrap_or_default());
        let mut cells = vec![market.to_owned()];
        cells.extend(split.then_some(value));
        cells.extend(sum(&charged, &accrued));
        list.row(cells);
    };
    for line in &answer.lines {
        let value = match (&line.label_value, by_label) {
            (Some(value), label) => format!("{label}={value}"),
            (None, _) => "-".to_owned(),
        };
        row(&line.market, value, &line.charged, &line.accrued);
    }
    row("all", "-".to_owned(), &answer.charged, &answer.accrued);
    view.around(list.or(""), |list| format!("{}\n\n{list}", sheet.text()))
}
