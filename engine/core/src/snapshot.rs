//! The whole state as bytes, and back. A snapshot has only facts: books, timers, meters and prices follow from them.

use crate::codec::{Content, DecodeError, Reader, Writer};
use crate::collections::dense_map::{DenseMap, Number};
use crate::collections::sorted_map::SortedSet;
use crate::event::{Bidder, NoticeReason, Scope};
use crate::exchange::{Account, Exchange, Market};
use crate::state::account_funds::{AccountFunds, Budget, Renewal, Reservation};
use crate::state::bids::BidRecord;
use crate::state::idempotency::{First, Keys};
use crate::state::scopes::Scopes;
use crate::state::timers::Due;
use crate::state::{Allocation, Bid, BidTerms, Claim, Expiry, Notice, Offer, Running, Unit};
use crate::types::market_rules::{MarketRules, Pricing};
use crate::types::market_state::MarketState;
use crate::types::money::{Amount, Bill, Funds, Price, Totals};
use crate::types::reject::Reject;
use crate::types::units::{
    AccountId, AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketId, MarketName, Micros, Seq,
    UnitId,
};
use std::collections::BTreeMap;

/// The version of the bytes. A snapshot of another version is not read; the journal is replayed instead.
const FORMAT: u8 = 4;

impl Exchange {
    /// Returns the state as bytes. It may be called only between commands, because a half-settled
    /// state cannot be encoded.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.byte(FORMAT);
        w.number(self.seq.0);
        w.number(self.now.0);
        w.number(self.last_allocation);
        w.number(self.last_claim);
        w.number(self.totals.debits.0);
        w.number(self.totals.fees.0);
        w.number(self.renewal_in_force().0);
        w.list(self.names.accounts.iter().zip(&self.accounts), |w, (name, account)| {
            w.text(name.as_str());
            w.keys(&account.keys);
            w.option(account.keys_of_funds.as_deref(), Writer::keys);
            w.option(account.funds.as_deref(), Writer::funds);
        });
        w.list(self.names.markets.iter().zip(&self.markets), |w, (name, market)| {
            w.text(name.as_str());
            w.market(market);
        });
        w.number(self.bids.iter().count() as u64);
        for (id, record) in self.bids.iter() {
            w.number(id.0);
            w.bid(record, self.scopes.scope(record.terms().scope));
        }
        w.numbered(&self.allocations, |w, allocation| {
            w.allocation(allocation);
            w.number(self.accrued(allocation, self.now).0);
        });
        w.into_bytes()
    }

    /// Returns the hash of the snapshot. Equal states have equal hashes.
    pub fn state_hash(&self) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&self.snapshot())
    }

    /// Returns the exchange of which [`Exchange::snapshot`] took the bytes.
    pub fn restore(bytes: &[u8]) -> Result<Exchange, DecodeError> {
        let mut r = Reader::new(bytes);
        let format = r.byte()?;
        if format != FORMAT {
            return Err(DecodeError::UnknownVariant(format));
        }
        let mut exchange = Exchange {
            seq: Seq(r.number()?),
            now: Micros(r.number()?),
            last_allocation: r.number()?,
            last_claim: r.number()?,
            ..Exchange::default()
        };
        let (debits, fees) = (r.number()?, r.number()?);
        exchange.totals =
            Totals { debits: Amount(debits), credits: Amount(debits - fees), fees: Amount(fees) };
        exchange.renewal = Some(Micros(r.number()?));
        for (name, account) in r.list(|r| Ok((AccountName::new(r.text()?), r.account()?)))? {
            let id = AccountId(exchange.names.accounts.len() as u32);
            exchange.account_ids.insert(name.clone(), id);
            exchange.names.accounts.push(name);
            if account.funds.is_some() {
                exchange.funded.insert(id);
            }
            exchange.accounts.push(account);
        }
        for (name, market) in r.list(|r| Ok((MarketName::new(r.text()?), r.market()?)))? {
            exchange.list_market(&name, market);
        }
        for _ in 0..r.number::<u64>()? {
            let (id, bid) = (BidId(r.number()?), r.bid(&mut exchange.scopes)?);
            if bid.searching {
                exchange.bids.insert(id, bid);
            } else {
                exchange.bids.insert_ended(id, bid.terms);
            }
        }
        let nodes = r.list(|r| Ok((AllocationId(r.number()?), r.allocation()?, Bill(r.number()?))))?;
        r.end()?;
        exchange.rebuild(nodes);
        Ok(exchange)
    }

    /// Computes books, timers, meters and prices from the facts.
    fn rebuild(&mut self, nodes: Vec<(AllocationId, Allocation, Bill)>) {
        let mut bills = Vec::with_capacity(nodes.len());
        for (id, allocation, bill) in nodes {
            bills.push((id, allocation.bid, bill));
            self.rebuild_node(id, allocation);
        }
        let offers = self.markets.iter().enumerate();
        let offers: Vec<(MarketId, AccountId)> = offers
            .flat_map(|(i, market)| market.offers.keys().map(move |provider| (MarketId(i as u32), *provider)))
            .collect();
        for (market, provider) in offers {
            self.reindex_offer(market, provider);
        }
        let mut counting = Vec::new();
        for (id, record) in self.bids.iter() {
            self.accounts[record.terms().tenant.0 as usize].bids.push(id);
            let Some(bid) = record.active() else { continue };
            counting.push(id);
            if let Some(at) = bid.terms.expiry.get().filter(|_| bid.searching) {
                self.timers.set(at, Due::Expiry(id));
            }
        }
        for id in counting {
            self.bid_mut(id).is_funded = self.funds_of(self.bid(id).terms.tenant).is_some();
            self.reindex_bid_and_nodes(id);
        }
        for market in &mut self.markets {
            let tariff = market.tariff();
            market.meter.set(self.now, tariff);
        }
        for (id, _, bill) in bills {
            if self.allocation(id).ready.is_some() {
                self.start_meter(id);
                let running = self.allocation(id).running.expect("started");
                let base =
                    running.base + i128::try_from(bill.0).expect("a bill of less than a thousand years");
                self.allocation_mut(id).running = Some(Running { base, ..running });
            }
        }
        for account in self.funded.iter().collect::<Vec<_>>() {
            self.rebuild_funds(account);
        }
        for i in 0..self.markets.len() {
            self.markets[i].numbers = Some(self.numbers(MarketId(i as u32)));
        }
        self.dirty.clear();
    }

    /// Sets the timers of a funded account. What its unfunded nodes lack is known only after their meters run.
    fn rebuild_funds(&mut self, account: AccountId) {
        let funds = self.funds_of(account).expect("a funded account");
        let (renewal, budget, unfunded) = (funds.renewal, funds.budget, funds.unfunded());
        let claims = funds.claims();
        if let Some(renewal) = renewal {
            self.timers.set(renewal.next, Due::Renewal(account));
        }
        if let Some(budget) = budget {
            self.timers.set(budget.next_month, Due::Month(account));
        }
        for node in unfunded {
            self.reindex_allocation(node);
        }
        for (_, claim) in claims {
            self.note_short(claim.bid);
        }
    }

    fn rebuild_node(&mut self, id: AllocationId, allocation: Allocation) {
        let offer = self.offer_mut(allocation.unit);
        offer.units.get_mut(allocation.unit.number).expect("the unit of an allocation").allocation = Some(id);
        offer.free.remove(allocation.unit.number);
        let now = self.now;
        if allocation.protected_until > now {
            self.timers.set(allocation.protected_until, Due::ProtectionEnds(id));
        }
        if allocation.ready.is_none() {
            self.timers.set(allocation.start_by, Due::StartTimeout(id));
        }
        if let Some(at) = allocation.raise_at {
            self.timers.set(at, Due::ReserveCounts(id));
        }
        self.bids.reactivate(allocation.bid);
        let bid = self.bid_mut(allocation.bid);
        match allocation.notice {
            None => bid.live.insert(id),
            Some(notice) => {
                bid.notices.insert(id);
                self.timers.set(notice.deadline, Due::Deadline(id));
                if let Some(claim) = notice.claim {
                    self.bids.reactivate(claim.by.bid);
                    self.bid_mut(claim.by.bid).claims.insert(id);
                }
            }
        }
        self.allocations.insert(id, allocation);
    }
}

