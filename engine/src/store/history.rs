//! Checks that the journal has everything that snapshots and tables were made from. After a partial restore new
//! commands would otherwise get numbers that were used before.

use super::{Fault, Position, Store};

/// The way in which the journal lacks what the rest of the store was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HistoryLost {
    /// The journal is empty, but the readable tables are not.
    #[error("the journal is empty, and the readable tables have commands up to {tables}")]
    EmptyBesideTables {
        /// The watermark of the tables.
        tables: u64,
    },
    /// The journal is empty, but there is a snapshot.
    #[error("the journal is empty, and a snapshot has commands up to {snapshot}")]
    EmptyBesideSnapshot {
        /// The last command of the snapshot.
        snapshot: u64,
    },
    /// The readable tables have commands after the journal's end.
    #[error("the journal ends at command {journal}, and the readable tables have commands up to {tables}")]
    ShorterThanTables {
        /// The last command of the journal.
        journal: u64,
        /// The watermark of the tables.
        tables: u64,
    },
    /// A snapshot has commands after the journal's end.
    #[error("the journal ends at command {journal}, and a snapshot has commands up to {snapshot}")]
    ShorterThanSnapshot {
        /// The last command of the journal.
        journal: u64,
        /// The last command of the snapshot.
        snapshot: u64,
    },
    /// The journal has another batch at the place of a snapshot.
    #[error("the journal is of another history than the snapshot at command {snapshot}")]
    AnotherHistory {
        /// The last command of the snapshot.
        snapshot: u64,
    },
}

impl Store {
    /// Compares the journal's end with the snapshots, and with the watermark of the readable tables.
    ///
    /// # Errors
    /// [`Fault::HistoryLost`] if the journal lacks what they have.
    pub async fn check_history(&self, head: Position, tables: u64) -> Result<(), Fault> {
        let journal = head.seq;
        if tables > journal {
            return Err(Fault::HistoryLost(match journal {
                0 => HistoryLost::EmptyBesideTables { tables },
                _ => HistoryLost::ShorterThanTables { journal, tables },
            }));
        }
        // Only the newest snapshot is compared. The batch that an older one follows may be gone,
        // because nothing is replayed from there.
        let Some(newest) = self.snapshots().places().await?.into_iter().next() else { return Ok(()) };
        let snapshot = newest.seq;
        if snapshot > journal {
            return Err(Fault::HistoryLost(match journal {
                0 => HistoryLost::EmptyBesideSnapshot { snapshot },
                _ => HistoryLost::ShorterThanSnapshot { journal, snapshot },
            }));
        }
        if !self.snapshots().is_in_journal(newest).await? {
            return Err(Fault::HistoryLost(HistoryLost::AnotherHistory { snapshot }));
        }
        Ok(())
    }
}
