//! Tests of a SQLite file and the write-ahead log beside it: which of them belong together.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubebid_engine::store::{
    Fault, Journal, JournalWriter, Position, Store, StoreLocation, StoreOptions, copy_sqlite,
};
use sqlx::Executor;
use tempfile::TempDir;

use crate::place::{TestPlace, append_all};

const PATIENCE: Duration = Duration::from_secs(10);

fn path(place: &TestPlace) -> &Path {
    match &place.options.location {
        StoreLocation::Sqlite(path) => path,
        StoreLocation::Postgres(_) => unreachable!("it is a file"),
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// A file and a log, as they were at some moment. As long as nothing writes, they are what a crash leaves.
#[derive(Clone)]
struct Image {
    file: Vec<u8>,
    log: Vec<u8>,
}

impl Image {
    fn of(place: &TestPlace) -> Image {
        let log = fs::read(log_of(path(place))).unwrap_or_default();
        Image { file: fs::read(path(place)).unwrap(), log }
    }

    /// Opens the store that the image is. Returns where its journal ends.
    async fn open(&self) -> Result<Position, Fault> {
        let folder = tempfile::tempdir().unwrap();
        let options = self.put(&folder);
        let StoreLocation::Sqlite(path) = &options.location else { unreachable!("it is a file") };
        let read = match Journal::open_to_read(&options).await {
            Ok(journal) => Ok(journal.head().await?),
            Err(fault) => Err(fault),
        };
        let opened = match Store::open(&options).await {
            Ok(store) => Ok(store.journal().head().await?),
            Err(fault) => Err(fault),
        };
        if let Err(Fault::ForeignLog { .. }) = &opened {
            assert!(matches!(read, Err(Fault::ForeignLog { .. })), "who reads is refused as well: {read:?}");
            assert!(fs::read(path).unwrap() == self.file, "the file is as it was");
            assert!(fs::read(log_of(path)).unwrap() == self.log, "and its log");
        }
        opened
    }

    fn put(&self, folder: &TempDir) -> StoreOptions {
        let path = folder.path().join("kubebid.db");
        fs::write(&path, &self.file).unwrap();
        if !self.log.is_empty() {
            fs::write(log_of(&path), &self.log).unwrap();
        }
        StoreOptions::new(StoreLocation::Sqlite(path))
    }
}

/// Appends batches that need pages of their own. Returns the journal's end.
async fn append_large(writer: &mut dyn JournalWriter, head: Position, counts: &[u32]) -> Position {
    append_all(writer, head, counts).await.last().unwrap().end()
}

/// Copies the log into the file. The next commit begins the log anew.
async fn checkpoint(place: &TestPlace) {
    place.connect().await.execute("PRAGMA wal_checkpoint(PASSIVE)").await.unwrap();
}

fn assert_foreign(opened: Result<Position, Fault>) {
    let Err(fault @ Fault::ForeignLog { .. }) = opened else { panic!("{opened:?}") };
    assert!(fault.to_string().contains("does not belong to"), "{fault}");
}

#[tokio::test]
async fn a_file_alone_is_complete_after_it_was_closed() {
    let place = TestPlace::sqlite();
    let (store, mut writer, head) = place.lead().await;
    let end = append_large(&mut *writer, head, &[3, 200, 1]).await;
    let alone = Image { log: Vec::new(), ..Image::of(&place) };
    assert!(!matches!(alone.open().await, Ok(found) if found == end), "it is in the log as yet");
    drop(writer);
    store.close().await.unwrap();
    let alone = Image { log: Vec::new(), ..Image::of(&place) };
    assert_eq!(alone.open().await.unwrap(), end);
}

#[tokio::test]
async fn a_reader_that_keeps_the_log_in_use_is_reported_at_the_end() {
    let place = TestPlace::sqlite();
    let (store, mut writer, head) = place.lead().await;
    let mut reader = place.connect().await;
    reader.execute("BEGIN; SELECT count(*) FROM journal").await.unwrap();
    let end = append_large(&mut *writer, head, &[3]).await;
    drop(writer);
    let closed = store.close().await;
    assert!(matches!(closed, Err(Fault::LogRemains { .. })), "{closed:?}");
    reader.execute("ROLLBACK").await.unwrap();
    assert_eq!(Image::of(&place).open().await.unwrap(), end);
}

#[tokio::test]
async fn a_crash_leaves_a_file_and_its_log_whenever_it_comes() {
    let place = TestPlace::sqlite();
    let (_store, mut writer, mut head) = place.lead().await;
    for round in 0..6 {
        for counts in [&[1][..], &[400, 3], &[1, 1, 1, 2000]] {
            head = append_large(&mut *writer, head, counts).await;
            assert_eq!(Image::of(&place).open().await.unwrap(), head, "round {round}");
        }
        let before = Image::of(&place);
        checkpoint(&place).await;
        assert_eq!(Image::of(&place).open().await.unwrap(), head, "round {round}, copied into the file");
        // A part of the pages, in their order, is in the file when the crash comes.
        let after = Image::of(&place).file;
        for end in (0..=after.len()).step_by(4096 * (1 + round)) {
            let mut file = before.file.clone();
            file.resize(file.len().max(end), 0);
            file[..end].copy_from_slice(&after[..end]);
            let opened = Image { file, log: before.log.clone() }.open().await;
            assert_eq!(opened.unwrap(), head, "round {round}, the first {end} bytes of {}", after.len());
        }
    }
}

#[tokio::test]
async fn an_earlier_file_whose_log_has_gone_on_is_the_same_store() {
    let place = TestPlace::sqlite();
    let (_store, mut writer, head) = place.lead().await;
    let head = append_large(&mut *writer, head, &[5, 100]).await;
    checkpoint(&place).await;
    let head = append_large(&mut *writer, head, &[1]).await;
    let earlier = Image::of(&place);
    let head = append_large(&mut *writer, head, &[500, 2]).await;
    let log = Image::of(&place).log;
    assert_eq!(Image { log, ..earlier }.open().await.unwrap(), head);
}

#[tokio::test]
async fn a_backup_beside_the_log_of_the_original_is_refused() {
    let place = TestPlace::sqlite();
    let (_store, mut writer, mut head) = place.lead().await;
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5 {
        head = append_large(&mut *writer, head, &[1, 300]).await;
        let copy = folder.path().join(format!("{round}.db"));
        copy_sqlite(path(&place), &copy, PATIENCE).await.unwrap();
        let backup = fs::read(&copy).unwrap();
        for counts in [&[1][..], &[700, 2]] {
            head = append_large(&mut *writer, head, counts).await;
            let log = Image::of(&place).log;
            assert_foreign(Image { file: backup.clone(), log }.open().await);
        }
        if round % 2 == 1 {
            checkpoint(&place).await;
        }
    }
}

#[tokio::test]
async fn an_earlier_copy_of_the_file_beside_a_log_that_began_anew_is_refused() {
    let place = TestPlace::sqlite();
    let (_store, mut writer, head) = place.lead().await;
    let mut head = append_large(&mut *writer, head, &[5, 300]).await;
    checkpoint(&place).await;
    let earlier = Image::of(&place).file;
    for counts in [&[900][..], &[1], &[1, 1], &[1200]] {
        head = append_large(&mut *writer, head, &[400]).await;
        checkpoint(&place).await;
        head = append_large(&mut *writer, head, counts).await;
        assert_foreign(Image { file: earlier.clone(), log: Image::of(&place).log }.open().await);
    }
}

#[tokio::test]
async fn the_log_of_another_store_is_refused() {
    let (one, two) = (TestPlace::sqlite(), TestPlace::sqlite());
    let (_one, mut writer, head) = one.lead().await;
    append_large(&mut *writer, head, &[100, 1]).await;
    checkpoint(&one).await;
    let (_two, mut writer, head) = two.lead().await;
    append_large(&mut *writer, head, &[3, 500]).await;
    assert_foreign(Image { file: Image::of(&one).file, log: Image::of(&two).log }.open().await);
}

#[tokio::test]
async fn a_new_store_over_the_remains_of_another_has_nothing_of_it() {
    let place = TestPlace::sqlite();
    let (_store, mut writer, head) = place.lead().await;
    append_large(&mut *writer, head, &[100]).await;
    let folder = tempfile::tempdir().unwrap();
    let options = Image { file: Vec::new(), ..Image::of(&place) }.put(&folder);
    let refused = Store::open(&options).await.unwrap_err();
    assert!(matches!(refused, Fault::Remains { .. }), "{refused:?}");
    let store = Store::open(&StoreOptions { over_remains: true, ..options }).await.unwrap();
    assert_eq!(store.journal().head().await.unwrap(), Position::START);
}

#[tokio::test]
async fn a_later_copy_of_the_file_beside_an_earlier_log_is_refused() {
    let place = TestPlace::sqlite();
    let (_store, mut writer, head) = place.lead().await;
    let mut head = append_large(&mut *writer, head, &[5, 300]).await;
    for counts in [&[400][..], &[1], &[2, 900]] {
        head = append_large(&mut *writer, head, counts).await;
        let earlier = Image::of(&place).log;
        checkpoint(&place).await;
        for _ in 0..2 {
            head = append_large(&mut *writer, head, &[500]).await;
            checkpoint(&place).await;
            assert_foreign(Image { file: Image::of(&place).file, log: earlier.clone() }.open().await);
        }
    }
}

#[tokio::test]
async fn a_journal_from_which_a_person_has_deleted_rows_is_still_that_of_its_file() {
    let place = TestPlace::sqlite();
    let (store, mut writer, head) = place.lead().await;
    let kept = append_large(&mut *writer, head, &[5, 300]).await;
    append_large(&mut *writer, kept, &[400, 1, 700]).await;
    checkpoint(&place).await;
    let delete = format!("DELETE FROM journal WHERE last_seq > {}", kept.seq);
    place.connect().await.execute(sqlx::AssertSqlSafe(delete)).await.unwrap();
    // That the tables have more is for others to say.
    assert_eq!(Image::of(&place).open().await.unwrap(), kept);
    drop(store);
}
