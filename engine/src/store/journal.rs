//! Reads the journal, and checks every batch against the one before it.

use sqlx::{AnyPool, Row};
use uuid::Uuid;

use super::record::{Batch, BatchHash, Position};
use super::{Corrupt, Fault, bigint, sought};

/// The number of bytes of batches that one query should return.
const CHUNK_BYTES: usize = 4 << 20;
const MOST_ROWS: usize = 4096;

/// A journal to read. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Journal {
    pool: AnyPool,
    id: Uuid,
}

impl Journal {
    pub(super) async fn open(pool: AnyPool) -> Result<Self, Fault> {
        let row = sqlx::query("SELECT journal FROM leader")
            .fetch_one(&pool)
            .await
            .map_err(Fault::database("reading the journal's UUID"))?;
        let text: String = row.get(0);
        let id = text.parse().map_err(|_| Fault::Row { table: "leader", what: format!("UUID {text:?}") })?;
        Ok(Self { pool, id })
    }

    pub(super) fn pool(&self) -> &AnyPool {
        &self.pool
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Returns the UUID of the journal. It is given when the journal is created, and a restored copy
    /// has the same one.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Returns where the journal ends.
    pub async fn head(&self) -> Result<Position, Fault> {
        let row = sqlx::query(HEAD)
            .fetch_optional(&self.pool)
            .await
            .map_err(Fault::database("reading the journal's end"))?;
        row.map_or(Ok(Position::START), |row| position(row.get(0), &row.get::<Vec<u8>, _>(1)))
    }

    /// Returns true if a batch of the journal ends at this position, or if it is the beginning.
    pub(super) async fn has(&self, position: Position) -> Result<bool, Fault> {
        has(&self.pool, position).await
    }

    /// Reads the batches, beginning with the one that contains `seq`.
    pub fn read_from(&self, seq: u64) -> BatchReader {
        self.reader(seq, None)
    }

    /// Reads the batches after `position`, which the first one has to continue.
    pub fn read_after(&self, position: Position) -> BatchReader {
        self.reader(position.seq + 1, Some(position))
    }

    fn reader(&self, from: u64, before: Option<Position>) -> BatchReader {
        BatchReader { pool: self.pool.clone(), from, before, rows: 16, is_behind: false }
    }
}

/// Reads the journal in commits. At the end it can be asked again for commits that were added since.
#[derive(Debug)]
pub struct BatchReader {
    pool: AnyPool,
    from: u64,
    before: Option<Position>,
    rows: usize,
    is_behind: bool,
}

impl BatchReader {
    /// Returns the next batches in order, some megabytes of them. Returns none at the journal's end.
    pub async fn next_chunk(&mut self) -> Result<Vec<Batch>, Fault> {
        let before = match self.before {
            Some(before) => before,
            None => *self.before.insert(self.position_before(self.from).await?),
        };
        let rows = sqlx::query(
            "SELECT first_seq, last_seq, hash, records FROM journal
             WHERE first_seq >= $1 ORDER BY first_seq LIMIT $2",
        )
        .bind(bigint(before.seq + 1))
        .bind(bigint(self.rows as u64))
        .fetch_all(&self.pool)
        .await
        .map_err(Fault::database("reading the journal"))?;

        self.is_behind = rows.len() == self.rows;
        let mut batches = Vec::with_capacity(rows.len());
        let (mut bytes, mut end) = (0, before);
        for row in rows {
            let first_seq = row.get::<i64, _>(0) as u64;
            let last_seq = row.get::<i64, _>(1) as u64;
            let records: Vec<u8> = row.get(3);
            bytes += records.len();
            let hash: Vec<u8> = row.get(2);
            let batch = check(end, first_seq, last_seq, &hash, records)
                .map_err(|source| Fault::Damaged { first_seq, source })?;
            end = batch.end();
            self.before = Some(end);
            if batch.last_seq() >= self.from {
                batches.push(batch);
            }
        }
        if bytes < CHUNK_BYTES / 2 {
            self.rows = (self.rows * 2).min(MOST_ROWS);
        } else if bytes > CHUNK_BYTES * 2 {
            self.rows = (self.rows / 2).max(1);
        }
        Ok(batches)
    }

    /// Returns true if the last chunk was full, so that there may be more. Otherwise it reached the
    /// journal's end as it was then.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns the position that the batch with `seq` follows: the end of the previous batch, or the
    /// beginning of the journal.
    async fn position_before(&self, seq: u64) -> Result<Position, Fault> {
        let row = sqlx::query(
            "SELECT last_seq, hash FROM journal
             WHERE first_seq < (SELECT MAX(first_seq) FROM journal WHERE first_seq <= $1)
             ORDER BY first_seq DESC LIMIT 1",
        )
        .bind(sought(seq))
        .fetch_optional(&self.pool)
        .await
        .map_err(Fault::database("finding a seq in the journal"))?;
        row.map_or(Ok(Position::START), |row| position(row.get(0), &row.get::<Vec<u8>, _>(1)))
    }
}

/// Returns true if a batch of the journal ends at this position, or if it is the beginning.
pub(super) async fn has(pool: &AnyPool, position: Position) -> Result<bool, Fault> {
    let batch = sqlx::query(
        "SELECT last_seq, hash FROM journal WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1",
    )
    .bind(bigint(position.seq))
    .fetch_optional(pool)
    .await
    .map_err(Fault::database("finding a place in the journal"))?;
    Ok(match batch {
        Some(row) => {
            row.get::<i64, _>(0) as u64 == position.seq && row.get::<Vec<u8>, _>(1) == position.hash.0
        }
        None => position == Position::START,
    })
}

/// Decodes a row of the journal, and checks that it continues at `before`.
fn check(
    before: Position,
    first_seq: u64,
    last_seq: u64,
    hash: &[u8],
    records: Vec<u8>,
) -> Result<Batch, Corrupt> {
    if first_seq != before.seq + 1 {
        return Err(Corrupt::Gap { expected: before.seq + 1 });
    }
    let batch = Batch::decode(records.into())?;
    if batch.first_seq() != first_seq || batch.last_seq() != last_seq || batch.end().hash.0 != hash {
        return Err(Corrupt::Columns { first_seq, last_seq });
    }
    if batch.before() != before { Err(Corrupt::Chain) } else { Ok(batch) }
}

/// Selects the journal's end: last seq and hash, or no row.
pub(super) const HEAD: &str = "SELECT last_seq, hash FROM journal ORDER BY first_seq DESC LIMIT 1";

/// Returns a position from its columns.
pub(super) fn position(seq: i64, hash: &[u8]) -> Result<Position, Fault> {
    let hash = hash
        .try_into()
        .map_err(|_| Fault::Row { table: "journal", what: format!("a hash of {} bytes", hash.len()) })?;
    Ok(Position { seq: seq as u64, hash: BatchHash(hash) })
}
