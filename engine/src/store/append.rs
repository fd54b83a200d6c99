//! Appends to the journal, and resolves an append without an answer. The module documentation of [`super`] has the
//! reasoning.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{AnyConnection, Connection as _, Row};
use tokio::time::timeout;
use uuid::Uuid;

use super::database::Database;
use super::journal::{HEAD, position};
use super::lease::{self, Lease, LeaseCondition};
use super::record::{Batch, Position};
use super::rows::number;
use super::session::Connection;
use super::{Fault, Leadership, bigint};

/// The program that may append.
#[async_trait]
pub trait JournalWriter: fmt::Debug + Send {
    /// Returns the epoch under which this writer appends. [`JournalWriter::resolve`] raises it.
    fn epoch(&self) -> u64;

    /// Makes a batch durable. When this returns `Ok`, the batch survives whatever happens next.
    ///
    /// If the future is dropped before it is ready, the result is unknown, as after a lost
    /// connection: call [`JournalWriter::resolve`].
    async fn append(&mut self, batch: &Batch) -> Result<(), AppendError>;

    /// Finds out if a batch whose append ended [unknown](AppendError::Unknown) is in the journal. The
    /// answer is final: a batch that is not in the journal will not get there by that append.
    /// Afterwards the writer can be used again, unless it is fenced.
    ///
    /// # Errors
    /// The database does not answer: ask again. [`Fault::Diverged`] if the journal ends neither
    /// before the batch nor with it, because the database lost or gained a part of its history, for
    /// example by a restore: recover from the store.
    async fn resolve(&mut self, batch: &Batch) -> Result<Resolution, Fault>;
}

/// Why a batch was not, or maybe not, made durable.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another writer has taken over. The batch is not in the journal; this writer has to stop.
    #[error("another writer has taken over from epoch {epoch}")]
    Fenced {
        /// The epoch of this writer, which is over.
        epoch: u64,
    },
    /// The batch may be in the journal or not: resolve it before anything else.
    #[error("the append has no answer")]
    Unknown {
        /// Why there is no answer.
        source: Fault,
    },
    /// The store is not what it was, or its disk lost what was written. The batch must not be acknowledged; this writer
    /// has to stop.
    #[error("the store is lost")]
    Lost {
        /// The fault that made the store unusable.
        source: Fault,
    },
    /// The batch is certainly not in the journal, and the writer is still the writer.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a batch was certainly not made durable.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The batch does not follow the journal's end, which is a bug of the program that made it.
    #[error("the journal ends at {head}, the batch belongs after {batch}")]
    NotNext {
        /// The position that the batch follows.
        batch: Position,
        /// The journal's end.
        head: Position,
    },
    /// An error of the database, such as no space left or a read-only server.
    #[error("the database refused the append")]
    Database {
        /// The driver's error.
        source: sqlx::Error,
    },
}

/// The result of resolving an append without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The batch is in the journal and durable.
    Committed,
    /// The batch is not in the journal and never will be. Append it again.
    NotCommitted,
    /// Another writer has taken over. It decides what becomes of the batch.
    Fenced,
}

/// Takes the right to append, together with the lease. Returns it with the name of the writer in the row `leader`, or
/// None if the lease may not be taken.
pub(super) async fn lead(
    database: Arc<dyn Database>,
    lease: Option<(LeaseCondition, Duration)>,
) -> Result<Option<(Leadership, Uuid)>, Fault> {
    let holder = Uuid::new_v4();
    let mut connection = database.connect().await?;
    let taken = take(
        &*database,
        &mut connection,
        lease,
        "UPDATE leader SET epoch = epoch + 1, holder = $1 WHERE one = 1 RETURNING epoch",
        holder,
    );
    let Some((epoch, head)) = taken.await? else { return Ok(None) };
    let lease = lease.map(|(_, length)| Lease::new(Arc::clone(&database), holder, length));
    let writer = Writer { database, holder, epoch, connection: Some(connection) };
    Ok(Some((Leadership { writer: Box::new(writer), head, lease }, holder)))
}

#[derive(Debug)]
struct Writer {
    database: Arc<dyn Database>,
    /// The name that this writer has put into the row `leader`.
    holder: Uuid,
    epoch: u64,
    /// The connection of this writer alone. `None` while an append has no answer.
    connection: Option<Connection>,
}

#[async_trait]
impl JournalWriter for Writer {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    async fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        let Some(mut connection) = self.connection.take() else {
            return Err(AppendError::Unknown { source: Fault::Unresolved });
        };
        let answer = append(&*self.database, self.epoch, &mut connection, batch).await;
        if !matches!(answer, Err(AppendError::Unknown { .. })) {
            self.connection = Some(connection);
        }
        answer
    }

    async fn resolve(&mut self, batch: &Batch) -> Result<Resolution, Fault> {
        self.connection = None;
        let mut connection = self.database.connect().await?;
        let taken = take(
            &*self.database,
            &mut connection,
            None,
            "UPDATE leader SET epoch = epoch + 1 WHERE one = 1 AND holder = $1 RETURNING epoch",
            self.holder,
        );
        let taken = taken.await?;
        self.connection = Some(connection);
        let Some((epoch, head)) = taken else { return Ok(Resolution::Fenced) };
        self.epoch = epoch;
        if head == batch.end() {
            Ok(Resolution::Committed)
        } else if head == batch.before() {
            Ok(Resolution::NotCommitted)
        } else {
            Err(Fault::Diverged { expected: batch.before(), found: head })
        }
    }
}

