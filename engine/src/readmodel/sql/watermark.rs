//! The watermark: the last command whose rows the tables have. Rows and watermark change in one transaction.

use std::collections::BTreeMap;

use kubebid_core::money::{Amount, Bill};
use kubebid_core::units::{AllocationId, Micros};
use sqlx::AssertSqlSafe;
use sqlx::any::AnyRow;
use std::time::Duration;
use tokio::time::timeout;

use super::Tables;
use super::schema::{PRICE_CHANGES, TABLES};
use super::tables::Changes;
use crate::readmodel::fold::Running;
use crate::readmodel::retention::Retention;
use crate::readmodel::rows::{EventPlace, Mark};
use crate::store::Fault;
use crate::store::bulk::{BulkWriter, Columns, Drop, Kind::Number, Kind::Time, Month};
use crate::store::rows::{Dialect, number, optional_time, time};
use crate::store::select::Select;

/// The extent of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The last command whose rows they have.
    pub(crate) watermark: u64,
    /// The first command whose events are certainly there. Events of earlier commands may have been
    /// dropped.
    pub(crate) first_event: u64,
    /// Price changes before this time were dropped.
    pub(crate) prices_from: Micros,
}

impl Extent {
    /// Returns true if no event after this place was dropped.
    pub(crate) fn has_events_after(self, place: EventPlace) -> bool {
        self.first_event == 1 || place >= self.before_first_event()
    }

    /// Returns the place before the first event that is certainly kept with all events of its command.
    pub(crate) fn before_first_event(self) -> EventPlace {
        (self.first_event - 1, u32::MAX)
    }
}

/// The result of writing rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Done,
    /// Nothing was written: the watermark is another command than the one that the rows follow.
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

    /// Returns the most commands whose rows share a transaction. The commands of one commit are not
    /// divided.
    pub(crate) fn commands_at_once(&self) -> usize {
        self.database.commands_at_once()
    }

    /// Returns how long rows are gathered between transactions that are not full.
    pub(crate) fn rest(&self) -> Duration {
        self.database.rest()
    }

    /// Returns the last command whose rows the tables have.
    pub(crate) async fn watermark(&self) -> Result<u64, Fault> {
        Ok(self.extent().await?.watermark)
    }

    pub(crate) async fn extent(&self) -> Result<Extent, Fault> {
        let row = sqlx::query("SELECT watermark, first_event, prices_from FROM projection WHERE one = 1")
            .fetch_one(&self.pool)
            .await
            .map_err(Fault::database("reading the projections' watermark"))?;
        Ok(Extent { watermark: number(&row, 0), first_event: number(&row, 1), prices_from: time(&row, 2) })
    }

    /// Returns the watermark, and what each running node had cost at the last full hour before it.
    pub(crate) async fn running_marks(&self) -> Result<(u64, Running), Fault> {
        let doing = "reading what nodes have accrued";
        loop {
            let before = self.watermark().await?;
            let rows = select_running().all_on(&self.pool, self.database.dialect()).await;
            let rows = rows.map_err(Fault::database(doing))?;
            let marks: BTreeMap<AllocationId, Mark> = rows
                .iter()
                .map(|row| {
                    let mark = match optional_time(row, "to_at") {
                        Some(_) => mark(row),
                        None => Mark::start(time(row, "ready_at")),
                    };
                    (AllocationId(number(row, "allocation")), mark)
                })
                .collect();
            // Another engine may be writing.
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
            // The watermark first: from here on, other writers wait for this row.
            sqlx::query("UPDATE projection SET watermark = 0, first_event = 1, prices_from = 0")
                .execute(&mut *transaction)
                .await?;
            for table in TABLES {
                let clear = match self.database.dialect() {
                    Dialect::Postgres => "TRUNCATE",
                    Dialect::Sqlite => "DELETE FROM",
                };
                // Safe: made of constants.
                let sql = AssertSqlSafe(format!("{clear} {table}"));
                sqlx::query(sql).execute(&mut *transaction).await?;
            }
            transaction.commit().await
        };
        let _turn = self.database.turn().take().await;
        clear.await.map_err(Fault::database(doing))
    }
}

/// Selects the nodes that are billed, each with the end of its last segment.
fn select_running() -> Select {
    const NODE: Columns = &[("allocation", Number), ("ready_at", Time)];
    const SEGMENT: Columns =
        &[("to_at", Time), ("total_micros", Number), ("total_fee_micros", Number), ("remainder", Number)];
    let mut select = Select::new("SELECT");
    select.columns("a", NODE).add(",", &[]).columns("s", SEGMENT).add(
        " FROM allocations a
         LEFT JOIN charge_segments s ON s.allocation = a.allocation AND s.claim_seq = 0
             AND s.claim_idx = 0 AND s.from_at = (
                 SELECT MAX(l.from_at) FROM charge_segments l
                 WHERE l.allocation = a.allocation AND l.claim_seq = 0 AND l.claim_idx = 0)
         WHERE a.ended_at IS NULL AND a.ready_at IS NOT NULL",
        &[],
    );
    select
}

