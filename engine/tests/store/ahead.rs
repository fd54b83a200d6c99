//! Tests of commands that are read ahead of the replay.

use crate::place::TestPlace;
use kubebid_core::units::Micros;
use kubebid_core::{Command, StampedCommand};
use kubebid_engine::BEHAVIOUR;
use kubebid_engine::runtime::recovery::{ReadAhead, RecoveryError};
use kubebid_engine::store::{Batch, BatchBuilder, Position};

crate::on_both! {
    a_reader_ahead_at_the_end_gets_all_that_is_added_later
    a_reader_that_has_read_everything_gets_all_that_is_added_later
    a_chunk_that_is_not_full_is_the_last_as_yet
    a_record_that_is_no_command_is_reported_in_its_turn
}

/// Returns a batch with one command, whose stamp identifies it.
fn at(after: Position, at: u64) -> Batch {
    let mut builder = BatchBuilder::new(after);
    let command = StampedCommand { at: Micros(at), key: None, command: Command::AdvanceTime };
    builder.push_with(at, BEHAVIOUR, |bytes| command.encode(bytes));
    builder.finish()
}

async fn times(reader: &mut ReadAhead) -> Vec<u64> {
    let batches = reader.next().await.unwrap();
    batches.iter().flat_map(|batch| &batch.commands).map(|command| command.at.0).collect()
}

async fn a_reader_ahead_at_the_end_gets_all_that_is_added_later(place: TestPlace) {
    let (store, mut writer, mut head) = place.lead().await;
    let mut reader = ReadAhead::new(store.journal().read_after(head));
    assert_eq!(times(&mut reader).await, [0; 0]);
    for n in 1..50 {
        let batch = at(head, n);
        writer.append(&batch).await.unwrap();
        head = batch.end();
        assert_eq!(times(&mut reader).await, [n]);
    }
    assert_eq!(times(&mut reader).await, [0; 0]);
}

async fn a_reader_that_has_read_everything_gets_all_that_is_added_later(place: TestPlace) {
    let (store, mut writer, mut head) = place.lead().await;
    for round in 1..20 {
        let mut reader = ReadAhead::new(store.journal().read_after(head));
        // The first chunk is full, so the reader reads ahead, and often finds the journal's end as
        // it is then.
        for n in 0..16 {
            let batch = at(head, 100 * round + n);
            writer.append(&batch).await.unwrap();
            head = batch.end();
        }
        assert_eq!(times(&mut reader).await.len(), 16);
        let batch = at(head, 100 * round + 50);
        writer.append(&batch).await.unwrap();
        head = batch.end();
        assert_eq!(times(&mut reader).await, [100 * round + 50]);
        assert_eq!(times(&mut reader).await, [0; 0]);
    }
}

async fn a_chunk_that_is_not_full_is_the_last_as_yet(place: TestPlace) {
    let (store, mut writer, start) = place.lead().await;
    let mut head = start;
    for n in 1..20 {
        let batch = at(head, n);
        writer.append(&batch).await.unwrap();
        head = batch.end();
    }
    let mut reader = store.journal().read_after(start);
    let mut chunk = async || (reader.next_chunk().await.unwrap().len(), reader.is_behind());
    assert_eq!((chunk().await, chunk().await, chunk().await), ((16, true), (3, false), (0, false)));
}

async fn a_record_that_is_no_command_is_reported_in_its_turn(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let first = at(head, 1);
    writer.append(&first).await.unwrap();
    let mut reader = ReadAhead::new(store.journal().read_after(head));
    assert_eq!(times(&mut reader).await, [1]);
    writer.append(&crate::place::batch(first.end(), 1)).await.unwrap();
    let told = reader.next().await.unwrap_err();
    assert!(matches!(told, RecoveryError::Record { seq: 2, .. }), "{told}");
}
