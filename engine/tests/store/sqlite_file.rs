//! What is special about a store in a file.

use std::time::Duration;

use kubebid_engine::store::{AppendError, Fault, Place, Resolution, Store, StoreOptions};
use sqlx::Executor;

use crate::place::{TestPlace, append_all, batch, read_all};

fn path(place: &TestPlace) -> &std::path::Path {
    match &place.options.place {
        Place::Sqlite(path) => path,
        Place::Postgres(_) => unreachable!("it is a file"),
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

    // The file is ours until the writer, too, has gone.
    drop(store);
    assert!(matches!(Store::open(&place.options).await, Err(Fault::InUse { .. })));
    drop(writer);
    place.open().await;
}

#[tokio::test]
async fn another_name_of_the_same_file_does_not_help() {
    let place = TestPlace::sqlite();
    let _store = place.open().await;
    let alias = path(&place).with_file_name("alias.db");
    std::os::unix::fs::symlink(path(&place), &alias).unwrap();
    let answer = Store::open(&StoreOptions::new(Place::Sqlite(alias))).await;
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
    let answer = kubebid_engine::store::Journal::open_to_read(&place.options).await;
    assert!(matches!(answer, Err(Fault::OpenFile { .. })), "{answer:?}");
    assert!(!path(&place).exists());
}

#[tokio::test]
async fn a_url_is_a_path_or_a_server() {
    for (url, path) in
        [("sqlite:a/b.db", "a/b.db"), ("sqlite:///a b.db", "/a b.db"), ("sqlite:/a.db", "/a.db")]
    {
        match StoreOptions::from_url(url).unwrap().place {
            Place::Sqlite(found) => assert_eq!(found.to_str(), Some(path)),
            Place::Postgres(url) => panic!("{url}"),
        }
    }
    for url in ["", "sqlite:", "mysql://x", "/a.db"] {
        assert!(matches!(StoreOptions::from_url(url), Err(Fault::Url)), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_behind_a_person_who_writes_is_resolved() {
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
    // The append may still have got its turn, or not; the answer is what the journal then has.
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
