//! The result of a bench: lines for people, one JSON object for programs.

use crate::load::{Run, Tally};
use crate::machine::{Build, Fdatasync, Machine};
use crate::metrics::Figures;
use crate::options::{Feed, Load, Part, Target, Watch, Workload};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The tally of a workload.
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    /// The number of bids in a call, if the workload places any.
    pub(crate) bids_per_call: Option<u32>,
    pub(crate) watch: Option<Watched>,
}

/// Everything that was measured in one run.
pub(crate) struct Outcome {
    /// The store in words, without a password.
    pub(crate) store: String,
    pub(crate) market: String,
    pub(crate) measured: Measured,
    pub(crate) run: Run,
    pub(crate) machine: Machine,
    pub(crate) build: Build,
    pub(crate) fdatasync: Fdatasync,
    pub(crate) engine: Option<Figures>,
}

/// The figures of a bench. As JSON it always has every key.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    build: Build,
    store: String,
    fdatasync: Fdatasync,
    load: Shape,
    /// The time from the end of the warm-up to the last answer.
    seconds: f64,
    /// True if the run was stopped before its end.
    interrupted: bool,
    calls: u64,
    calls_per_second: f64,
    /// The number of bids that were placed.
    bids: Option<u64>,
    bids_per_second: Option<f64>,
    /// The time of a call, or of a bid if bids are in frames.
    latency_us: Quantiles,
    /// The number of refusals, by code.
    refusals: BTreeMap<String, u64>,
    /// The number of calls of an open loop that were due and were not sent within five seconds after the end.
    unsent: u64,
    /// The engine's own metrics, if their endpoint is known.
    engine: Option<Figures>,
    watch: Option<Watched>,
    /// The parts that the engine left out.
    without: Vec<Part>,
    /// The same load on an engine without journal and tables, if that was asked for.
    bare: Option<Comparison>,
}

/// The rate of an engine that keeps nothing, and the ratio of the measured rate to it.
#[derive(Debug, Serialize)]
struct Comparison {
    calls_per_second: f64,
    ratio: f64,
}

/// The workload and the load.
#[derive(Clone, Debug, Serialize)]
struct Shape {
    bench: &'static str,
    wire: &'static str,
    market: String,
    callers: u32,
    connections: u32,
    warmup_seconds: u64,
    measured_seconds: u64,
    /// The number of bids in a frame of a stream.
    frame: Option<u32>,
    subscribers: Option<u32>,
    /// The number of calls that are due in a second.
    rate: Option<u64>,
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    kind: &'static str,
    /// The instant from which the time of a call counts: `sent`, or `due`, which corrects for coordinated omission.
    latency_from: &'static str,
}

impl Shape {
    fn new(workload: &Workload, load: &Load, market: String) -> Shape {
        let (bench, wire, frame, subscribers) = match workload {
            Workload::Place { frame: None } => ("place", "PlaceBid, gRPC", None, None),
            Workload::Place { frame } => ("place", "PlaceBids, gRPC stream", *frame, None),
            Workload::Price { rest: false } => ("price", "GetMarketPrice, gRPC", None, None),
            Workload::Price { rest: true } => ("price", "GetMarketPrice, REST", None, None),
            Workload::Watch(Watch { feed, frame, subscribers, .. }) => {
                let wire = match feed {
                    Feed::Events => "WatchEvents, gRPC",
                    Feed::Prices => "WatchPrices, gRPC",
                };
                ("watch", wire, *frame, Some(*subscribers))
            }
        };
        let (kind, latency_from) = if load.rate.is_some() { ("open", "due") } else { ("closed", "sent") };
        Shape {
            bench,
            wire,
            market,
            callers: load.callers,
            connections: load.connections,
            warmup_seconds: load.warmup,
            measured_seconds: load.seconds,
            frame,
            subscribers,
            rate: load.rate,
            kind,
            latency_from,
        }
    }
}

/// The distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
}

impl Quantiles {
    /// Reads the quantiles of a histogram.
    pub(crate) fn of(times: &Histogram<u64>) -> Quantiles {
        Quantiles {
            p50: times.value_at_quantile(0.5),
            p90: times.value_at_quantile(0.9),
            p99: times.value_at_quantile(0.99),
            p99_9: times.value_at_quantile(0.999),
            max: times.max(),
        }
    }

    fn text(&self) -> String {
        let ms = |us: u64| us as f64 / 1e3;
        format!(
            "p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
            ms(self.p50),
            ms(self.p90),
            ms(self.p99),
            ms(self.p99_9),
            ms(self.max)
        )
    }
}

/// The events or prices that subscribers received.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Watched {
    /// The number delivered to all of them together.
    pub(crate) delivered: u64,
    pub(crate) delivered_per_second: f64,
    /// The number delivered to the one that received fewest.
    pub(crate) fewest: u64,
    pub(crate) most: u64,
    pub(crate) frames: u64,
    /// The delay from the time of an event to its arrival.
    pub(crate) delay_us: Quantiles,
}

