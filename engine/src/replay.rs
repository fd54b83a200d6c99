//! Applies journaled commands to the exchange: the same way live, at recovery and when projections
//! are rebuilt.

use crate::chunk::{HourMark, Step};
use kubebid_core::units::Micros;
use kubebid_core::{Content, Exchange, Stamped};

/// The version of the rules' behaviour that new records are written under. A later behaviour gets
/// another number and is switched on by a journaled command; this one stays replayable.
pub const BEHAVIOUR: u16 = 1;

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
        Step {
            seq: answer.seq,
            at: answer.at,
            command,
            outcome: answer.outcome,
            events: answer.events,
            closings: self.exchange.closings().to_vec(),
            hours,
        }
    }

    /// Stops at each full hour up to `at` at which anything runs. That changes nothing but when the
    /// exchange settles what is due (R1).
    fn pass_hours(&mut self, at: Micros) -> Vec<HourMark> {
        let mut marks = Vec::new();
        while self.next_hour <= at {
            self.exchange.run_until(self.next_hour);
            let bills = self.exchange.accruals();
            if bills.is_empty() && self.exchange.next_due().is_none() {
                self.next_hour = hour_after(at);
                break;
            }
            if !bills.is_empty() {
                marks.push(HourMark { at: self.next_hour, bills });
            }
            self.next_hour = hour_after(self.next_hour);
        }
        marks
    }
}

fn hour_after(at: Micros) -> Micros {
    Micros((at.0 / Micros::HOUR.0 + 1) * Micros::HOUR.0)
}
