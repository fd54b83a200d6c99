//! Reconcilers of objects that move through steps: *observe, plan, act once, record, again*.
//!
//! The plan is a pure function of what was observed. Every act can be repeated, because the process may end after it and
//! before its record.

use crate::object::Object;
use crate::reconciler::{Action, Context, Error, ReconcilerError};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The most steps of one pass. An object never needs so many.
const STEPS_MAX: usize = 32;
/// The time until the next pass if a step shows no effect yet and no event comes first.
const UNSEEN: Duration = Duration::from_millis(500);
/// The shortest time until the next pass of an object that waits.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// An object that moves through steps. A [`crate::Reconciler`] of it calls [`run`].
pub trait Phased: Send + Sync + 'static {
    /// The kind of object. All that must be remembered is in its status.
    type Object: Object;
    /// Everything that the plan reads.
    type Observation: Send;
    /// A step of the object, as in `Provision`.
    type Step: PartialEq + Debug + Send + Sync;
    /// Errors of its own, besides those of the cluster.
    type Error: ReconcilerError;

    /// Reads everything that the plan needs.
    fn observe(
        &self,
        object: &Self::Object,
        context: &Context,
    ) -> impl Future<Output = Result<Self::Observation, Error<Self::Error>>> + Send;

    /// Decides on the next step. Pure.
    fn plan(&self, observation: &Self::Observation) -> Plan<Self::Step>;

    /// Returns true if the status is to be written before this step, so that it is there after a crash.
    fn records_before(&self, _step: &Self::Step) -> bool {
        false
    }

    /// Notes in the status of the object what must be there after a crash during this step.
    fn note_before(&self, _step: &Self::Step, _object: &mut Self::Object) {}

    /// Takes a step, and notes in the status of the object what came of it. The library writes the status.
    fn act(
        &self,
        step: &Self::Step,
        observation: Self::Observation,
        object: &mut Self::Object,
        context: &Context,
    ) -> impl Future<Output = Result<Progress, Error<Self::Error>>> + Send;

    /// Describes in the conditions of the status how far the object is, before the status is written.
    fn describe(&self, _object: &mut Self::Object, _error: Option<&Error<Self::Error>>) {}
}

/// The next step, or the time to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan<S> {
    /// A step.
    Do(S),
    /// Nothing for this time, unless something changes.
    Wait(Duration),
    /// Nothing until something changes.
    AwaitChange,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done: the next step may follow.
    Done,
    /// Its effect cannot be seen before this time.
    RetryAfter(Duration),
    /// It is done, and nothing follows until something changes.
    AwaitChange,
    /// The object is deleted: there is no status to write.
    Deleted,
}

/// Takes the steps of an object until it has to wait. The status is written when it waits, and before a step that must
/// find it after a crash; changes in between are one write.
///
/// # Errors
/// Those of the steps and of the writes. What was done before a failure is in the status.
pub async fn run<P: Phased>(
    phased: &P,
    object: Arc<P::Object>,
    context: &Context,
) -> Result<Action, Error<P::Error>> {
    let object = context.writer.newest(object);
    let mut draft = Draft { object: P::Object::clone(&object), base: object, is_deleted: false };
    let result = steps(phased, &mut draft, context).await;
    phased.describe(&mut draft.object, result.as_ref().err());
    draft.write(context).await?;
    result
}

async fn steps<P: Phased>(
    phased: &P,
    draft: &mut Draft<P::Object>,
    context: &Context,
) -> Result<Action, Error<P::Error>> {
    let mut last = None;
    for _ in 0..STEPS_MAX {
        if !context.leadership.is_valid() {
            return Err(Error::NotLeader);
        }
        if last.is_some() && !context.leadership.may_begin() {
            return Ok(Action::AwaitChange);
        }
        let observation = phased.observe(&draft.object, context).await?;
        let step = match phased.plan(&observation) {
            Plan::Do(step) => step,
            Plan::Wait(time) => return Ok(Action::RequeueAfter(time.max(WAIT_MIN))),
            Plan::AwaitChange => return Ok(Action::AwaitChange),
        };
        if last.as_ref() == Some(&step) {
            // It is done, and its effect is not seen yet: an event will come.
            return Ok(Action::RequeueAfter(UNSEEN));
        }
        phased.note_before(&step, &mut draft.object);
        if phased.records_before(&step) {
            phased.describe(&mut draft.object, None);
            draft.write(context).await?;
        }
        match phased.act(&step, observation, &mut draft.object, context).await? {
            Progress::Done => {}
            Progress::RetryAfter(time) => return Ok(Action::RequeueAfter(time)),
            Progress::AwaitChange => return Ok(Action::AwaitChange),
            Progress::Deleted => {
                draft.is_deleted = true;
                return Ok(Action::AwaitChange);
            }
        }
        last = Some(step);
    }
    Ok(Action::RequeueAfter(UNSEEN))
}

/// An object with a status that may not be written yet.
struct Draft<K> {
    object: K,
    /// The object as it was last read or written.
    base: Arc<K>,
    is_deleted: bool,
}

impl<K: Object> Draft<K> {
    async fn write<E>(&mut self, context: &Context) -> Result<(), Error<E>> {
        if self.is_deleted {
            return Ok(());
        }
        let mut object = serde_json::to_value(&self.object).map_err(kube::Error::SerdeError)?;
        let status = object["status"].take();
        // A step may have written the object's metadata.
        let mut base = K::clone(&self.base);
        *base.meta_mut() = self.object.meta().clone();
        let written = context.writer.status(&base, &status).await?;
        self.object = written.clone();
        self.base = Arc::new(written);
        Ok(())
    }
}