impl Writer {
    fn numbered<K: Number, V>(&mut self, things: &DenseMap<K, V>, write: impl Fn(&mut Writer, &V)) {
        self.number(things.len() as u64);
        for (number, thing) in things.iter() {
            self.number(number.number());
            write(self, thing);
        }
    }

    fn keys(&mut self, keys: &Keys) {
        self.number(keys.len() as u64);
        for (at, key, first) in keys.iter() {
            self.number(at.0);
            self.text(key.as_str());
            self.number(first.seq.0);
            self.number(first.content.0);
            self.option(first.refusal, |w, refusal| w.text(refusal.code()));
        }
    }

    fn funds(&mut self, funds: &AccountFunds) {
        self.wide(funds.funds().0);
        self.option(funds.renewal, |w, renewal| {
            w.number(renewal.span.0);
            w.number(renewal.next.0);
        });
        self.option(funds.budget, |w, budget| {
            w.signed(budget.monthly);
            w.flag(budget.roll_over);
            w.number(budget.next_month.0);
        });
        self.list(funds.bids().into_iter(), |w, (bid, highest)| {
            w.number(bid.0);
            w.number(highest.0);
        });
        for reservations in [funds.nodes(), funds.claims()] {
            self.list(reservations.into_iter(), |w, (id, reservation)| {
                w.number(id.0);
                w.number(reservation.bid.0);
                w.number(reservation.base.0);
                w.number(reservation.renewal.0);
                w.number(reservation.tail.0);
                w.number(reservation.floor.0);
                w.flag(reservation.is_unfunded);
            });
        }
    }

