//! The exchange: the state of all markets. Commands are applied one after another (R1).

use crate::answer::{Answer, Auction, Outcome};
use crate::book::Book;
use crate::book::HeadQueue;
use crate::codec::Content;
use crate::collections::dense_map::DenseMap;
use crate::collections::id_map::{ByName, MarketSet};
use crate::collections::sorted_map::SortedSet;
use crate::command::{Command, KeySpace, StampedCommand};
use crate::event::{Bidder, Event, Fact, Node};
use crate::settlement_details::SettlementDetail;
use crate::state::account_funds::AccountFunds;
use crate::state::account_usage::AccountUsage;
use crate::state::bids::Bids;
use crate::state::idempotency::{First, Keys};
use crate::state::last_settled::LastSettled;
use crate::state::meter::Meter;
use crate::state::scopes::Scopes;
use crate::state::timers::{Due, Timers};
use crate::state::{Allocation, Bid, Offer};
use crate::types::market_rules::MarketRules;
use crate::types::market_state::MarketState;
use crate::types::money::{Price, Totals};
use crate::types::numbers::Numbers;
use crate::types::reject::Reject;
use crate::types::state_dump::StateDump;
use crate::types::units::{
    AccountId, AccountName, AllocationId, BidId, MarketId, MarketName, Micros, Names, Seq, UnitId,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// All markets, bids and offers. [`Auction::apply`] is deterministic: the same commands give the same
/// events.
#[derive(Debug, Default)]
pub struct Exchange {
    pub(crate) seq: Seq,
    pub(crate) now: Micros,
    pub(crate) names: Names,
    pub(crate) account_ids: ByName<AccountName, AccountId>,
    pub(crate) market_ids: ByName<MarketName, MarketId>,
    pub(crate) scopes: Scopes,
    pub(crate) accounts: Vec<Account>,
    pub(crate) markets: Vec<Market>,
    pub(crate) bids: Bids,
    pub(crate) allocations: DenseMap<AllocationId, Allocation>,
    pub(crate) last_allocation: u64,
    pub(crate) last_claim: u64,
    pub(crate) totals: Totals,
    pub(crate) timers: Timers,
    pub(crate) last_settled: LastSettled,
    /// Notices without a claim whose holders want their nodes back: lowest ceiling first, newest
    /// first (R6).
    pub(crate) orphans: SortedSet<(Price, Reverse<AllocationId>)>,
    /// Markets whose book changed since they were last settled.
    pub(crate) dirty: MarketSet,
    /// Markets that were settled since [`Exchange::take_changed`] was last called.
    pub(crate) changed: MarketSet,
    /// Bids whose place among the claimants that a free unit would rescue has to be computed again.
    pub(crate) stale_rescues: Vec<BidId>,
    /// Bids that have ended, at least for a moment, and are still kept as active ones.
    pub(crate) ending: Vec<BidId>,
    /// Closing markets that have no units left.
    pub(crate) emptied: MarketSet,
    /// The time between renewals that a command set (R19); None stands for the default.
    pub(crate) renewal: Option<Micros>,
    /// The funded accounts.
    pub(crate) funded: SortedSet<AccountId>,
    /// Accounts whose funds or reservations changed since the books followed.
    pub(crate) stale_funds: Vec<AccountId>,
    /// Accounts that may have to begin or end to be renewed, once settled.
    pub(crate) unrenewed: Vec<AccountId>,
    /// Accounts of bids that lacked money to give up a claim.
    pub(crate) short_accounts: BTreeSet<AccountId>,
    /// The account that sent the current command, or the one that it funds.
    pub(crate) caller: AccountId,
    /// The IOC bid of the command that is being settled (R14).
    pub(crate) immediate: Option<BidId>,
    /// The heads of the books that are being settled. They are kept only to use their memory again.
    pub(crate) heads: HeadQueue,
    pub(crate) events: Vec<Event>,
    /// Details gathered since the last answer.
    pub(crate) pending_details: Vec<SettlementDetail>,
    /// Details of the last answer.
    pub(crate) settlement_details: Vec<SettlementDetail>,
}

#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) keys: Keys,
    /// The keys of the commands that fund it (R19).
    pub(crate) keys_of_funds: Option<Box<Keys>>,
    /// None if it is unlimited.
    pub(crate) funds: Option<Box<AccountFunds>>,
    /// Its active bids by number, with some that have ended since the list was last cleaned.
    pub(crate) bids: Vec<BidId>,
    pub(crate) open: AccountUsage,
}

#[derive(Debug)]
pub(crate) struct Market {
    pub(crate) state: MarketState,
    pub(crate) rules: MarketRules,
    pub(crate) offers: BTreeMap<AccountId, Offer>,
    pub(crate) units: u64,
    /// The number of units that rest (R11).
    pub(crate) resting: u64,
    pub(crate) book: Book,
    /// The numbers in the last `PriceChanged`.
    pub(crate) numbers: Option<Numbers>,
    pub(crate) meter: Meter,
}

