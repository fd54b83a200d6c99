//! Converts the events of the core into messages of the wire format, complete and with the parties they concern.

mod words;

pub(crate) use words::charge_reason;

use super::commit::Step;
use super::visibility;
use bytes::Bytes;
use kubebid_core::Funds;
use kubebid_core::event::{Bidder, ChargeReason, Event, EventKind, Fact, Node, Scope};
use kubebid_core::numbers::Numbers;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Names, Seq, UnitId};
use kubebid_proto::v1;
use prost::Message;
use std::sync::OnceLock;
use v1::event as wire;

/// An event in full, with everything that is needed to find it and to know whom it concerns.
#[derive(Clone, Debug, PartialEq)]
pub struct EventMessage {
    /// The kind of the event.
    pub kind: EventKind,
    /// The market of the unit or the offer, or the only market of a bid that is placed; absent for other events of
    /// bids.
    pub market: Option<MarketName>,
    /// The unit that the event is about, as `market:provider#number`.
    pub unit: Option<String>,
    /// The allocation that the event is about.
    pub allocation: Option<AllocationId>,
    /// The accounts that the event concerns.
    pub parties: Parties,
    /// The message, complete. [`redact`](crate::events::visibility::redact) hides what a viewer may
    /// not see.
    pub event: v1::Event,
    encoded: OnceLock<Bytes>,
}

impl EventMessage {
    /// Returns the event as it is on the wire and in the table. It is encoded once, when first asked
    /// for.
    pub fn encoded(&self) -> &Bytes {
        self.encoded.get_or_init(|| self.event.encode_to_vec().into())
    }

    /// Appends the same bytes to a buffer. They are not kept if nothing else has asked for them.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match self.encoded.get() {
            Some(encoded) => bytes.extend_from_slice(encoded),
            None => self.event.encode(bytes).expect("a vector grows"),
        }
    }

    /// Returns true if the event is about the market and not about a bid, node, unit or command of an
    /// account.
    pub(crate) fn concerns_everybody(&self) -> bool {
        let Parties { holder, claimant, former, provider, account } = &self.parties;
        let nobody = [holder, claimant, former].into_iter().all(Option::is_none)
            && provider.is_none()
            && account.is_none();
        nobody && !matches!(self.kind, EventKind::Rejected | EventKind::Repeated)
    }
}

/// The accounts that an event concerns, by role. One account may have several roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parties {
    /// The holder of the bid or node.
    pub holder: Option<Party>,
    /// The account that has, had or pays for the claim on a node.
    pub claimant: Option<Party>,
    /// The previous claimant.
    pub former: Option<Party>,
    /// The provider of the offer or unit.
    pub provider: Option<AccountName>,
    /// The account whose command was refused or repeated, or whose funds or budget changed.
    pub account: Option<AccountName>,
}

/// An account that an event concerns through one of its bids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// The account.
    pub account: AccountName,
    /// The bid.
    pub bid: BidId,
}

/// Converts the events of a command into messages, in full.
pub fn event_messages(step: &Step, names: &Names) -> impl Iterator<Item = EventMessage> {
    let events = step.events.iter().enumerate();
    events.map(move |(index, core)| {
        let (seq, index) = (step.seq, u32::try_from(index).expect("a command has fewer events"));
        let mut message = EventMessage {
            kind: core.fact.kind(),
            market: market(&core.fact, names),
            unit: unit(&core.fact).map(|unit| names.unit(unit).to_string()),
            allocation: node(&core.fact).map(|node| node.allocation),
            parties: parties(core, names),
            event: event(core, seq, index, names),
            encoded: OnceLock::new(),
        };
        match &mut message.event.kind {
            Some(wire::Kind::Rejected(rejected)) => {
                message.parties.account = step.command.command.account().cloned();
                rejected.account = message.parties.account.as_ref().map(|name| name.to_string());
                if let Fact::Rejected { reason } = &core.fact {
                    visibility::event_reason(&step.command.command, *reason)
                        .code()
                        .clone_into(&mut rejected.reason);
                }
            }
            Some(wire::Kind::Repeated(wire::Repeated { account, .. })) => {
                message.parties.account = step.command.command.account().cloned();
                *account = message.parties.account.as_ref().map(|name| name.to_string());
            }
            Some(wire::Kind::Charged(charged)) => {
                if let Some(by) = claim_charged(&step.events[index as usize..]) {
                    charged.bid = Some(by.bid.0);
                    message.parties.claimant = Some(party(by, names));
                }
            }
            _ => {}
        }
        message
    })
}