    /// Writes a signed number as the unsigned one of ZigZag.
    fn wide(&mut self, n: i128) {
        self.number(((n << 1) ^ (n >> 127)).cast_unsigned());
    }

    fn market(&mut self, market: &Market) {
        let MarketRules {
            tick,
            increment_bps,
            ceiling_max,
            bid_nodes_max,
            min_runtime,
            notice,
            start_timeout,
            min_charge,
            fee_bps,
            pricing,
        } = market.rules;
        for number in [tick, increment_bps, ceiling_max, bid_nodes_max, fee_bps] {
            self.number(number);
        }
        for span in [min_runtime, notice, start_timeout, min_charge] {
            self.number(span.0);
        }
        self.flag(pricing == Pricing::LowestAccepted);
        match market.state {
            MarketState::Open => self.byte(0),
            MarketState::Closing(by) => {
                self.byte(1);
                self.number(by.0);
            }
            MarketState::Ended => self.byte(2),
        }
        self.list(market.offers.iter(), |w, (provider, offer)| {
            w.number(provider.0);
            w.number(offer.reserve.0);
            w.number(offer.place.0);
            w.number(offer.last_number);
            w.numbered(&offer.units, |w, unit| w.flag(unit.leaving));
            w.list(offer.resting.iter().collect::<Vec<_>>().into_iter(), |w, number| w.number(number));
        });
    }

    fn bid(&mut self, record: BidRecord<'_>, scope: &Scope) {
        let terms = record.terms();
        self.number(terms.tenant.0);
        match scope {
            Scope::Markets(markets) => {
                self.byte(0);
                self.list(markets.iter(), |w, market| w.number(market.0));
            }
            Scope::InstanceType(kind) => {
                self.byte(1);
                self.text(kind.as_str());
            }
        }
        self.number(terms.ceiling.0);
        self.number(terms.seq.0);
        self.number(terms.min_nodes);
        self.number(terms.max_nodes);
        self.option(terms.expiry.get(), |w, at| w.number(at.0));
        self.flag(terms.closes);
        self.flag(record.searching());
        if let Some(bid) = record.active().filter(|bid| bid.searching) {
            self.number(bid.ceiling_locked_until.0);
        }
    }

