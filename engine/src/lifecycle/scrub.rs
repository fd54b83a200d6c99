//! Reads the whole journal from time to time while the engine runs, so that damage is found before a restart or a
//! restore needs the batch.

use crate::runtime::health::in_full;
use crate::runtime::metrics;
use crate::store::{Fault, Store};
use std::time::Duration;
use tokio::time::sleep;
use tracing::{error, info, warn};

/// The pause of the scrubber after each few megabytes. It is in no hurry, and others read from the same
/// disk.
const REST: Duration = Duration::from_secs(1);

/// The result of one check of the journal.
#[derive(Debug)]
pub enum ScrubOutcome {
    /// Every batch is sound.
    Sound {
        /// The last command that was checked.
        last_seq: u64,
    },
    /// The first damaged batch.
    Damaged(Fault),
}

/// Checks every batch of the journal, with a pause of `rest` between two reads.
///
/// # Errors
/// The store cannot be read. A damaged batch is not an error but [`ScrubOutcome::Damaged`].
pub async fn scrub(store: &Store, rest: Duration) -> Result<ScrubOutcome, Fault> {
    let mut reader = store.journal().read_from(1);
    let mut last_seq = 0;
    loop {
        match reader.next_chunk().await {
            Ok(batches) => match batches.last() {
                Some(last) => last_seq = last.last_seq(),
                None => return Ok(ScrubOutcome::Sound { last_seq }),
            },
            Err(fault @ Fault::Damaged { .. }) => return Ok(ScrubOutcome::Damaged(fault)),
            Err(fault) => return Err(fault),
        }
        sleep(rest).await;
    }
}

/// Scrubs the journal at once, and then each time `every` has passed, for as long as the engine runs.
pub(crate) async fn run(store: Store, every: Duration) {
    loop {
        match scrub(&store, REST).await {
            Ok(ScrubOutcome::Sound { last_seq }) => {
                info!(last_seq, "the journal is sound");
                metrics::scrubbed(true);
            }
            Ok(ScrubOutcome::Damaged(fault)) => {
                error!(error = in_full(&fault), "the journal is damaged; the market goes on from memory");
                metrics::scrubbed(false);
            }
            Err(fault) => warn!(error = in_full(&fault), "the journal could not be checked"),
        }
        sleep(every).await;
    }
}
