//! Checks that the journal has everything that snapshots and tables were made from, and deletes the rows of commands
//! that it has lost. After a partial restore new commands would otherwise get numbers that were used before, and with
//! them the labels and the data of nodes of others.

use sqlx::AssertSqlSafe;
use tracing::warn;

use super::journal::HEAD;
use super::rows::{Dialect, number};
use super::{Fault, Position, Store, bigint};

/// The tables beside the journal whose rows are numbered by its commands, each with the condition that a row is
/// numbered above the command $1. The tables of the read model are not here: a rebuild empties them.
const NUMBERED: [(&str, &str); 4] = [
    ("bid_labels", "bid > $1"),
    ("node_data", "seq > $1 OR (kind = 'config' AND number > $1)"),
    ("snapshot", "seq > $1"),
    ("snapshot_part", "seq > $1"),
];

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

    /// Returns the last command up to which the rows beside the journal can be of this journal: any, unless a snapshot
    /// shows that they were written beside another history. Then it is the newest snapshot that is in the journal, or 0.
    pub async fn last_common(&self) -> Result<u64, Fault> {
        let head = self.journal.head().await?;
        // A snapshot after the end only shows that the journal has lost its end. Of the others the newest counts: the
        // batch that an older one follows may be gone. A damaged one shows nothing.
        let mut is_foreign = false;
        for place in self.snapshots().places().await?.into_iter().filter(|place| place.seq <= head.seq) {
            if self.snapshots().is_in_journal(place).await? {
                return Ok(if is_foreign { place.seq } else { u64::MAX });
            }
            is_foreign |= self.snapshots().is_sound(place).await?;
        }
        Ok(if is_foreign { 0 } else { u64::MAX })
    }

    /// Deletes the rows beside the journal that are numbered above its end, and those that are numbered above `common`.
    /// They belong to commands that the journal has lost, and other commands get the same numbers.
    ///
    /// The end is read while no engine can append or take the lead, so the rows of a command that was appended stay.
    pub async fn forget_beyond_end(&self, common: u64) -> Result<(), Fault> {
        let doing = "deleting rows of commands that the journal has lost";
        let forget = async {
            let mut transaction = self.pool().begin_with(self.database.begin()).await?;
            match self.database.dialect() {
                Dialect::Postgres => {
                    let lock = "SELECT one FROM leader WHERE one = 1 FOR UPDATE";
                    sqlx::query(lock).fetch_optional(&mut *transaction).await?;
                }
                // One transaction writes at a time.
                Dialect::Sqlite => {}
            }
            let head = sqlx::query(HEAD).fetch_optional(&mut *transaction).await?;
            let end = head.map_or(0, |row| number(&row, 0)).min(common);
            let mut forgotten = Vec::new();
            for (table, is_beyond) in NUMBERED {
                // Safe: made of constants.
                let delete = AssertSqlSafe(format!("DELETE FROM {table} WHERE {is_beyond}"));
                let deleted = sqlx::query(delete).bind(bigint(end)).execute(&mut *transaction).await?;
                forgotten.push((table, deleted.rows_affected()));
            }
            transaction.commit().await?;
            Ok((end, forgotten))
        };
        let _turn = self.database.turn().take().await;
        let (end, forgotten) = forget.await.map_err(Fault::database(doing))?;
        for (table, rows) in forgotten.into_iter().filter(|(_, rows)| *rows > 0) {
            warn!(table, rows, end, "deleted rows of commands that the journal has lost");
        }
        Ok(())
    }
}
