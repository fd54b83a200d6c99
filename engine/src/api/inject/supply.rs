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
use kubebid_core::units::{
    AccountId, AccountName, AllocationId, MarketId, MarketName, Micros, UnitId, UnitName,
};
use kubebid_core::views::{AllocationView, OfferView};
use kubebid_core::{Auction, Command, Exchange, Price, Reject};
use kubebid_proto::v1;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

/// The most units taken in one submission.
const AT_ONCE: usize = 512;
/// The most offers that RestoreOffers reads.
const OFFERS: u32 = 100_000;

/// The offers that are meant: of one market, of one provider, or one offer.
#[derive(Clone, Debug)]
struct Whose {
    market: Option<MarketName>,
    provider: Option<AccountName>,
}

/// The way in which a unit goes.
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

/// A unit that was taken, and from whom, if anybody held it.
struct Taken {
    done: Done,
    from: Option<v1::TakenUnit>,
}

impl Api {
    pub async fn inject_loss(
        &self,
        caller: &Caller,
        request: v1::InjectLossRequest,
    ) -> Result<v1::InjectLossResponse, ApiError> {
        self.drills()?;
        let whose = Whose::parse(&request.market, &request.account)?;
        let of = whose.to_string();
        let going = if request.with_notice { Going::Withdrawn } else { Going::Lost };
        let units = match request.units {
            Some(0) => return Err(ApiError::bad_field("units", "is 0; absent it is all units of account")),
            None if whose.provider.is_none() => {
                return Err(ApiError::bad_field("units", "is required where no account is named"));
            }
            units => units.map(|units| units as usize),
        };
        let targets = self.0.engine.ask(move |exchange| targets(exchange, &whose, units, going));
        let (targets, before) = targets.await??;
        let seq = self.0.engine.applied();
        let mut answer = v1::InjectLossResponse { seq, before, ..Default::default() };
        for some in targets.chunks(AT_ONCE) {
            for taken in self.take(caller, some.to_vec(), going).await? {
                let Taken { done, from } = match taken {
                    Ok(taken) => taken,
                    // It is gone, or leaving: somebody was faster.
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
        let target = self.0.engine.ask(move |exchange| {
            let holder = exchange.view_allocation(node)?;
            let offer = exchange.view_offer(holder.unit.market, holder.unit.provider)?;
            let name = exchange.names().unit(holder.unit);
            Some((Target { id: holder.unit, name, holder: Some(holder) }, before(exchange, &offer)))
        });
        let (target, before) = target.await?.ok_or_else(unknown)?;
        let taken = self.take(caller, vec![target], going).await?;
        let Taken { done, from } = taken.into_iter().next().expect("one for each unit")?;
        let taken = from.ok_or_else(unknown)?;
        log(caller, format_args!("allocation {} on {} is taken", taken.allocation, taken.unit));
        let (taken, before) = (Some(taken), Some(before));
        Ok(v1::PreemptAllocationResponse { seq: done.seq, at_us: done.at.0, taken, before })
    }

    pub async fn restore_offers(
        &self,
        caller: &Caller,
        request: v1::RestoreOffersRequest,
    ) -> Result<v1::RestoreOffersResponse, ApiError> {
        self.drills()?;
        let whose = Whose::parse(&request.market, &request.account)?;
        let seq = self.0.engine.applied();
        self.projected_up_to(caller, seq).await?;
        let provider = whose.provider.as_ref().map(AccountName::as_str);
        let market = whose.market.as_ref().map(MarketName::as_str);
        let mut put = self.0.engine.read_model().offers(provider, market, OFFERS).await?;
        let most = request.capacity.map_or(u64::MAX, u64::from);
        put.iter_mut().for_each(|row| row.capacity = row.capacity.min(most));
        let short = self.0.engine.ask(move |exchange| short(exchange, &whose, put)).await??;
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

    /// Takes units on behalf of their providers, one behind the other: what became of each.
    async fn take(
        &self,
        caller: &Caller,
        targets: Vec<Target>,
        going: Going,
    ) -> Result<Vec<Result<Taken, ApiError>>, ApiError> {
        let command = |target: &Target| unstamped(None, going.command(target.name.clone()));
        let commands = targets.iter().map(command).collect();
        let mut targets = targets.into_iter();
        let look = move |exchange: &Exchange, step: &Step| {
            let target = targets.next().expect("one for each command");
            let done = done(exchange, step)?;
            let from = left(step, target.id).or_else(|| stayed(exchange, &target));
            let from = from.map(|(node, ends_at)| told(exchange, &target, node, done.at, ends_at));
            Ok(Taken { done, from })
        };
        Ok(self.0.engine.submit_all(commands, caller.deadline, look).await?)
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

impl Whose {
    fn parse(market: &str, account: &str) -> Result<Whose, ApiError> {
        let named = |text: &str| !text.is_empty();
        let whose = Whose {
            market: named(market).then(|| text::market("market", market)).transpose()?,
            provider: named(account).then(|| text::account("account", account)).transpose()?,
        };
        if whose.market.is_none() && whose.provider.is_none() {
            return Err(ApiError::bad_field("market", "is required where no account is named"));
        }
        Ok(whose)
    }

    fn markets(&self, exchange: &Exchange) -> Result<Vec<MarketId>, ApiError> {
        let Some(name) = &self.market else {
            return Ok((0..exchange.names().markets.len() as u32).map(MarketId).collect());
        };
        let unknown = || {
            let what = format!("there is no market {}", quoted(name.as_str()));
            ApiError::new(Code::Market(Reject::UnknownMarket)).saying(what)
        };
        Ok(vec![exchange.market_id(name).ok_or_else(unknown)?])
    }

    fn providers(&self, exchange: &Exchange) -> Vec<AccountId> {
        match &self.provider {
            Some(name) => exchange.account_id(name).into_iter().collect(),
            None => (0..exchange.names().accounts.len() as u32).map(AccountId).collect(),
        }
    }

    /// Nothing is offered, or was.
    fn nothing(&self) -> ApiError {
        ApiError::new(Code::UnknownOffer).saying(format!("nothing is offered by {self}"))
    }
}

impl fmt::Display for Whose {
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

/// The units to take, the first first, and the offers that they are of. An outage takes those that are leaving too.
fn targets(
    exchange: &Exchange,
    whose: &Whose,
    units: Option<usize>,
    going: Going,
) -> Result<(Vec<Target>, Vec<v1::OfferBefore>), ApiError> {
    let (markets, providers) = (whose.markets(exchange)?, whose.providers(exchange));
    let offers = markets
        .iter()
        .flat_map(|market| providers.iter().filter_map(|provider| exchange.view_offer(*market, *provider)));
    let offers: Vec<OfferView> = offers.collect();
    let leaving_too = units.is_none() && going == Going::Lost;
    let mut found: Vec<(Order, Target)> = offers
        .iter()
        .flat_map(|offer| exchange.view_units(offer.market, offer.provider, 0))
        .filter(|unit| leaving_too || !unit.leaving)
        .map(|unit| {
            let holder = unit.allocation.and_then(|id| exchange.view_allocation(id));
            let target = Target { id: unit.unit, name: exchange.names().unit(unit.unit), holder };
            (order(&target), target)
        })
        .collect();
    if found.is_empty() {
        return Err(whose.nothing());
    }
    if let Some(units) = units.filter(|units| *units > found.len()) {
        return Err(ApiError::bad_field("units", format!("is {units}; there are {} to take", found.len())));
    }
    found.sort_by_key(|(order, _)| *order);
    found.truncate(units.unwrap_or(usize::MAX));
    let targets: Vec<Target> = found.into_iter().map(|(_, target)| target).collect();
    let of: BTreeSet<_> = targets.iter().map(|target| (target.id.market, target.id.provider)).collect();
    let short = offers.iter().filter(|offer| of.contains(&(offer.market, offer.provider)));
    let before = short.map(|offer| before(exchange, offer)).collect();
    Ok((targets, before))
}

fn before(exchange: &Exchange, offer: &OfferView) -> v1::OfferBefore {
    v1::OfferBefore {
        provider: exchange.names().account(offer.provider).to_string(),
        market: exchange.names().market(offer.market).to_string(),
        capacity: offer.capacity as u32,
    }
}

/// So that nobody moves to a unit that goes next: free ones, then the lowest ceilings.
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

/// Returns the node if it was under notice already: its deadline stays.
fn stayed(exchange: &Exchange, target: &Target) -> Option<(Node, Micros)> {
    let holder = exchange.view_allocation(target.holder.as_ref()?.allocation)?;
    let AllocationView { allocation, bid, tenant, unit, .. } = holder;
    Some((Node { allocation, bid, tenant, unit }, holder.notice?.deadline))
}

fn told(exchange: &Exchange, target: &Target, node: Node, at: Micros, ends_at: Micros) -> v1::TakenUnit {
    let holder = target.holder.as_ref().filter(|holder| holder.allocation == node.allocation);
    let protected = holder.map(|holder| holder.protected_until).filter(|until| *until > at);
    v1::TakenUnit {
        unit: target.name.to_string(),
        allocation: node.allocation.0,
        bid: node.bid.0,
        tenant: exchange.names().account(node.tenant).to_string(),
        ends_at_us: ends_at.0,
        protected_until_us: protected.map(|until| until.0),
    }
}

/// Returns those of the offers, as they are to be, that have fewer units now, and how many those have.
fn short(exchange: &Exchange, whose: &Whose, put: Vec<OfferRow>) -> Result<Vec<(u64, OfferRow)>, ApiError> {
    whose.markets(exchange)?;
    if put.is_empty() {
        return Err(whose.nothing());
    }
    let has = |row: &OfferRow| {
        let market = exchange.market_id(&MarketName::new(&row.market))?;
        let provider = exchange.account_id(&AccountName::new(&row.provider))?;
        exchange.view_offer(market, provider).map(|offer| offer.capacity)
    };
    let with_has = put.into_iter().map(|row| (has(&row).unwrap_or(0), row));
    Ok(with_has.filter(|(has, row)| *has < row.capacity).collect())
}
