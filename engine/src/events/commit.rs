//! A commit: one durable, applied batch of commands, with its events and the state of all that it touched.

use crate::events::encoded::EncodedEvents;
use crate::events::message::{EventMessage, event_messages, only};
use crate::store::Labels;
use kubebid_core::account_usage::AccountUsage;
use kubebid_core::answer::Outcome;
use kubebid_core::event::{Event, Fact};
use kubebid_core::settlement_details::SettlementDetail;
use kubebid_core::units::{AccountId, AllocationId, BidId, MarketName, Micros, Names, Seq};
use kubebid_core::views::{Accrual, AllocationView, BidView, RefusalDetail};
use kubebid_core::{Exchange, StampedCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use tokio::sync::OnceCell;

/// A durable, applied batch of commands. Everything that follows the market shares it.
#[derive(Debug)]
pub struct Commit {
    /// The commands in order; at least one.
    pub steps: Vec<Step>,
    /// The touched bids, as they are after the last step.
    pub bids: Vec<BidView>,
    /// The touched allocations that have not ended, as they are after the last step.
    pub allocations: Vec<AllocationView>,
    /// The usage of the accounts whose bids were touched, after the last step.
    pub open: Vec<(AccountId, AccountUsage)>,
    /// The names of all accounts and markets as of the last step.
    pub names: Arc<Names>,
    encoded_events: OnceLock<EncodedEvents>,
    labels: OnceCell<BTreeMap<u64, Labels>>,
}

/// One command and what it did.
#[derive(Debug)]
pub struct Step {
    /// The number of the command.
    pub seq: Seq,
    /// The market's time after the command.
    pub at: Micros,
    /// The command with its key and stamp.
    pub command: StampedCommand,
    /// The outcome: accepted, refused, or a repeat.
    pub outcome: Outcome,
    /// The value that a refused command contradicts.
    pub refusal_detail: RefusalDetail,
    /// The events of the command, in order.
    pub events: Vec<Event>,
    /// Details of the ended nodes and charged claims among the events.
    pub settlement_details: Vec<SettlementDetail>,
    /// The bills of running nodes at full hours that passed before this command.
    pub hours: Vec<HourMark>,
}

/// The bills of all running nodes at a full hour, unrounded.
#[derive(Debug)]
pub struct HourMark {
    /// The hour, in market time.
    pub at: Micros,
    /// The running nodes and what each owes up to then.
    pub bills: Vec<Accrual>,
}

/// Returns the number of bills that a command noted at full hours.
pub(crate) fn hourly_bills(step: &Step) -> usize {
    step.hours.iter().map(|hour| hour.bills.len()).sum()
}

impl Commit {
    /// Returns the number of its first command.
    pub fn first_seq(&self) -> Seq {
        self.steps.first().expect("a commit has a step").seq
    }

    /// Returns the number of its last command.
    pub fn last_seq(&self) -> Seq {
        self.steps.last().expect("a commit has a step").seq
    }

    /// Returns the number of bills that its steps noted at full hours.
    pub(crate) fn hourly_bills(&self) -> usize {
        self.steps.iter().map(hourly_bills).sum()
    }

    /// Gathers the state of what the steps touched.
    pub(crate) fn gather(steps: Vec<Step>, exchange: &Exchange, names: Arc<Names>) -> Commit {
        let (mut bids, mut allocations) = (Vec::with_capacity(steps.len()), Vec::new());
        for event in steps.iter().flat_map(|step| &step.events) {
            touch(&event.fact, &mut bids, &mut allocations);
        }
        bids.sort_unstable();
        bids.dedup();
        allocations.sort_unstable();
        allocations.dedup();
        let mut views = Vec::with_capacity(bids.len());
        views.extend(bids.into_iter().filter_map(|id| exchange.view_bid(id)));
        let bids: Vec<BidView> = views;
        let mut tenants: Vec<AccountId> = bids.iter().map(|bid| bid.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        Commit {
            steps,
            bids,
            allocations: allocations.into_iter().filter_map(|id| exchange.view_allocation(id)).collect(),
            open: tenants.into_iter().map(|tenant| (tenant, exchange.account_usage(tenant))).collect(),
            names,
            encoded_events: OnceLock::new(),
            labels: OnceCell::new(),
        }
    }

    /// Returns its events in full. They are made once for all who follow the market.
    pub(crate) fn encoded_events(&self) -> &EncodedEvents {
        self.encoded_events.get_or_init(|| {
            EncodedEvents::new(self.steps.iter().flat_map(|step| self.messages_of(step)).collect())
        })
    }

    /// Returns the labels of the bids that its events are about. They are read once, when first asked
    /// for.
    pub(crate) async fn labels<E, F>(
        &self,
        read: impl FnOnce(Vec<u64>) -> F,
    ) -> Result<&BTreeMap<u64, Labels>, E>
    where
        F: Future<Output = Result<BTreeMap<u64, Labels>, E>>,
    {
        self.labels
            .get_or_try_init(|| {
                let parties = self.encoded_events().events.iter().map(|message| &message.parties);
                let bids = parties.flat_map(|parties| [&parties.holder, &parties.claimant, &parties.former]);
                let bids: BTreeSet<u64> = bids.flatten().map(|party| party.bid.0).collect();
                read(bids.into_iter().collect())
            })
            .await
    }

    /// Returns each step with its events in full.
    pub(crate) fn steps_with_messages(&self) -> impl Iterator<Item = (&Step, &[Arc<EventMessage>])> {
        let mut rest = &self.encoded_events().events[..];
        self.steps.iter().map(move |step| {
            let (message, following) = rest.split_at(step.events.len());
            rest = following;
            (step, message)
        })
    }

    fn messages_of(&self, step: &Step) -> impl Iterator<Item = Arc<EventMessage>> {
        let events = event_messages(step, &self.names).zip(&step.events);
        events.map(|(mut message, event)| {
            if let Fact::BidAmended { bidder, .. } | Fact::BidClosed { bidder, .. } = &event.fact {
                message.market = self.market_of(bidder.bid);
            }
            Arc::new(message)
        })
    }

    /// Returns a bid that the commit touched.
    pub(crate) fn bid(&self, bid: BidId) -> Option<&BidView> {
        let found = self.bids.binary_search_by_key(&bid, |view| view.bid);
        found.ok().map(|index| &self.bids[index])
    }

    /// Returns the only market that a touched bid names.
    fn market_of(&self, bid: BidId) -> Option<MarketName> {
        let market = self.bid(bid).and_then(|view| only(&view.scope))?;
        Some(self.names.market(market).clone())
    }
}

fn touch(fact: &Fact, bids: &mut Vec<BidId>, allocations: &mut Vec<AllocationId>) {
    match fact {
        Fact::BidPlaced { bidder, .. } | Fact::BidAmended { bidder, .. } | Fact::BidClosed { bidder, .. } => {
            bids.push(bidder.bid);
        }
        Fact::Allocated { node }
        | Fact::Ready { node }
        | Fact::NoticeStarted { node, .. }
        | Fact::NoticeRescinded { node, .. }
        | Fact::NoticeMoved { node, .. }
        | Fact::Ended { node, .. } => {
            bids.push(node.bid);
            allocations.push(node.allocation);
        }
        Fact::Claimed { node, by, was, .. } => {
            bids.extend([node.bid, by.bid]);
            bids.extend(was.map(|was| was.bid));
            allocations.push(node.allocation);
        }
        Fact::ClaimDropped { node, by, .. } => {
            bids.extend([node.bid, by.bid]);
            allocations.push(node.allocation);
        }
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
        | Fact::Charged { .. }
        | Fact::PriceChanged { .. }
        | Fact::Funded { .. }
        | Fact::BudgetSet { .. }
        | Fact::BudgetRenewed { .. }
        | Fact::RenewalSet { .. }
        | Fact::Rejected { .. }
        | Fact::Repeated { .. } => {}
    }
}
