//! Applies one command at a time, after everything that was due before it (R1).

use crate::state::{Market, Model};
use kubebid_core::answer::{Answer, Auction, Outcome};
use kubebid_core::command::{Command, StampedCommand};
use kubebid_core::event::Fact;
use kubebid_core::state_dump::{AllocationDump, AllocationState, BidDump, MarketDump, StateDump};
use kubebid_core::units::{AccountId, AccountName, MarketId, MarketName, Micros, Names, Seq};
use kubebid_core::{MarketRules, MarketState, Price, Reject};

impl Auction for Model {
    fn apply(&mut self, stamped: &StampedCommand) -> Answer {
        self.seq = Seq(self.seq.0 + 1);
        let account = stamped.command.account().map(|name| self.number(name));
        self.let_time_pass(stamped.at);
        let outcome = match (account, &stamped.key) {
            (Some(account), Some(key)) => match self.keys.recall(account, key, &stamped.command, self.now) {
                Some(known) => known,
                None => {
                    let outcome = self.execute(stamped);
                    self.keys.remember(account, key, &stamped.command, self.now, self.seq, outcome);
                    outcome
                }
            },
            (None, _) | (_, None) => self.execute(stamped),
        };
        match outcome {
            Outcome::Accepted => {}
            Outcome::Rejected(reason) => self.emit(Fact::Rejected { reason }),
            Outcome::Repeated { first, .. } => self.emit(Fact::Repeated { first }),
        }
        Answer { seq: self.seq, at: self.now, outcome, events: std::mem::take(&mut self.events) }
    }

    fn dump(&self) -> StateDump {
        StateDump {
            markets: self.market_ids().map(|market| self.market_picture(market)).collect(),
            bids: self.bid_pictures(),
            allocations: self.allocation_pictures(),
            totals: self.totals,
            funded: self.fund_pictures(),
        }
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn entry_price(&self, market: MarketId, nodes: u32) -> Option<Price> {
        self.price_of_entry(market, nodes)
    }
}

impl Model {
    fn number(&mut self, name: &AccountName) -> AccountId {
        let known = self.names.accounts.iter().position(|account| account == name);
        let index = known.unwrap_or_else(|| {
            self.names.accounts.push(name.clone());
            self.names.accounts.len() - 1
        });
        AccountId(index as u32)
    }

    fn number_of(&self, name: &AccountName) -> AccountId {
        self.find_account(name).expect("the command has named it")
    }

    /// Settles every due instant up to `at` in turn (R1). A time in the past counts as the present.
    fn let_time_pass(&mut self, at: Micros) {
        while let Some(due) = self.next_due().filter(|due| *due <= at) {
            self.bill_until(due);
            self.now = due;
            self.settle();
        }
        let now = self.now.max(at);
        self.bill_until(now);
        self.now = now;
    }

    /// Returns the next instant at which something falls due that no command has reached yet.
    pub fn next_due(&self) -> Option<Micros> {
        let nodes = self.allocations.values().flat_map(|a| {
            let deadline = a.notice.as_ref().map(|notice| notice.deadline);
            let start = a.ready.is_none().then_some(a.start_deadline);
            let raise = a.raise.map(|(_, from)| from);
            [deadline, start, raise, Some(a.protected_until)].into_iter().flatten()
        });
        let expiries = self.bids.values().filter(|bid| bid.searching).filter_map(|bid| bid.expire_at);
        nodes.chain(expiries).chain(self.due_of_accounts()).filter(|due| *due > self.now).min()
    }

