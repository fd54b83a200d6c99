//! InjectLoss, RestoreOffers, PreemptAllocation: takes units away on behalf of their providers, and brings them back.

use super::log;
use crate::api::Api;
use crate::api::commands::{Done, done};
use crate::auth::caller::Caller;
use crate::events::commit::Step;
use crate::readmodel::rows::OfferRow;
use crate::runtime::intake::unstamped;
use crate::wire::echo::quoted;
use crate::wire::status::{ApiError, Code};
use crate::wire::text;
use kubebid_core::event::{EndReason, Fact, Node};
use kubebid_core::units::{AccountName, AllocationId, MarketId, MarketName, Micros, Names, UnitId, UnitName};
use kubebid_core::views::{AllocationView, OfferView};
use kubebid_core::{Command, MarketState, Price, Reject};
use kubebid_proto::v1;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

/// The most units taken in one submission.
const AT_ONCE: usize = 512;
/// The most offers that RestoreOffers reads.
const OFFERS: u32 = 100_000;

/// The offers to take units from: those of one market, of one provider, or a single offer.
#[derive(Clone, Debug)]
struct AccountFilter {
    market: Option<MarketName>,
    provider: Option<AccountName>,
}

/// The way in which a unit is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    Lost,
    Withdrawn,
}

/// A unit to take.
#[derive(Clone, Debug)]
struct Target {
    id: UnitId,
    name: UnitName,
    holder: Option<AllocationView>,
}

/// A unit that was taken, and its former holder, if it had one.
struct Taken {
    done: Done,
    from: Option<v1::TakenUnit>,
}

impl Api {
    /// InjectLoss: reports units lost, or withdraws them, on behalf of their providers.
    pub async fn inject_loss(
        &self,
        caller: &Caller,
        request: v1::InjectLossRequest,
    ) -> Result<v1::InjectLossResponse, ApiError> {
        self.drills()?;
        let whose = AccountFilter::parse(&request.market, &request.account)?;
        let of = whose.to_string();
        let going = if request.with_notice { Going::Withdrawn } else { Going::Lost };
        let units = match request.units {
            Some(0) => return Err(ApiError::bad_field("units", "is 0; absent it is all units of account")),
            None if whose.provider.is_none() => {
                return Err(ApiError::bad_field("units", "is required where no account is named"));
            }
            units => units.map(|units| units as usize),
        };
        let (targets, before) = self.targets(&whose, units, going).await?;
        let seq = self.0.engine.applied();
        let mut answer = v1::InjectLossResponse { seq, before, ..Default::default() };
        for some in targets.chunks(AT_ONCE) {
            for taken in self.take(caller, some.to_vec(), going).await? {
                let Taken { done, from } = match taken {
                    Ok(taken) => taken,
                    // Another command took the unit first: it is gone, or leaving.
                    Err(error) if error.seq.is_some() => continue,
                    Err(error) => return Err(error),
                };
                (answer.seq, answer.at_us) = (done.seq, done.at.0);
                match from {
                    Some(unit) => answer.taken.push(unit),
                    None => answer.free += 1,
                }
            }
        }
        let (free, held) = (answer.free, answer.taken.len());
        log(caller, format_args!("{free} free and {held} held units of {of} are taken"));
        Ok(answer)
    }

    /// PreemptAllocation: withdraws the unit of one node on behalf of its provider, so that the node
    /// gets a notice.
    pub async fn preempt_allocation(
        &self,
        caller: &Caller,
        request: v1::PreemptAllocationRequest,
    ) -> Result<v1::PreemptAllocationResponse, ApiError> {
        self.drills()?;
        let node = AllocationId(request.allocation);
        let unknown = || {
            let what = format!("there is no allocation {}, or it has ended", node.0);
            ApiError::new(Code::Market(Reject::UnknownAllocation)).saying(what)
        };
        let going = if request.at_once { Going::Lost } else { Going::Withdrawn };
        let asked = self.0.engine.ask(move |exchange| exchange.allocation_with_offer(node));
        let (holder, offer) = asked.await?.ok_or_else(unknown)?;
        let names = self.0.engine.views().names();
        let before = before(&names, &offer);
        let target = Target { id: holder.unit, name: names.unit(holder.unit), holder: Some(holder) };
        let taken = self.take(caller, vec![target], going).await?;
        let Taken { done, from } = taken.into_iter().next().expect("one for each unit")?;
        let taken = from.ok_or_else(unknown)?;
        log(caller, format_args!("allocation {} on {} is taken", taken.allocation, taken.unit));
        let (taken, before) = (Some(taken), Some(before));
        Ok(v1::PreemptAllocationResponse { seq: done.seq, at_us: done.at.0, taken, before })
    }

