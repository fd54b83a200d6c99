//! Reads the newest usable snapshot and the journal after it.

mod ahead;

pub use ahead::{Commands, ReadAhead, command_of};

use crate::runtime::replay::{BEHAVIOUR, Replay};
use crate::store::record::Position;
use crate::store::{Fault, Snapshot, Store};
use kubebid_core::Exchange;
use kubebid_core::codec::DecodeError;
use tracing::{info, warn};

/// Why the exchange could not be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The store failed, or the journal is damaged.
    #[error(transparent)]
    Store(#[from] Fault),
    /// A command was written under other rules than this program has.
    #[error(
        "record {seq} of the journal was written under edition {version} of the market's rules, and this program has \
         edition {BEHAVIOUR} alone: by its rules the same commands would lead to other prices and charges. Start this \
         program with a new store; the program that wrote the journal can still read it and export it"
    )]
    Behaviour {
        /// The number of the command.
        seq: u64,
        /// The edition of the rules that it was written under.
        version: u16,
    },
    /// A record is not a command.
    #[error("record {seq} is not a command: {source}")]
    Record {
        /// The number of the record.
        seq: u64,
        /// The fault in the record.
        source: DecodeError,
    },
}

/// Restores the newest usable snapshot that contains nothing after `seq`. Returns an empty exchange if
/// there is none.
pub(crate) async fn from_snapshot(store: &Store, seq: u64) -> Result<(Replay, Position), Fault> {
    let mut up_to = Some(seq);
    while let Some(seq) = up_to {
        let Some(snapshot) = store.snapshots().load_up_to(seq).await? else { break };
        let after = snapshot.after;
        // Restoring takes a while, and other tasks need the thread.
        let restored = tokio::task::spawn_blocking(move || restore(&snapshot));
        match restored.await.expect("restoring does not panic") {
            Ok(exchange) => {
                info!(seq = after.seq, "restored a snapshot");
                return Ok((Replay::new(exchange), after));
            }
            Err(why) => warn!(seq = after.seq, why, "a snapshot is skipped"),
        }
        up_to = after.seq.checked_sub(1);
    }
    Ok((Replay::new(Exchange::new()), Position::START))
}

fn restore(snapshot: &Snapshot) -> Result<Exchange, String> {
    let exchange = Exchange::restore(&snapshot.body).map_err(|error| error.to_string())?;
    if exchange.state_hash().to_le_bytes()[..] != snapshot.state_hash[..] {
        return Err("its state has another hash".to_owned());
    }
    Ok(exchange)
}
