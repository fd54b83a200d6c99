//! Answers questions about the exchange in short turns between commits, so that a commit waits for one turn at most.

use crate::runtime::intake::{Intake, Question};
use kubebid_core::Exchange;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The length of a turn. Only a question that is not asked in parts can exceed it.
const TURN: Duration = Duration::from_micros(200);

pub(crate) struct Questions {
    intake: Arc<Intake>,
    /// A question that was not answered within its turn.
    unanswered: Option<Question>,
}

impl Questions {
    pub(crate) fn new(intake: Arc<Intake>) -> Questions {
        Questions { intake, unanswered: None }
    }

    /// Returns true if a question is answered in part, and continues in the next turn.
    pub(super) fn is_in_the_middle(&self) -> bool {
        self.unanswered.is_some()
    }

    /// Answers questions for one turn, at least one of them or a part of one. Returns true if any are
    /// left.
    pub(super) fn take_a_turn(&mut self, exchange: &Exchange) -> bool {
        let end = Instant::now() + TURN;
        loop {
            let waiting = self.unanswered.take().or_else(|| self.intake.pop_question());
            let Some(mut question) = waiting else { return false };
            let is_answered = question(exchange, end);
            if !is_answered {
                self.unanswered = Some(question);
            }
            if !is_answered || Instant::now() >= end {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::intake::Work;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn of_many_slow_questions_one_is_answered_before_commands_are_taken_again() {
        let intake = Intake::new(8);
        let (mut questions, exchange) = (Questions::new(intake.clone()), Exchange::new());
        let asked = Arc::new(AtomicU32::new(0));
        let ask = |parts: u32| {
            let (asked, mut left) = (asked.clone(), parts);
            let question = move |_: &Exchange, end: Instant| {
                // Uses all of its turn.
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                asked.fetch_add(1, Ordering::Relaxed);
                left -= 1;
                left == 0
            };
            intake.push(Work::Question(Box::new(question))).expect("there is room");
        };
        ask(1);
        ask(2);
        ask(1);
        for (turn, in_the_middle) in [(1, false), (2, true), (3, false), (4, false)] {
            assert!(questions.take_a_turn(&exchange));
            assert_eq!((asked.load(Ordering::Relaxed), questions.is_in_the_middle()), (turn, in_the_middle));
        }
        assert!(!questions.take_a_turn(&exchange), "all are answered");
    }
}
