//! Tests of the journal: what is appended, by which writer, and what is read back.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use kubebid_engine::store::{
    AppendError, BatchBuilder, BatchHash, Fault, Journal, Leadership, Position, Refused, Resolution,
};

use crate::place::{TestPlace, append_all, batch, batch_saying, read_all};

crate::on_both! {
    a_journal_begins_empty
    a_journal_keeps_its_uuid
    appended_batches_are_read_back
    reading_begins_at_the_batch_that_has_the_seq
    a_reader_at_the_end_goes_on_with_what_comes
    many_batches_come_back_in_order
    big_batches_come_back
    a_gap_is_refused
    the_same_seq_twice_is_refused
    a_batch_made_after_another_history_is_refused
    an_overtaken_writer_is_fenced
    racing_leaders_write_one_history
    a_dropped_append_is_resolved
    an_overtaken_writer_learns_it_when_it_resolves
    an_append_that_was_answered_resolves_as_committed
    resolving_against_another_history_is_a_fault
    a_reader_beside_the_engine_sees_the_journal
    a_schema_of_the_future_is_refused
}

async fn a_journal_begins_empty(place: TestPlace) {
    let (store, writer, head) = place.lead().await;
    assert_eq!(head, Position::START);
    assert_eq!(writer.epoch(), 1);
    assert_eq!(store.journal().head().await.unwrap(), Position::START);
    assert!(read_all(store.journal().read_from(0)).await.unwrap().is_empty());
    assert!(read_all(store.journal().read_from(7)).await.unwrap().is_empty());
    assert!(read_all(store.journal().read_after(Position::START)).await.unwrap().is_empty());
}

async fn a_journal_keeps_its_uuid(place: TestPlace) {
    let store = place.open().await;
    let id = store.journal().id();
    drop(store);
    assert_eq!(place.open().await.journal().id(), id);
    assert_ne!(TestPlace::sqlite().open().await.journal().id(), id);
}

async fn appended_batches_are_read_back(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1, 3, 2]).await;
    assert_eq!(store.journal().head().await.unwrap(), batches[2].end());
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
    drop((store, writer));

    let (store, mut writer, head) = place.lead().await;
    assert_eq!((writer.epoch(), head), (2, batches[2].end()));
    assert_eq!(read_all(store.journal().read_after(Position::START)).await.unwrap(), batches);
    let more = append_all(&mut *writer, head, &[1]).await;
    assert_eq!(read_all(store.journal().read_after(head)).await.unwrap(), more);
}

async fn reading_begins_at_the_batch_that_has_the_seq(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    // 1 | 2 3 4 | 5 6
    let batches = append_all(&mut *writer, head, &[1, 3, 2]).await;
    let beyond = [(99, 3), (1 << 63, 3), (u64::MAX, 3)];
    for (seq, first) in
        [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (7, 3)].into_iter().chain(beyond)
    {
        let found = read_all(store.journal().read_from(seq)).await.unwrap();
        assert_eq!(found, batches[first..], "from {seq}");
    }
}

async fn a_reader_at_the_end_goes_on_with_what_comes(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let mut from_one = store.journal().read_from(1);
    let mut from_four = store.journal().read_from(4);
    assert!(from_one.next_chunk().await.unwrap().is_empty());
    assert!(from_four.next_chunk().await.unwrap().is_empty());
    let first = append_all(&mut *writer, head, &[2]).await;
    assert_eq!(from_one.next_chunk().await.unwrap(), first);
    assert!(from_one.next_chunk().await.unwrap().is_empty());
    assert!(from_four.next_chunk().await.unwrap().is_empty());
    let second = append_all(&mut *writer, first[0].end(), &[2, 1]).await;
    assert_eq!(from_one.next_chunk().await.unwrap(), second);
    assert_eq!(from_four.next_chunk().await.unwrap(), second);
}

