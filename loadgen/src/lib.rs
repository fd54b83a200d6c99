//! The load generator of `kubebid bench`: it puts load on an engine, measures it, and reports the figures.
//!
//! [`run`] loads an engine that runs already, or starts one for itself ([`engine`]). Three modules keep the load
//! cheap, so that the figures are those of the engine and not of its client: [`unary`] makes calls over HTTP/2
//! without the layers of a gRPC client, [`streams`] sends and receives messages as bytes, and [`scan`] reads only the
//! counts and times of what comes back.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod child;
pub mod engine;
mod error;
mod http;
mod load;
mod machine;
mod metrics;
mod options;
mod place;
mod price;
mod report;
pub mod scan;
mod stage;
pub mod streams;
pub mod unary;
mod watch;

pub use error::BenchError;
pub use options::{Feed, Load, NewEngine, Part, RunningEngine, Target, Watch, Workload};
pub use report::Report;

use load::{Run, Stopped};
use machine::{Build, Fdatasync, Machine};
use metrics::Figures;
use report::Outcome;
use stage::Stage;
use std::time::Duration;

/// Puts a load on an engine and measures it, until the load is over or `stop` completes.
///
/// Returns the report, and with it the error of an engine that was started here and did not end well.
///
/// # Errors
///
/// Returns why nothing could be measured.
pub async fn run(
    workload: &Workload,
    load: &Load,
    target: &Target,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(Report, Result<(), BenchError>), BenchError> {
    let load = &workload.effective_load(load);
    let stopped = Stopped::when(stop);
    let (outcome, ended) = measure_on_stage(workload, load, target, &stopped).await?;
    let mut report = Report::new(workload, load, target, outcome);
    if let Target::New(engine) = target
        && engine.ratio
        && ended.is_ok()
        && !report.interrupted()
    {
        let bare = Target::New(engine.bare());
        let (outcome, ended) = measure_on_stage(workload, load, &bare, &stopped).await?;
        ended?;
        report.compare(&Report::new(workload, load, &bare, outcome));
    }
    Ok((report, ended))
}

/// Measures one run, and returns with it how the engine ended.
async fn measure_on_stage(
    workload: &Workload,
    load: &Load,
    target: &Target,
    stopped: &Stopped,
) -> Result<(Outcome, Result<(), BenchError>), BenchError> {
    let stage = tokio::select! {
        stage = Stage::set(target, workload.tenants()) => stage?,
        () = stopped.clone().wait() => return Err(BenchError::fault("stopped before anything was measured")),
    };
    let outcome = measure(&stage, workload, load, stopped.clone()).await;
    let ended = stage.strike().await;
    match (outcome, ended) {
        (Ok(outcome), ended) => Ok((outcome, ended)),
        // An engine that failed says why.
        (Err(error), Ok(())) | (Err(_), Err(error)) => Err(error),
    }
}

async fn measure(
    stage: &Stage,
    workload: &Workload,
    load: &Load,
    stopped: Stopped,
) -> Result<Outcome, BenchError> {
    let machine = Machine::this();
    let fdatasync = Fdatasync::of(stage.disk.clone()).await?;
    let run = Run::new(Duration::from_secs(load.warmup), Duration::from_secs(load.seconds), stopped);
    let before = stage.ops.clone().map(|ops| tokio::spawn(metrics::read_at(run.begin, ops)));
    let measured = match workload {
        Workload::Place { frame } => place::measure(stage, &run, load, *frame).await?,
        Workload::Price { rest } => price::measure(stage, &run, load, *rest).await?,
        Workload::Watch(watch) => watch.measure(stage, &run, load).await?,
    };
    let engine = match (before, &stage.ops) {
        (Some(before), Some(ops)) => {
            let after = metrics::read(ops).await?;
            // If the run was interrupted before the warm-up was over, there is nothing to compare with.
            let before = if before.is_finished() { before.await.ok().and_then(Result::ok) } else { None };
            Some(Figures::between(before.as_ref(), &after))
        }
        (Some(_) | None, _) => None,
    };
    Ok(Outcome {
        store: stage.store.clone(),
        market: stage.market.clone(),
        measured,
        run,
        machine,
        build: Build::this(),
        fdatasync,
        engine,
    })
}
