//! The options of a bench: what is loaded, with what, and how much.

use kubebid_client::Builder;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The calls that a bench makes.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Bids that wait for a node, each answered when it is durable and applied.
    Place {
        /// The number of bids in a frame of a stream. Each bid is a call of its own if absent.
        frame: Option<u32>,
    },
    /// Reads of the five numbers of a market.
    Price {
        /// True for REST, where each caller has a connection of its own; false for gRPC.
        rest: bool,
    },
    /// Bids, and subscribers that watch meanwhile.
    Watch(Watch),
}

/// The options of [`Workload::Watch`].
#[derive(Clone, Debug)]
pub struct Watch {
    /// The number of subscribers.
    pub subscribers: u32,
    /// The messages that subscribers receive.
    pub feed: Feed,
    /// True if each subscriber is a tenant that places bids and watches those. There are as many callers.
    pub own: bool,
    /// The number of bids in a frame of a stream. Each bid is a call of its own if absent.
    pub frame: Option<u32>,
}

/// The messages that subscribers receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// WatchEvents.
    Events,
    /// WatchPrices. Each bid has a higher ceiling than the one before, which changes the price.
    Prices,
}

/// The number of callers, and how often and for how long they call.
#[derive(Clone, Debug)]
pub struct Load {
    /// The number of callers, which call at the same time.
    pub callers: u32,
    /// The number of connections that the callers share. At most one for each caller is used.
    pub connections: u32,
    /// The time that is measured, in seconds.
    pub seconds: u64,
    /// The time for which the load runs before it is measured, in seconds.
    pub warmup: u64,
    /// The calls that are due in a second (an open loop). If absent, each caller calls again when it has its answer
    /// (a closed loop).
    pub rate: Option<u64>,
}

/// The engine that is loaded.
#[derive(Clone, Debug)]
pub enum Target {
    /// An engine that is started for the bench and stopped after it.
    New(NewEngine),
    /// An engine that runs already.
    Running(Box<RunningEngine>),
}

/// An engine that is started for a bench.
#[derive(Clone, Debug)]
pub struct NewEngine {
    /// The arguments with which this program runs [`engine::run`](crate::engine::run).
    pub arguments: &'static [&'static str],
    /// The URL of its store, which has no journal yet. SQLite in a temporary folder if absent.
    pub store: Option<String>,
    /// The market that is opened; `bench/here` if absent.
    pub market: Option<String>,
    /// The folder on whose disk fdatasync is timed. That of the SQLite store if absent, else the temporary one.
    pub disk: Option<PathBuf>,
    /// The parts that the engine leaves out.
    pub without: Vec<Part>,
    /// True to measure a second time without journal and tables, and to report the ratio of the rates.
    pub ratio: bool,
}

/// An engine that runs already.
#[derive(Clone, Debug)]
pub struct RunningEngine {
    /// Its endpoint, as in `http://127.0.0.1:7440`.
    pub endpoint: String,
    /// The endpoint of its metrics, if they are to be read.
    pub ops_endpoint: Option<String>,
    /// A client of it, which acts for a tenant.
    pub client: Builder,
    /// The market that is loaded. Bids only wait in it if it has no free units.
    pub market: String,
    /// The folder on whose disk fdatasync is timed. The temporary folder if absent.
    pub disk: Option<PathBuf>,
}

/// A part of an engine that a bench can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The journal. Bids are acknowledged before they are durable, and lost when the engine ends.
    Journal,
    /// The readable tables.
    Projections,
}

impl Part {
    /// Returns its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Journal => "journal",
            Part::Projections => "projections",
        }
    }
}

impl Workload {
    /// Returns the load with the callers and connections that this workload has.
    pub(crate) fn effective_load(&self, load: &Load) -> Load {
        let (callers, connections) = match self {
            Workload::Price { rest: true } => (load.callers, load.callers),
            Workload::Watch(Watch { own: true, subscribers, .. }) => (*subscribers, *subscribers),
            Workload::Place { .. } | Workload::Price { rest: false } | Workload::Watch(_) => {
                (load.callers, load.connections.min(load.callers))
            }
        };
        Load { callers, connections, ..load.clone() }
    }

    /// Returns the number of tenants to make if each caller is one, and otherwise 0.
    pub(crate) fn tenants(&self) -> u32 {
        match self {
            Workload::Watch(Watch { own: true, subscribers, .. }) => *subscribers,
            Workload::Place { .. } | Workload::Price { .. } | Workload::Watch(_) => 0,
        }
    }
}

impl NewEngine {
    /// Returns an engine that keeps nothing, on a store of its own.
    pub(crate) fn bare(&self) -> NewEngine {
        NewEngine {
            store: None,
            without: vec![Part::Journal, Part::Projections],
            ratio: false,
            ..self.clone()
        }
    }
}
