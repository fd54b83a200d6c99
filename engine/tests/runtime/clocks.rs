//! Tests of the clocks: the real clock brings what is due, and no clock ever runs back.

use crate::{advance, bid, hash, offer, open_market, options, start, stop, submit, submit_keyed};
use kubebid_core::answer::Outcome;
use kubebid_core::command::{PlaceBid, TimeInForce};
use kubebid_core::event::Fact;
use kubebid_core::units::{AllocationId, Micros, Seq};
use kubebid_core::{Command, Exchange};
use kubebid_engine::runtime::clock::{Clock, ClockFault, MachineClock, SystemClock, wall};
use kubebid_engine::{Engine, EngineError, EngineOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

#[tokio::test]
async fn the_real_clock_journals_time_when_something_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Real)).await;
    submit(&engine, open_market()).await;
    let mut feed = engine.subscribe();
    let expire_at = Micros(wall().0 + 60_000);
    let expiring = PlaceBid { time_in_force: TimeInForce::Gtt, expire_at: Some(expire_at), ..bid("t", 1000) };
    submit(&engine, Command::PlaceBid(expiring)).await;
    loop {
        let chunk = feed.recv().await.expect("a chunk");
        let step = chunk.steps.last().expect("a step");
        if step.command.command == Command::AdvanceTime {
            let closed = step.events.iter().find(|event| matches!(event.fact, Fact::BidClosed { .. }));
            assert_eq!(closed.expect("the bid expires").at, expire_at);
            break;
        }
    }
    stop(engine, running).await;
}

/// A machine whose time of day a test sets. Its time since boot is the real one.
#[derive(Debug, Default)]
struct Stepping(AtomicI64);

impl Stepping {
    fn to(&self, step: Micros) {
        self.0.store(step.0 as i64, Ordering::Relaxed);
    }
}

impl MachineClock for Stepping {
    fn wall(&self) -> Micros {
        Micros(wall().0.saturating_add_signed(self.0.load(Ordering::Relaxed)))
    }

    fn since_boot(&self) -> Micros {
        SystemClock.since_boot()
    }

    fn boot_id(&self) -> Option<String> {
        Some("one boot".to_owned())
    }
}

fn on_a_machine(folder: &Path) -> (Arc<Stepping>, EngineOptions) {
    let machine = Arc::new(Stepping::default());
    let options = EngineOptions { machine_clock: machine.clone(), ..options(folder, Clock::Real) };
    (machine, options)
}

const MONTH: Micros = Micros(30 * Micros::DAY.0);

#[tokio::test]
async fn one_forward_step_of_the_machines_clock_is_not_final() {
    let folder = tempfile::tempdir().unwrap();
    let (machine, options) = on_a_machine(folder.path());
    let (engine, running) = start(options.clone()).await;
    submit(&engine, open_market()).await;
    submit(&engine, offer(1)).await;
    let placed = submit_keyed(&engine, Some("k"), Command::PlaceBid(bid("t", 1_000_000))).await.unwrap();
    submit(&engine, Command::ReportReady { allocation: AllocationId(1), by: None }).await;
    machine.to(MONTH);
    let repeated = submit_keyed(&engine, Some("k"), Command::PlaceBid(bid("t", 1_000_000))).await.unwrap();
    assert_eq!(repeated.1, Outcome::Repeated { first: Seq(placed.0), refusal: None }, "the key is known");
    let (at, cost) = engine
        .ask(|exchange| (exchange.now(), exchange.view_allocation(AllocationId(1)).unwrap().accrued))
        .await
        .unwrap();
    assert!(at.0 < wall().0 + Micros::HOUR.0, "{at} is a month ahead");
    assert!(cost.0 < 1_000_000, "{cost} is more than an hour");
    // Market time goes on, and does not wait until the clock is back.
    submit(&engine, offer(2)).await;
    assert!(engine.ask(Exchange::now).await.unwrap() > at);
    stop(engine, running).await;

    // A restart while the clock is still wrong, and a restart after it was corrected.
    let refused = Engine::start(options.clone()).await.expect_err("by this clock it may not start");
    assert!(matches!(refused, EngineError::Clock(ClockFault::Moved { .. })), "{refused}");
    assert!(refused.to_string().contains("--accept-time-jump"), "{refused}");
    machine.to(Micros(0));
    let (engine, running) = start(options).await;
    submit(&engine, offer(3)).await;
    stop(engine, running).await;
}

#[tokio::test]
async fn a_journal_ahead_of_the_machines_clock_is_continued_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    let future = Micros(wall().0 + Micros::DAY.0);
    advance(&engine, future).await;
    let before = hash(&engine).await;
    stop(engine, running).await;
    let real = options(folder.path(), Clock::Real);
    let refused = Engine::start(real.clone()).await.expect_err("the clock is a day behind");
    assert!(matches!(refused, EngineError::Clock(ClockFault::JournalAhead { .. })), "{refused}");
    let (engine, running) = start(EngineOptions { accept_time_jump: true, ..real }).await;
    assert_eq!(hash(&engine).await, before);
    submit(&engine, Command::PlaceBid(bid("t", 1000))).await;
    let now = engine.ask(Exchange::now).await.unwrap();
    assert!(
        now > future && now.since(future) < Micros::HOUR,
        "time goes on from the journal's end, not back"
    );
    stop(engine, running).await;
}
