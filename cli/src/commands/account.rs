//! `kubebid account`

use crate::args::Limit;
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, dollars, number, or_dash, text};
use clap::{Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::{Account, AccountLimits, ListAccountsRequest, PutAccountRequest};

#[derive(Subcommand)]
pub(crate) enum Accounts {
    /// Make an account, or replace its limits, as administrator
    #[command(after_help = "\
Limits that are left out are the engine's defaults, also where the account had others.

Examples:
  kubebid --as admin account put acme
  kubebid --as admin account put acme --open-bids 100 --nodes-wanted 500 --max-ceiling 50")]
    Put(Put),
    /// List accounts by name, as administrator
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        limit: Limit,
    },
}

#[derive(Args)]
pub(crate) struct Put {
    /// Its name: 1 to 63 letters, digits, ".", "_" or "-"
    name: String,
    /// Bids that may search
    #[arg(long, value_name = "N")]
    open_bids: Option<u32>,
    /// Nodes that its searching bids may want, and its others still hold, in all
    #[arg(long, value_name = "N")]
    nodes_wanted: Option<u32>,
    /// The highest ceiling of a bid, in dollars per node-hour
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    max_ceiling: Option<Dollars>,
    /// Requests a second; an offer counts as the units that it changes
    #[arg(long, value_name = "N")]
    requests_per_second: Option<u32>,
    /// Units that it may offer in all markets together
    #[arg(long, value_name = "N")]
    units_offered: Option<u32>,
    /// Units by which one command may change an offer
    #[arg(long, value_name = "N")]
    units_per_command: Option<u32>,
    /// Commands of it that the market may refuse in a second
    #[arg(long, value_name = "N")]
    refusals_per_second: Option<u32>,
    /// Commands a day; an offer counts as the units that it changes
    #[arg(long, value_name = "N")]
    commands_per_day: Option<u32>,
}

impl Accounts {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Accounts::Put(put) => {
                let limits = AccountLimits {
                    open_bids: put.open_bids,
                    nodes_wanted: put.nodes_wanted,
                    ceiling_micros: put.max_ceiling.map(|Dollars(micros)| micros),
                    requests_per_second: put.requests_per_second,
                    units_offered: put.units_offered,
                    units_per_command: put.units_per_command,
                    refusals_per_second: put.refusals_per_second,
                    commands_per_day: put.commands_per_day,
                };
                let request = PutAccountRequest { name: put.name.clone(), limits: Some(limits) };
                let answer = client.put_account(request).await?;
                out.answer(&answer, |_| format!("put the account {}", put.name))
            }
            Accounts::List { limit } => {
                let answer = client.first(ListAccountsRequest::default(), limit.count()).await?;
                out.answer(&answer, |view| list(&answer.accounts, view))?;
                limit.note(answer.accounts.len(), &answer.next_page_token);
                Ok(())
            }
        }
    }
}

fn list(accounts: &[Account], view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            text("ACCOUNT"),
            number("OPEN BIDS"),
            number("NODES WANTED"),
            number("MAX CEILING"),
            number("REQUESTS/S"),
            number("UNITS OFFERED"),
            number("UNITS/COMMAND"),
            number("REFUSALS/S"),
            number("COMMANDS/DAY"),
            text("MADE"),
        ],
    );
    for account in accounts {
        let limits = account.limits.unwrap_or_default();
        list.row([
            account.name.clone(),
            or_dash(limits.open_bids),
            or_dash(limits.nodes_wanted),
            dollars(limits.ceiling_micros),
            or_dash(limits.requests_per_second),
            or_dash(limits.units_offered),
            or_dash(limits.units_per_command),
            or_dash(limits.refusals_per_second),
            or_dash(limits.commands_per_day),
            view.brief(account.created_at_us),
        ]);
    }
    list.or("no accounts")
}