/// Returns the claimant of a charge for a claim. Its `ClaimDropped` follows the charge.
#[expect(clippy::wildcard_enum_match_arm, reason = "one kind is looked for")]
fn claim_charged(events: &[Event]) -> Option<Bidder> {
    let Fact::Charged { node, reason: ChargeReason::ClaimDropped, .. } = &events[0].fact else { return None };
    events[1..].iter().find_map(|event| match &event.fact {
        Fact::ClaimDropped { node: of, by, .. } if of.allocation == node.allocation => Some(*by),
        _ => None,
    })
}

/// Converts an event as far as it is known from the event alone. Only [`event_messages`] knows which
/// account sent a command that was refused or repeated, and which bid pays for a claim.
pub fn event(event: &Event, seq: Seq, index: u32, names: &Names) -> v1::Event {
    v1::Event { seq: seq.0, index, at_us: event.at.0, kind: Some(message_of(&event.fact, names)) }
}

/// Returns the parties of an event as far as they are known from the event alone: see [`event`].
pub fn parties(event: &Event, names: &Names) -> Parties {
    let mut parties = Parties::default();
    match &event.fact {
        Fact::MarketOpened { .. }
        | Fact::RulesChanged { .. }
        | Fact::MarketClosing { .. }
        | Fact::MarketEnded { .. }
        | Fact::PriceChanged { .. }
        | Fact::RenewalSet { .. }
        | Fact::Rejected { .. }
        | Fact::Repeated { .. } => {}
        Fact::Funded { account, .. }
        | Fact::BudgetSet { account, .. }
        | Fact::BudgetRenewed { account, .. } => parties.account = Some(names.account(*account).clone()),
        Fact::OfferPut { provider, .. } => parties.provider = Some(names.account(*provider).clone()),
        Fact::UnitAdded { unit, .. }
        | Fact::UnitLeaving { unit }
        | Fact::UnitBack { unit }
        | Fact::UnitResting { unit }
        | Fact::UnitResumed { unit }
        | Fact::UnitRemoved { unit } => parties.provider = Some(names.account(unit.provider).clone()),
        Fact::BidPlaced { bidder, .. } | Fact::BidAmended { bidder, .. } | Fact::BidClosed { bidder, .. } => {
            parties.holder = Some(party(*bidder, names));
        }
        Fact::Allocated { node }
        | Fact::Ready { node }
        | Fact::NoticeStarted { node, .. }
        | Fact::NoticeRescinded { node, .. }
        | Fact::NoticeMoved { node, .. }
        | Fact::Ended { node, .. } => parties.of_node(*node, names),
        Fact::Claimed { node, by, was, .. } => {
            parties.of_node(*node, names);
            parties.claimant = Some(party(*by, names));
            parties.former = was.map(|was| party(was, names));
        }
        Fact::ClaimDropped { node, by, .. } => {
            parties.of_node(*node, names);
            parties.claimant = Some(party(*by, names));
        }
        // A claim on someone else's node does not concern its holder.
        Fact::Charged { node, tenant, .. } => {
            parties.of_node(*node, names);
            if *tenant != node.tenant {
                parties.holder = None;
            }
        }
    }
    parties
}

impl Parties {
    fn of_node(&mut self, node: Node, names: &Names) {
        self.holder = Some(party(Bidder { bid: node.bid, tenant: node.tenant }, names));
        self.provider = Some(names.account(node.unit.provider).clone());
    }
}

