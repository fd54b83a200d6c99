//! Copies a store while an engine runs, and gives the copy another journal UUID.

use std::path::Path;
use std::time::Duration;

use sqlx::Connection;
use uuid::Uuid;

use super::sqlite::{Sqlite, make_private, number_copy};
use super::{Fault, LeaseCondition, Store, bigint};

/// Copies a SQLite file as it is at one moment, while an engine may write to it.
///
/// # Errors
/// `copy` exists already, or cannot be written.
pub async fn copy_sqlite(file: &Path, copy: &Path, patience: Duration) -> Result<(), Fault> {
    let doing = "copying the file";
    let mut connection = Sqlite::found_to_read(file, patience).await?.connect_as_it_is().await?;
    make_private(copy)?;
    let copied = sqlx::query("VACUUM INTO ?").bind(copy.to_string_lossy().into_owned());
    copied.execute(&mut connection).await.map_err(Fault::database(doing))?;
    connection.close().await.map_err(Fault::database(doing))?;
    number_copy(copy, patience).await
}

impl Store {
    /// Gives the journal another UUID, so that no cursor of the old journal is valid in this one.
    /// Returns the old and the new UUID. Returns None and changes nothing if an engine leads and is
    /// alive.
    pub async fn rename_journal(&self) -> Result<Option<(Uuid, Uuid)>, Fault> {
        let doing = "giving the journal another UUID";
        // An earlier leader is fenced now, and the lease keeps others from taking over.
        let Some(led) = self.lead_by_lease(LeaseCondition::LapsedOrDead, Duration::from_secs(10)).await?
        else {
            return Ok(None);
        };
        let (old, new) = (self.journal.id(), Uuid::new_v4());
        // Another engine may have taken the lead since. Its cursors already name the journal as it
        // found it.
        let renamed = sqlx::query("UPDATE leader SET journal = $1 WHERE one = 1 AND epoch = $2")
            .bind(new.to_string())
            .bind(bigint(led.writer.epoch()))
            .execute(self.journal.pool())
            .await
            .map_err(Fault::database(doing))?;
        if let Some(lease) = led.lease {
            lease.give_back().await?;
        }
        drop(led.writer);
        Ok((renamed.rows_affected() == 1).then_some((old, new)))
    }
}
