//! Applies journaled commands to the exchange, in the same way live, at recovery and for a rebuild.

use crate::events::commit::{HourMark, Step};
use kubebid_core::units::Micros;
use kubebid_core::{Content, Exchange, StampedCommand};

/// The edition of the market's rules under which new records are written, and the only one that this program
/// replays (docs/decisions/0104). A change of the rules by which an old journal would come to other events gets the
/// next number.
pub const BEHAVIOUR: u16 = 3;

/// The number of bills after which one command notes only those of its last full hour. Each takes two hundred bytes
/// until it is in the tables. A longer step of time then has one long segment, which is equally exact.
const NOTED_MAX: usize = 100_000;

/// The longest step of time: a thousand years. A longer one is a mistake, such as nanoseconds instead of
/// microseconds.
const STEP_MAX: Micros = Micros(1000 * 366 * Micros::DAY.0);

/// The last instant to which time can be moved. Times that are computed from it stay below 2^63.
const TIME_MAX: Micros = Micros(1 << 62);

/// Returns true if a command may move time from `now` to `at`.
pub(crate) fn may_advance(now: Micros, at: Micros) -> bool {
    at <= now.after(STEP_MAX).min(TIME_MAX).max(now)
}

/// The exchange, with the state that is needed to note hourly bills.
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

    /// Applies commands one after another.
    pub(crate) fn steps(&mut self, commands: Vec<StampedCommand>) -> Vec<Step> {
        commands.into_iter().map(|command| self.step(command, None)).collect()
    }

    /// Applies a command. `content` is its fingerprint, if it is known from packing the command.
    pub(crate) fn step(&mut self, command: StampedCommand, content: Option<Content>) -> Step {
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

    /// Returns true if a full hour has passed at which a node ran and which no command has reached yet.
    pub(crate) fn is_hour_due(&self, now: Micros) -> bool {
        self.next_hour <= now && self.exchange.has_running_nodes()
    }

    /// Stops at each full hour up to `at` at which a node runs, and notes the bills. By R1 this
    /// changes nothing but the moment at which the exchange settles what is due.
    fn pass_hours(&mut self, at: Micros) -> Vec<HourMark> {
        let (mut marks, mut noted) = (Vec::new(), 0);
        while self.next_hour <= at {
            if noted >= NOTED_MAX {
                self.next_hour = last_hour(at);
            }
            self.exchange.run_until(self.next_hour);
            let bills = self.exchange.accruals();
            noted += bills.len();
            // Only commands make nodes start to run: if none runs now, none does up to `at`.
            if bills.is_empty() {
                self.next_hour = hour_after(at);
                break;
            }
            marks.push(HourMark { at: self.next_hour, bills });
            self.next_hour = hour_after(self.next_hour);
        }
        marks
    }
}

/// Returns the last full hour up to a time. Its bills are always noted, so a period that ends before it is closed.
fn last_hour(at: Micros) -> Micros {
    Micros(at.0 / Micros::HOUR.0 * Micros::HOUR.0)
}

fn hour_after(at: Micros) -> Micros {
    Micros((at.0 / Micros::HOUR.0 + 1).saturating_mul(Micros::HOUR.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::commit::hourly_bills;
    use kubebid_core::Price;
    use kubebid_core::command::{Command, PlaceBid};
    use kubebid_core::units::{AccountName, AllocationId, MarketName};

    /// Returns a market in which a node has run since the epoch.
    fn with_a_running_node() -> Replay {
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
            replay.step(StampedCommand { at: Micros(0), key: None, command }, None);
        }
        replay
    }

    #[test]
    fn a_full_hour_is_due_until_a_command_has_noted_its_bills() {
        let advance = |at| StampedCommand { at, key: None, command: Command::AdvanceTime };
        assert!(!Replay::new(Exchange::new()).is_hour_due(Micros::DAY), "no node runs");
        let mut replay = with_a_running_node();
        assert!(!replay.is_hour_due(Micros(Micros::HOUR.0 - 1)));
        assert!(replay.is_hour_due(Micros::HOUR));
        let step = replay.step(advance(Micros::HOUR), None);
        assert_eq!((step.hours.len(), step.hours[0].at), (1, Micros::HOUR));
        assert!(!replay.is_hour_due(Micros::HOUR));
    }

    #[test]
    fn a_step_of_a_thousand_years_notes_what_fits_into_memory_and_bills_all_of_it() {
        let mut replay = with_a_running_node();
        let long = StampedCommand { at: STEP_MAX, key: None, command: Command::AdvanceTime };
        let step = replay.step(long, None);
        assert_eq!(hourly_bills(&step), NOTED_MAX + 1);
        assert_eq!(step.hours.last().unwrap().at, STEP_MAX);
        assert_eq!(replay.exchange.bill_at(AllocationId(1), STEP_MAX), Some(Price(1000).over(STEP_MAX)));
        // From here on, bills are noted by the hour again.
        let next = Micros(STEP_MAX.0 + Micros::HOUR.0);
        let step = replay.step(StampedCommand { at: next, key: None, command: Command::AdvanceTime }, None);
        let bills: Vec<_> = step.hours.iter().flat_map(|hour| &hour.bills).collect();
        assert_eq!(bills.len(), 1);
        assert_eq!((bills[0].allocation, bills[0].bill), (AllocationId(1), Price(1000).over(next)));
    }
}
