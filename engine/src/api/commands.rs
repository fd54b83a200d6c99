//! Submits commands to the exchange and turns their outcome into an answer or a refusal.

use super::Api;
use crate::auth::LimitState;
use crate::auth::caller::Caller;
use crate::auth::limits::Rate;
use crate::events::commit::Step;
use crate::runtime::intake::Submission;
use crate::wire::command::KeyedCommand;
use crate::wire::refusal::refusal;
use crate::wire::status::ApiError;
use kubebid_core::Command;
use kubebid_core::answer::Outcome;
use kubebid_core::units::Micros;
use std::sync::Arc;

/// A command that was executed, just now or when its key was first used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) seq: u64,
    /// The market's time after it.
    pub(super) at: Micros,
    pub(super) repeated: bool,
}

impl Api {
    /// Submits a command and waits for the answer of the market.
    pub(super) async fn execute(&self, caller: &Caller, keyed: KeyedCommand) -> Result<Done, ApiError> {
        self.execute_settling(caller, keyed, 1, |_| ()).await
    }

    /// Works like [`Api::execute`], for a command that counts as `cost` commands. If the command is
    /// executed, `settle` is called before its commit is delivered. What `settle` owns is dropped
    /// then, or as soon as it is certain that the command will not be executed.
    pub(super) async fn execute_settling(
        &self,
        caller: &Caller,
        keyed: KeyedCommand,
        cost: u64,
        settle: impl FnOnce(&Done) + Send + 'static,
    ) -> Result<Done, ApiError> {
        self.count_command(caller, cost)?;
        let mut submission = Submission::new(keyed.key, keyed.command);
        submission.deadline = caller.deadline;
        let refusals = self.refusals_of(caller);
        let answer = self.0.engine.submit(submission, move |step| {
            let done = refusals.count(done(step));
            done.inspect(settle)
        });
        answer.await?
    }

    /// Returns the counter of a caller's refused commands. It travels with the commands, which are journaled even if the
    /// caller has gone.
    pub(super) fn refusals_of(&self, caller: &Caller) -> Refusals {
        Refusals { limit_state: caller.session.limit_state.clone(), rate: self.limits_of(caller).refusals() }
    }

    /// Works like [`Api::execute`], for commands that have no key.
    pub(super) async fn execute_unkeyed(&self, caller: &Caller, command: Command) -> Result<Done, ApiError> {
        self.execute(caller, KeyedCommand { key: None, command }).await
    }

    pub(super) async fn submit(&self, submission: Submission) -> Result<Done, ApiError> {
        self.0.engine.submit(submission, done).await?
    }
}

/// Counts the refused commands of an account.
pub(super) struct Refusals {
    limit_state: Arc<LimitState>,
    rate: Rate,
}

impl Refusals {
    pub(super) fn count(&self, done: Result<Done, ApiError>) -> Result<Done, ApiError> {
        if done.is_err() {
            self.limit_state.refusals.charge(1, self.rate);
        }
        done
    }
}

/// Returns the answer to the command of a step.
pub(super) fn done(step: &Step) -> Result<Done, ApiError> {
    let refused =
        |reject, seq: u64| refusal(&step.command.command, reject, &step.refusal_detail).numbered(seq);
    match step.outcome {
        Outcome::Accepted => Ok(Done { seq: step.seq.0, at: step.at, repeated: false }),
        Outcome::Repeated { first, refusal: None } => Ok(Done { seq: first.0, at: step.at, repeated: true }),
        Outcome::Rejected(reject) => Err(refused(reject, step.seq.0)),
        Outcome::Repeated { first, refusal: Some(reject) } => {
            Err(ApiError { repeated: true, ..refused(reject, first.0) })
        }
    }
}