async fn append(
    database: &dyn Database,
    epoch: u64,
    connection: &mut Connection,
    batch: &Batch,
) -> Result<(), AppendError> {
    let doing = "appending to the journal";
    let (connection, warnings) = connection.and_warnings();
    let append = sqlx::query(database.append())
        .bind(bigint(epoch))
        .bind(bigint(batch.first_seq()))
        .bind(bigint(batch.last_seq()))
        .bind(&batch.end().hash.0[..])
        .bind(&batch.bytes()[..])
        .bind(&batch.before().hash.0[..])
        .execute(&mut *connection);
    let turn = database.turn().take().await;
    let (answer, warning) = warnings.of(timeout(database.patience(), append)).await;
    drop(turn);
    match answer {
        // The batch may be on no standby of the database. A later commit finds out.
        Ok(Ok(_)) if let Some(warning) = warning => {
            Err(AppendError::Unknown { source: Fault::Warned { doing, warning } })
        }
        Err(_) => Err(AppendError::Unknown { source: Fault::TimedOut { doing } }),
        Ok(Err(source)) if database.is_lost(&source) => {
            Err(AppendError::Lost { source: Fault::Sync { source } })
        }
        Ok(Err(source)) if database.surely_not_committed(&source) => Err(Refused::Database { source }.into()),
        Ok(Err(source)) => Err(AppendError::Unknown { source: Fault::Database { doing, source } }),
        Ok(Ok(done)) if done.rows_affected() == 1 => {
            database.has_its_log().map_err(|source| AppendError::Lost { source })
        }
        Ok(Ok(_)) => {
            let why = timeout(database.patience(), why_not(epoch, connection, batch)).await;
            Err(why.unwrap_or(AppendError::Unknown { source: Fault::TimedOut { doing } }))
        }
    }
}

/// Returns why the append added no row.
async fn why_not(epoch: u64, connection: &mut AnyConnection, batch: &Batch) -> AppendError {
    match look(connection).await {
        Ok((leader, _)) if leader != epoch => AppendError::Fenced { epoch },
        Ok((_, head)) => Refused::NotNext { batch: batch.before(), head }.into(),
        Err(source) => AppendError::Unknown { source },
    }
}

/// Takes the lease, if one is named, and the leader's row, and reads the journal's end, in one
/// transaction. Returns the new epoch and the end, or `None` if the lease may not be taken or `sql` finds
/// no row to take.
async fn take(
    database: &dyn Database,
    connection: &mut Connection,
    lease: Option<(LeaseCondition, Duration)>,
    sql: &'static str,
    holder: Uuid,
) -> Result<Option<(u64, Position)>, Fault> {
    let doing = "taking the journal";
    let (connection, warnings) = connection.and_warnings();
    let take = async {
        let mut transaction = connection.begin_with(database.begin()).await?;
        if let Some((taking, length)) = lease
            && !lease::take(&mut transaction, taking, holder, length).await?
        {
            transaction.rollback().await?;
            return Ok(None);
        }
        let row = sqlx::query(sql).bind(holder.to_string()).fetch_optional(&mut *transaction).await?;
        // Read only after the row is ours: everything earlier is in the journal by then, and
        // nothing later can be added.
        let head = sqlx::query(HEAD).fetch_optional(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(row.map(|row| (number(&row, 0), head)))
    };
    let turn = database.turn().take().await;
    let (taken, warning) = warnings.of(timeout(database.patience(), take)).await;
    drop(turn);
    // Other warnings are no reason to ask again for ever.
    if let Some(warning) = warning.filter(|warning| warning.contains("synchronous replication")) {
        return Err(Fault::Warned { doing, warning });
    }
    let taken = taken.map_err(|_| Fault::TimedOut { doing })?.map_err(Fault::database(doing))?;
    let Some((epoch, head)) = taken else { return Ok(None) };
    let head = head.map_or(Ok(Position::START), |row| position(row.get(0), &row.get::<Vec<u8>, _>(1)))?;
    Ok(Some((epoch, head)))
}

/// Reads the leader's epoch and the journal's end, as of one moment.
async fn look(connection: &mut AnyConnection) -> Result<(u64, Position), Fault> {
    let row = sqlx::query(
        "SELECT l.epoch, j.last_seq, j.hash FROM leader l
         LEFT JOIN (SELECT last_seq, hash FROM journal ORDER BY first_seq DESC LIMIT 1) j ON true
         WHERE l.one = 1",
    )
    .fetch_one(connection)
    .await
    .map_err(Fault::database("asking why an append was not taken"))?;
    let head = match row.get(1) {
        Some(seq) => position(seq, &row.get::<Vec<u8>, _>(2))?,
        None => Position::START,
    };
    Ok((number(&row, 0), head))
}