    /// Executes a command and settles. A command that is refused changes nothing (R16).
    fn execute(&mut self, stamped: &StampedCommand) -> Outcome {
        let done = match &stamped.command {
            Command::OpenMarket { market, rules } => self.check_open(market, rules).map(|(known, rules)| {
                let id = known.unwrap_or_else(|| self.add_market(market));
                self.open_market(id, rules);
            }),
            Command::ChangeRules { market, rules } => {
                self.check_change(market, rules).map(|(market, rules)| self.change_rules(market, rules))
            }
            Command::CloseMarket { market } => {
                self.check_close(market).map(|market| self.close_market(market))
            }
            Command::PutOffer { provider, market, capacity, reserve } => {
                self.check_put(provider, market, *capacity, *reserve).map(|offer| {
                    self.put_offer(offer, *capacity, *reserve);
                })
            }
            Command::WithdrawUnit { provider, unit } => {
                self.check_withdraw(provider, unit).map(|unit| self.withdraw(unit))
            }
            Command::ReportUnitLost { provider, unit } => {
                self.check_lost(provider, unit).map(|unit| self.lose(unit))
            }
            Command::ResumeUnits { provider, units } => {
                self.check_resume(provider, units).map(|units| self.resume(units))
            }
            Command::PlaceBid(bid) => self.check_place(bid).map(|scope| self.place_bid(bid, scope)),
            Command::AmendBid { tenant, bid, ceiling, max_nodes } => self
                .check_amend(tenant, *bid, *ceiling, *max_nodes)
                .map(|()| self.amend_bid(*bid, *ceiling, *max_nodes)),
            Command::CancelBid { tenant, bid, mode } => {
                self.check_cancel(tenant, *bid, mode).map(|()| self.cancel_bid(*bid, mode))
            }
            Command::ReleaseAllocation { tenant, allocation } => {
                self.check_release(tenant, *allocation).map(|()| self.release(*allocation))
            }
            Command::ReportReady { allocation, by } => {
                self.check_ready(*allocation, by.as_ref()).map(|()| self.ready(*allocation))
            }
            Command::AdvanceTime => Ok(()),
            Command::Fund { account, change } => self
                .check_fund(stamped.key.is_some(), *change)
                .map(|()| self.fund(self.number_of(account), *change)),
            Command::SetBudget { account, monthly, roll_over } => self
                .check_budget(*monthly)
                .map(|()| self.set_budget(self.number_of(account), *monthly, *roll_over)),
            Command::SetRenewal { renewal } => {
                self.check_renewal(*renewal).map(|()| self.set_renewal(*renewal))
            }
        };
        match done {
            Ok(()) => {
                self.settle();
                Outcome::Accepted
            }
            Err(reason) => Outcome::Rejected(reason),
        }
    }

    fn add_market(&mut self, name: &MarketName) -> MarketId {
        self.names.markets.push(name.clone());
        let rules = MarketRules::default();
        self.markets.push(Market { state: MarketState::Open, rules, announced: None });
        MarketId(self.markets.len() as u32 - 1)
    }

    /// Opens a new market, or one that was closed (R18).
    fn open_market(&mut self, id: MarketId, rules: MarketRules) {
        let market = &mut self.markets[id.0 as usize];
        (market.state, market.rules) = (MarketState::Open, rules);
        self.emit(Fact::MarketOpened { market: id });
    }

    /// Closes a market (R18). Its resting units leave (R11). Settling ends it when it has no units.
    fn close_market(&mut self, market: MarketId) {
        self.markets[market.0 as usize].state = MarketState::Closing(self.seq);
        self.emit(Fact::MarketClosing { market });
        for unit in self.resting_units(market).collect::<Vec<_>>() {
            self.remove_unit(unit);
        }
    }

    fn change_rules(&mut self, market: MarketId, rules: MarketRules) {
        self.markets[market.0 as usize].rules = rules;
        self.emit(Fact::RulesChanged { market });
    }

    fn market_picture(&self, market: MarketId) -> MarketDump {
        let state = self.market_state(market);
        MarketDump { market, state, numbers: self.numbers(market), supply: self.supply(market) }
    }

    fn bid_pictures(&self) -> Vec<BidDump> {
        self.bids
            .iter()
            .map(|(id, bid)| BidDump {
                bid: *id,
                held: self.live(*id),
                claimed: self.claims(*id).len() as u32,
                unmet: self.unmet(*id),
                max_nodes: bid.max_nodes,
                ceiling: bid.ceiling,
                searching: bid.searching,
                ceiling_locked_until: if bid.searching { bid.ceiling_locked_until } else { Micros(0) },
            })
            .collect()
    }

    fn allocation_pictures(&self) -> Vec<AllocationDump> {
        self.allocations
            .iter()
            .map(|(id, a)| AllocationDump {
                allocation: *id,
                bid: a.bid,
                unit: a.unit,
                state: match (&a.notice, a.ready) {
                    (Some(_), _) => AllocationState::Notice,
                    (None, Some(_)) => AllocationState::Active,
                    (None, None) => AllocationState::Starting,
                },
                deadline: a.notice.as_ref().map(|notice| notice.deadline),
                claim: a.claim().map(|claim| claim.bid),
                billed: a.billed,
                protected_until: a.protected_until,
            })
            .collect()
    }
}

/// The result of the checks of a command: what they found, or the refusal.
pub(crate) type Checked<T> = Result<T, Reject>;
