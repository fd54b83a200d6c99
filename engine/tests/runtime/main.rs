//! Tests of the runtime: intake, commits, clocks, restarts.

mod clocks;
mod intake;
mod restarts;
mod snapshots;
mod store_faults;

use kubebid_core::answer::Outcome;
use kubebid_core::command::PlaceBid;
use kubebid_core::units::{AccountName, ClientKey, MarketName, Micros};
use kubebid_core::{Command, Exchange, Price};
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{StoreLocation, StoreOptions};
use kubebid_engine::{Engine, EngineOptions, Running, Submission, SubmitError};
use std::path::Path;
use std::sync::mpsc;

pub(crate) fn options(folder: &Path, clock: Clock) -> EngineOptions {
    EngineOptions::new(StoreOptions::new(StoreLocation::Sqlite(folder.join("kubebid.db"))), clock)
}

pub(crate) async fn start(options: EngineOptions) -> (Engine, Running) {
    Engine::start(options).await.expect("the engine starts")
}

/// Stops an engine and releases its store, so that another engine can have it.
pub(crate) async fn stop(engine: Engine, running: Running) {
    running.stop().await.expect("the engine stops");
    drop(engine);
}

/// Ends an engine as a bug would: nothing is completed, and no snapshot is saved.
pub(crate) async fn crash(engine: Engine, running: Running) {
    let asked = engine.ask(|_| -> () { panic!("as a bug would") }).await;
    assert_eq!(asked, Err(SubmitError::Stopping));
    let ended = running.ended().await.expect_err("the engine ends by itself");
    assert_eq!(ended.to_string(), "the exchange's thread ended unexpectedly");
    drop(engine);
}

pub(crate) fn open_market() -> Command {
    Command::OpenMarket { market: MarketName::new("h100/eu"), rules: Vec::new() }
}

pub(crate) fn offer(capacity: u64) -> Command {
    Command::PutOffer {
        provider: AccountName::new("p"),
        market: MarketName::new("h100/eu"),
        capacity,
        reserve: Price(1000),
    }
}

pub(crate) fn bid(tenant: &str, ceiling: u64) -> PlaceBid {
    PlaceBid {
        tenant: AccountName::new(tenant),
        markets: Some(vec![MarketName::new("h100/eu")]),
        instance_type: None,
        ceiling: Price(ceiling),
        min_nodes: 1,
        max_nodes: 1,
        time_in_force: Default::default(),
        expire_at: None,
        on_preemption: Default::default(),
    }
}

/// Submits a command. Returns its number and outcome.
pub(crate) async fn submit(engine: &Engine, command: Command) -> (u64, Outcome) {
    submit_keyed(engine, None, command).await.expect("the command is taken")
}

pub(crate) async fn submit_keyed(
    engine: &Engine,
    key: Option<&str>,
    command: Command,
) -> Result<(u64, Outcome), SubmitError> {
    let submission = Submission::new(key.map(ClientKey::new), command);
    engine.submit(submission, |step| (step.seq.0, step.outcome)).await
}

/// Moves a stepped clock.
pub(crate) async fn advance(engine: &Engine, to: Micros) {
    let submission = Submission { at: Some(to), ..Submission::new(None, Command::AdvanceTime) };
    engine.submit(submission, |_| ()).await.expect("time moves");
}

pub(crate) async fn hash(engine: &Engine) -> u128 {
    engine.ask(Exchange::state_hash).await.expect("the exchange answers")
}

/// Keeps the exchange's thread busy until the returned sender is dropped. Returns once the thread is
/// busy.
pub(crate) async fn hold(engine: &Engine) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (held, is_held) = tokio::sync::oneshot::channel();
    let engine = engine.clone();
    tokio::spawn(async move {
        engine
            .ask(move |_| {
                let _ = held.send(());
                let _ = released.recv();
            })
            .await
    });
    is_held.await.expect("the exchange is held");
    release
}
