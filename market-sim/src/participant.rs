//! The loop of every simulation: participants act at instants of their own, send commands and follow the events.

use kubebid_core::units::Micros;
use kubebid_core::{Answer, Command, Event};

/// The simulated side of a market: all providers and tenants of one run.
pub(crate) trait Participant {
    /// The reason for which a run ends early.
    type Error;

    /// Applies a command at the current time and returns its answer. [`send`](Participant::send) also passes the
    /// events on.
    fn apply(&mut self, command: Command) -> Result<Answer, Self::Error>;

    /// Takes note of the events of one answer, in order.
    fn on_events(&mut self, events: &[Event]);

    /// Returns the next instant at which there is something to do.
    fn next_at(&self) -> Option<Micros>;

    /// Moves the clock to `now`, which is [`next_at`](Participant::next_at), and takes a step that is due.
    fn act(&mut self, now: Micros) -> Result<(), Self::Error>;

    /// Applies a command at the current time and takes note of its events.
    fn send(&mut self, command: Command) -> Result<Answer, Self::Error> {
        let answer = self.apply(command)?;
        self.on_events(&answer.events);
        Ok(answer)
    }
}

/// Acts until nothing is left to do up to and at `end`.
pub(crate) fn run_until<P: Participant>(participant: &mut P, end: Micros) -> Result<(), P::Error> {
    while let Some(now) = participant.next_at().filter(|at| *at <= end) {
        participant.act(now)?;
    }
    Ok(())
}