    /// RestoreOffers: puts the offers again as their providers last put them.
    pub async fn restore_offers(
        &self,
        caller: &Caller,
        request: v1::RestoreOffersRequest,
    ) -> Result<v1::RestoreOffersResponse, ApiError> {
        self.drills()?;
        let whose = AccountFilter::parse(&request.market, &request.account)?;
        let seq = self.0.engine.applied();
        self.projected_up_to(caller, seq).await?;
        let provider = whose.provider.as_ref().map(AccountName::as_str);
        let market = whose.market.as_ref().map(MarketName::as_str);
        let mut put = self.0.engine.read_model().offers(provider, market, OFFERS).await?;
        let most = request.capacity.map_or(u64::MAX, u64::from);
        put.iter_mut().for_each(|row| row.capacity = row.capacity.min(most));
        let short = self.short(&whose, put).await?;
        let mut answer = v1::RestoreOffersResponse { seq, restored: Vec::new() };
        for (has, OfferRow { provider, market, capacity, reserve, .. }) in short {
            let (by, of) = (AccountName::new(&provider), MarketName::new(&market));
            let put = Command::PutOffer { provider: by, market: of, capacity, reserve };
            answer.seq = self.execute_unkeyed(caller, put).await?.seq;
            log(caller, format_args!("{provider} offers {capacity} units in {market} again"));
            let (capacity, added) = (capacity as u32, (capacity - has) as u32);
            answer.restored.push(v1::RestoredOffer { provider, market, capacity, added });
        }
        Ok(answer)
    }

    /// Takes units on behalf of their providers, one after the other. Returns the outcome of each.
    async fn take(
        &self,
        caller: &Caller,
        targets: Vec<Target>,
        going: Going,
    ) -> Result<Vec<Result<Taken, ApiError>>, ApiError> {
        let command = |target: &Target| unstamped(None, going.command(target.name.clone()));
        let commands = targets.iter().map(command).collect();
        let mut units = targets.iter().map(|target| target.id).collect::<Vec<_>>().into_iter();
        let settle = move |step: &Step| {
            let unit = units.next().expect("one for each command");
            done(step).map(|done| (done, left(step, unit)))
        };
        let outcomes = self.0.engine.submit_all(commands, caller.deadline, settle).await?;
        let holder = |target: &Target| target.holder.as_ref().map(|holder| holder.allocation);
        let holders = targets.iter().map(holder).collect();
        let holders = self
            .0
            .engine
            .ask_each(holders, |exchange, id| id.and_then(|id| exchange.view_allocation(id)))
            .await?;
        let names = self.0.engine.views().names();
        let taken = outcomes.into_iter().zip(targets).zip(holders).map(|((outcome, target), holder)| {
            let (done, left) = outcome?;
            let from = left.or_else(|| stayed(holder?));
            let from = from.map(|(node, ends_at)| taken_unit(&names, &target, node, done.at, ends_at));
            Ok(Taken { done, from })
        });
        Ok(taken.collect())
    }

    /// Returns the market to take units from; None means all markets.
    fn market_of(&self, whose: &AccountFilter) -> Result<Option<MarketId>, ApiError> {
        let Some(name) = &whose.market else { return Ok(None) };
        let Some(view) = self.0.engine.views().markets().get(name) else {
            let what = format!("there is no market {}", quoted(name.as_str()));
            return Err(ApiError::new(Code::Market(Reject::UnknownMarket)).saying(what));
        };
        Ok(Some(view.market))
    }

    /// Returns the units to take, in order, and the offers that they belong to. An outage takes
    /// leaving units too.
    async fn targets(
        &self,
        whose: &AccountFilter,
        units: Option<usize>,
        going: Going,
    ) -> Result<(Vec<Target>, Vec<v1::OfferBefore>), ApiError> {
        let (market, provider) = (self.market_of(whose)?, whose.provider.clone());
        let asked = self.0.engine.ask(move |exchange| exchange.offers_with_units(market, provider.as_ref()));
        let (offers, names) = (asked.await?, self.0.engine.views().names());
        let leaving_too = units.is_none() && going == Going::Lost;
        let mut found: Vec<(Order, Target)> = offers
            .iter()
            .flat_map(|offer| &offer.units)
            .filter(|(unit, _)| leaving_too || !unit.leaving)
            .map(|(unit, holder)| {
                let target = Target { id: unit.unit, name: names.unit(unit.unit), holder: holder.clone() };
                (order(&target), target)
            })
            .collect();
        if found.is_empty() {
            return Err(whose.nothing());
        }
        if let Some(units) = units.filter(|units| *units > found.len()) {
            let what = format!("is {units}; there are {} to take", found.len());
            return Err(ApiError::bad_field("units", what));
        }
        found.sort_by_key(|(order, _)| *order);
        found.truncate(units.unwrap_or(usize::MAX));
        let targets: Vec<Target> = found.into_iter().map(|(_, target)| target).collect();
        let of: BTreeSet<_> = targets.iter().map(|target| (target.id.market, target.id.provider)).collect();
        let offers = offers.iter().map(|offer| &offer.offer);
        let short = offers.filter(|offer| of.contains(&(offer.market, offer.provider)));
        let before = short.map(|offer| before(&names, offer)).collect();
        Ok((targets, before))
    }

