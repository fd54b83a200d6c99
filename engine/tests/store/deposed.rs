//! Tests that an engine that was overtaken writes nothing beside the journal, however late its statements come.

use std::collections::{BTreeMap, BTreeSet};

use kubebid_engine::store::{
    Account, ClockMark, Fault, InstanceType, Labels, Limits, NewToken, NodeData, NodeDataKey, NodeDataKind,
    Role,
};
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::place::TestPlace;

crate::on_both! {
    a_deposed_leader_writes_nothing_beside_the_journal
    a_leader_writes_beside_the_journal_under_a_raised_epoch
}

fn account(open_bids: u64) -> Account {
    let limits = Limits { open_bids: Some(open_bids), ..Limits::default() };
    Account { name: "acme".to_owned(), limits, created_at_us: 5 }
}

fn token(byte: u8) -> NewToken {
    let roles = BTreeSet::from([Role::Tenant]);
    NewToken { sha256: [byte; 32], account: "acme".to_owned(), roles, note: String::new(), created_at_us: 6 }
}

fn instance_type(price: u64) -> InstanceType {
    let (allocatable, node_labels) = (BTreeMap::new(), BTreeMap::new());
    InstanceType { name: "gpu".to_owned(), allocatable, node_labels, on_demand_price_micros: Some(price) }
}

fn labels(value: &str) -> Labels {
    Labels::from([("team".to_owned(), value.to_owned())])
}

/// What another engine does when it takes the lead.
const TAKE_OVER: &str = "UPDATE leader SET epoch = epoch + 1, holder = 'another' WHERE one = 1";

async fn a_deposed_leader_writes_nothing_beside_the_journal(place: TestPlace) {
    let (store, _writer, _) = place.lead().await;
    let rows = store.rows();
    let (config, access) = (NodeDataKey::config(1), NodeDataKey::access(1));
    let data = |seq: u64| NodeData::new(b"ssh".to_vec().into()).brought_by(seq);
    rows.put_account(&account(1)).await.unwrap();
    let id = rows.add_token(&token(1)).await.unwrap().unwrap();
    rows.put_instance_type(&instance_type(1)).await.unwrap();
    rows.put_labels([(1, &labels("blue"))]).await.unwrap();
    rows.put_node_data(&[(config, data(1))]).await.unwrap();
    let mark = |offset_us| ClockMark { boot_id: "this".to_owned(), offset_us };
    store.note_clock(&mark(1)).await.unwrap();
    // Without another leader, a write that changes nothing is no fault.
    rows.put_node_data(&[(config, data(1))]).await.unwrap();
    assert!(!rows.revoke_token(id + 1, 9).await.unwrap());
    assert_eq!(rows.add_token(&NewToken { account: "nobody".to_owned(), ..token(2) }).await.unwrap(), None);

    place.connect().await.execute(TAKE_OVER).await.unwrap();
    let refused = [
        rows.put_account(&account(2)).await,
        rows.add_token(&token(3)).await.map(drop),
        rows.revoke_token(id, 9).await.map(drop),
        rows.put_instance_type(&instance_type(2)).await,
        rows.put_labels([(1, &labels("red")), (2, &labels("red"))]).await,
        rows.put_node_data(&[(config, data(2)), (access, data(2))]).await,
    ];
    for (n, refused) in refused.into_iter().enumerate() {
        assert!(matches!(refused, Err(Fault::Deposed)), "{n}: {refused:?}");
    }
    rows.clear_node_data(NodeDataKind::Config, &[1]).await.unwrap();
    let _ = store.note_clock(&mark(2)).await;

    assert_eq!(rows.account("acme").await.unwrap(), Some(account(1)));
    let tokens = rows.tokens(None, 0, 9).await.unwrap();
    assert_eq!((tokens.len(), tokens[0].revoked_at_us), (1, None));
    assert_eq!(rows.instance_type("gpu").await.unwrap(), Some(instance_type(1)));
    assert_eq!(rows.labels_of(&[1, 2]).await.unwrap(), BTreeMap::from([(1, labels("blue"))]));
    assert_eq!(rows.node_data(config).await.unwrap(), Some(data(1)));
    assert_eq!(rows.node_data(access).await.unwrap(), None);
    assert_eq!(store.clock_mark().await.unwrap(), Some(mark(1)));
}

async fn a_leader_writes_beside_the_journal_under_a_raised_epoch(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = crate::place::append_all(&mut *writer, head, &[1]).await;
    writer.resolve(&batches[0]).await.unwrap();
    store.rows().put_account(&account(1)).await.unwrap();
    // The next one to lead by this store writes too.
    let _led = store.lead().await.unwrap();
    store.rows().put_account(&account(2)).await.unwrap();
    assert_eq!(store.rows().account("acme").await.unwrap(), Some(account(2)));
}

/// Waits until this many sessions wait for a lock.
async fn until_they_wait(place: &TestPlace, sessions: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut connection = place.connect().await;
    while sqlx::query(waiting).fetch_one(&mut connection).await.unwrap().get::<i64, _>(0) < sessions {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_comes_while_another_engine_takes_over_is_refused() {
    let place = TestPlace::postgres();
    let (store, _writer, _) = place.lead().await;
    store.rows().put_account(&account(1)).await.unwrap();
    let mut other = place.connect().await;
    other.execute(AssertSqlSafe(format!("BEGIN; {TAKE_OVER}"))).await.unwrap();
    let late = tokio::spawn({
        let store = store.clone();
        async move { store.rows().put_account(&account(2)).await }
    });
    until_they_wait(&place, 1).await;
    other.execute("COMMIT").await.unwrap();
    let late = late.await.unwrap();
    assert!(matches!(late, Err(Fault::Deposed)), "{late:?}");
    assert_eq!(store.rows().account("acme").await.unwrap(), Some(account(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_engine_takes_over_between_the_check_of_a_write_and_its_commit() {
    let place = TestPlace::postgres();
    let (store, _writer, _) = place.lead().await;
    store.rows().put_account(&account(1)).await.unwrap();
    // The statement has passed its check when it comes to this row.
    let mut pause = place.connect().await;
    pause.execute("BEGIN; SELECT name FROM accounts FOR UPDATE").await.unwrap();
    let writing = tokio::spawn({
        let store = store.clone();
        async move { store.rows().put_account(&account(2)).await }
    });
    until_they_wait(&place, 1).await;
    let next = place.open().await;
    let leading = tokio::spawn(async move { next.lead().await.map(|led| (next, led)) });
    // It waits for the write.
    until_they_wait(&place, 2).await;
    pause.execute("COMMIT").await.unwrap();
    writing.await.unwrap().unwrap();
    let (next, _led) = leading.await.unwrap().unwrap();
    // The write was answered before, so the next leader has it.
    assert_eq!(next.rows().account("acme").await.unwrap(), Some(account(2)));
    let late = store.rows().put_account(&account(3)).await;
    assert!(matches!(late, Err(Fault::Deposed)), "{late:?}");
}
