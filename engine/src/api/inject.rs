//! Drills: deliberate failures in a running market, made of ordinary commands. The market holds everything that a drill
//! leaves; the engine remembers only the speed of a stepped clock.

mod demand;
mod pace;
mod supply;

use super::Api;
use crate::auth::caller::Caller;
use crate::lifecycle::engine::Engine;
use crate::runtime::clock::Clock;
use crate::wire::status::{ApiError, Code};
use std::fmt;
use tokio::sync::watch;
use tracing::info;

/// The tasks of drills, if drills are allowed. They end with the server.
#[derive(Debug)]
pub(super) struct Drills {
    /// The rate of a stepped clock: seconds of market time per second.
    rate: watch::Sender<u32>,
}

impl Drills {
    pub(super) fn start(engine: &Engine, closing: watch::Receiver<bool>) -> Drills {
        let (rate, to_move) = watch::channel(0);
        tokio::spawn(until_closing(demand::tend(engine.clone()), closing.clone()));
        if engine.clock() == Clock::Stepped {
            tokio::spawn(until_closing(pace::go(engine.clone(), to_move), closing));
        }
        Drills { rate }
    }
}

async fn until_closing(work: impl Future<Output = ()>, mut closing: watch::Receiver<bool>) {
    tokio::select! {
        () = work => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

impl Api {
    fn drills(&self) -> Result<&Drills, ApiError> {
        self.0.drills.as_ref().ok_or_else(|| Code::InjectDisabled.into())
    }
}

/// Logs a drill. The journal does not distinguish a drill from the real thing; the log does.
fn log(caller: &Caller, what: fmt::Arguments<'_>) {
    info!(by = caller.account.as_str(), "injected: {what}");
}
