//! Tests of snapshots: the newest complete one is used.

use kubebid_engine::store::{BatchHash, Position, Snapshot};
use sqlx::Row;

use crate::place::{TestPlace, append_all, batch_saying};

crate::on_both! {
    a_store_without_snapshots_loads_none
    the_newest_snapshot_is_loaded
    a_snapshot_of_many_parts_comes_back
    the_last_two_are_kept
    saving_the_same_place_again_replaces
    a_damaged_snapshot_is_skipped
    a_snapshot_without_all_its_parts_is_skipped
    a_snapshot_of_another_history_is_skipped
    the_newest_up_to_a_seq_is_loaded
    a_snapshot_ahead_of_a_journal_that_was_restored_is_not_used
}

fn snapshot(after: Position, words: &str) -> Snapshot {
    let body = format!("the state {words}").into_bytes();
    Snapshot { after, at_us: 1_000 + after.seq, state_hash: vec![after.seq as u8; 8], body }
}

async fn a_store_without_snapshots_loads_none(place: TestPlace) {
    let store = place.open().await;
    assert_eq!(store.snapshots().load().await.unwrap(), None);
    let empty = Snapshot { body: vec![], ..snapshot(Position::START, "") };
    store.snapshots().save(&empty).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), Some(empty));
}

async fn the_newest_snapshot_is_loaded(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[2, 3]).await;
    let first = snapshot(batches[0].end(), "one");
    store.snapshots().save(&first).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), Some(first));
    let second = snapshot(batches[1].end(), "two");
    store.snapshots().save(&second).await.unwrap();
    drop((store, writer));
    assert_eq!(place.open().await.snapshots().load().await.unwrap(), Some(second));
}

async fn a_snapshot_of_many_parts_comes_back(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1, 1]).await;
    let body: Vec<u8> = (0..9_000_001_u32).map(|n| (n % 251) as u8).collect();
    let large = Snapshot { body, ..snapshot(batches[0].end(), "") };
    store.snapshots().save(&large).await.unwrap();
    assert!(store.snapshots().load().await.unwrap() == Some(large));
    let even = Snapshot { body: vec![9; 8 << 20], ..snapshot(batches[1].end(), "") };
    store.snapshots().save(&even).await.unwrap();
    assert!(store.snapshots().load().await.unwrap() == Some(even));
}

async fn the_last_two_are_kept(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1, 1, 1, 1]).await;
    for batch in &batches {
        store.snapshots().save(&snapshot(batch.end(), "")).await.unwrap();
    }
    let mut connection = place.connect().await;
    for table in ["SELECT seq FROM snapshot ORDER BY seq", "SELECT seq FROM snapshot_part ORDER BY seq"] {
        let rows = sqlx::query(table).fetch_all(&mut connection).await.unwrap();
        let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(seqs, [3, 4], "{table}");
    }
}

async fn saving_the_same_place_again_replaces(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1]).await;
    for words in ["once", "twice"] {
        let snapshot = snapshot(batches[0].end(), words);
        store.snapshots().save(&snapshot).await.unwrap();
        assert_eq!(store.snapshots().load().await.unwrap(), Some(snapshot));
    }
}

async fn a_damaged_snapshot_is_skipped(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1, 1]).await;
    let first = snapshot(batches[0].end(), "one");
    store.snapshots().save(&first).await.unwrap();
    let mut second = snapshot(batches[1].end(), "two");
    store.snapshots().save(&second).await.unwrap();

    let mut connection = place.connect().await;
    let flip = "UPDATE snapshot_part SET body = $1 WHERE seq = $2";
    second.body[3] ^= 1;
    sqlx::query(flip).bind(&second.body[..]).bind(2_i64).execute(&mut connection).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), Some(first));
    sqlx::query("UPDATE snapshot SET at_us = 7 WHERE seq = 1").execute(&mut connection).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), None);
    second.body[3] ^= 1;
    sqlx::query(flip).bind(&second.body[..]).bind(2_i64).execute(&mut connection).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), Some(second));
}

async fn a_snapshot_without_all_its_parts_is_skipped(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1]).await;
    store.snapshots().save(&snapshot(batches[0].end(), "")).await.unwrap();
    sqlx::query("DELETE FROM snapshot_part").execute(&mut place.connect().await).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), None);
}

async fn a_snapshot_of_another_history_is_skipped(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[2, 2]).await;
    let first = snapshot(batches[0].end(), "");
    store.snapshots().save(&first).await.unwrap();
    let ahead = Position { seq: 9, hash: BatchHash([1; 16]) };
    store.snapshots().save(&snapshot(ahead, "")).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), Some(first.clone()));
    let between = Position { seq: 3, ..batches[1].end() };
    sqlx::query("DELETE FROM snapshot WHERE seq = 9").execute(&mut place.connect().await).await.unwrap();
    store.snapshots().save(&snapshot(between, "")).await.unwrap();
    assert_eq!(store.snapshots().load().await.unwrap(), Some(first));
}

async fn the_newest_up_to_a_seq_is_loaded(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[2, 3]).await;
    let (first, second) = (snapshot(batches[0].end(), "one"), snapshot(batches[1].end(), "two"));
    store.snapshots().save(&first).await.unwrap();
    store.snapshots().save(&second).await.unwrap();
    for (up_to, found) in [
        (0, None),
        (1, None),
        (2, Some(&first)),
        (4, Some(&first)),
        (5, Some(&second)),
        (6, Some(&second)),
        (u64::MAX, Some(&second)),
    ] {
        assert_eq!(store.snapshots().load_up_to(up_to).await.unwrap().as_ref(), found, "up to {up_to}");
    }
}

async fn a_snapshot_ahead_of_a_journal_that_was_restored_is_not_used(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[2, 3]).await;
    let (first, second) = (snapshot(batches[0].end(), "one"), snapshot(batches[1].end(), "two"));
    store.snapshots().save(&first).await.unwrap();
    store.snapshots().save(&second).await.unwrap();
    drop((store, writer));
    // A backup of the journal that is older than the snapshot is restored ...
    let lose = sqlx::query("DELETE FROM journal WHERE first_seq > 2");
    lose.execute(&mut place.connect().await).await.unwrap();
    let (store, mut writer, head) = place.lead().await;
    assert_eq!(head, first.after);
    for up_to in [5, u64::MAX] {
        assert_eq!(store.snapshots().load_up_to(up_to).await.unwrap().as_ref(), Some(&first));
    }
    // ... and goes on with another history, to a place of the same number.
    writer.append(&batch_saying(head, 3, "other words")).await.unwrap();
    assert_eq!(store.journal().head().await.unwrap().seq, second.after.seq);
    assert_eq!(store.snapshots().load().await.unwrap(), Some(first));
}
