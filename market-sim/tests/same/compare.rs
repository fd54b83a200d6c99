//! Both markets side by side.

use kubebid_core::account_usage::AccountUsage;
use kubebid_core::answer::{Answer, Auction};
use kubebid_core::event::{Event, Fact, Scope};
use kubebid_core::units::{AccountId, AccountName, AllocationId, MarketId, Micros};
use kubebid_core::views::{BidView, DemandLevel, Depth, SupplyLevel, UnitView};
use kubebid_core::{Command, Exchange, Price, StampedCommand};
use kubebid_model::{Model, invariants};
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(crate) struct Pair {
    exchange: Exchange,
    /// The same, but told the time far more often (I9).
    restless: Exchange,
    model: Model,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair { exchange: Exchange::new(), restless: Exchange::new(), model: Model::new() }
    }

    pub(crate) fn apply(&mut self, command: &StampedCommand) -> Result<(), String> {
        let before = self.model.clone();
        let expected = self.model.apply(command);
        invariants::check(&self.model)?;
        invariants::check_step(&before, command, &expected, &self.model)?;
        let answer = self.exchange.apply(command);
        same("sequence number", &expected.seq, &answer.seq)?;
        same("time", &expected.at, &answer.at)?;
        same("outcome", &expected.outcome, &answer.outcome)?;
        let (in_order, loose) = split(&expected);
        let (answered_in_order, answered_loose) = split(&answer);
        same("events", &in_order, &answered_in_order)?;
        same("loose events", &loose, &answered_loose)?;
        let (expected, pictured) = (self.model.dump(), self.exchange.dump());
        same("markets", &expected.markets, &pictured.markets)?;
        same("bids", &expected.bids, &pictured.bids)?;
        same("allocations", &expected.allocations, &pictured.allocations)?;
        same("totals", &expected.totals, &pictured.totals)?;
        same("funds", &expected.funded, &pictured.funded)?;
        self.open_is_counted()?;
        self.depth_is_counted()?;
        for market in 0..expected.markets.len() as u32 {
            for nodes in [1, 2, 3, 5] {
                let (model, exchange) = (
                    self.model.entry_price(MarketId(market), nodes),
                    self.exchange.entry_price(MarketId(market), nodes),
                );
                same(&format!("entry price of {nodes} in market {market}"), &model, &exchange)?;
            }
        }
        self.fidget(command, &answer)?;
        self.snapshot()
    }

    /// What each account has open is what its searching bids ask for, and what the others hold.
    fn open_is_counted(&self) -> Result<(), String> {
        for (number, name) in self.exchange.names().accounts.iter().enumerate() {
            let account = AccountId(number as u32);
            let bids = self.exchange.bids_of(account, None);
            let bids = bids.filter_map(|bid| self.exchange.view_bid(bid));
            let counted = bids.fold(AccountUsage::default(), |open, bid| {
                let held = bid.live.len() + bid.under_notice.len() + bid.claims.len();
                let nodes = match (bid.searching, bid.closes_on_preemption) {
                    (true, false) => bid.max_nodes as usize,
                    (true, true) => bid.max_nodes as usize + bid.under_notice.len(),
                    (false, _) => held,
                };
                AccountUsage { bids: open.bids + u64::from(bid.searching), nodes: open.nodes + nodes as u64 }
            });
            same(&format!("what {name} has open"), &counted, &self.exchange.account_usage(account))?;
        }
        Ok(())
    }

    /// The depth of each market is what its bids, nodes and units add up to.
    fn depth_is_counted(&self) -> Result<(), String> {
        let exchange = &self.exchange;
        let accounts = || (0..exchange.names().accounts.len() as u32).map(AccountId);
        let bids: Vec<BidView> = accounts()
            .flat_map(|account| exchange.bids_of(account, None))
            .filter_map(|bid| exchange.view_bid(bid))
            .collect();
        for (number, name) in exchange.names().markets.iter().enumerate() {
            let market = MarketId(number as u32);
            let mut demand: BTreeMap<Reverse<Price>, DemandLevel> = BTreeMap::new();
            let mut at = |ceiling, add: &dyn Fn(&mut DemandLevel)| {
                let empty = DemandLevel { ceiling, unmet: 0, held: 0, claimed: 0 };
                add(demand.entry(Reverse(ceiling)).or_insert(empty));
            };
            for bid in &bids {
                let eligible = match &bid.scope {
                    Scope::Markets(markets) => markets.contains(&market),
                    Scope::InstanceType(kind) => kind.as_str() == name.parts().0,
                };
                let eligible = eligible && exchange.market_state(market).admits(bid.bid);
                let takes_part = || self.model.takes_part(bid.bid, market);
                if eligible
                    && bid.unmet > 0
                    && exchange.view_offer(market, bid.tenant).is_none()
                    && takes_part()
                {
                    at(bid.ceiling, &|level| level.unmet += u64::from(bid.unmet));
                }
                let here = |id: &&AllocationId| {
                    exchange.view_allocation(**id).is_some_and(|view| view.unit.market == market)
                };
                let (held, claimed) = (bid.live.iter().filter(here), bid.claims.iter().filter(here));
                held.for_each(|_| at(bid.ceiling, &|level| level.held += 1));
                claimed.for_each(|_| at(bid.ceiling, &|level| level.claimed += 1));
            }
            let mut supply: BTreeMap<Price, SupplyLevel> = BTreeMap::new();
            for offer in accounts().filter_map(|account| exchange.view_offer(market, account)) {
                let reserve = offer.reserve;
                let units: Vec<_> = exchange.view_units(market, offer.provider, 0).collect();
                let count = |is: fn(&UnitView) -> bool| units.iter().filter(|unit| is(unit)).count() as u64;
                let leaving = count(|unit| unit.leaving);
                let resting = count(|unit| unit.resting);
                let free = count(|unit| unit.allocation.is_none() && !unit.resting);
                let notice = count(|unit| !unit.leaving && unit.under_notice);
                let allocated = units.len() as u64 - leaving - free - notice - resting;
                let counted = (offer.free, offer.allocated, offer.notice, offer.leaving, offer.resting);
                same(&format!("units in {name}"), &(free, allocated, notice, leaving, resting), &counted)?;
                if offer.capacity > offer.resting {
                    let empty = SupplyLevel { reserve, free: 0, allocated: 0, notice: 0 };
                    let level = supply.entry(reserve).or_insert(empty);
                    level.free += free;
                    level.allocated += allocated;
                    level.notice += notice;
                }
            }
            let all =
                Depth { demand: demand.into_values().collect(), supply: supply.into_values().collect() };
            same(&format!("depth of {name}"), &all, &exchange.depth(market, 1000))?;
            let first = |levels| Depth {
                demand: all.demand.iter().copied().take(levels).collect(),
                supply: all.supply.iter().copied().take(levels).collect(),
            };
            same(&format!("first levels of {name}"), &first(2), &exchange.depth(market, 2))?;
        }
        Ok(())
    }

    /// AdvanceTime inserted before the command changes nothing but sequence numbers; settling ahead
    /// of the command does not even change those.
    fn fidget(&mut self, command: &StampedCommand, answer: &Answer) -> Result<(), String> {
        let (from, to) = (self.restless.now(), command.at);
        for part in 1..=3u64 {
            let at = Micros(from.0 + to.0.saturating_sub(from.0) / 4 * part);
            self.restless.run_until(at);
        }
        let restless = self.restless.apply(command);
        same("events of the restless exchange", &answer.events, &restless.events)?;
        same("state hash of the restless exchange", &self.exchange.state_hash(), &self.restless.state_hash())
    }

    /// Every now and then, goes on from a snapshot.
    fn snapshot(&mut self) -> Result<(), String> {
        if self.exchange.seq().0.is_multiple_of(7) {
            let restored = Exchange::restore(&self.exchange.snapshot()).map_err(|e| e.to_string())?;
            same("state hash of the restored exchange", &self.exchange.state_hash(), &restored.state_hash())?;
            same("dump of the restored exchange", &self.exchange.dump(), &restored.dump())?;
            self.exchange = restored;
        }
        if self.exchange.seq().0.is_multiple_of(5) {
            self.quotes_are_exact()?;
        }
        Ok(())
    }

    /// Returns true if the command gave a node or a claim to a bid that took part in no such market before: what another
    /// bid took from its account freed money (R19).
    fn frees_money(&self, answer: &Answer) -> bool {
        answer.events.iter().any(|event| {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these give something")]
            let (bid, market) = match event.fact {
                Fact::Allocated { node } => (node.bid, node.unit.market),
                Fact::Claimed { node, by, .. } => (by.bid, node.unit.market),
                _ => return false,
            };
            let placed_before = self.exchange.view_bid(bid).is_some();
            placed_before && !self.model.takes_part(bid, market)
        })
    }

    /// I14: a new tenant's bid at the entry price gets all its nodes, one tick below it does not.
    fn quotes_are_exact(&self) -> Result<(), String> {
        let snapshot = self.exchange.snapshot();
        for market in 0..self.exchange.dump().markets.len() as u32 {
            let market = MarketId(market);
            let tick = self.exchange.market_rules(market).tick;
            for (min_nodes, nodes) in [(1, 1), (1, 2), (3, 3)] {
                let Some(entry) = self.exchange.entry_price(market, nodes) else { continue };
                for (ceiling, gets_all) in [(entry.0, true), (entry.0 - tick, false)] {
                    if ceiling == 0 {
                        continue;
                    }
                    let mut copy = Exchange::restore(&snapshot).map_err(|e| e.to_string())?;
                    let name = copy.names().market(market).clone();
                    let bid = kubebid_core::command::PlaceBid {
                        tenant: AccountName::new("somebody new"),
                        markets: Some(vec![name]),
                        instance_type: None,
                        ceiling: kubebid_core::Price(ceiling),
                        min_nodes,
                        max_nodes: nodes,
                        time_in_force: Default::default(),
                        expire_at: None,
                        on_preemption: Default::default(),
                    };
                    let at = copy.now();
                    let answer =
                        copy.apply(&StampedCommand { at, key: None, command: Command::PlaceBid(bid) });
                    if self.frees_money(&answer) {
                        continue;
                    }
                    let placed = *copy.dump().bids.last().expect("just placed");
                    let has_all = placed.held + placed.claimed == nodes;
                    if min_nodes == 1 {
                        let asked = Some(Price(ceiling));
                        let quote = self.exchange.quote_market(
                            market,
                            &AccountName::new("somebody new"),
                            asked,
                            nodes,
                        );
                        same(
                            &format!("nodes and claims of a quote for {nodes} at {ceiling} in {market:?}"),
                            &(Some(placed.held + placed.claimed), Some(placed.claimed)),
                            &(quote.nodes, quote.claimed),
                        )?;
                    }
                    same(
                        &format!("I14: {nodes} nodes at {ceiling} in {market:?}: all"),
                        &gets_all,
                        &has_all,
                    )?;
                }
            }
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, model: &T, exchange: &T) -> Result<(), String> {
    if model == exchange {
        return Ok(());
    }
    Err(format!("{what}:\n  model    {model:?}\n  exchange {exchange:?}"))
}

/// Events of bids and allocations in their order; the others as a set.
fn split(answer: &Answer) -> (Vec<&Event>, Vec<String>) {
    let (loose, in_order): (Vec<&Event>, Vec<&Event>) = answer.events.iter().partition(|event| {
        matches!(
            event.fact,
            Fact::MarketOpened { .. }
                | Fact::RulesChanged { .. }
                | Fact::MarketClosing { .. }
                | Fact::MarketEnded { .. }
                | Fact::OfferPut { .. }
                | Fact::UnitAdded { .. }
                | Fact::UnitLeaving { .. }
                | Fact::UnitBack { .. }
                | Fact::UnitResting { .. }
                | Fact::UnitResumed { .. }
                | Fact::UnitRemoved { .. }
                | Fact::BidClosed { .. }
                | Fact::Charged { .. }
                | Fact::PriceChanged { .. }
                | Fact::Funded { .. }
                | Fact::BudgetSet { .. }
                | Fact::BudgetRenewed { .. }
                | Fact::RenewalSet { .. }
        )
    });
    let mut loose: Vec<String> = loose.iter().map(|event| format!("{event:?}")).collect();
    loose.sort();
    (in_order, loose)
}
