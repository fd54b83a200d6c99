//! Converts accounts, tokens and instance types.

use super::command::number;
use super::lists;
use super::status::ApiError;
use super::text;
use crate::events::message::signed_micros;
use crate::store::{Account, InstanceType, Limits, Role, Token};
use kubebid_core::views::FundsView;
use kubebid_core::{Amount, Funds};
use kubebid_proto::v1;
use std::collections::{BTreeMap, BTreeSet};
use v1::token::Role as WireRole;

/// The most bytes of a key of an instance type's resources and labels; below, of a value.
const ENTRY_KEY: usize = 317;
const ENTRY_VALUE: usize = 256;

/// Reads the limits of an account.
pub(crate) fn limits(limits: v1::AccountLimits) -> Result<Limits, ApiError> {
    Ok(Limits {
        open_bids: limits.open_bids.map(u64::from),
        nodes_wanted: limits.nodes_wanted.map(u64::from),
        ceiling_micros: limits
            .ceiling_micros
            .map(|most| number("limits.ceiling_micros", most))
            .transpose()?,
        requests_per_second: limits.requests_per_second.map(u64::from),
        units_offered: limits.units_offered.map(u64::from),
        units_per_command: limits.units_per_command.map(u64::from),
        refusals_per_second: limits.refusals_per_second.map(u64::from),
        commands_per_day: limits.commands_per_day.map(u64::from),
    })
}

/// Returns an account as a message.
pub(crate) fn account_message(account: Account) -> v1::Account {
    let limits = Some(limits_message(account.limits));
    v1::Account { name: account.name, limits, created_at_us: account.created_at_us }
}

/// Returns limits as a message.
pub(crate) fn limits_message(limits: Limits) -> v1::AccountLimits {
    let small = |limit: Option<u64>| limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    v1::AccountLimits {
        open_bids: small(limits.open_bids),
        nodes_wanted: small(limits.nodes_wanted),
        ceiling_micros: limits.ceiling_micros,
        requests_per_second: small(limits.requests_per_second),
        units_offered: small(limits.units_offered),
        units_per_command: small(limits.units_per_command),
        refusals_per_second: small(limits.refusals_per_second),
        commands_per_day: small(limits.commands_per_day),
    }
}

/// Returns what a funded account can spend as a message.
pub(crate) fn funds_message(view: &FundsView) -> v1::Funds {
    let budget = view.budget.map(|budget| v1::Budget {
        monthly_micros: budget.monthly,
        roll_over: budget.roll_over,
        next_month_us: budget.next_month.0,
    });
    let micros = |amount: Amount| signed_micros(Funds(amount.0.try_into().unwrap_or(i128::MAX)));
    v1::Funds {
        funds_micros: signed_micros(view.funds),
        reserved_micros: micros(view.reserved),
        available_micros: signed_micros(view.available),
        cost_so_far_micros: micros(view.cost_so_far),
        cost_per_hour_micros: micros(view.cost_per_hour).unsigned_abs(),
        runway_us: view.runway.map(|runway| runway.0),
        unfunded_nodes: view.unfunded,
        next_renewal_us: view.next_renewal.map(|at| at.0),
        budget,
    }
}

/// Reads at least one role. All must be known.
pub(crate) fn roles(roles: &[i32]) -> Result<BTreeSet<Role>, ApiError> {
    lists::at_most("CreateTokenRequest.roles", "roles", roles.len())?;
    if roles.is_empty() {
        return Err(ApiError::bad_field("roles", "names none"));
    }
    let known = |role: &i32| match WireRole::try_from(*role) {
        Ok(WireRole::Tenant) => Ok(Role::Tenant),
        Ok(WireRole::Provider) => Ok(Role::Provider),
        Ok(WireRole::Viewer) => Ok(Role::Viewer),
        Ok(WireRole::Admin) => Ok(Role::Admin),
        Ok(WireRole::Unspecified) | Err(_) => {
            Err(ApiError::bad_field("roles", "are TENANT, PROVIDER, VIEWER and ADMIN"))
        }
    };
    roles.iter().map(known).collect()
}

/// Returns a role as the number of a message.
pub(crate) fn role_message(role: Role) -> i32 {
    let role = match role {
        Role::Tenant => WireRole::Tenant,
        Role::Provider => WireRole::Provider,
        Role::Viewer => WireRole::Viewer,
        Role::Admin => WireRole::Admin,
    };
    role.into()
}

/// Returns a token as a message, without its secret.
pub(crate) fn token_message(token: Token) -> v1::Token {
    v1::Token {
        token_id: token.id.to_string(),
        account: token.account,
        roles: token.roles.into_iter().map(role_message).collect(),
        description: token.note,
        created_at_us: token.created_at_us,
        revoked_at_us: token.revoked_at_us,
    }
}

/// Reads an instance type.
pub(crate) fn instance_type(message: v1::InstanceType) -> Result<InstanceType, ApiError> {
    text::name("instance_type.name", &message.name)?;
    let price = message.on_demand_price_micros;
    let price = price.map(|price| number("instance_type.on_demand_price_micros", price));
    Ok(InstanceType {
        name: message.name,
        allocatable: entries("instance_type.allocatable", message.allocatable)?,
        node_labels: entries("instance_type.node_labels", message.node_labels)?,
        on_demand_price_micros: price.transpose()?,
    })
}

/// Returns an instance type as a message.
pub(crate) fn instance_type_message(instance_type: InstanceType) -> v1::InstanceType {
    v1::InstanceType {
        name: instance_type.name,
        allocatable: instance_type.allocatable,
        node_labels: instance_type.node_labels,
        on_demand_price_micros: instance_type.on_demand_price_micros,
    }
}

/// Checks a map of an instance type. Kubernetes' own names are up to 253 + 1 + 63 bytes long.
fn entries(field: &str, entries: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, ApiError> {
    let list = field.replace("instance_type", "InstanceType");
    lists::at_most(&list, field, entries.len())?;
    for (key, value) in &entries {
        if key.is_empty() {
            return Err(ApiError::bad_field(field, "has an empty key"));
        }
        text::text(field, key, ENTRY_KEY)?;
        text::text(field, value, ENTRY_VALUE)?;
    }
    Ok(entries)
}