    fn allocation(&mut self, allocation: &Allocation) {
        self.number(allocation.bid.0);
        self.number(allocation.tenant.0);
        self.number(allocation.unit.market.0);
        self.number(allocation.unit.provider.0);
        self.number(allocation.unit.number);
        self.number(allocation.start_by.0);
        self.option(allocation.ready, |w, at| w.number(at.0));
        self.number(allocation.protected_until.0);
        self.option(allocation.notice, |w, notice| {
            w.number(notice.deadline.0);
            w.text(notice.reason.word());
            w.flag(notice.returns);
            w.number(notice.frozen.0);
            w.option(notice.claim, |w, claim| {
                w.number(claim.by.bid.0);
                w.number(claim.by.tenant.0);
                w.number(claim.number);
            });
        });
        self.number(allocation.reserve.0);
        self.option(allocation.raise_at, |w, at| w.number(at.0));
    }
}

impl Reader<'_> {
    fn account(&mut self) -> Result<Account, DecodeError> {
        Ok(Account {
            keys: self.keys(Keys::default())?,
            keys_of_funds: self.option(|r| r.keys(Keys::of_funds()))?.map(Box::new),
            funds: self.option(Reader::funds)?.map(Box::new),
            ..Account::default()
        })
    }

    fn funds(&mut self) -> Result<AccountFunds, DecodeError> {
        let mut funds = AccountFunds::new(Funds(self.wide()?));
        funds.renewal =
            self.option(|r| Ok(Renewal { span: Micros(r.number()?), next: Micros(r.number()?) }))?;
        funds.budget = self.option(|r| {
            Ok(Budget { monthly: r.signed()?, roll_over: r.flag()?, next_month: Micros(r.number()?) })
        })?;
        let highest = self.list(|r| Ok((BidId(r.number()?), Price(r.number()?))))?;
        let highest: BTreeMap<BidId, Price> = highest.into_iter().collect();
        let of = |bid: BidId| highest.get(&bid).copied().unwrap_or_default();
        for (id, reservation) in self.list(Reader::reservation)? {
            funds.reserve_node(id, of(reservation.bid), reservation);
        }
        for (id, reservation) in self.list(Reader::reservation)? {
            funds.reserve_claim(id, of(reservation.bid), reservation);
        }
        Ok(funds)
    }

    fn reservation(&mut self) -> Result<(AllocationId, Reservation), DecodeError> {
        let id = AllocationId(self.number()?);
        let reservation = Reservation {
            bid: BidId(self.number()?),
            base: Bill(self.number()?),
            renewal: Micros(self.number()?),
            tail: Micros(self.number()?),
            floor: Price(self.number()?),
            is_unfunded: self.flag()?,
        };
        Ok((id, reservation))
    }

    fn wide(&mut self) -> Result<i128, DecodeError> {
        let n: u128 = self.number()?;
        Ok((n >> 1).cast_signed() ^ -(n & 1).cast_signed())
    }

    fn keys(&mut self, mut keys: Keys) -> Result<Keys, DecodeError> {
        for _ in 0..self.number::<u64>()? {
            let at = Micros(self.number()?);
            let key = ClientKey::new(self.text()?);
            let (seq, content) = (Seq(self.number()?), self.number()?);
            let refusal = self.option(|r| r.word(Reject::ALL, |reject| reject.code()))?;
            keys.remember(key, at, First { seq, content: Content(content), refusal });
        }
        Ok(keys)
    }

    /// Reads the one of `all` that has this text.
    fn word<T: Copy>(&mut self, all: &[T], text_of: impl Fn(T) -> &'static str) -> Result<T, DecodeError> {
        let text = self.text()?;
        let known = all.iter().copied().find(|word| text_of(*word) == text);
        known.ok_or(DecodeError::UnknownVariant(text.bytes().next().unwrap_or(0)))
    }

    fn market(&mut self) -> Result<Market, DecodeError> {
        let rules = MarketRules {
            tick: self.number()?,
            increment_bps: self.number()?,
            ceiling_max: self.number()?,
            bid_nodes_max: self.number()?,
            fee_bps: self.number()?,
            min_runtime: Micros(self.number()?),
            notice: Micros(self.number()?),
            start_timeout: Micros(self.number()?),
            min_charge: Micros(self.number()?),
            pricing: if self.flag()? { Pricing::LowestAccepted } else { Pricing::HighestLosing },
        };
        let state = match self.byte()? {
            0 => MarketState::Open,
            1 => MarketState::Closing(Seq(self.number()?)),
            2 => MarketState::Ended,
            other => return Err(DecodeError::UnknownVariant(other)),
        };
        let offers = self.list(|r| Ok((AccountId(r.number()?), r.offer()?)))?;
        let mut market = Market::new(rules);
        market.state = state;
        market.units = offers.iter().map(|(_, offer)| offer.units.len() as u64).sum();
        market.resting = offers.iter().map(|(_, offer)| offer.resting.len() as u64).sum();
        market.offers = offers.into_iter().collect();
        Ok(market)
    }

    /// Reads an offer with all units free that do not rest. The allocations take theirs later.
    fn offer(&mut self) -> Result<Offer, DecodeError> {
        let (reserve, place, last_number) = (Price(self.number()?), Seq(self.number()?), self.number()?);
        let units = self.list(|r| Ok((r.number()?, Unit { allocation: None, leaving: r.flag()? })))?;
        let leaving = units.iter().filter(|(_, unit)| unit.leaving).count() as u64;
        let resting: SortedSet<u64> = self.list(|r| r.number())?.into_iter().collect();
        let mut free: SortedSet<u64> = units.iter().map(|(number, _)| *number).collect();
        for number in resting.iter() {
            free.remove(number);
        }
        let units: DenseMap<u64, Unit> = units.into_iter().collect();
        Ok(Offer { reserve, place, last_number, units, free, resting, leaving, notices: 0 })
    }

    fn bid(&mut self, scopes: &mut Scopes) -> Result<Bid, DecodeError> {
        let tenant = AccountId(self.number()?);
        let scope = match self.byte()? {
            0 => Scope::Markets(self.list(|r| r.number().map(MarketId))?.as_slice().into()),
            1 => Scope::InstanceType(InstanceType::new(self.text()?)),
            other => return Err(DecodeError::UnknownVariant(other)),
        };
        let terms = BidTerms {
            tenant,
            scope: scopes.keep(&scope),
            ceiling: Price(self.number()?),
            seq: Seq(self.number()?),
            min_nodes: self.number()?,
            max_nodes: self.number()?,
            expiry: Expiry::at(self.option(|r| r.number().map(Micros))?),
            closes: self.flag()?,
        };
        let mut bid = Bid::new(terms, self.flag()?);
        if bid.searching {
            bid.ceiling_locked_until = Micros(self.number()?);
        }
        Ok(bid)
    }

    fn allocation(&mut self) -> Result<Allocation, DecodeError> {
        Ok(Allocation {
            bid: BidId(self.number()?),
            tenant: AccountId(self.number()?),
            unit: UnitId {
                market: MarketId(self.number()?),
                provider: AccountId(self.number()?),
                number: self.number()?,
            },
            start_by: Micros(self.number()?),
            ready: self.option(|r| r.number().map(Micros))?,
            protected_until: Micros(self.number()?),
            notice: self.option(|r| {
                Ok(Notice {
                    deadline: Micros(r.number()?),
                    reason: r.word(NoticeReason::ALL, |reason| reason.word())?,
                    returns: r.flag()?,
                    frozen: Price(r.number()?),
                    claim: r.option(|r| {
                        let by = Bidder { bid: BidId(r.number()?), tenant: AccountId(r.number()?) };
                        Ok(Claim { by, number: r.number()? })
                    })?,
                })
            })?,
            reserve: Price(self.number()?),
            raise_at: self.option(|r| r.number().map(Micros))?,
            running: None,
            place: None,
            handle: 0,
        })
    }
}
