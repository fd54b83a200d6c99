//! Converts requests into commands. An unknown enum value passes, and the market refuses it.

use super::lists;
use super::status::ApiError;
use super::text;
use crate::store::Labels;
use kubebid_core::command::{
    CancelMode, FundChange, OnPreemption, PlaceBid, RestingUnits, RuleChange, RuleValue, TimeInForce,
};
use kubebid_core::units::{AccountName, AllocationId, BidId, ClientKey, MarketName, Micros};
use kubebid_core::{Command, Price};
use kubebid_proto::v1;
use std::mem;
use v1::cancel_bid_request::Mode;
use v1::market_rules::Pricing;
use v1::resume_units_request::Units;

/// A command and the key it came with.
#[derive(Debug)]
pub struct KeyedCommand {
    /// The client key, if the request has one.
    pub key: Option<ClientKey>,
    /// The command.
    pub command: Command,
}

impl KeyedCommand {
    fn new(key: &str, command: Command) -> Result<KeyedCommand, ApiError> {
        Ok(KeyedCommand { key: text::client_key(key)?, command })
    }
}

/// The largest number that the store can hold.
pub const NUMBER_MAX: u64 = i64::MAX as u64;

/// Checks that a price, an amount or an instant can be held by the tables.
pub fn number(field: &str, number: u64) -> Result<u64, ApiError> {
    if number > NUMBER_MAX {
        return Err(ApiError::bad_field(field, format!("{number} is more than {NUMBER_MAX}")));
    }
    Ok(number)
}

/// Reads a change of funds.
pub fn fund_account(request: v1::FundAccountRequest) -> Result<KeyedCommand, ApiError> {
    use v1::fund_account_request::Change;
    let account = text::account("account", &request.account)?;
    let change = match request.change {
        Some(Change::AddMicros(amount)) => FundChange::Add(amount),
        Some(Change::SetMicros(amount)) => FundChange::Set(amount),
        Some(Change::Unlimited(true)) => FundChange::Unlimited,
        Some(Change::Unlimited(false)) | None => {
            let what = "must be one of add_micros, set_micros, and unlimited: true";
            return Err(ApiError::bad_field("change", what));
        }
    };
    KeyedCommand::new(&request.client_key, Command::Fund { account, change })
}

/// Reads a budget.
pub fn set_budget(request: v1::SetBudgetRequest) -> Result<KeyedCommand, ApiError> {
    let account = text::account("account", &request.account)?;
    let v1::SetBudgetRequest { monthly_micros: monthly, roll_over, .. } = request;
    KeyedCommand::new(&request.client_key, Command::SetBudget { account, monthly, roll_over })
}

/// Reads a bid. The labels are taken out of the request. `last` is the market that was named last: most
/// bids of one frame are for the same one.
pub fn place_bid(
    tenant: &AccountName,
    request: &mut v1::PlaceBidRequest,
    last: &mut Option<MarketName>,
) -> Result<(Option<ClientKey>, PlaceBid, Labels), ApiError> {
    let key = text::client_key(&request.client_key)?;
    let labels = text::labels("labels", mem::take(&mut request.labels))?;
    lists::at_most("PlaceBidRequest.markets", "markets", request.markets.len())?;
    let mut markets = Vec::with_capacity(request.markets.len());
    for name in &request.markets {
        let market = match last {
            Some(last) if last.as_str() == name => last.clone(),
            Some(_) | None => last.insert(text::market("markets", name)?).clone(),
        };
        markets.push(market);
    }
    let instance_type = match &request.instance_type[..] {
        "" => None,
        name => {
            // There may be no market whose rules limit the ceiling.
            number("ceiling_micros", request.ceiling_micros)?;
            Some(text::instance_type("instance_type", name)?)
        }
    };
    let bid = PlaceBid {
        tenant: tenant.clone(),
        markets: (!markets.is_empty()).then_some(markets),
        instance_type,
        ceiling: Price(request.ceiling_micros),
        min_nodes: request.min_nodes.unwrap_or(1),
        max_nodes: request.max_nodes,
        time_in_force: time_in_force(request.time_in_force),
        expire_at: request.expire_at_us.map(|at| number("expire_at_us", at)).transpose()?.map(Micros),
        on_preemption: on_preemption(request.on_preemption),
    };
    Ok((key, bid, labels))
}

fn time_in_force(value: i32) -> TimeInForce {
    use v1::place_bid_request::TimeInForce as Wire;
    match Wire::try_from(value) {
        Ok(Wire::Unspecified | Wire::Gtc) => TimeInForce::Gtc,
        Ok(Wire::Gtt) => TimeInForce::Gtt,
        Ok(Wire::Ioc) => TimeInForce::Ioc,
        Err(_) => TimeInForce::Unknown(value.to_string().into()),
    }
}

