//! The watermark: the last command whose rows the tables have. Rows and watermark change in one transaction.

use std::collections::BTreeMap;

use kubebid_core::money::Bill;
use kubebid_core::units::{AllocationId, Micros};
use sqlx::{AssertSqlSafe, Row};
use std::time::Duration;
use tokio::time::timeout;

use super::Tables;
use super::tables::{Changes, TABLES};
use crate::readmodel::fold::Running;
use crate::readmodel::rows::Mark;
use crate::store::Fault;
use crate::store::bulk::BulkWriter;
use crate::store::rows::number;

/// The result of writing rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// The tables know the market up to another command than the one that the rows follow.
    Elsewhere {
        found: u64,
    },
}

/// Writes rows on a connection of its own.
#[derive(Debug)]
pub(crate) struct Writer {
    tables: Tables,
    /// None until there is something to write, and after a failure.
    bulk_writer: Option<Box<dyn BulkWriter>>,
}

impl Tables {
    pub(crate) fn writer(&self) -> Writer {
        Writer { tables: self.clone(), bulk_writer: None }
    }

    /// Commands whose rows may share a transaction, or as many as one commit has.
    pub(crate) fn commands_at_once(&self) -> usize {
        self.database.commands_at_once()
    }

    /// Returns how long rows are gathered between transactions that have room.
    pub(crate) fn rest(&self) -> Duration {
        self.database.rest()
    }

    /// The last command that the tables know.
    pub(crate) async fn watermark(&self) -> Result<u64, Fault> {
        let row = sqlx::query("SELECT watermark FROM projection WHERE one = 1")
            .fetch_one(&self.pool)
            .await
            .map_err(Fault::database("reading the projections' watermark"))?;
        Ok(number(&row, 0))
    }

    /// Returns what the nodes that run had cost at the last full hour, up to the watermark that is returned.
    pub(crate) async fn running_marks(&self) -> Result<(u64, Running), Fault> {
        let doing = "reading what nodes have accrued";
        loop {
            let before = self.watermark().await?;
            let rows = sqlx::query(
                "SELECT a.allocation, a.ready_at, s.to_us, s.total, s.rest
                 FROM allocations a
                 LEFT JOIN charge_segments s ON s.allocation = a.allocation AND s.claim_seq = 0
                     AND s.claim_idx = 0 AND s.from_us = (
                         SELECT MAX(l.from_us) FROM charge_segments l
                         WHERE l.allocation = a.allocation AND l.claim_seq = 0 AND l.claim_idx = 0)
                 WHERE a.ended_at IS NULL AND a.ready_at IS NOT NULL",
            )
            .fetch_all(&self.pool)
            .await
            .map_err(Fault::database(doing))?;
            let marks: BTreeMap<AllocationId, Mark> = rows
                .iter()
                .map(|row| {
                    let mark = match row.get::<Option<i64>, _>(2) {
                        Some(at) => mark(at as u64, number(row, 3), number(row, 4)),
                        None => Mark { at: Micros(number(row, 1)), bill: Bill::default() },
                    };
                    (AllocationId(number(row, 0)), mark)
                })
                .collect();
            // Somebody else may be writing.
            if self.watermark().await? == before {
                return Ok((before, Running::new(marks)));
            }
        }
    }

    /// Empties all tables.
    pub(crate) async fn clear(&self) -> Result<(), Fault> {
        let doing = "emptying the projections";
        let clear = async {
            let mut transaction = self.pool.begin_with(self.database.begin()).await?;
            // First the watermark: whoever writes waits from here on.
            sqlx::query("UPDATE projection SET watermark = 0").execute(&mut *transaction).await?;
            for table in TABLES {
                // Safe: a constant.
                let sql = AssertSqlSafe(format!("DELETE FROM {table}"));
                sqlx::query(sql).execute(&mut *transaction).await?;
            }
            transaction.commit().await
        };
        let _turn = self.database.turn().take().await;
        clear.await.map_err(Fault::database(doing))
    }
}

/// A mark as a segment keeps it: what is charged up to its end, and what is rounded off.
pub(super) fn mark(at: u64, total: u64, rest: u64) -> Mark {
    Mark { at: Micros(at), bill: Bill(u128::from(total) * u128::from(Micros::HOUR.0) + u128::from(rest)) }
}

impl Writer {
    /// Writes the rows of the commands behind `before`, up to `after`.
    ///
    /// # Errors
    /// Then the rows are there or not; write them again to learn.
    pub(crate) async fn write(
        &mut self,
        before: u64,
        after: u64,
        changes: &Changes,
    ) -> Result<Written, Fault> {
        let doing = "writing projections";
        let database = &self.tables.database;
        let mut bulk_writer = match self.bulk_writer.take() {
            Some(bulk_writer) => bulk_writer,
            None => database.bulk_writer().await?,
        };
        // Large ones take a while.
        let patience = database.patience() * 6;
        let written = timeout(patience, bulk_writer.write(before, after, &changes.0)).await;
        let written = written.map_err(|_| Fault::TimedOut { doing })?.map_err(Fault::database(doing))?;
        self.bulk_writer = Some(bulk_writer);
        Ok(match written {
            None => Written::Done,
            Some(found) => Written::Elsewhere { found },
        })
    }
}
