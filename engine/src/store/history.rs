//! Checks that the journal has everything that snapshots and tables were made from. After a partial restore new
//! commands would otherwise get numbers that were used before.

use super::{Fault, Position, Store};

/// The way in which the journal lacks what the rest of the store was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HistoryLost {
    #[error("the journal is empty, and the readable tables have commands up to {tables}")]
    EmptyBesideTables { tables: u64 },
    #[error("the journal is empty, and a snapshot has commands up to {snapshot}")]
    EmptyBesideSnapshot { snapshot: u64 },
    #[error("the journal ends at command {journal}, and the readable tables have commands up to {tables}")]
    ShorterThanTables { journal: u64, tables: u64 },
    #[error("the journal ends at command {journal}, and a snapshot has commands up to {snapshot}")]
    ShorterThanSnapshot { journal: u64, snapshot: u64 },
    #[error("the journal is of another history than the snapshot at command {snapshot}")]
    AnotherHistory { snapshot: u64 },
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
        // The newest one: what an older one follows may be gone, as nothing is replayed from there.
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
