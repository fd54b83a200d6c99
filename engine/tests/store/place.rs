//! A fresh place for a store, and short functions for what tests do there.

use kubebid_engine::BEHAVIOUR;
use kubebid_engine::store::{
    Batch, BatchBuilder, BatchReader, Fault, JournalWriter, Leadership, Position, Store, StoreLocation,
    StoreOptions,
};
use kubebid_testkit::Cluster;
use sqlx::{AnyConnection, Connection};
use tempfile::TempDir;

pub(crate) struct TestPlace {
    pub(crate) options: StoreOptions,
    url: String,
    _folder: Option<TempDir>,
}

impl TestPlace {
    pub(crate) fn postgres() -> Self {
        Self::postgres_on(Cluster::shared())
    }

    pub(crate) fn postgres_on(cluster: &Cluster) -> Self {
        let url = cluster.database();
        Self { options: StoreOptions::new(StoreLocation::Postgres(url.clone())), url, _folder: None }
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a store #1 at 100%.db");
        let mut url = "sqlite:".to_owned();
        url.push_str(&path.to_str().unwrap().replace('%', "%25").replace('#', "%23").replace(' ', "%20"));
        Self { options: StoreOptions::new(StoreLocation::Sqlite(path)), url, _folder: Some(folder) }
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.options).await.unwrap()
    }

    /// Opens the store and takes the right to append.
    pub(crate) async fn lead(&self) -> (Store, Box<dyn JournalWriter>, Position) {
        let store = self.open().await;
        let Leadership { writer, head, .. } = store.lead().await.unwrap();
        (store, writer, head)
    }

    /// Opens a connection that the store does not know of.
    pub(crate) async fn connect(&self) -> AnyConnection {
        sqlx::any::install_default_drivers();
        AnyConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// Returns a batch of `count` small records.
pub(crate) fn batch(after: Position, count: u32) -> Batch {
    batch_saying(after, count, "")
}

/// Returns a batch of `count` small records, which differ with `words`.
pub(crate) fn batch_saying(after: Position, count: u32, words: &str) -> Batch {
    let mut builder = BatchBuilder::new(after);
    for n in 1..=u64::from(count) {
        let seq = after.seq + n;
        builder.push(1_000_000 + seq, BEHAVIOUR, format!("command {seq} {words}").as_bytes());
    }
    builder.finish()
}

/// Appends batches with these numbers of records.
pub(crate) async fn append_all(
    writer: &mut dyn JournalWriter,
    mut head: Position,
    counts: &[u32],
) -> Vec<Batch> {
    let mut batches = Vec::new();
    for count in counts {
        let batch = batch(head, *count);
        writer.append(&batch).await.unwrap();
        head = batch.end();
        batches.push(batch);
    }
    batches
}

/// Reads everything until the journal's end.
pub(crate) async fn read_all(mut reader: BatchReader) -> Result<Vec<Batch>, Fault> {
    let mut all = Vec::new();
    loop {
        let chunk = reader.next_chunk().await?;
        if chunk.is_empty() {
            return Ok(all);
        }
        all.extend(chunk);
    }
}
