//! `kubebid account`

use crate::args::Limit;
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, dollars, money, number, or_dash, text};
use clap::{Args, Subcommand};
use kubebid_client::v1::{Account, AccountLimits, ListAccountsRequest, PutAccountRequest};
use kubebid_client::{Client, Dollars};

#[derive(Subcommand)]
pub(crate) enum Accounts {
    /// Make an account, or change its limits, as administrator
    #[command(after_help = "\
Limits that are left out stay as they are; a new account has the engine's defaults. They are read
first and then written: two administrators at once may undo each other's change.

Examples:
  kubebid --as admin account put acme
  kubebid --as admin account put acme --open-bids 100 --nodes-wanted 500 --max-ceiling 50
  kubebid --as admin account put acme --reset --nodes-wanted 500")]
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
    /// Set the limits that are left out to the engine's defaults
    #[arg(long)]
    reset: bool,
}

impl Put {
    /// Returns the limits that the account is to have, of those that it has.
    fn limits(&self, present: AccountLimits) -> AccountLimits {
        AccountLimits {
            open_bids: self.open_bids.or(present.open_bids),
            nodes_wanted: self.nodes_wanted.or(present.nodes_wanted),
            ceiling_micros: self.max_ceiling.map(|Dollars(micros)| micros).or(present.ceiling_micros),
            requests_per_second: self.requests_per_second.or(present.requests_per_second),
            units_offered: self.units_offered.or(present.units_offered),
            units_per_command: self.units_per_command.or(present.units_per_command),
            refusals_per_second: self.refusals_per_second.or(present.refusals_per_second),
            commands_per_day: self.commands_per_day.or(present.commands_per_day),
        }
    }
}

/// Returns the limits of an account; the defaults if there is no such account.
async fn limits_of(client: &Client, name: &str) -> Result<AccountLimits, Failure> {
    let accounts = client.all(ListAccountsRequest::default()).await?.accounts;
    let account = accounts.into_iter().find(|account| account.name == name);
    Ok(account.and_then(|account| account.limits).unwrap_or_default())
}

impl Accounts {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Accounts::Put(put) => {
                let present =
                    if put.reset { AccountLimits::default() } else { limits_of(client, &put.name).await? };
                let limits = put.limits(present);
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
            money("MAX CEILING"),
            number("REQUESTS/S").wide(),
            number("UNITS OFFERED"),
            number("UNITS/COMMAND").wide(),
            number("REFUSALS/S").wide(),
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
