//! The times that a store knows: the journal's last stamp, the database's clock, and the mark of the last engine.

use kubebid_core::units::Micros;
use sqlx::{AssertSqlSafe, Row};
use tokio::time::timeout;
use tracing::warn;

use super::rows::number;
use super::{Fault, Journal, Store};

/// The mark of the machine's clock that the last leader left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockMark {
    /// The start of the machine at which the mark was made.
    pub boot_id: String,
    /// Market time less the time since boot, in microseconds.
    pub offset_us: i64,
}

impl Store {
    /// Returns the mark of the last engine that led, if there is one.
    pub async fn clock_mark(&self) -> Result<Option<ClockMark>, Fault> {
        let row = sqlx::query("SELECT boot_id, offset_us FROM clock WHERE one = 1")
            .fetch_optional(self.journal.pool())
            .await
            .map_err(Fault::database("reading the clock of the last engine"))?;
        Ok(row.map(|row| ClockMark { boot_id: row.get(0), offset_us: row.get(1) }))
    }

    /// Writes a mark for the next engine.
    pub async fn note_clock(&self, mark: &ClockMark) -> Result<(), Fault> {
        let doing = "noting the machine's clock";
        let note = format!(
            "INSERT INTO clock (one, boot_id, offset_us) SELECT 1, $1, $2 FROM {} WHERE true
             ON CONFLICT (one) DO UPDATE SET boot_id = excluded.boot_id, offset_us = excluded.offset_us",
            self.rows.fence()
        );
        // Safe: made of constants and a UUID.
        let note = sqlx::query(AssertSqlSafe(note)).bind(&mark.boot_id).bind(mark.offset_us);
        let _turn = self.database.turn().take().await;
        let noted = timeout(self.database.patience(), note.execute(self.journal.pool())).await;
        noted.map_err(|_| Fault::TimedOut { doing })?.map_err(Fault::database(doing)).map(drop)
    }

    /// Returns the database's clock, if it has its own.
    pub async fn database_time(&self) -> Result<Option<Micros>, Fault> {
        if !self.has_lease() {
            return Ok(None);
        }
        let row = sqlx::query("SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint")
            .fetch_one(self.journal.pool())
            .await
            .map_err(Fault::database("asking the database for the time"))?;
        Ok(Some(Micros(number(&row, 0))))
    }
}

impl Store {
    /// Returns the time of the market after the last command; None if the journal is empty. If the last batch is
    /// damaged, a snapshot of the journal's end says it, and the damage does not keep the engine from starting.
    pub async fn last_time(&self) -> Result<Option<Micros>, Fault> {
        match self.journal.last_stamp().await {
            Err(damaged @ Fault::Damaged { .. }) => {
                let head = self.journal.head().await?;
                let snapshot = self.snapshots.load().await?.filter(|snapshot| snapshot.after == head);
                let snapshot = snapshot.ok_or(damaged)?;
                warn!(
                    seq = head.seq,
                    "the last batch of the journal is damaged; a snapshot has its commands"
                );
                Ok(Some(Micros(snapshot.at_us)))
            }
            last => last,
        }
    }
}

impl Journal {
    /// Returns the stamp of the last command; None if the journal is empty.
    pub async fn last_stamp(&self) -> Result<Option<Micros>, Fault> {
        let head = self.head().await?;
        let batches = self.read_from(head.seq).next_chunk().await?;
        let last = batches.last().and_then(|batch| batch.records().last());
        Ok(last.map(|record| Micros(record.at_us)))
    }
}