impl Market {
    pub(crate) fn new(rules: MarketRules) -> Market {
        Market {
            state: MarketState::Open,
            rules,
            offers: BTreeMap::new(),
            units: 0,
            resting: 0,
            book: Book::default(),
            numbers: None,
            meter: Meter::default(),
        }
    }

    pub(crate) fn sells(&self, account: AccountId) -> bool {
        self.offers.get(&account).is_some_and(|offer| !offer.units.is_empty())
    }

    /// Returns true if this bid of `tenant` may get nodes here: the market admits it (R18), and the tenant does not
    /// sell here (R17).
    pub(crate) fn serves(&self, bid: BidId, tenant: AccountId) -> bool {
        self.state.admits(bid) && !self.sells(tenant)
    }
}

impl Auction for Exchange {
    fn apply(&mut self, command: &StampedCommand) -> Answer {
        self.apply_keyed(command, None)
    }

    fn dump(&self) -> StateDump {
        self.dump_state()
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn entry_price(&self, market: MarketId, nodes: u32) -> Option<Price> {
        self.entry_price_of(market, nodes)
    }
}

impl Exchange {
    /// Returns an exchange without markets, at market time 0.
    pub fn new() -> Exchange {
        Exchange::default()
    }

    /// Applies a command like [`Auction::apply`]. `content` is what [`StampedCommand::encode_keyed`] returned, so that the
    /// command is not encoded again.
    pub fn apply_keyed(&mut self, command: &StampedCommand, content: Option<Content>) -> Answer {
        let (seq, outcome) = self.step(command, content);
        std::mem::swap(&mut self.settlement_details, &mut self.pending_details);
        self.pending_details.clear();
        let mut events = Vec::with_capacity(self.events.len());
        events.append(&mut self.events);
        Answer { seq, at: self.now, outcome, events }
    }

    /// Returns the number of the last command.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the market time after the last command.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Returns the time of the next timer that no command has reached yet.
    pub fn next_due(&self) -> Option<Micros> {
        self.timers.next()
    }

    /// Returns the markets whose numbers, supply or rules may have changed since the last call.
    pub fn take_changed(&mut self) -> Vec<MarketId> {
        self.changed.take()
    }

    /// Returns the details of the last answer.
    pub fn settlement_details(&self) -> &[SettlementDetail] {
        &self.settlement_details
    }

    /// Returns the totals of all charges since the first command.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Settles every due instant up to `at` in turn, as of that instant (R1). It may be called at any
    /// time: the next command would do the same first, and its answer has the events.
    pub fn run_until(&mut self, at: Micros) {
        while let Some(due) = self.timers.next().filter(|due| *due <= at) {
            self.now = due;
            self.settle();
        }
        self.now = self.now.max(at);
    }

    fn step(&mut self, stamped: &StampedCommand, content: Option<Content>) -> (Seq, Outcome) {
        self.seq.0 += 1;
        self.run_until(stamped.at);
        let at = self.now;
        let account = stamped.command.account().map(|name| self.account_named(name));
        self.caller = account.unwrap_or_default();
        let (key, space) = (account.zip(stamped.key.as_ref()), stamped.command.key_space());
        let content = || content.unwrap_or_else(|| Content::of(&stamped.command));
        if let Some((account, key)) = key
            && let Some(known) = self.keys(account, space).find(key, at)
        {
            return (self.seq, self.answer_again(known, content()));
        }
        let outcome = match self.execute(&stamped.command, stamped.key.is_some()) {
            Ok(()) => {
                self.settle();
                Outcome::Accepted
            }
            Err(reject) => {
                self.emit(Fact::Rejected { reason: reject });
                Outcome::Rejected(reject)
            }
        };
        if let Some((account, key)) = key {
            let first = First::of(self.seq, content(), outcome);
            self.keys(account, space).remember(key.clone(), at, first);
        }
        (self.seq, outcome)
    }

    /// Returns the keys of an account in one of their spaces (R16).
    fn keys(&mut self, account: AccountId, space: KeySpace) -> &mut Keys {
        let account = &mut self.accounts[account.0 as usize];
        match space {
            KeySpace::Account => &mut account.keys,
            KeySpace::Funds => account.keys_of_funds.get_or_insert_with(|| Box::new(Keys::of_funds())),
        }
    }

    /// Answers a command whose key is known: with the first answer, or with a conflict (R16).
    fn answer_again(&mut self, known: First, content: Content) -> Outcome {
        if known.content != content {
            self.emit(Fact::Rejected { reason: Reject::KeyConflict });
            return Outcome::Rejected(Reject::KeyConflict);
        }
        self.emit(Fact::Repeated { first: known.seq });
        Outcome::Repeated { first: known.seq, refusal: known.refusal }
    }

