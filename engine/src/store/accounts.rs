//! Rows of accounts and their limits, and the roles that a token may have.

use std::fmt;
use std::str::FromStr;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::rows::{number, optional_number};
use super::{Fault, Rows, bigint};

/// A role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It may bid.
    Tenant,
    /// It may offer.
    Provider,
    /// It may read markets, prices and depth, and the events that concern its account.
    Viewer,
    /// It may do everything, and sees all accounts.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Tenant, Self::Provider, Self::Viewer, Self::Admin];

    /// Returns the name in the database and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Provider => "provider",
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

/// An error: the text is not the name of a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a role; the roles are tenant, provider, viewer and admin")]
pub struct UnknownRole(pub String);

/// An account of the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name, which callers and events show.
    pub name: String,
    /// Its own limits.
    pub limits: Limits,
    /// The time at which it was created, in microseconds since 1970.
    pub created_at_us: u64,
}

/// The limits of an account. `None` means the engine's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most bids that search.
    pub open_bids: Option<u64>,
    /// The most nodes that its searching bids want and its other bids hold, in total.
    pub nodes_wanted: Option<u64>,
    /// The highest ceiling of a bid, per node-hour.
    pub ceiling_micros: Option<u64>,
    /// The most requests per second.
    pub requests_per_second: Option<u64>,
    /// The most units of all its offers.
    pub units_offered: Option<u64>,
    /// The most units by which one command may change an offer.
    pub units_per_command: Option<u64>,
    /// The most commands per second that the market refuses.
    pub refusals_per_second: Option<u64>,
    /// The most commands per day.
    pub commands_per_day: Option<u64>,
}

impl Rows {
    /// Creates an account, or sets the limits of an existing one, whose time of creation stays.
    pub async fn put_account(&self, account: &Account) -> Result<(), Fault> {
        let doing = "saving an account";
        let put = format!(
            "INSERT INTO accounts (name, max_open_bids, max_nodes_wanted, max_ceiling_micros,
                                   max_requests_per_second, max_units_offered, max_units_per_command,
                                   max_refusals_per_second, max_commands_per_day, created_at_us)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM {} WHERE true
             ON CONFLICT (name) DO UPDATE SET
                 max_open_bids = excluded.max_open_bids,
                 max_nodes_wanted = excluded.max_nodes_wanted,
                 max_ceiling_micros = excluded.max_ceiling_micros,
                 max_requests_per_second = excluded.max_requests_per_second,
                 max_units_offered = excluded.max_units_offered,
                 max_units_per_command = excluded.max_units_per_command,
                 max_refusals_per_second = excluded.max_refusals_per_second,
                 max_commands_per_day = excluded.max_commands_per_day",
            self.fence()
        );
        let turn = self.turn.take().await;
        // Safe: made of constants and a UUID.
        let put = sqlx::query(AssertSqlSafe(put))
            .bind(&account.name[..])
            .bind(account.limits.open_bids.map(bigint))
            .bind(account.limits.nodes_wanted.map(bigint))
            .bind(account.limits.ceiling_micros.map(bigint))
            .bind(account.limits.requests_per_second.map(bigint))
            .bind(account.limits.units_offered.map(bigint))
            .bind(account.limits.units_per_command.map(bigint))
            .bind(account.limits.refusals_per_second.map(bigint))
            .bind(account.limits.commands_per_day.map(bigint))
            .bind(bigint(account.created_at_us))
            .execute(&self.pool)
            .await
            .map_err(Fault::database(doing))?;
        drop(turn);
        if put.rows_affected() == 0 { self.still_leads(doing).await } else { Ok(()) }
    }

    /// Reads an account; None if it does not exist.
    pub async fn account(&self, name: &str) -> Result<Option<Account>, Fault> {
        let row = sqlx::query("SELECT * FROM accounts WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database("reading an account"))?;
        Ok(row.map(|row| account(&row)))
    }

    /// Returns at most `limit` accounts after `after`, in the byte order of their names.
    pub async fn accounts(&self, after: &str, limit: u32) -> Result<Vec<Account>, Fault> {
        let rows = sqlx::query("SELECT * FROM accounts WHERE name > $1 ORDER BY name LIMIT $2")
            .bind(after)
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(Fault::database("listing the accounts"))?;
        Ok(rows.iter().map(account).collect())
    }
}

fn account(row: &AnyRow) -> Account {
    Account {
        name: row.get("name"),
        limits: Limits {
            open_bids: optional_number(row, "max_open_bids"),
            nodes_wanted: optional_number(row, "max_nodes_wanted"),
            ceiling_micros: optional_number(row, "max_ceiling_micros"),
            requests_per_second: optional_number(row, "max_requests_per_second"),
            units_offered: optional_number(row, "max_units_offered"),
            units_per_command: optional_number(row, "max_units_per_command"),
            refusals_per_second: optional_number(row, "max_refusals_per_second"),
            commands_per_day: optional_number(row, "max_commands_per_day"),
        },
        created_at_us: number(row, "created_at_us"),
    }
}
