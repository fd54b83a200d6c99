//! Passes the events of the market to the participants they concern.

use super::providers::REPAIR;
use super::run::{Due, Node, World};
use super::tenants::Kind;
use kubebid_core::units::{AccountId, AllocationId, Micros};
use kubebid_core::{Event, Fact, event};

/// The part that an account plays.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// A provider, with its number in the market.
    Provider(u32),
    /// A tenant, with its number among the accounts of its kind.
    Tenant(Kind, u64),
    /// An account that does not belong to the world. The venue lets it trade and boots its machines.
    Guest,
}

impl World<'_> {
    /// Passes one event on.
    pub(super) fn on_event(&mut self, Event { at, fact }: &Event) {
        match fact {
            Fact::UnitAdded { unit, .. } => {
                if let Role::Provider(provider) = self.role(unit.provider) {
                    let sim_market = &mut self.markets[unit.market.0 as usize];
                    sim_market.providers[provider as usize].numbers.insert(unit.number);
                }
            }
            Fact::UnitRemoved { unit } => {
                if let Role::Provider(provider) = self.role(unit.provider) {
                    let sim_market = &mut self.markets[unit.market.0 as usize];
                    sim_market.providers[provider as usize].numbers.remove(&unit.number);
                }
            }
            Fact::UnitResting { unit } => {
                if let Role::Provider(provider) = self.role(unit.provider) {
                    let (market, number) = (unit.market.0, unit.number);
                    self.agenda.plan(at.after(REPAIR), Due::Repaired { market, provider, number });
                }
            }
            Fact::Allocated { node } => {
                let (market, provider) = (node.unit.market.0, self.role(node.unit.provider));
                if let Some(job) = self.jobs.of(node.bid) {
                    let allocation = node.allocation;
                    if let Role::Provider(provider) = provider {
                        let boot = self.markets[market as usize].providers[provider as usize].boot();
                        self.agenda.plan(at.after(boot), Due::Ready { allocation, market, provider });
                    }
                    self.nodes.insert(allocation, Node { job, ready: None });
                    self.jobs.get_mut(job).expect("its bid is known").held += 1;
                }
            }
            Fact::Ready { node } => {
                if let Role::Guest = self.role(node.unit.provider) {
                    self.guest_ready(*at, node.allocation);
                }
            }
            Fact::NoticeStarted { node, deadline, .. } => {
                if *deadline != self.last_wake {
                    self.last_wake = *deadline;
                    self.agenda.plan(*deadline, Due::Market);
                }
                self.noticed(node.allocation);
            }
            Fact::Ended { node, .. } => self.node_ended(*at, node.allocation),
            Fact::BidClosed { bidder, .. } => self.bid_closed(bidder.bid),
            Fact::Charged { node, tenant, debit, .. } => {
                if let Role::Tenant(kind, number) = self.role(*tenant) {
                    self.charged(node, (kind, number), debit.0);
                }
            }
            Fact::Rejected { reason } => *self.outcome.refused.entry(reason.code()).or_default() += 1,
            Fact::PriceChanged { .. }
            | Fact::NoticeRescinded { .. }
            | Fact::MarketOpened { .. }
            | Fact::RulesChanged { .. }
            | Fact::MarketClosing { .. }
            | Fact::MarketEnded { .. }
            | Fact::OfferPut { .. }
            | Fact::UnitLeaving { .. }
            | Fact::UnitBack { .. }
            | Fact::UnitResumed { .. }
            | Fact::BidPlaced { .. }
            | Fact::BidAmended { .. }
            | Fact::Claimed { .. }
            | Fact::ClaimDropped { .. }
            | Fact::NoticeMoved { .. }
            | Fact::Funded { .. }
            | Fact::BudgetSet { .. }
            | Fact::BudgetRenewed { .. }
            | Fact::RenewalSet { .. }
            | Fact::Repeated { .. } => {}
        }
    }

    /// Returns the role of an account, by its name the first time.
    fn role(&mut self, account: AccountId) -> Role {
        let names = &self.venue.names().accounts;
        for name in &names[self.roles.len()..] {
            let (kind, number) = name.as_str().rsplit_once('-').unwrap_or((name.as_str(), "1"));
            let kind = kind.rsplit_once('-').map_or(kind, |(kind, _)| kind);
            let tenant = Kind::ALL.into_iter().find(|other| other.name() == kind);
            let number = number.parse::<u32>().unwrap_or(1) - 1;
            self.roles.push(match tenant {
                Some(kind) => Role::Tenant(kind, u64::from(number)),
                None if kind == "provider" => Role::Provider(number),
                None => Role::Guest,
            });
        }
        self.roles[account.0 as usize]
    }

    /// Counts a node on a guest's machine from the report of its readiness on.
    fn guest_ready(&mut self, at: Micros, allocation: AllocationId) {
        let Some(node) = self.nodes.get_mut(&allocation) else { return };
        node.ready = Some(at);
        let job = node.job;
        self.works(at, job, 1);
    }

    fn charged(&mut self, node: &event::Node, (kind, number): (Kind, u64), debit_micros: u128) {
        let sim_market = &mut self.markets[node.unit.market.0 as usize];
        *sim_market.charged.entry(kind).or_default() += debit_micros as u64;
        sim_market.tenant(kind, number).charged(self.now, debit_micros);
        let sums = if self.watched.contains(&node.bid) {
            &mut self.outcome.watched
        } else {
            self.outcome.kinds.entry(kind).or_default()
        };
        sums.cost_micros += debit_micros;
    }
}