    /// Executes a command. Every check comes before the first change, because a refused command
    /// changes nothing (R16).
    fn execute(&mut self, command: &Command, has_key: bool) -> Result<(), Reject> {
        match command {
            Command::OpenMarket { market, rules } => self.open_market(market, rules),
            Command::ChangeRules { market, rules } => self.change_rules(market, rules),
            Command::CloseMarket { market } => self.close_market(market),
            Command::PutOffer { market, capacity, reserve, provider: _ } => {
                self.put_offer(market, *capacity, *reserve)
            }
            Command::WithdrawUnit { unit, provider: _ } => self.withdraw_unit(unit),
            Command::ReportUnitLost { unit, provider: _ } => self.report_unit_lost(unit),
            Command::ResumeUnits { units, provider: _ } => self.resume_units(units),
            Command::PlaceBid(bid) => self.place_bid(bid),
            Command::AmendBid { bid, ceiling, max_nodes, tenant: _ } => {
                self.amend_bid(*bid, *ceiling, *max_nodes)
            }
            Command::CancelBid { bid, mode, tenant: _ } => self.cancel_bid(*bid, mode),
            Command::ReleaseAllocation { allocation, tenant: _ } => self.release_allocation(*allocation),
            Command::ReportReady { allocation, by } => self.report_ready(*allocation, by.is_some()),
            Command::AdvanceTime => Ok(()),
            Command::Fund { change, account: _ } => self.fund(*change, has_key),
            Command::SetBudget { monthly, roll_over, account: _ } => self.set_budget(*monthly, *roll_over),
            Command::SetRenewal { renewal } => self.set_renewal(*renewal),
        }
    }

    fn account_named(&mut self, name: &AccountName) -> AccountId {
        if let Some(id) = self.account_ids.get(name) {
            return *id;
        }
        let id = AccountId(self.names.accounts.len() as u32);
        self.names.accounts.push(name.clone());
        self.account_ids.insert(name.clone(), id);
        self.accounts.push(Account::default());
        id
    }

    pub(crate) fn emit(&mut self, fact: Fact) {
        self.events.push(Event { at: self.now, fact });
    }

    pub(crate) fn market(&self, id: MarketId) -> &Market {
        &self.markets[id.0 as usize]
    }

    pub(crate) fn market_mut(&mut self, id: MarketId) -> &mut Market {
        &mut self.markets[id.0 as usize]
    }

    pub(crate) fn bid(&self, id: BidId) -> &Bid {
        &self.bids[id]
    }

    pub(crate) fn bid_mut(&mut self, id: BidId) -> &mut Bid {
        self.bids.get_mut(id).expect("an active bid")
    }

    pub(crate) fn allocation(&self, id: AllocationId) -> &Allocation {
        &self.allocations[id]
    }

    pub(crate) fn allocation_mut(&mut self, id: AllocationId) -> &mut Allocation {
        self.allocations.get_mut(id).expect("an allocation that has not ended")
    }

    pub(crate) fn offer(&self, unit: UnitId) -> &Offer {
        &self.market(unit.market).offers[&unit.provider]
    }

    pub(crate) fn offer_mut(&mut self, unit: UnitId) -> &mut Offer {
        self.market_mut(unit.market).offers.get_mut(&unit.provider).expect("the offer of a unit")
    }

    pub(crate) fn node(&self, id: AllocationId) -> Node {
        let allocation = self.allocation(id);
        Node { allocation: id, bid: allocation.bid, tenant: allocation.tenant, unit: allocation.unit }
    }

    pub(crate) fn bidder(&self, bid: BidId) -> Bidder {
        Bidder { bid, tenant: self.bid(bid).terms.tenant }
    }

    /// Returns the markets that a bid names, or all of its instance type (R13).
    pub(crate) fn markets_of(&self, bid: BidId) -> &[MarketId] {
        self.scopes.markets(self.bid(bid).terms.scope)
    }

    /// Returns those of a bid's markets that admit it (R18).
    pub(crate) fn admitting_markets(&self, bid: BidId) -> impl Iterator<Item = MarketId> + Clone {
        self.markets_of(bid).iter().copied().filter(move |market| self.market(*market).state.admits(bid))
    }

    /// Returns true if the account sells in the market, and so may not bid there. Leaving units count
    /// too (R17).
    pub(crate) fn sells(&self, account: AccountId, market: MarketId) -> bool {
        self.market(market).sells(account)
    }

    pub(crate) fn is_protected(&self, allocation: &Allocation) -> bool {
        self.now < allocation.protected_until
    }

    /// Does the first thing that is due at this instant. Returns false if nothing is due (§3, step
    /// 1).
    pub(crate) fn do_what_is_due(&mut self) -> bool {
        let Some(due) = self.take_due() else { return false };
        match due {
            // Closing markets end before.
            Due::Month(_) | Due::Renewal(_) if !self.emptied.is_empty() => {
                self.timers.set(self.now, due);
                return self.end_emptied_market();
            }
            Due::ProtectionEnds(id) => self.reindex_allocation(id),
            Due::ReserveCounts(id) => self.reserve_counts(id),
            Due::Deadline(id) => self.deadline(id),
            Due::StartTimeout(id) => self.start_timeout(id),
            Due::Expiry(id) => self.expire(id),
            Due::Month(account) => self.begin_month(account),
            Due::Renewal(account) => self.renew(account),
        }
        true
    }
}
