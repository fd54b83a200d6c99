//! Rows of snapshots. They only save time, so a broken one is skipped.
//!
//! The body is written in parts, each in its own commit, so that the journal never waits for more than
//! one of them and no row is very large. The snapshot counts once its row in `snapshot` exists.

use std::sync::Arc;

use sqlx::any::AnyRow;
use sqlx::{AnyPool, Row};
use tokio::sync::Mutex;
use tracing::warn;
use xxhash_rust::xxh3::xxh3_128;

use super::journal::{self, position};
use super::record::Position;
use super::rows::{Turn, number};
use super::{Fault, bigint, sought};

const PART_BYTES: usize = 4 << 20;
const KEPT: i64 = 2;

/// The state of the exchange at a place of its journal. The store does not look into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The end of the last batch it contains.
    pub after: Position,
    /// The market's time, in microseconds since 1970.
    pub at_us: u64,
    /// The state hash of the core. A reader compares it with the restored state.
    pub state_hash: Vec<u8>,
    /// The state, as `kubebid_core::Exchange::snapshot` returns it.
    pub body: Vec<u8>,
}

/// The snapshots of a journal. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Snapshots {
    pool: AnyPool,
    turn: Turn,
    /// Held while a snapshot is saved, because two of the same place would remove each other's parts.
    saving: Arc<Mutex<()>>,
}

impl Snapshots {
    pub(super) fn new(pool: AnyPool, turn: Turn) -> Self {
        Self { pool, turn, saving: Arc::default() }
    }

    /// Saves a snapshot, and deletes all but the last two.
    pub async fn save(&self, snapshot: &Snapshot) -> Result<(), Fault> {
        let _saving = self.saving.lock().await;
        self.write(snapshot).await.map_err(Fault::database("saving a snapshot"))
    }

    async fn write(&self, snapshot: &Snapshot) -> Result<(), sqlx::Error> {
        let seq = bigint(snapshot.after.seq);
        for leftover in ["DELETE FROM snapshot WHERE seq = $1", "DELETE FROM snapshot_part WHERE seq = $1"] {
            let _turn = self.turn.take().await;
            sqlx::query(leftover).bind(seq).execute(&self.pool).await?;
        }
        for (part, body) in snapshot.body.chunks(PART_BYTES).enumerate() {
            let _turn = self.turn.take().await;
            sqlx::query("INSERT INTO snapshot_part (seq, part, body) VALUES ($1, $2, $3)")
                .bind(seq)
                .bind(bigint(part as u64))
                .bind(body)
                .execute(&self.pool)
                .await?;
        }
        let _turn = self.turn.take().await;
        sqlx::query(
            "INSERT INTO snapshot (seq, journal_hash, state_hash, at_us, bytes, checksum)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(seq)
        .bind(&snapshot.after.hash.0[..])
        .bind(&snapshot.state_hash[..])
        .bind(bigint(snapshot.at_us))
        .bind(bigint(snapshot.body.len() as u64))
        .bind(&checksum(snapshot)[..])
        .execute(&self.pool)
        .await?;
        sqlx::query(
            "DELETE FROM snapshot WHERE seq NOT IN (SELECT seq FROM snapshot ORDER BY seq DESC LIMIT $1)",
        )
        .bind(KEPT)
        .execute(&self.pool)
        .await?;
        sqlx::query("DELETE FROM snapshot_part WHERE seq < (SELECT MIN(seq) FROM snapshot)")
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Returns the newest snapshot that is complete and belongs to this journal, if there is one.
    /// Others are skipped with a warning.
    pub async fn load(&self) -> Result<Option<Snapshot>, Fault> {
        self.load_up_to(u64::MAX).await
    }

    /// Works like [`Snapshots::load`], for snapshots that contain nothing after `seq`.
    pub async fn load_up_to(&self, seq: u64) -> Result<Option<Snapshot>, Fault> {
        let rows = sqlx::query(
            "SELECT seq, journal_hash, state_hash, at_us, bytes, checksum FROM snapshot
             WHERE seq <= $1 ORDER BY seq DESC",
        )
        .bind(sought(seq))
        .fetch_all(&self.pool)
        .await
        .map_err(Fault::database("listing the snapshots"))?;
        for row in rows {
            match self.load_one(&row).await? {
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(why) => warn!(seq = number(&row, 0), why, "a snapshot is skipped"),
            }
        }
        Ok(None)
    }

    async fn load_one(&self, row: &AnyRow) -> Result<Result<Snapshot, &'static str>, Fault> {
        let Ok(after) = position(row.get(0), &row.get::<Vec<u8>, _>(1)) else {
            return Ok(Err("its journal hash is not a hash"));
        };
        if !self.is_in_journal(after).await? {
            return Ok(Err("the journal has no such place"));
        }
        self.read_one(row, after).await
    }

    /// Returns true if the snapshot of this place is complete and undamaged, whatever journal it belongs to.
    pub(super) async fn is_sound(&self, place: Position) -> Result<bool, Fault> {
        let row = sqlx::query(
            "SELECT seq, journal_hash, state_hash, at_us, bytes, checksum FROM snapshot WHERE seq = $1",
        )
        .bind(bigint(place.seq))
        .fetch_optional(&self.pool)
        .await
        .map_err(Fault::database("reading a snapshot"))?;
        let Some(row) = row else { return Ok(false) };
        Ok(self.read_one(&row, place).await?.is_ok())
    }

    async fn read_one(&self, row: &AnyRow, after: Position) -> Result<Result<Snapshot, &'static str>, Fault> {
        let bytes = number(row, 4);
        let mut body = Vec::new();
        while (body.len() as u64) < bytes {
            let part = (body.len() / PART_BYTES) as u64;
            let part = sqlx::query("SELECT body FROM snapshot_part WHERE seq = $1 AND part = $2")
                .bind(bigint(after.seq))
                .bind(bigint(part))
                .fetch_optional(&self.pool)
                .await
                .map_err(Fault::database("loading a snapshot"))?;
            match part.map(|part| part.get::<Vec<u8>, _>(0)) {
                Some(part) if !part.is_empty() => body.extend_from_slice(&part),
                Some(_) | None => return Ok(Err("a part is missing")),
            }
        }
        let snapshot = Snapshot { after, at_us: number(row, 3), state_hash: row.get(2), body };
        if checksum(&snapshot)[..] != row.get::<Vec<u8>, _>(5) {
            return Ok(Err("its checksum is wrong"));
        }
        Ok(Ok(snapshot))
    }