fn party(bidder: Bidder, names: &Names) -> Party {
    Party { account: names.account(bidder.tenant).clone(), bid: bidder.bid }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others have no node")]
fn node(fact: &Fact) -> Option<Node> {
    match fact {
        Fact::Allocated { node }
        | Fact::Ready { node }
        | Fact::NoticeStarted { node, .. }
        | Fact::NoticeRescinded { node, .. }
        | Fact::NoticeMoved { node, .. }
        | Fact::Claimed { node, .. }
        | Fact::ClaimDropped { node, .. }
        | Fact::Ended { node, .. }
        | Fact::Charged { node, .. } => Some(*node),
        _ => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others have a node's or none")]
fn unit(fact: &Fact) -> Option<UnitId> {
    match fact {
        Fact::UnitAdded { unit, .. }
        | Fact::UnitLeaving { unit }
        | Fact::UnitBack { unit }
        | Fact::UnitResting { unit }
        | Fact::UnitResumed { unit }
        | Fact::UnitRemoved { unit } => Some(*unit),
        other => node(other).map(|node| node.unit),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others have a unit's or none")]
fn market(fact: &Fact, names: &Names) -> Option<MarketName> {
    let id = match fact {
        Fact::MarketOpened { market }
        | Fact::RulesChanged { market }
        | Fact::MarketClosing { market }
        | Fact::MarketEnded { market }
        | Fact::PriceChanged { market, .. }
        | Fact::OfferPut { market, .. } => *market,
        Fact::BidPlaced { scope, .. } => only(scope)?,
        other => unit(other)?.market,
    };
    Some(names.market(id).clone())
}

/// Returns the market of a bid that names only one.
pub(crate) fn only(scope: &Scope) -> Option<kubebid_core::units::MarketId> {
    match scope {
        Scope::Markets(markets) if markets.len() == 1 => Some(markets[0]),
        Scope::Markets(_) | Scope::InstanceType(_) => None,
    }
}

pub(crate) fn price_numbers(numbers: &Numbers) -> v1::PriceNumbers {
    v1::PriceNumbers {
        market_price_micros: numbers.market_price.0,
        entry_price_micros: numbers.entry_price.map(|price| price.0),
        floor_micros: numbers.floor.map(|price| price.0),
        lowest_accepted_micros: numbers.lowest_accepted.map(|price| price.0),
        highest_losing_micros: numbers.highest_losing.0,
    }
}

/// Returns the price change that an event is; None if it is another kind of event.
pub(crate) fn price_point(event: &v1::Event) -> Option<v1::PricePoint> {
    let Some(v1::event::Kind::PriceChanged(changed)) = &event.kind else { return None };
    Some(v1::PricePoint {
        market: changed.market.clone(),
        seq: event.seq,
        index: event.index,
        at_us: event.at_us,
        numbers: changed.numbers,
    })
}

fn message_of(fact: &Fact, names: &Names) -> wire::Kind {
    use wire::Kind;
    let market = |id| names.market(id).to_string();
    let account = |id| names.account(id).to_string();
    let unit = |id| names.unit(id).to_string();
    match fact {
        Fact::MarketOpened { market: id } => Kind::MarketOpened(wire::MarketOpened { market: market(*id) }),
        Fact::RulesChanged { market: id } => Kind::RulesChanged(wire::RulesChanged { market: market(*id) }),
        Fact::MarketClosing { market: id } => {
            Kind::MarketClosing(wire::MarketClosing { market: market(*id) })
        }
        Fact::MarketEnded { market: id } => Kind::MarketEnded(wire::MarketEnded { market: market(*id) }),
        Fact::OfferPut { provider, market: id, capacity, reserve } => Kind::OfferPut(wire::OfferPut {
            provider: account(*provider),
            market: market(*id),
            capacity: u32::try_from(*capacity).expect("an offer has fewer units"),
            reserve_micros: reserve.0,
        }),
        Fact::UnitAdded { unit: id, reserve } => {
            Kind::UnitAdded(wire::UnitAdded { unit: unit(*id), reserve_micros: reserve.0 })
        }
        Fact::UnitLeaving { unit: id } => Kind::UnitLeaving(wire::UnitLeaving { unit: unit(*id) }),
        Fact::UnitBack { unit: id } => Kind::UnitBack(wire::UnitBack { unit: unit(*id) }),
        Fact::UnitResting { unit: id } => Kind::UnitResting(wire::UnitResting { unit: unit(*id) }),
        Fact::UnitResumed { unit: id } => Kind::UnitResumed(wire::UnitResumed { unit: unit(*id) }),
        Fact::UnitRemoved { unit: id } => Kind::UnitRemoved(wire::UnitRemoved { unit: unit(*id) }),
        Fact::BidPlaced { bidder, scope, ceiling, min_nodes, max_nodes } => {
            let (markets, instance_type) = match scope {
                Scope::Markets(ids) => (ids.iter().map(|id| market(*id)).collect(), None),
                Scope::InstanceType(kind) => (Vec::new(), Some(kind.to_string())),
            };
            Kind::BidPlaced(wire::BidPlaced {
                bid: bidder.bid.0,
                tenant: account(bidder.tenant),
                markets,
                instance_type,
                ceiling_micros: ceiling.0,
                min_nodes: *min_nodes,
                max_nodes: *max_nodes,
            })
        }
        Fact::BidAmended { bidder, ceiling, max_nodes, bid_seq } => Kind::BidAmended(wire::BidAmended {
            bid: bidder.bid.0,
            tenant: account(bidder.tenant),
            ceiling_micros: ceiling.0,
            max_nodes: *max_nodes,
            bid_seq: bid_seq.0,
        }),
        Fact::BidClosed { bidder, max_nodes, reason } => Kind::BidClosed(wire::BidClosed {
            bid: bidder.bid.0,
            tenant: account(bidder.tenant),
            max_nodes: *max_nodes,
            reason: words::close_reason(*reason) as i32,
        }),
        Fact::Allocated { node } => Kind::Allocated(wire::Allocated {
            allocation: node.allocation.0,
            bid: Some(node.bid.0),
            tenant: Some(account(node.tenant)),
            unit: unit(node.unit),
        }),
        Fact::Ready { node } => Kind::Ready(wire::Ready {
            allocation: node.allocation.0,
            bid: Some(node.bid.0),
            tenant: Some(account(node.tenant)),
            unit: unit(node.unit),
        }),
        Fact::NoticeStarted { node, deadline, max_nodes, reason } => {
            Kind::NoticeStarted(wire::NoticeStarted {
                allocation: node.allocation.0,
                bid: Some(node.bid.0),
                tenant: Some(account(node.tenant)),
                unit: unit(node.unit),
                deadline_us: deadline.0,
                max_nodes: Some(*max_nodes),
                reason: words::notice_reason(*reason) as i32,
            })
        }
        Fact::NoticeRescinded { node, max_nodes } => Kind::NoticeRescinded(wire::NoticeRescinded {
            allocation: node.allocation.0,
            bid: Some(node.bid.0),
            tenant: Some(account(node.tenant)),
            unit: unit(node.unit),
            max_nodes: Some(*max_nodes),
        }),
        Fact::NoticeMoved { node, deadline } => Kind::NoticeMoved(wire::NoticeMoved {
            allocation: node.allocation.0,
            bid: Some(node.bid.0),
            tenant: Some(account(node.tenant)),
            unit: unit(node.unit),
            deadline_us: deadline.0,
        }),
        Fact::Claimed { node, by, was, cause } => Kind::Claimed(wire::Claimed {
            allocation: Some(node.allocation.0),
            unit: unit(node.unit),
            bid: Some(by.bid.0),
            tenant: Some(account(by.tenant)),
            was: was.map(|was| was.bid.0),
            cause: words::claim_cause(*cause) as i32,
        }),
        Fact::ClaimDropped { node, by, cause } => Kind::ClaimDropped(wire::ClaimDropped {
            allocation: Some(node.allocation.0),
            unit: unit(node.unit),
            bid: Some(by.bid.0),
            tenant: Some(account(by.tenant)),
            cause: words::drop_cause(*cause) as i32,
        }),
        Fact::Ended { node, max_nodes, reason } => Kind::Ended(wire::Ended {
            allocation: node.allocation.0,
            bid: Some(node.bid.0),
            tenant: Some(account(node.tenant)),
            unit: unit(node.unit),
            max_nodes: Some(*max_nodes),
            reason: words::end_reason(*reason) as i32,
        }),
        Fact::Charged { node, tenant, debit, fee, reason } => Kind::Charged(wire::Charged {
            allocation: Some(node.allocation.0),
            bid: (*reason != ChargeReason::ClaimDropped).then_some(node.bid.0),
            tenant: Some(account(*tenant)),
            provider: account(node.unit.provider),
            unit: unit(node.unit),
            debit_micros: micros(debit.0),
            fee_micros: micros(fee.0),
            reason: words::charge_reason(*reason) as i32,
        }),
        Fact::PriceChanged { market: id, numbers: five } => {
            Kind::PriceChanged(wire::PriceChanged { market: market(*id), numbers: Some(price_numbers(five)) })
        }
        Fact::Funded { account: id, funds } => {
            Kind::Funded(wire::Funded { account: account(*id), funds_micros: funds.map(signed_micros) })
        }
        Fact::BudgetSet { account: id, monthly, roll_over, funds } => Kind::BudgetSet(wire::BudgetSet {
            account: account(*id),
            monthly_micros: *monthly,
            roll_over: *roll_over,
            funds_micros: funds.map(signed_micros),
        }),
        Fact::BudgetRenewed { account: id, funds } => Kind::BudgetRenewed(wire::BudgetRenewed {
            account: account(*id),
            funds_micros: signed_micros(*funds),
        }),
        Fact::RenewalSet { renewal } => Kind::RenewalSet(wire::RenewalSet { renewal_us: renewal.0 }),
        Fact::Rejected { reason } => {
            Kind::Rejected(wire::Rejected { account: None, reason: reason.code().to_owned() })
        }
        Fact::Repeated { first } => Kind::Repeated(wire::Repeated { account: None, first_seq: first.0 }),
    }
}

/// Limits funds to what a message can hold.
pub(crate) fn signed_micros(funds: Funds) -> i64 {
    i64::try_from(funds.0).unwrap_or(if funds.0 < 0 { i64::MIN } else { i64::MAX })
}

/// Limits an amount to what the message can hold. The projections do not accept a debit that an `int64`
/// cannot hold; the feed shows the highest possible one.
fn micros(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}
