//! SetClockRate: moves a stepped clock at a steady rate.

use super::log;
use crate::api::Api;
use crate::auth::caller::Caller;
use crate::lifecycle::engine::Engine;
use crate::runtime::clock::Clock;
use crate::runtime::intake::Submission;
use crate::runtime::intake::SubmitError;
use crate::wire::command::NUMBER_MAX;
use crate::wire::status::{ApiError, Code};
use kubebid_core::Command;
use kubebid_core::units::Micros;
use kubebid_proto::v1;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The interval between two steps; each step is a commit.
const BEAT: Duration = Duration::from_millis(250);
/// The highest rate: eleven days of market time in a second.
const RATE_MAX: u32 = 1_000_000;

impl Api {
    /// SetClockRate: makes a stepped clock advance by itself, or stops it with 0.
    pub async fn set_clock_rate(
        &self,
        caller: &Caller,
        request: v1::SetClockRateRequest,
    ) -> Result<v1::SetClockRateResponse, ApiError> {
        let drills = self.drills()?;
        if self.0.engine.clock() != Clock::Stepped {
            return Err(Code::RealClock.into());
        }
        if let Some(rate) = request.rate {
            if rate > RATE_MAX {
                return Err(ApiError::bad_field("rate", format!("is {rate}, more than {RATE_MAX}")));
            }
            drills.rate.send_replace(rate);
            log(caller, format_args!("the clock moves {rate} seconds a second"));
        }
        let rate = *drills.rate.borrow();
        let at = self.0.engine.ask(|exchange| exchange.now()).await?;
        Ok(v1::SetClockRateResponse { rate, at_us: at.0 })
    }
}

/// Moves the clock at the rate that is set. If the engine is too busy for a step, the next step makes up
/// for it.
pub(super) async fn go(engine: Engine, mut rate: watch::Receiver<u32>) {
    loop {
        let Ok(pace) = rate.wait_for(|rate| *rate > 0).await.map(|rate| *rate) else { return };
        let mut last = Instant::now();
        loop {
            tokio::select! {
                changed = rate.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = tokio::time::sleep(BEAT) => {}
            }
            let now = Instant::now();
            match step(&engine, now - last, pace).await {
                // A step that is too far stays too far: it is not made up for.
                Ok(()) | Err(SubmitError::TooFar) => last = now,
                Err(SubmitError::Stopping) => return,
                Err(
                    SubmitError::Full
                    | SubmitError::TooLate
                    | SubmitError::StoreRefused
                    | SubmitError::Unknown,
                ) => {}
            }
        }
    }
}

async fn step(engine: &Engine, passed: Duration, pace: u32) -> Result<(), SubmitError> {
    let passed = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX).saturating_mul(u64::from(pace));
    let Micros(now) = engine.ask(|exchange| exchange.now()).await?;
    let mut advance = Submission::new(None, Command::AdvanceTime);
    advance.at = Some(Micros(now.saturating_add(passed).min(NUMBER_MAX)));
    engine.submit(advance, |_| ()).await
}