/// Returns the mark at the end of a segment: what is charged up to then with the remainder that was rounded off, and
/// the fee.
pub(super) fn mark(row: &AnyRow) -> Mark {
    let (total, rest) = (number(row, "total_micros"), number(row, "remainder"));
    Mark {
        at: time(row, "to_at"),
        bill: Bill(u128::from(total) * u128::from(Micros::HOUR.0) + u128::from(rest)),
        fee: Amount(number(row, "total_fee_micros").into()),
    }
}

impl Writer {
    /// Writes the rows of the commands after `before`, up to `after`.
    ///
    /// # Errors
    /// The rows are written or not. Writing them again finds out.
    pub(crate) async fn write(
        &mut self,
        before: u64,
        after: u64,
        changes: &Changes,
    ) -> Result<WriteOutcome, Fault> {
        let doing = "writing projections";
        let database = &self.tables.database;
        let mut bulk_writer = match self.bulk_writer.take() {
            Some(bulk_writer) => bulk_writer,
            None => database.bulk_writer().await?,
        };
        // A large group of rows takes a while.
        let patience = database.patience() * 6;
        let written = timeout(patience, bulk_writer.write(before, after, &changes.0)).await;
        let written = written.map_err(|_| Fault::TimedOut { doing })?.map_err(Fault::database(doing))?;
        self.bulk_writer = Some(bulk_writer);
        Ok(match written {
            None => WriteOutcome::Done,
            Some(found) => WriteOutcome::Elsewhere { found },
        })
    }

    /// Drops the rows that are no longer kept at this time. If that fails the rows stay, and it can
    /// be repeated.
    pub(crate) async fn drop_expired(&mut self, retention: Retention, now: Micros) -> Result<(), Fault> {
        let doing = "dropping rows that are no longer kept";
        let (database, patience) = (&self.tables.database, self.tables.database.patience() * 6);
        let events = retention.events_from(now).map(expired_events);
        let prices = retention.prices_from(now).map(|from| expired_prices(from, database.dialect()));
        for drop in events.into_iter().chain(prices) {
            // After a failure the connection is given up.
            let Some(mut bulk_writer) = self.bulk_writer.take() else { return Ok(()) };
            let dropped = timeout(patience, bulk_writer.drop_months_before(&drop)).await;
            dropped.map_err(|_| Fault::TimedOut { doing })?.map_err(Fault::database(doing))?;
            self.bulk_writer = Some(bulk_writer);
        }
        Ok(())
    }
}

fn expired_events(from: Micros) -> Drop {
    // The first month that is kept may begin between two events of one command.
    let first = "UPDATE projection SET first_event = 1 + COALESCE((SELECT MIN(seq) FROM events), watermark)";
    let parties = "DELETE FROM event_parties WHERE seq < (SELECT first_event - 1 FROM projection)";
    Drop {
        table: "events",
        first_month: Month::of(from).start(),
        before: Vec::new(),
        after: vec![first.to_owned(), parties.to_owned()],
    }
}

/// Drops expired price changes. The prices in force at the beginning of the first kept month become
/// changes at that instant.
fn expired_prices(from: Micros, dialect: Dialect) -> Drop {
    let first_month = Month::of(from).start();
    let start = dialect.full_hour(first_month);
    let names: Vec<&str> = PRICE_CHANGES.iter().map(|(name, _)| *name).collect();
    let values: Vec<String> =
        names.iter().map(|name| if *name == "at" { start.clone() } else { format!("p.{name}") }).collect();
    let (names, values) = (names.join(", "), values.join(", "));
    let keep = format!(
        "INSERT INTO price_changes ({names}) SELECT {values}
         FROM markets m JOIN price_changes p ON p.market = m.market
         WHERE (p.at, p.seq, p.idx) = (
             SELECT l.at, l.seq, l.idx FROM price_changes l WHERE l.market = m.market AND l.at < {start}
             ORDER BY l.at DESC, l.seq DESC, l.idx DESC LIMIT 1)
         ON CONFLICT DO NOTHING"
    );
    let after = format!("UPDATE projection SET prices_from = {}", first_month.0);
    Drop { table: "price_changes", first_month, before: vec![keep], after: vec![after] }
}