fn on_preemption(value: i32) -> OnPreemption {
    use v1::place_bid_request::OnPreemption as Wire;
    match Wire::try_from(value) {
        Ok(Wire::Unspecified | Wire::Requeue) => OnPreemption::Requeue,
        Ok(Wire::Close) => OnPreemption::Close,
        Err(_) => OnPreemption::Unknown(value.to_string().into()),
    }
}

/// Reads an amendment of a bid.
pub fn amend_bid(tenant: &AccountName, request: &v1::AmendBidRequest) -> Result<KeyedCommand, ApiError> {
    let command = Command::AmendBid {
        tenant: tenant.clone(),
        bid: BidId(request.bid),
        ceiling: request.ceiling_micros.map(Price),
        max_nodes: request.max_nodes,
    };
    KeyedCommand::new(&request.client_key, command)
}

/// Reads a cancellation of a bid.
pub fn cancel_bid(tenant: &AccountName, request: &v1::CancelBidRequest) -> Result<KeyedCommand, ApiError> {
    let mode = match Mode::try_from(request.mode) {
        Ok(Mode::Keep) => CancelMode::Keep,
        Ok(Mode::Release) => CancelMode::Release,
        Ok(Mode::Regroup) => CancelMode::Regroup,
        Ok(Mode::Unspecified) | Err(_) => CancelMode::Unknown(request.mode.to_string().into()),
    };
    let command = Command::CancelBid { tenant: tenant.clone(), bid: BidId(request.bid), mode };
    KeyedCommand::new(&request.client_key, command)
}

/// Reads a report that a node is ready.
pub fn report_ready(by: &AccountName, request: &v1::ReportReadyRequest) -> Result<KeyedCommand, ApiError> {
    let allocation = AllocationId(request.allocation);
    KeyedCommand::new(&request.client_key, Command::ReportReady { allocation, by: Some(by.clone()) })
}

/// Reads a release of an allocation.
pub fn release_allocation(
    tenant: &AccountName,
    request: &v1::ReleaseAllocationRequest,
) -> Result<KeyedCommand, ApiError> {
    let allocation = AllocationId(request.allocation);
    KeyedCommand::new(&request.client_key, Command::ReleaseAllocation { tenant: tenant.clone(), allocation })
}

/// Reads an offer.
pub fn put_offer(provider: &AccountName, request: &v1::PutOfferRequest) -> Result<KeyedCommand, ApiError> {
    let command = Command::PutOffer {
        provider: provider.clone(),
        market: text::market("market", &request.market)?,
        capacity: u64::from(request.capacity),
        reserve: Price(number("reserve_micros", request.reserve_micros)?),
    };
    KeyedCommand::new(&request.client_key, command)
}

/// Reads a withdrawal of a unit.
pub fn withdraw_unit(
    provider: &AccountName,
    request: &v1::WithdrawUnitRequest,
) -> Result<KeyedCommand, ApiError> {
    let unit = text::unit("unit", &request.unit)?;
    KeyedCommand::new(&request.client_key, Command::WithdrawUnit { provider: provider.clone(), unit })
}

/// Reads a report that a unit is lost.
pub fn report_unit_lost(
    provider: &AccountName,
    request: &v1::ReportUnitLostRequest,
) -> Result<KeyedCommand, ApiError> {
    let unit = text::unit("unit", &request.unit)?;
    KeyedCommand::new(&request.client_key, Command::ReportUnitLost { provider: provider.clone(), unit })
}

/// Reads a resumption of resting units.
pub fn resume_units(
    provider: &AccountName,
    request: &v1::ResumeUnitsRequest,
) -> Result<KeyedCommand, ApiError> {
    let units = match &request.units {
        Some(Units::Unit(unit)) => RestingUnits::One(text::unit("unit", unit)?),
        Some(Units::Market(market)) => RestingUnits::AllIn(text::market("market", market)?),
        None => return Err(ApiError::bad_field("unit", "is absent, and no market is named")),
    };
    KeyedCommand::new(&request.client_key, Command::ResumeUnits { provider: provider.clone(), units })
}

/// Reads the opening of a market.
pub fn open_market(request: v1::OpenMarketRequest) -> Result<Command, ApiError> {
    let market = text::new_market("market", &request.market)?;
    Ok(Command::OpenMarket { market, rules: rules(request.rules.unwrap_or_default())? })
}

/// Reads a change of a market's rules.
pub fn change_rules(request: v1::ChangeRulesRequest) -> Result<Command, ApiError> {
    let market = text::market("market", &request.market)?;
    Ok(Command::ChangeRules { market, rules: rules(request.rules.unwrap_or_default())? })
}