    /// Returns those of the offers that have fewer units at present than they should, each with its
    /// present number of units.
    async fn short(
        &self,
        whose: &AccountFilter,
        put: Vec<OfferRow>,
    ) -> Result<Vec<(u64, OfferRow)>, ApiError> {
        self.market_of(whose)?;
        if put.is_empty() {
            return Err(whose.nothing());
        }
        let markets = self.0.engine.views().markets();
        let of = |row: &OfferRow| {
            let market = markets.get(&MarketName::new(&row.market)).map(|view| view.market);
            (market, AccountName::new(&row.provider))
        };
        let is_open = |row: &OfferRow| {
            let view = markets.get(&MarketName::new(&row.market));
            view.is_some_and(|view| view.state == MarketState::Open)
        };
        // No capacity is raised in a market that is closed (R18).
        let put: Vec<OfferRow> = put.into_iter().filter(is_open).collect();
        let offers = put.iter().map(of).collect();
        let offers = self.0.engine.ask_each(offers, |exchange, (market, provider)| {
            market.and_then(|market| exchange.offer_of(market, &provider))
        });
        let offers = offers.await?.into_iter();
        let units = offers.map(|offer| offer.map_or(0, |offer| offer.capacity));
        Ok(units.zip(put).filter(|(units, row)| *units < row.capacity).collect())
    }
}

impl Going {
    fn command(self, unit: UnitName) -> Command {
        let provider = unit.provider.clone();
        match self {
            Going::Lost => Command::ReportUnitLost { provider, unit },
            Going::Withdrawn => Command::WithdrawUnit { provider, unit },
        }
    }
}

impl AccountFilter {
    fn parse(market: &str, account: &str) -> Result<AccountFilter, ApiError> {
        let named = |text: &str| !text.is_empty();
        let whose = AccountFilter {
            market: named(market).then(|| text::market("market", market)).transpose()?,
            provider: named(account).then(|| text::account("account", account)).transpose()?,
        };
        if whose.market.is_none() && whose.provider.is_none() {
            return Err(ApiError::bad_field("market", "is required where no account is named"));
        }
        Ok(whose)
    }

    /// Returns the error for a choice that no offer matches.
    fn nothing(&self) -> ApiError {
        ApiError::new(Code::UnknownOffer).saying(format!("nothing is offered by {self}"))
    }
}

impl fmt::Display for AccountFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.provider {
            Some(provider) => write!(f, "{provider}")?,
            None => f.write_str("anybody")?,
        }
        match &self.market {
            Some(market) => write!(f, " in {market}"),
            None => Ok(()),
        }
    }
}

fn before(names: &Names, offer: &OfferView) -> v1::OfferBefore {
    v1::OfferBefore {
        provider: names.account(offer.provider).to_string(),
        market: names.market(offer.market).to_string(),
        capacity: offer.capacity as u32,
    }
}

/// The order in which units are taken: free ones first, then those with the lowest ceilings. Otherwise a
/// holder could move to a unit that is taken next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Free(Reverse<u64>),
    Noticed(Reverse<AllocationId>),
    Live(Price, Reverse<AllocationId>),
}

fn order(target: &Target) -> Order {
    match &target.holder {
        None => Order::Free(Reverse(target.id.number)),
        Some(holder) if holder.notice.is_some() => Order::Noticed(Reverse(holder.allocation)),
        Some(holder) => Order::Live(holder.ceiling, Reverse(holder.allocation)),
    }
}

/// Returns the node that this step took from the unit or gave notice, and when it ends.
fn left(step: &Step, unit: UnitId) -> Option<(Node, Micros)> {
    step.events.iter().rev().find_map(|event| {
        if let Fact::Ended { node, reason: EndReason::UnitLost | EndReason::CapacityWithdrawn, .. } =
            &event.fact
            && node.unit == unit
        {
            return Some((*node, event.at));
        }
        if let Fact::NoticeStarted { node, deadline, .. } = &event.fact
            && node.unit == unit
        {
            return Some((*node, *deadline));
        }
        None
    })
}

/// Returns the node if it was under notice already, in which case its deadline stays.
fn stayed(holder: AllocationView) -> Option<(Node, Micros)> {
    let AllocationView { allocation, bid, tenant, unit, .. } = holder;
    Some((Node { allocation, bid, tenant, unit }, holder.notice?.deadline))
}

fn taken_unit(names: &Names, target: &Target, node: Node, at: Micros, ends_at: Micros) -> v1::TakenUnit {
    let holder = target.holder.as_ref().filter(|holder| holder.allocation == node.allocation);
    let protected = holder.map(|holder| holder.protected_until).filter(|until| *until > at);
    v1::TakenUnit {
        unit: target.name.to_string(),
        allocation: node.allocation.0,
        bid: node.bid.0,
        tenant: names.account(node.tenant).to_string(),
        ends_at_us: ends_at.0,
        protected_until_us: protected.map(|until| until.0),
    }
}
