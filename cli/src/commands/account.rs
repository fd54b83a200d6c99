//! `kubebid account`

use crate::args::{Key, Limit};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, Sheet, View, dollars, money, number, or_dash, signed_usd, text, usd};
use crate::time::Span;
use clap::{Args, Subcommand};
use kubebid_client::v1::fund_account_request::Change;
use kubebid_client::v1::{
    Account, AccountLimits, FundAccountRequest, Funds, GetAccountRequest, GetAccountResponse,
    ListAccountsRequest, PutAccountRequest, SetBudgetRequest,
};
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
    /// Give an account funds, which it can never overspend, as administrator
    #[command(after_help = "\
An account without funds or a budget is unlimited. With its first funds it can spend what it was given and
no more, to the micro-dollar: a node is taken only while its next ten minutes at the bid's ceiling are
covered, and gets notice in time when the rest is not. Funds are no refund: charges are final.

Examples:
  kubebid --as admin account fund acme 5000           # 5,000 more
  kubebid --as admin account fund acme 200 --set      # 200 left to spend from now on
  kubebid --as admin account fund acme 150 --cut      # 150 less
  kubebid --as admin account fund acme --unlimited    # as before its first funds")]
    Fund(Fund),
    /// Give an account a monthly budget, or end it, as administrator
    #[command(after_help = "\
At the first instant of each month, in UTC, what is left to spend is set to the amount, or grows by it with
--roll-over. An account without funds can spend the amount at once; another one keeps its funds until the
next month begins.

Examples:
  kubebid --as admin account budget acme --monthly 5000
  kubebid --as admin account budget acme --monthly 5000 --roll-over
  kubebid --as admin account budget acme --none")]
    Budget(Budget),
    /// Show what an account can spend, and what counts against its limits
    #[command(after_help = "\
Without a name: your own. Another one as administrator.

Examples:
  kubebid account show
  kubebid --as admin account show acme")]
    Show {
        /// The account [default: that of the token]
        name: Option<String>,
    },
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

#[derive(Args)]
pub(crate) struct Fund {
    /// The account
    name: String,
    /// Dollars to add
    #[arg(value_name = "DOLLARS", required_unless_present = "unlimited", conflicts_with = "unlimited")]
    amount: Option<Dollars>,
    /// The account has this much left to spend, whatever its nodes have cost so far
    #[arg(long, conflicts_with_all = ["cut", "unlimited"])]
    set: bool,
    /// Take the amount away; what nodes reserve stays theirs, and none is taken until the rest is above 0
    #[arg(long, conflicts_with = "unlimited")]
    cut: bool,
    /// The account has no funds and no budget any more, and spends as its bids say
    #[arg(long)]
    unlimited: bool,
    #[command(flatten)]
    key: Key,
}

impl Fund {
    fn request(self) -> Result<FundAccountRequest, Failure> {
        let change = match self.amount {
            None => Change::Unlimited(true),
            Some(amount) if self.set => Change::SetMicros(signed(amount)?),
            Some(amount) if self.cut => Change::AddMicros(-signed(amount)?),
            Some(amount) => Change::AddMicros(signed(amount)?),
        };
        Ok(FundAccountRequest { client_key: self.key.key, account: self.name, change: Some(change) })
    }
}

#[derive(Args)]
pub(crate) struct Budget {
    /// The account
    name: String,
    /// Dollars of each month
    #[arg(long, value_name = "DOLLARS", required_unless_present = "none")]
    monthly: Option<Dollars>,
    /// Keep what is left at the end of a month
    #[arg(long, requires = "monthly")]
    roll_over: bool,
    /// End the budget; the funds stay
    #[arg(long, conflicts_with = "monthly")]
    none: bool,
    #[command(flatten)]
    key: Key,
}

impl Budget {
    fn request(self) -> Result<SetBudgetRequest, Failure> {
        let monthly_micros = self.monthly.map(signed).transpose()?;
        let Budget { name: account, roll_over, key: Key { key: client_key }, .. } = self;
        Ok(SetBudgetRequest { client_key, account, monthly_micros, roll_over })
    }
}

/// Returns an amount of dollars as the API has funds.
fn signed(Dollars(micros): Dollars) -> Result<i64, Failure> {
    i64::try_from(micros).map_err(|_| Failure::usage("that is more money than there is"))
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
            Accounts::Fund(fund) => {
                let name = fund.name.clone();
                let answer = client.fund_account(fund.request()?).await?;
                out.answer(&answer, |_| format!("{name}: {}", in_short(answer.funds.as_ref())))
            }
            Accounts::Budget(budget) => {
                let name = budget.name.clone();
                let answer = client.set_budget(budget.request()?).await?;
                out.answer(&answer, |_| format!("{name}: {}", in_short(answer.funds.as_ref())))
            }
            Accounts::Show { name } => {
                let answer = client.get_account(GetAccountRequest { account: name, min_seq: 0 }).await?;
                out.answer(&answer, |view| sheet(&answer, view))
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

/// Says what an account can spend, in one line.
fn in_short(funds: Option<&Funds>) -> String {
    let Some(funds) = funds else { return "unlimited".to_owned() };
    let (left, available) = (signed_usd(funds.funds_micros), signed_usd(funds.available_micros));
    let budget = funds.budget.map_or_else(String::new, |budget| {
        let kept = if budget.roll_over { ", and what is left" } else { "" };
        format!("; {} a month{kept}", signed_usd(budget.monthly_micros))
    });
    format!("{left} of funds, {available} available{budget}")
}

/// Shows an account: its limits, and its funds if it has any.
pub(crate) fn sheet(answer: &GetAccountResponse, view: &View) -> String {
    let limits = answer.limits.unwrap_or_default();
    let of = |used: u64, most: Option<u32>| format!("{used} of {}", most.unwrap_or(u32::MAX));
    let roles: Vec<_> = answer.roles().map(|role| role.as_str_name().to_lowercase()).collect();
    let mut sheet = Sheet::new(view);
    sheet
        .line("account", &answer.name)
        .line("roles", roles.join(", "))
        .line("bids that search", of(answer.open_bids, limits.open_bids))
        .line("nodes wanted", of(answer.nodes_wanted, limits.nodes_wanted))
        .line("units offered", of(answer.units_offered, limits.units_offered))
        .some(
            "highest ceiling",
            limits.ceiling_micros.filter(|most| *most < i64::MAX.unsigned_abs()).map(|most| usd(Some(most))),
        )
        .some("requests a second", limits.requests_per_second)
        .some("commands a day", limits.commands_per_day);
    let Some(funds) = &answer.funds else {
        return sheet.line("funds", "unlimited").text();
    };
    sheet
        .line("funds", signed_usd(funds.funds_micros))
        .line("reserved", signed_usd(funds.reserved_micros))
        .line("available", signed_usd(funds.available_micros))
        .line("cost per hour", usd(Some(funds.cost_per_hour_micros)))
        .some("lasts for", funds.runway_us.map(Span))
        .some("next renewal", funds.next_renewal_us.map(|at| view.when(at)));
    if let Some(budget) = &funds.budget {
        let what = if budget.roll_over { "added to what is left" } else { "set" };
        sheet
            .line("monthly budget", format!("{}, {what}", signed_usd(budget.monthly_micros)))
            .line("next month", view.when(budget.next_month_us));
    }
    sheet.text()
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
