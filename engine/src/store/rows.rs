//! The rows beside the journal that are not part of the market, one file for each kind.

use std::fmt::Write;
use std::sync::{Arc, PoisonError};

use sqlx::any::AnyRow;
use sqlx::{AnyPool, ColumnIndex, Row};
use tokio::sync::{Mutex, OwnedMutexGuard};
use uuid::Uuid;

use super::Fault;
use super::reads::Reads;
use kubebid_core::units::Micros;

/// Accounts, tokens, labels, data of nodes and instance types. Cheap to clone.
///
/// Texts may not contain a NUL character: PostgreSQL cannot store it.
#[derive(Debug, Clone)]
pub struct Rows {
    pub(super) pool: AnyPool,
    /// Connections for reads of labels.
    pub(super) reads: Reads,
    pub(super) turn: Turn,
    pub(super) dialect: Dialect,
    fence: Fence,
}

/// The name under which this process leads, if it does or did. Cheap to clone.
///
/// Every statement that writes beside the journal joins the relation of [`Rows::fence`], which has a row only as long
/// as the row `leader` has this name. PostgreSQL keeps that row from changing until the statement is durable, as it does
/// for an append. So an engine that was overtaken writes nothing, however late its statement comes. The name stays when
/// the writer raises its epoch, so the fence is the name and not the epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct Fence(Arc<std::sync::Mutex<Option<Uuid>>>);

impl Fence {
    /// Lets writes count only as long as this name leads.
    pub(super) fn lead_as(&self, holder: Uuid) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(holder);
    }

    fn holder(&self) -> Option<Uuid> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    pub(super) fn new(pool: AnyPool, reads: Reads, turn: Turn, dialect: Dialect, fence: Fence) -> Self {
        Self { pool, reads, turn, dialect, fence }
    }

    /// Returns the relation `fence`: one row as long as this engine leads, and none afterwards. It has a row in a
    /// process that has never led, such as a tool.
    pub(super) fn fence(&self) -> String {
        let Some(holder) = self.fence.holder() else { return "(SELECT 1 AS one) fence".to_owned() };
        let lock = match self.dialect {
            Dialect::Postgres => " FOR SHARE",
            // One transaction writes at a time.
            Dialect::Sqlite => "",
        };
        format!("(SELECT one FROM leader WHERE one = 1 AND holder = '{holder}'{lock}) fence")
    }

    /// Says why a statement has changed no row.
    ///
    /// # Errors
    /// [`Fault::Deposed`] if this engine does not lead any more.
    pub(super) async fn still_leads(&self, doing: &'static str) -> Result<(), Fault> {
        let Some(holder) = self.fence.holder() else { return Ok(()) };
        let leads = sqlx::query("SELECT one FROM leader WHERE one = 1 AND holder = $1")
            .bind(holder.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database(doing))?;
        if leads.is_some() { Ok(()) } else { Err(Fault::Deposed) }
    }
}

/// The dialect of a database.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialect {
    /// Parameters are `$1`, `$2` and so on.
    Postgres,
    /// Parameters are `?`. SQLite accepts numbers too, but for each it searches all earlier ones,
    /// which takes longer than the statement if there are thousands.
    Sqlite,
}

impl Dialect {
    /// Returns a list of `count` parameters in parentheses; the first one has the number `first`, from 1.
    pub(crate) fn list(self, first: usize, count: usize) -> String {
        let mut list = "(".to_owned();
        for n in first..first + count {
            let comma = if n == first { "" } else { ", " };
            match self {
                Self::Postgres => write!(list, "{comma}${n}"),
                Self::Sqlite => write!(list, "{comma}?"),
            }
            .expect("a string takes it");
        }
        list.push(')');
        list
    }
}

/// The turn to write. SQLite has one writer at a time, and the others poll. So the writers of one process
/// queue here, in order, and a batch of the journal waits for at most one short write. PostgreSQL needs
/// no queue.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Option<Arc<Mutex<()>>>);

impl Turn {
    pub(crate) fn free() -> Self {
        Self(None)
    }

    pub(crate) fn one_at_a_time() -> Self {
        Self(Some(Arc::default()))
    }

    /// Waits for the turn, which ends when the guard is dropped. While holding it, a task may wait
    /// for nothing but the database.
    pub(crate) async fn take(&self) -> Option<OwnedMutexGuard<()>> {
        match &self.0 {
            Some(mutex) => Some(Arc::clone(mutex).lock_owned().await),
            None => None,
        }
    }
}

/// Reads a column that holds one of our numbers.
pub(crate) fn number<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> u64 {
    row.get::<i64, _>(column) as u64
}

/// Reads a column that holds one of our numbers or NULL.
pub(crate) fn optional_number<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> Option<u64> {
    row.get::<Option<i64>, _>(column).map(|number| number as u64)
}

/// Reads a column of microseconds since 1970.
pub(crate) fn time<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> Micros {
    Micros(number(row, column))
}

/// Reads a column of microseconds since 1970 that may be NULL.
pub(crate) fn optional_time<I: ColumnIndex<AnyRow>>(row: &AnyRow, column: I) -> Option<Micros> {
    optional_number(row, column).map(Micros)
}

/// Reads a list of texts, which `table` returns as a JSON array; NULL is the empty list.
///
/// # Errors
/// The column is not such an array.
pub(crate) fn texts(row: &AnyRow, table: &'static str, column: &str) -> Result<Vec<String>, Fault> {
    let Some(json) = row.get::<Option<&str>, _>(column) else { return Ok(Vec::new()) };
    serde_json::from_str(json).map_err(|error| Fault::Row { table, what: format!("{column}: {error}") })
}
