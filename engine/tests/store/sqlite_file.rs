//! Tests of what only a store in a file has.

use std::time::Duration;

use kubebid_engine::store::{
    AppendError, Fault, Journal, Resolution, Store, StoreLocation, StoreOptions, copy_sqlite,
};
use sqlx::Executor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::place::{TestPlace, append_all, batch, read_all};

fn path(place: &TestPlace) -> &Path {
    match &place.options.location {
        StoreLocation::Sqlite(path) => path,
        StoreLocation::Postgres(_) => unreachable!("it is a file"),
    }
}

#[tokio::test]
async fn a_second_engine_is_refused() {
    let place = TestPlace::sqlite();
    let (store, writer, _) = place.lead().await;
    let error = Store::open(&place.options).await.unwrap_err();
    assert!(matches!(error, Fault::InUse { .. }), "{error:?}");
    let file = path(&place).to_str().unwrap().to_owned();
    assert_eq!(error.to_string(), format!("another engine has {file} open (it holds {file}.lock)"));

    // The file stays locked until the writer, too, is dropped.
    drop(store);
    assert!(matches!(Store::open(&place.options).await, Err(Fault::InUse { .. })));
    drop(writer);
    place.open().await;
}

#[tokio::test]
async fn another_path_to_the_same_file_is_refused_too() {
    let place = TestPlace::sqlite();
    let _store = place.open().await;
    let alias = path(&place).with_file_name("alias.db");
    std::os::unix::fs::symlink(path(&place), &alias).unwrap();
    let answer = Store::open(&StoreOptions::new(StoreLocation::Sqlite(alias))).await;
    assert!(matches!(answer, Err(Fault::InUse { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let place = TestPlace::sqlite();
    std::fs::write(path(&place), "Dear diary, ".repeat(1000)).unwrap();
    let error = Store::open(&place.options).await.unwrap_err();
    assert!(matches!(error, Fault::OpenFile { .. } | Fault::Migrate(_)), "{error:?}");

    let nowhere = StoreOptions::from_url("sqlite:/no/such/folder/a.db").unwrap();
    let error = Store::open(&nowhere).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/folder/a.db"), "{error}");
}

#[tokio::test]
async fn a_journal_to_read_has_to_exist() {
    let place = TestPlace::sqlite();
    let answer = Journal::open_to_read(&place.options).await;
    assert!(matches!(answer, Err(Fault::OpenFile { .. })), "{answer:?}");
    assert!(!path(&place).exists());
}

#[tokio::test]
async fn a_url_is_a_path_or_a_server() {
    for (url, path) in
        [("sqlite:a/b.db", "a/b.db"), ("sqlite:///a b.db", "/a b.db"), ("sqlite:/a.db", "/a.db")]
    {
        match StoreOptions::from_url(url).unwrap().location {
            StoreLocation::Sqlite(found) => assert_eq!(found.to_str(), Some(path)),
            StoreLocation::Postgres(url) => panic!("{url}"),
        }
    }
    for url in ["", "sqlite:", "mysql://x", "/a.db"] {
        assert!(matches!(StoreOptions::from_url(url), Err(Fault::Url)), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_waits_for_a_person_who_writes_is_resolved() {
    let place = TestPlace::sqlite();
    let options = StoreOptions { patience: Duration::from_millis(200), ..place.options.clone() };
    let store = Store::open(&options).await.unwrap();
    let leadership = store.lead().await.unwrap();
    let mut writer = leadership.writer;
    let mut batches = append_all(&mut *writer, leadership.head, &[1]).await;

    let mut person = place.connect().await;
    person.execute("BEGIN IMMEDIATE").await.unwrap();
    let waiting = batch(batches[0].end(), 2);
    let answer = writer.append(&waiting).await;
    assert!(matches!(answer, Err(AppendError::Unknown { .. })), "{answer:?}");
    let answer = writer.resolve(&waiting).await;
    assert!(matches!(answer, Err(Fault::TimedOut { .. })), "{answer:?}");
    person.execute("ROLLBACK").await.unwrap();
    // The append may still have got its turn, or not. The answer says what the journal then has.
    let mut resolution = writer.resolve(&waiting).await;
    while let Err(Fault::TimedOut { .. }) = resolution {
        resolution = writer.resolve(&waiting).await;
    }
    match resolution.unwrap() {
        Resolution::Committed => (),
        Resolution::NotCommitted => writer.append(&waiting).await.unwrap(),
        Resolution::Fenced => panic!("by whom?"),
    }
    batches.push(waiting);
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

fn log_of(place: &TestPlace) -> PathBuf {
    let mut log = path(place).as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

#[tokio::test]
async fn a_file_that_is_removed_or_replaced_under_the_engine_is_not_written_on_silently() {
    let aside = |path: &Path| path.with_file_name("aside");
    let remove = |path: &Path| std::fs::rename(path, aside(path)).unwrap();
    let replace = |path: &Path| {
        std::fs::copy(path, aside(path)).unwrap();
        std::fs::rename(aside(path), path).unwrap();
    };
    for displace in [&remove as &dyn Fn(&Path), &replace] {
        let place = TestPlace::sqlite();
        let (_store, mut writer, head) = place.lead().await;
        let batches = append_all(&mut *writer, head, &[1]).await;
        displace(path(&place));
        let next = batch(batches[0].end(), 1);
        let answer = writer.append(&next).await;
        let Err(AppendError::Lost { source: fault @ Fault::Displaced { .. } }) = answer else {
            panic!("{answer:?}")
        };
        assert!(fault.to_string().contains("removed or replaced"), "{fault}");
        // No other file is made in its place either.
        let answer = writer.resolve(&next).await;
        assert!(matches!(answer, Err(Fault::Displaced { .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn a_log_that_is_removed_under_the_engine_is_noticed() {
    let place = TestPlace::sqlite();
    let (_store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1]).await;
    std::fs::remove_file(log_of(&place)).unwrap();
    let answer = writer.append(&batch(batches[0].end(), 1)).await;
    assert!(matches!(answer, Err(AppendError::Lost { source: Fault::Displaced { .. } })), "{answer:?}");
}

#[tokio::test]
async fn no_store_is_made_beside_the_log_of_another_one() {
    let place = TestPlace::sqlite();
    std::fs::write(log_of(&place), "what was written last").unwrap();
    let refused = Store::open(&place.options).await.unwrap_err();
    assert!(matches!(refused, Fault::Remains { .. }), "{refused:?}");
    assert!(refused.to_string().contains("--new-store"), "{refused}");
    assert!(!path(&place).exists());
    let store = Store::open(&StoreOptions { over_remains: true, ..place.options.clone() }).await.unwrap();
    assert_eq!(store.journal().head().await.unwrap().seq, 0);
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_files_of_a_store_and_of_its_copy_are_their_owners_only() {
    let place = TestPlace::sqlite();
    let (store, mut writer, head) = place.lead().await;
    append_all(&mut *writer, head, &[1]).await;
    assert_eq!((mode(path(&place)), mode(&log_of(&place))), (0o600, 0o600));
    let copy = path(&place).with_file_name("copy.db");
    copy_sqlite(path(&place), &copy, Duration::from_secs(10)).await.unwrap();
    assert_eq!(mode(&copy), 0o600);
    drop((store, writer));

    // A file that an earlier version made loses the rights of all but its owner and group.
    std::fs::set_permissions(path(&place), PermissionsExt::from_mode(0o644)).unwrap();
    let _store = place.open().await;
    assert_eq!(mode(path(&place)), 0o640);
}

#[tokio::test]
async fn reading_a_damaged_file_or_one_that_is_no_store_says_why() {
    let place = TestPlace::sqlite();
    drop(place.lead().await);
    let why = async || {
        let fault = Journal::open_to_read(&place.options).await.unwrap_err();
        assert!(fault.to_string().contains(path(&place).to_str().unwrap()), "{fault}");
        std::error::Error::source(&fault).unwrap().to_string()
    };
    std::fs::write(path(&place), "Dear diary, ".repeat(1000)).unwrap();
    let said = why().await;
    assert!(said.contains("not a database"), "{said}");
    std::fs::write(path(&place), "").unwrap();
    let said = why().await;
    assert!(said.contains("no such table"), "{said}");
}
