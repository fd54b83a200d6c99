//! The exchange in this process: no journal, no wire.

use super::venue::{Act, Happening, Venue, VenueError};
use kubebid_core::answer::{Answer, Auction};
use kubebid_core::command::{CancelMode, PlaceBid, RuleChange, RuleValue};
use kubebid_core::event::{Event, Fact};
use kubebid_core::units::{AccountName, MarketName, Micros, Names};
use kubebid_core::{Command, Exchange, Stamped};

#[derive(Debug, Default)]
pub struct InProcess {
    exchange: Exchange,
    now: Micros,
}

impl InProcess {
    pub fn new() -> InProcess {
        InProcess::default()
    }

    fn apply(&mut self, command: Command) -> (u64, Vec<Happening>) {
        let answer: Answer = self.exchange.apply(&Stamped { at: self.now, key: None, command });
        let names = self.exchange.names();
        (answer.seq.0, answer.events.iter().filter_map(|event| happening(event, names)).collect())
    }
}

impl Venue for InProcess {
    fn advance(&mut self, to: Micros) -> Result<Vec<Happening>, VenueError> {
        self.now = self.now.max(to);
        Ok(self.apply(Command::AdvanceTime).1)
    }

    fn act(&mut self, act: Act) -> Result<(u64, Vec<Happening>), VenueError> {
        Ok(self.apply(command_of(act)))
    }

    fn name(&self) -> String {
        "in process".to_owned()
    }
}

fn command_of(act: Act) -> Command {
    match act {
        Act::Open { market, min_runtime, notice } => {
            let rule =
                |name: &str, span: Micros| RuleChange { name: name.into(), value: RuleValue::Number(span.0) };
            let rules = vec![rule("min_runtime_us", min_runtime), rule("notice_us", notice)];
            Command::OpenMarket { market: MarketName::new(&market), rules }
        }
        Act::Offer { provider, market, capacity, reserve } => Command::PutOffer {
            provider: AccountName::new(&provider),
            market: MarketName::new(&market),
            capacity,
            reserve,
        },
        Act::Bid { tenant, market, ceiling, nodes } => Command::PlaceBid(PlaceBid {
            tenant: AccountName::new(&tenant),
            markets: Some(vec![MarketName::new(&market)]),
            instance_type: None,
            ceiling,
            min_nodes: nodes,
            max_nodes: nodes,
            time_in_force: Default::default(),
            expire_at: None,
            on_preemption: Default::default(),
        }),
        Act::Cancel { tenant, bid } => {
            Command::CancelBid { tenant: AccountName::new(&tenant), bid, mode: CancelMode::Release }
        }
        Act::Ready { tenant, allocation } => {
            Command::ReportReady { allocation, by: Some(AccountName::new(&tenant)) }
        }
    }
}

fn happening(event: &Event, names: &Names) -> Option<Happening> {
    let at = event.at;
    Some(match &event.fact {
        Fact::Allocated { node } => Happening::Allocated { at, allocation: node.allocation, bid: node.bid },
        Fact::NoticeStarted { node, deadline, .. } => {
            Happening::NoticeStarted { at, allocation: node.allocation, deadline: *deadline }
        }
        Fact::NoticeRescinded { node, .. } => Happening::NoticeRescinded { at, allocation: node.allocation },
        Fact::Ended { node, .. } => Happening::Ended { at, allocation: node.allocation, bid: node.bid },
        Fact::Charged { debit, fee, .. } => Happening::Charged { debit: *debit, fee: *fee },
        Fact::PriceChanged { market, numbers } => Happening::Price {
            at,
            market: names.market(*market).to_string(),
            price: numbers.market_price,
            supplied: numbers.floor.is_some(),
        },
        Fact::Rejected { reason } => Happening::Refused { reason: reason.code().to_owned() },
        Fact::MarketOpened { .. }
        | Fact::RulesChanged { .. }
        | Fact::OfferPut { .. }
        | Fact::UnitAdded { .. }
        | Fact::UnitLeaving { .. }
        | Fact::UnitBack { .. }
        | Fact::UnitRemoved { .. }
        | Fact::BidPlaced { .. }
        | Fact::BidAmended { .. }
        | Fact::BidClosed { .. }
        | Fact::Ready { .. }
        | Fact::Claimed { .. }
        | Fact::ClaimDropped { .. }
        | Fact::Repeated { .. } => return None,
    })
}