impl Report {
    /// Draws up the figures of one run.
    pub(crate) fn new(workload: &Workload, load: &Load, target: &Target, outcome: Outcome) -> Report {
        let Outcome { store, market, measured, run, machine, build, fdatasync, engine } = outcome;
        let tally = measured.tally;
        let seconds = tally.seconds(&run);
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let answers = tally.done + tally.refused.values().sum::<u64>();
        let calls = answers.div_ceil(u64::from(measured.bids_per_call.unwrap_or(1)));
        let bids = measured.bids_per_call.map(|_| tally.done);
        Report {
            machine,
            build,
            store,
            fdatasync,
            load: Shape::new(workload, load, market),
            seconds,
            interrupted: run.interrupted(),
            calls,
            calls_per_second: per_second(calls),
            bids,
            bids_per_second: bids.map(per_second),
            latency_us: Quantiles::of(&tally.times),
            refusals: tally.refused,
            unsent: run.unsent(),
            engine,
            watch: measured.watch,
            without: match target {
                Target::New(engine) => engine.without.clone(),
                Target::Running(_) => Vec::new(),
            },
            bare: None,
        }
    }

    /// Returns true if the run was stopped before its end.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Adds the ratio to the report of an engine that keeps nothing.
    pub(crate) fn compare(&mut self, bare: &Report) {
        let calls_per_second = bare.calls_per_second;
        self.bare = Some(Comparison { calls_per_second, ratio: self.calls_per_second / calls_per_second });
    }

    /// Returns the figures in words, each with its name.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Lines::default();
        let (machine, disk, load) = (&self.machine, &self.fdatasync, &self.load);
        lines
            .line(
                "machine",
                format!(
                    "{}, {} cores, Linux {}, load {}",
                    machine.cpu, machine.cores, machine.kernel, machine.load_average
                ),
            )
            .line("build", format!("kubebid {}, {}", self.build.version, self.build.profile))
            .line("store", &self.store)
            .line(
                "fdatasync",
                format!(
                    "p50 {:.2} ms, p99 {:.2} ms in {}",
                    disk.p50_us as f64 / 1e3,
                    disk.p99_us as f64 / 1e3,
                    disk.folder.display()
                ),
            )
            .line("load", load.text());
        if !self.without.is_empty() {
            let parts: Vec<_> = self.without.iter().map(|part| part.name()).collect();
            lines.line("without", parts.join(", "));
        }
        if self.interrupted {
            lines.line("interrupted", "what follows is what was measured until then");
        }
        lines.line(
            "calls",
            format!("{} in {:.1} s: {:.0}/s", self.calls, self.seconds, self.calls_per_second),
        );
        if let (Some(bids), Some(rate)) = (self.bids, self.bids_per_second) {
            lines.line("bids", format!("{bids}: {rate:.0}/s"));
        }
        lines.line(if load.frame.is_some() { "a bid" } else { "a call" }, self.latency_us.text());
        if let Some(Comparison { calls_per_second, ratio }) = &self.bare {
            let text = format!("{ratio:.2} of {calls_per_second:.0} calls/s without journal and tables");
            lines.line("ratio", text);
        }
        for (code, count) in &self.refusals {
            lines.line("refused", format!("{count} with {code}"));
        }
        if self.unsent > 0 {
            lines.line("not sent", format!("{} calls that were due", self.unsent));
        }
        if let Some(watch) = &self.watch {
            lines
                .line(
                    "delivered",
                    format!(
                        "{} in {} frames: {:.0}/s",
                        watch.delivered, watch.frames, watch.delivered_per_second
                    ),
                )
                .line("to each", format!("{} to {}", watch.fewest, watch.most))
                .line("delay", watch.delay_us.text());
        }
        if let Some(engine) = &self.engine {
            lines.line("tables lag", format!("{} commands at the end", engine.lag_commands));
            let commits = engine.commits.zip(engine.commands_per_commit).zip(engine.mean_commit_us);
            let commits = commits.map(|((commits, each), us)| {
                format!("{commits} of {each:.1} commands, {:.2} ms on average", us / 1e3)
            });
            if let Some(commits) = commits {
                lines.line("commits", commits);
            }
        }
        lines.0
    }
}

/// Lines with a name each.
#[derive(Default)]
struct Lines(Vec<(&'static str, String)>);

impl Lines {
    fn line(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.0.push((name, value.to_string()));
        self
    }
}

impl Shape {
    fn text(&self) -> String {
        let mut text = format!(
            "{}, {} callers, {} connections, {} s after {} s",
            self.wire, self.callers, self.connections, self.measured_seconds, self.warmup_seconds
        );
        if let Some(frame) = self.frame {
            text.push_str(&format!(", {frame} bids a frame"));
        }
        if let Some(subscribers) = self.subscribers {
            text.push_str(&format!(", {subscribers} subscribers"));
        }
        match self.rate {
            Some(rate) => text.push_str(&format!(
                "; open loop of {rate} calls/s, times from when they were due (corrected for coordinated omission)"
            )),
            None => text.push_str("; closed loop, times from sending (not corrected for coordinated omission)"),
        }
        text
    }
}