async fn many_batches_come_back_in_order(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let counts: Vec<u32> = (0..300).map(|n| 1 + n % 3).collect();
    let batches = append_all(&mut *writer, head, &counts).await;
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

async fn big_batches_come_back(place: TestPlace) {
    let (store, mut writer, mut head) = place.lead().await;
    let mut batches = Vec::new();
    for _ in 0..20 {
        let mut builder = BatchBuilder::new(head);
        for n in 0..8192_u32 {
            builder.push(u64::from(n), 1, &n.to_le_bytes().repeat(25));
        }
        let batch = builder.finish();
        writer.append(&batch).await.unwrap();
        head = batch.end();
        batches.push(batch);
    }
    assert_eq!(head.seq, 20 * 8192);
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

async fn a_gap_is_refused(place: TestPlace) {
    let (_store, mut writer, head) = place.lead().await;
    let later = batch(Position { seq: 1, hash: BatchHash::NONE }, 1);
    assert_not_next(writer.append(&later).await, Position::START);

    let batches = append_all(&mut *writer, head, &[2]).await;
    let later = batch(Position { seq: 3, ..batches[0].end() }, 1);
    assert_not_next(writer.append(&later).await, batches[0].end());
    // The writer goes on as if that had not happened.
    append_all(&mut *writer, batches[0].end(), &[1]).await;
}

async fn the_same_seq_twice_is_refused(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[2, 1]).await;
    assert_not_next(writer.append(&batches[1]).await, batches[1].end());
    assert_not_next(writer.append(&batches[0]).await, batches[1].end());
    let inside = batch(Position { seq: 1, ..batches[0].end() }, 1);
    assert_not_next(writer.append(&inside).await, batches[1].end());
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

async fn a_batch_made_after_another_history_is_refused(place: TestPlace) {
    let (_store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[2]).await;
    let other = batch_saying(head, 2, "of another history");
    assert_not_next(writer.append(&batch(other.end(), 1)).await, batches[0].end());
}

fn assert_not_next(answer: Result<(), AppendError>, end: Position) {
    match answer {
        Err(AppendError::Refused(Refused::NotNext { head, .. })) => assert_eq!(head, end),
        other => panic!("{other:?}"),
    }
}

async fn an_overtaken_writer_is_fenced(place: TestPlace) {
    let (store, mut old, head) = place.lead().await;
    let batches = append_all(&mut *old, head, &[1]).await;
    let Leadership { mut writer, head, .. } = store.lead().await.unwrap();
    assert_eq!((writer.epoch(), head), (2, batches[0].end()));

    let late = batch_saying(head, 1, "of the old writer");
    for _ in 0..2 {
        assert!(matches!(old.append(&late).await, Err(AppendError::Fenced { epoch: 1 })));
    }
    let more = append_all(&mut *writer, head, &[1]).await;
    assert!(matches!(old.append(&late).await, Err(AppendError::Fenced { epoch: 1 })));
    assert_eq!(store.journal().head().await.unwrap(), more[0].end());
}

pub(crate) async fn racing_leaders_write_one_history(place: TestPlace) {
    const RACERS: usize = 4;
    let store = place.open().await;
    let start = Arc::new(tokio::sync::Barrier::new(RACERS));
    let mut racers = Vec::new();
    for racer in 0..RACERS {
        let (store, start) = (store.clone(), Arc::clone(&start));
        racers.push(tokio::spawn(async move {
            let mut acked = Vec::new();
            start.wait().await;
            for turn in 0..8 {
                let Leadership { mut writer, mut head, .. } = store.lead().await.unwrap();
                for n in 0..20 {
                    let batch = batch_saying(head, 1 + n % 3, &format!("{racer} {turn} {n}"));
                    match writer.append(&batch).await {
                        Ok(()) => {
                            head = batch.end();
                            acked.push(batch);
                        }
                        Err(AppendError::Fenced { .. }) => break,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }
            acked
        }));
    }
    let mut acked = Vec::new();
    for racer in racers {
        acked.extend(racer.await.unwrap());
    }
    acked.sort_by_key(|batch| batch.first_seq());
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), acked);
}

async fn a_dropped_append_is_resolved(place: TestPlace) {
    let (store, mut writer, mut head) = place.lead().await;
    let mut batches = Vec::new();
    let (mut committed, mut not_committed) = (0, 0);
    for polls in 1..=60 {
        let batch = batch(head, 2);
        if poll(writer.append(&batch), polls).await.is_none() {
            let error = writer.append(&batch).await.unwrap_err();
            assert!(matches!(error, AppendError::Unknown { source: Fault::Unresolved }), "{error:?}");
            match writer.resolve(&batch).await.unwrap() {
                Resolution::Committed => committed += 1,
                Resolution::NotCommitted => {
                    not_committed += 1;
                    writer.append(&batch).await.unwrap();
                }
                Resolution::Fenced => panic!("by whom?"),
            }
        }
        head = batch.end();
        batches.push(batch);
    }
    println!("{committed} of the dropped appends were committed, {not_committed} were not");
    assert_eq!(read_all(store.journal().read_from(1)).await.unwrap(), batches);
}

/// Polls a future this many times, unless it is ready before, and drops it.
async fn poll<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn an_overtaken_writer_learns_it_when_it_resolves(place: TestPlace) {
    let (store, mut old, head) = place.lead().await;
    let Leadership { mut writer, .. } = store.lead().await.unwrap();
    let batch = batch(head, 1);
    assert_eq!(old.resolve(&batch).await.unwrap(), Resolution::Fenced);
    assert!(matches!(old.append(&batch).await, Err(AppendError::Fenced { epoch: 1 })));
    writer.append(&batch).await.unwrap();
}

async fn an_append_that_was_answered_resolves_as_committed(place: TestPlace) {
    let (_store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[3]).await;
    assert_eq!(writer.resolve(&batches[0]).await.unwrap(), Resolution::Committed);
    assert_eq!(writer.epoch(), 2);
    append_all(&mut *writer, batches[0].end(), &[1]).await;
}

async fn resolving_against_another_history_is_a_fault(place: TestPlace) {
    let (_store, mut writer, head) = place.lead().await;
    let batches = append_all(&mut *writer, head, &[1, 1]).await;
    let other = batch_saying(batches[0].end(), 1, "that never was sent");
    match writer.resolve(&other).await {
        Err(Fault::Diverged { expected, found }) => {
            assert_eq!((expected, found), (batches[0].end(), batches[1].end()));
        }
        other => panic!("{other:?}"),
    }
}

async fn a_reader_beside_the_engine_sees_the_journal(place: TestPlace) {
    let (store, mut writer, head) = place.lead().await;
    let mut batches = append_all(&mut *writer, head, &[2, 2]).await;
    let beside = Journal::open_to_read(&place.options).await.unwrap();
    assert_eq!(beside.id(), store.journal().id());
    let mut reader = beside.read_from(1);
    assert_eq!(reader.next_chunk().await.unwrap(), batches);
    batches.extend(append_all(&mut *writer, batches[1].end(), &[1]).await);
    assert_eq!(reader.next_chunk().await.unwrap(), batches[2..]);
    assert_eq!(beside.head().await.unwrap(), batches[2].end());
}

async fn a_schema_of_the_future_is_refused(place: TestPlace) {
    drop(place.open().await);
    sqlx::query("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'later', true, $1, 0)")
        .bind(&b"x"[..])
        .execute(&mut place.connect().await)
        .await
        .unwrap();
    let error = kubebid_engine::store::Store::open(&place.options).await.unwrap_err();
    assert!(matches!(error, Fault::Migrate(_)), "{error:?}");
    assert!(error.to_string().contains("9999") && error.to_string().contains("a newer KubeBid"), "{error}");
}
