//! The real clock brings what is due; neither clock ever runs back.

use crate::{advance, bid, hash, open_market, options, start, stop, submit};
use kubebid_core::command::{PlaceBid, TimeInForce};
use kubebid_core::event::Fact;
use kubebid_core::units::Micros;
use kubebid_core::{Command, Exchange};
use kubebid_engine::clock::{Clock, wall};

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

#[tokio::test]
async fn time_never_runs_back_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    let future = Micros(wall().0 + Micros::DAY.0);
    advance(&engine, future).await;
    let before = hash(&engine).await;
    stop(engine, running).await;
    let (engine, running) = start(options(folder.path(), Clock::Real)).await;
    assert_eq!(hash(&engine).await, before);
    submit(&engine, Command::PlaceBid(bid("t", 1000))).await;
    assert_eq!(engine.ask(Exchange::now).await, Ok(future));
    stop(engine, running).await;
}
