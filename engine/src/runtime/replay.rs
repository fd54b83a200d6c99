//! Applies journaled commands to the exchange, in the same way live, at recovery and for a rebuild.

use crate::events::commit::{HourMark, Step};
use kubebid_core::units::Micros;
use kubebid_core::{Content, Exchange, Stamped};

/// The version of the rules' behaviour that new records are written under. A later behaviour gets
/// another number and is switched on by a journaled command; this one stays replayable.
pub const BEHAVIOUR: u16 = 1;

/// The bills that one command may note at full hours: at two hundred bytes each until they are in the tables. A step of
/// time that passes more of them notes no more; what follows is one long segment of each bill, which is exact all the
/// same.
const NOTED_MAX: usize = 100_000;

/// The longest step of time, a thousand years: more is a mistake, as of nanoseconds for microseconds.
const STEP_MAX: Micros = Micros(1000 * 366 * Micros::DAY.0);

/// The last instant that time can be moved to. What is counted on from there stays below 2^63.
const TIME_MAX: Micros = Micros(1 << 62);

/// Returns whether a command may move time from `now` to `at`.
pub(crate) fn may_advance(now: Micros, at: Micros) -> bool {
    at <= now.after(STEP_MAX).min(TIME_MAX).max(now)
}

/// The exchange and what it needs to be followed.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) exchange: Exchange,
    /// The next full hour at which the running nodes' bills are noted.
    next_hour: Micros,
}

impl Replay {
    pub(crate) fn new(exchange: Exchange) -> Replay {
        let next_hour = hour_after(exchange.now());
        Replay { exchange, next_hour }
    }

    /// One after another.
    pub(crate) fn steps(&mut self, commands: Vec<Stamped>) -> Vec<Step> {
        commands.into_iter().map(|command| self.step(command, None)).collect()
    }

    /// `content` is known of a command that was just written.
    pub(crate) fn step(&mut self, command: Stamped, content: Option<Content>) -> Step {
        let hours = self.pass_hours(command.at);
        let answer = self.exchange.apply_keyed(&command, content);
        let refusal_detail = self.exchange.refusal_detail(&command.command, answer.outcome);
        Step {
            seq: answer.seq,
            at: answer.at,
            command,
            outcome: answer.outcome,
            refusal_detail,
            events: answer.events,
            settlement_details: self.exchange.settlement_details().to_vec(),
            hours,
        }
    }

    /// Stops at each full hour up to `at` at which anything runs. That changes nothing but when the
    /// exchange settles what is due (R1).
    fn pass_hours(&mut self, at: Micros) -> Vec<HourMark> {
        let (mut marks, mut noted) = (Vec::new(), 0);
        while self.next_hour <= at {
            self.exchange.run_until(self.next_hour);
            let bills = self.exchange.accruals();
            noted += bills.len();
            // Nodes begin to run by commands only: where none runs, none does up to `at`.
            if bills.is_empty() || noted > NOTED_MAX && !marks.is_empty() {
                self.next_hour = hour_after(at);
                break;
            }
            marks.push(HourMark { at: self.next_hour, bills });
            self.next_hour = hour_after(self.next_hour);
        }
        marks
    }
}

fn hour_after(at: Micros) -> Micros {
    Micros((at.0 / Micros::HOUR.0 + 1).saturating_mul(Micros::HOUR.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::commit::hourly_bills;
    use kubebid_core::command::{Command, PlaceBid};
    use kubebid_core::units::{AccountName, AllocationId, MarketName};
    use kubebid_core::{Price, money::Bill};

    #[test]
    fn a_step_of_a_thousand_years_notes_what_fits_into_memory_and_bills_all_of_it() {
        let market = MarketName::new("h100/eu");
        let mut replay = Replay::new(Exchange::new());
        let commands = [
            Command::OpenMarket { market: market.clone(), rules: Vec::new() },
            Command::PutOffer {
                provider: AccountName::new("p"),
                market: market.clone(),
                capacity: 1,
                reserve: Price(1000),
            },
            Command::PlaceBid(PlaceBid {
                tenant: AccountName::new("t"),
                markets: Some(vec![market]),
                instance_type: None,
                ceiling: Price(1000),
                min_nodes: 1,
                max_nodes: 1,
                time_in_force: Default::default(),
                expire_at: None,
                on_preemption: Default::default(),
            }),
            Command::ReportReady { allocation: AllocationId(1), by: None },
        ];
        for command in commands {
            replay.step(Stamped { at: Micros(0), key: None, command }, None);
        }
        let long = Stamped { at: STEP_MAX, key: None, command: Command::AdvanceTime };
        let step = replay.step(long, None);
        assert_eq!(hourly_bills(&step), NOTED_MAX);
        assert_eq!(replay.exchange.bill_at(AllocationId(1), STEP_MAX), Some(Price(1000).over(STEP_MAX)));
        // From here on by the hour again.
        let next = Micros(STEP_MAX.0 + Micros::HOUR.0);
        let step = replay.step(Stamped { at: next, key: None, command: Command::AdvanceTime }, None);
        let bills: Vec<_> = step.hours.iter().flat_map(|hour| &hour.bills).collect();
        assert_eq!(bills, [&(AllocationId(1), Bill(Price(1000).over(next).0))]);
    }
}