/// Reads the closing of a market.
pub fn close_market(request: v1::CloseMarketRequest) -> Result<Command, ApiError> {
    Ok(Command::CloseMarket { market: text::market("market", &request.market)? })
}

/// The highest `ceiling_max` that a market may be given, in micro-dollars per node-hour. The core allows
/// more. At this price, a node's bill of twenty years is still an amount that the tables can hold.
pub const CEILING_MAX: u64 = 50_000_000_000_000;

/// The longest `min_charge` that a market may be given: a year.
pub const MIN_CHARGE_MAX: Micros = Micros(366 * Micros::DAY.0);

/// Returns the rules that the request sets. The names are those of the core.
fn rules(rules: v1::MarketRules) -> Result<Vec<RuleChange>, ApiError> {
    for (field, value, most) in [
        ("rules.ceiling_max_micros", rules.ceiling_max_micros, CEILING_MAX),
        ("rules.min_charge_us", rules.min_charge_us, MIN_CHARGE_MAX.0),
    ] {
        if let Some(value) = value.filter(|value| *value > most) {
            return Err(ApiError::bad_field(field, format!("{value} is more than {most}")));
        }
    }
    let numbers = [
        ("tick", rules.tick_micros),
        ("increment_bps", rules.increment_bps.map(u64::from)),
        ("ceiling_max", rules.ceiling_max_micros),
        ("bid_nodes_max", rules.bid_nodes_max.map(u64::from)),
        ("min_runtime_us", rules.min_runtime_us),
        ("notice_us", rules.notice_us),
        ("start_timeout_us", rules.start_timeout_us),
        ("min_charge_us", rules.min_charge_us),
        ("fee_bps", rules.fee_bps.map(u64::from)),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, RuleValue::Number(number?))));
    let pricing = rules.pricing.map(|pricing| ("pricing", RuleValue::Word(pricing_word(pricing))));
    Ok(numbers.chain(pricing).map(|(name, value)| RuleChange { name: name.into(), value }).collect())
}

fn pricing_word(pricing: i32) -> Box<str> {
    match Pricing::try_from(pricing) {
        Ok(Pricing::HighestLosing) => "HighestLosing".into(),
        Ok(Pricing::LowestAccepted) => "LowestAccepted".into(),
        Ok(Pricing::Unspecified) | Err(_) => pricing.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubebid_core::MarketRules;

    #[test]
    fn every_rule_of_the_core_can_be_set_by_a_request() {
        let all = v1::MarketRules {
            tick_micros: Some(50),
            increment_bps: Some(1),
            ceiling_max_micros: Some(2),
            bid_nodes_max: Some(3),
            min_runtime_us: Some(4),
            notice_us: Some(5),
            start_timeout_us: Some(6),
            min_charge_us: Some(7),
            fee_bps: Some(8),
            pricing: Some(Pricing::LowestAccepted.into()),
        };
        let all = rules(all).unwrap();
        let names: Vec<_> = all.iter().map(|change| change.name.to_string()).collect();
        assert_eq!(names, kubebid_core::market_rules::RULE_NAMES);
        assert!(MarketRules::default().with(&all).is_ok());
        assert!(rules(v1::MarketRules::default()).unwrap().is_empty());
    }

    #[test]
    fn rules_by_which_a_bill_outgrows_the_tables_are_refused() {
        let (ceiling, charge) = (CEILING_MAX, MIN_CHARGE_MAX.0);
        let most = v1::MarketRules {
            ceiling_max_micros: Some(ceiling),
            min_charge_us: Some(charge),
            ..v1::MarketRules::default()
        };
        assert!(rules(most).is_ok());
        let twenty_years = Micros(20 * 365 * Micros::DAY.0 + charge);
        assert!(i64::try_from(Price(ceiling).over(twenty_years).round().0).is_ok());
        for over in [
            v1::MarketRules { ceiling_max_micros: Some(ceiling + 1), ..most },
            v1::MarketRules { min_charge_us: Some(u64::MAX), ..most },
        ] {
            assert_eq!(rules(over).unwrap_err().code.word(), "BAD_FIELD");
        }
    }

    #[test]
    fn unknown_words_reach_the_market() {
        let mut request = v1::PlaceBidRequest {
            markets: vec!["a/b".to_owned()],
            time_in_force: 9,
            on_preemption: -1,
            ..v1::PlaceBidRequest::default()
        };
        let (key, bid, _) = place_bid(&AccountName::new("t1"), &mut request, &mut None).unwrap();
        assert_eq!(key, None);
        assert_eq!(bid.time_in_force, TimeInForce::Unknown("9".into()));
        assert_eq!(bid.on_preemption, OnPreemption::Unknown("-1".into()));
        assert_eq!((bid.min_nodes, bid.max_nodes), (1, 0));
    }
}
