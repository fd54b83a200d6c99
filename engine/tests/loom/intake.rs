//! Tests of the intake: every accepted item gets exactly one answer, whatever the consumer does
//! meanwhile, and the consumer wakes.

use crate::ring::Ring;
use loom::future::block_on;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[path = "../../src/runtime/intake/work_queue.rs"]
mod work_queue;

use work_queue::{Queue, Refuse, WorkQueue};

/// The parts from which the queue is built here.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering, fence};

    #[derive(Debug)]
    pub(super) struct AtomicWaker(loom::future::AtomicWaker);

    impl AtomicWaker {
        pub(super) fn new() -> AtomicWaker {
            AtomicWaker(loom::future::AtomicWaker::new())
        }

        pub(super) fn register(&self, waker: &std::task::Waker) {
            self.0.register_by_ref(waker);
        }

        pub(super) fn wake(&self) {
            self.0.wake();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubmitError {
    Full,
    Stopping,
}

/// The number of answers that each caller got.
type Answers = Arc<Vec<AtomicUsize>>;

#[derive(Debug)]
struct Work {
    caller: usize,
    answers: Answers,
}

impl Work {
    fn answer(self) {
        self.answers[self.caller].fetch_add(1, Ordering::Relaxed);
    }
}

impl Refuse for Work {
    fn refuse(self) {
        self.answer();
    }
}

#[derive(Debug)]
struct Waiting {
    ring: Ring,
    answers: Answers,
}

impl Queue for Waiting {
    type Work = Work;

    fn push(&self, work: Work) -> Result<(), Work> {
        self.ring.push(work.caller + 1).map_err(|_| work)
    }

    fn pop(&self) -> Option<Work> {
        // A slot that was not written when its stamp said so would hold 0.
        let caller = self.ring.pop()?.checked_sub(1).expect("the slot was written");
        Some(Work { caller, answers: self.answers.clone() })
    }

    fn len(&self) -> usize {
        self.ring.len()
    }
}

struct World {
    queue: Arc<WorkQueue<Waiting>>,
    answers: Answers,
}

impl World {
    fn new(capacity: usize, callers: usize) -> World {
        let answers: Answers = Arc::new((0..callers).map(|_| AtomicUsize::new(0)).collect());
        let queue = Waiting { ring: Ring::new(capacity), answers: answers.clone() };
        World { queue: Arc::new(WorkQueue::before(queue)), answers }
    }

    fn caller(&self, caller: usize) -> thread::JoinHandle<Result<(), SubmitError>> {
        let (queue, answers) = (self.queue.clone(), self.answers.clone());
        thread::spawn(move || queue.push(Work { caller, answers }))
    }

    /// Asserts that each accepted item was answered once, and each refused one never.
    fn check(&self, pushed: impl IntoIterator<Item = Result<(), SubmitError>>) {
        for (caller, pushed) in pushed.into_iter().enumerate() {
            let answered = self.answers[caller].load(Ordering::Relaxed);
            assert_eq!(answered, usize::from(pushed.is_ok()), "caller {caller}: {pushed:?}");
        }
    }
}

/// Runs a story in every order of its threads in which threads are preempted at most `preemptions` times;
/// without a limit, in every order.
fn in_every_order(preemptions: Option<usize>, story: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(story);
}

#[test]
fn an_item_pushed_while_the_consumer_leaves_is_answered_once() {
    in_every_order(None, || {
        let world = World::new(2, 1);
        let caller = world.caller(0);
        world.queue.leave();
        world.check([caller.join().unwrap()]);
    });
}

#[test]
fn an_item_pushed_while_the_consumer_takes_and_leaves_is_answered_once() {
    in_every_order(Some(2), || {
        let world = World::new(2, 2);
        let callers = [world.caller(0), world.caller(1)];
        if let Some(work) = world.queue.pop() {
            work.answer();
        }
        world.queue.leave();
        world.check(callers.map(|caller| caller.join().unwrap()));
    });
}

#[test]
fn an_item_without_room_is_refused_and_not_answered() {
    in_every_order(Some(2), || {
        let world = World::new(1, 2);
        let callers = [world.caller(0), world.caller(1)];
        let pushed = callers.map(|caller| caller.join().unwrap());
        assert!(pushed.contains(&Ok(())) && pushed.contains(&Err(SubmitError::Full)));
        world.queue.leave();
        world.check(pushed);
        assert_eq!(world.caller(0).join().unwrap(), Err(SubmitError::Stopping));
    });
}

#[test]
fn the_consumer_wakes_for_work() {
    in_every_order(Some(2), || {
        let world = World::new(2, 2);
        let callers = [world.caller(0), world.caller(1)];
        for _ in 0..2 {
            block_on(world.queue.ready());
            world.queue.pop().expect("it woke for work").answer();
        }
        world.check(callers.map(|caller| caller.join().unwrap()));
    });
}

#[test]
fn a_consumer_that_takes_until_the_queue_is_closed_and_empty_ends() {
    in_every_order(Some(2), || {
        let world = World::new(2, 1);
        let caller = world.caller(0);
        let queue = world.queue.clone();
        let closing = thread::spawn(move || queue.close());
        loop {
            block_on(world.queue.ready());
            while let Some(work) = world.queue.pop() {
                work.answer();
            }
            if world.queue.is_closed() && world.queue.len() == 0 {
                break;
            }
        }
        // An engine saves its snapshot at this point. An item that comes a moment too late is
        // refused when the consumer leaves.
        world.queue.leave();
        closing.join().unwrap();
        world.check([caller.join().unwrap()]);
    });
}
