//! Tests that a damaged journal is reported by its first wrong row, and never executed.

use std::error::Error;

use kubebid_engine::lifecycle::scrub::{ScrubOutcome, scrub};
use kubebid_engine::store::record::DecodeError;
use kubebid_engine::store::{Batch, Corrupt, Fault, Position, Store};
use sqlx::{AnyConnection, Row};
use std::time::Duration;

use crate::place::{TestPlace, append_all, batch, batch_saying, read_all};

crate::on_both! {
    a_flipped_bit_is_found
    a_shortened_row_is_found
    a_missing_row_is_found
    a_journal_without_its_beginning_is_not_sound
    a_first_batch_that_continues_another_journal_is_found
    a_row_of_another_history_is_found
    a_row_whose_columns_are_wrong_is_found
    a_scrub_names_the_damaged_batch_and_reads_a_sound_journal_to_its_end
}

/// Appends three batches, 1 | 2 3 4 | 5 6. The middle one will be damaged.
async fn three_batches(place: &TestPlace) -> (Store, Vec<Batch>, AnyConnection) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1, 3, 2]).await;
    (store, batches, place.connect().await)
}

/// Rewrites the bytes of the middle row.
async fn rewrite(connection: &mut AnyConnection, change: impl FnOnce(&mut Vec<u8>)) {
    let row = sqlx::query("SELECT records FROM journal WHERE first_seq = 2").fetch_one(&mut *connection);
    let mut records: Vec<u8> = row.await.unwrap().get(0);
    change(&mut records);
    let update = sqlx::query("UPDATE journal SET records = $1 WHERE first_seq = 2").bind(&records[..]);
    update.execute(connection).await.unwrap();
}

async fn damage(store: &Store, seq: u64) -> Corrupt {
    match read_all(store.journal().read_from(seq)).await {
        Err(Fault::Damaged { first_seq: 2, source }) => source,
        other => panic!("{other:?}"),
    }
}

async fn a_flipped_bit_is_found(place: TestPlace) {
    let (store, batches, mut connection) = three_batches(&place).await;
    rewrite(&mut connection, |records| records[60] ^= 4).await;
    for seq in [1, 2, 3] {
        let found = damage(&store, seq).await;
        assert!(matches!(found, Corrupt::Batch(DecodeError::Checksum { .. })), "{found:?}");
    }
    let error = read_all(store.journal().read_from(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "the journal is damaged at the batch with first seq 2");
    let mut why = error.source();
    let mut reasons = Vec::new();
    while let Some(error) = why {
        reasons.push(error.to_string());
        why = error.source();
    }
    assert!(reasons.last().unwrap().starts_with("its checksum is wrong"), "{reasons:?}");
    // What follows the damage can still be read.
    assert_eq!(read_all(store.journal().read_from(5)).await.unwrap(), batches[2..]);
}

async fn a_shortened_row_is_found(place: TestPlace) {
    let (store, _, mut connection) = three_batches(&place).await;
    rewrite(&mut connection, |records| records.truncate(70)).await;
    let found = damage(&store, 1).await;
    assert!(matches!(found, Corrupt::Batch(DecodeError::Truncated { have: 70, .. })), "{found:?}");
    rewrite(&mut connection, Vec::clear).await;
    let found = damage(&store, 1).await;
    assert!(matches!(found, Corrupt::Batch(DecodeError::Truncated { have: 0, .. })), "{found:?}");
}

async fn a_missing_row_is_found(place: TestPlace) {
    let (store, batches, mut connection) = three_batches(&place).await;
    let delete = sqlx::query("DELETE FROM journal WHERE first_seq = 2");
    delete.execute(&mut connection).await.unwrap();
    for reader in [store.journal().read_from(1), store.journal().read_after(batches[0].end())] {
        match read_all(reader).await {
            Err(Fault::Damaged { first_seq: 5, source: Corrupt::Gap { expected: 2 } }) => (),
            other => panic!("{other:?}"),
        }
    }
}

async fn a_journal_without_its_beginning_is_not_sound(place: TestPlace) {
    let (store, _, mut connection) = three_batches(&place).await;
    let delete = sqlx::query("DELETE FROM journal WHERE first_seq = 1");
    delete.execute(&mut connection).await.unwrap();
    for seq in [0, 1, 2, 3] {
        assert_eq!(damage(&store, seq).await, Corrupt::Gap { expected: 1 });
    }
}

async fn a_first_batch_that_continues_another_journal_is_found(place: TestPlace) {
    let (store, batches, mut connection) = three_batches(&place).await;
    let elsewhere = Position { seq: 0, hash: batches[2].end().hash };
    let other = batch(elsewhere, 1);
    let update = sqlx::query("UPDATE journal SET records = $1, hash = $2 WHERE first_seq = 1")
        .bind(&other.bytes()[..])
        .bind(&other.end().hash.0[..]);
    update.execute(&mut connection).await.unwrap();
    match read_all(store.journal().read_from(1)).await {
        Err(Fault::Damaged { first_seq: 1, source: Corrupt::Chain }) => (),
        other => panic!("{other:?}"),
    }
}

async fn a_row_of_another_history_is_found(place: TestPlace) {
    let (store, batches, mut connection) = three_batches(&place).await;
    let other = batch(batch_saying(batches[0].before(), 1, "never sent").end(), 3);
    let update = sqlx::query("UPDATE journal SET records = $1, hash = $2 WHERE first_seq = 2")
        .bind(&other.bytes()[..])
        .bind(&other.end().hash.0[..]);
    update.execute(&mut connection).await.unwrap();
    assert_eq!(damage(&store, 1).await, Corrupt::Chain);
}

async fn a_row_whose_columns_are_wrong_is_found(place: TestPlace) {
    let (store, _, mut connection) = three_batches(&place).await;
    sqlx::query("UPDATE journal SET last_seq = 3 WHERE first_seq = 2")
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(damage(&store, 1).await, Corrupt::Columns { first_seq: 2, last_seq: 3 });
    let update =
        sqlx::query("UPDATE journal SET last_seq = 4, hash = $1 WHERE first_seq = 2").bind(&[7; 16][..]);
    update.execute(&mut connection).await.unwrap();
    assert_eq!(damage(&store, 1).await, Corrupt::Columns { first_seq: 2, last_seq: 4 });
}

async fn a_scrub_names_the_damaged_batch_and_reads_a_sound_journal_to_its_end(place: TestPlace) {
    let (store, _, mut connection) = three_batches(&place).await;
    let found = scrub(&store, Duration::ZERO).await.unwrap();
    assert!(matches!(found, ScrubOutcome::Sound { last_seq: 6 }), "{found:?}");
    rewrite(&mut connection, |records| records[60] ^= 4).await;
    let found = scrub(&store, Duration::ZERO).await.unwrap();
    let ScrubOutcome::Damaged(fault) = found else { panic!("{found:?}") };
    assert_eq!(fault.to_string(), "the journal is damaged at the batch with first seq 2");
}