    /// Returns where the snapshots are in the journal, newest first.
    pub(super) async fn places(&self) -> Result<Vec<Position>, Fault> {
        let rows = sqlx::query("SELECT seq, journal_hash FROM snapshot ORDER BY seq DESC")
            .fetch_all(&self.pool)
            .await
            .map_err(Fault::database("listing the snapshots"))?;
        // A snapshot whose hash cannot be read is damaged. A reader skips it.
        Ok(rows.iter().filter_map(|row| position(row.get(0), &row.get::<Vec<u8>, _>(1)).ok()).collect())
    }

    /// Deletes the snapshots that do not belong to this journal.
    pub async fn forget_foreign(&self) -> Result<(), Fault> {
        for place in self.places().await? {
            if self.is_in_journal(place).await? {
                continue;
            }
            for sql in ["DELETE FROM snapshot WHERE seq = $1", "DELETE FROM snapshot_part WHERE seq = $1"] {
                let _turn = self.turn.take().await;
                let forgotten = sqlx::query(sql).bind(bigint(place.seq)).execute(&self.pool).await;
                forgotten.map_err(Fault::database("forgetting a snapshot"))?;
            }
        }
        Ok(())
    }

    pub(super) async fn is_in_journal(&self, position: Position) -> Result<bool, Fault> {
        journal::has(&self.pool, position).await
    }
}

/// Returns the checksum of everything in the snapshot.
fn checksum(snapshot: &Snapshot) -> [u8; 16] {
    let body = xxh3_128(&snapshot.body).to_le_bytes();
    let mut all = Vec::with_capacity(64 + snapshot.state_hash.len());
    all.extend_from_slice(&snapshot.after.seq.to_le_bytes());
    all.extend_from_slice(&snapshot.after.hash.0);
    all.extend_from_slice(&snapshot.at_us.to_le_bytes());
    all.extend_from_slice(&snapshot.state_hash);
    all.extend_from_slice(&body);
    xxh3_128(&all).to_le_bytes()
}
