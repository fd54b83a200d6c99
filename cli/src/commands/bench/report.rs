//! Prints the result of a bench: a sheet for people, one JSON object for programs. Every key is always there.

use super::child::word;
use super::machine::{Build, Fdatasync, Machine};
use super::metrics::Figures;
use super::{Load, Outcome, Played, Target};
use crate::output::Sheet;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    build: Build,
    store: String,
    fdatasync: Fdatasync,
    load: Shape,
    /// From the end of the warm-up to the last answer.
    seconds: f64,
    /// Somebody stopped the run before its end.
    interrupted: bool,
    calls: u64,
    calls_per_second: f64,
    /// Bids placed.
    bids: Option<u64>,
    bids_per_second: Option<f64>,
    /// Of a call; where bids are in frames, of a bid.
    latency_us: Quantiles,
    /// How many, by code.
    refusals: BTreeMap<String, u64>,
    /// Calls of an open loop that were due and not sent, five seconds after the end still.
    unsent: u64,
    /// As its metrics say; absent where nobody knows where they are.
    engine: Option<Figures>,
    watch: Option<Watched>,
    /// Parts that the engine did without.
    without: Vec<String>,
    /// The same load on an engine without journal and tables, where that was asked for.
    bare: Option<Bare>,
}

/// The rate of an engine that keeps nothing, and what share of it was reached.
#[derive(Debug, Serialize)]
struct Bare {
    calls_per_second: f64,
    ratio: f64,
}

/// What the load was.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Shape {
    pub(super) bench: &'static str,
    pub(super) wire: &'static str,
    pub(super) market: String,
    pub(super) callers: u32,
    pub(super) connections: u32,
    pub(super) warmup_seconds: u64,
    pub(super) measured_seconds: u64,
    /// Bids in a frame of a stream.
    pub(super) frame: Option<u32>,
    pub(super) subscribers: Option<u32>,
    /// Calls due in a second.
    pub(super) rate: Option<u64>,
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    pub(super) kind: &'static str,
    /// What the time of a call is counted from: `sent`, or `due`, which corrects for coordinated omission.
    pub(super) latency_from: &'static str,
}

impl Shape {
    pub(super) fn new(bench: &'static str, wire: &'static str) -> Shape {
        Shape { bench, wire, ..Shape::default() }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Quantiles {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p99_9: u64,
    pub(super) max: u64,
}

impl Quantiles {
    pub(super) fn of(times: &Histogram<u64>) -> Quantiles {
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

/// What subscribers got.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Watched {
    /// To all of them.
    pub(super) delivered: u64,
    pub(super) delivered_per_second: f64,
    /// To the one who got fewest.
    pub(super) fewest: u64,
    pub(super) most: u64,
    pub(super) frames: u64,
    /// From the time of an event to its arrival.
    pub(super) delay_us: Quantiles,
}

impl Report {
    pub(super) fn new(shape: Shape, target: &Target, load: &Load, played: Played) -> Report {
        let Played { store, market, outcome } = played;
        let Outcome { measured, run, machine, build, fdatasync, engine } = outcome;
        let (kind, latency_from) = if load.rate.is_some() { ("open", "due") } else { ("closed", "sent") };
        let shape = Shape {
            market,
            callers: load.callers,
            connections: load.connections,
            warmup_seconds: load.warmup,
            measured_seconds: load.seconds,
            rate: load.rate,
            kind,
            latency_from,
            ..shape
        };
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
            load: shape,
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
            without: target.without.iter().map(|part| word(*part)).collect(),
            bare: None,
        }
    }

    pub(super) fn interrupted(&self) -> bool {
        self.interrupted
    }

    pub(super) fn compare(&mut self, bare: &Report) {
        let calls_per_second = bare.calls_per_second;
        self.bare = Some(Bare { calls_per_second, ratio: self.calls_per_second / calls_per_second });
    }

    pub(super) fn text(&self) -> String {
        let mut sheet = Sheet::default();
        let (machine, disk, load) = (&self.machine, &self.fdatasync, &self.load);
        sheet
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
            sheet.line("without", self.without.join(", "));
        }
        if self.interrupted {
            sheet.line("interrupted", "what follows is what was measured until then");
        }
        sheet.line(
            "calls",
            format!("{} in {:.1} s: {:.0}/s", self.calls, self.seconds, self.calls_per_second),
        );
        if let (Some(bids), Some(rate)) = (self.bids, self.bids_per_second) {
            sheet.line("bids", format!("{bids}: {rate:.0}/s"));
        }
        sheet.line(if load.frame.is_some() { "a bid" } else { "a call" }, self.latency_us.text());
        if let Some(Bare { calls_per_second, ratio }) = &self.bare {
            let text = format!("{ratio:.2} of {calls_per_second:.0} calls/s without journal and tables");
            sheet.line("ratio", text);
        }
        for (code, count) in &self.refusals {
            sheet.line("refused", format!("{count} with {code}"));
        }
        if self.unsent > 0 {
            sheet.line("not sent", format!("{} calls that were due", self.unsent));
        }
        if let Some(watch) = &self.watch {
            sheet
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
            sheet.line("tables lag", format!("{} commands at the end", engine.lag_commands));
            let commits = engine.commits.zip(engine.commands_per_commit).zip(engine.mean_commit_us);
            let commits = commits.map(|((commits, each), us)| {
                format!("{commits} of {each:.1} commands, {:.2} ms on average", us / 1e3)
            });
            sheet.some("commits", commits);
        }
        sheet.text()
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
