//! Journals and snapshots of released revisions, as bytes, in the folder beside this file. Its README says what they
//! are and how one is added.

use crate::market::{Market, projected};
use crate::place::TestPlace;
use kubebid_core::{Auction, Exchange, StampedCommand};
use kubebid_engine::runtime::recovery::{RecoveryError, command_of};
use kubebid_engine::store::{Batch, Position, Store};
use serde_json::{Value, json};
use sqlx::Row;
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

crate::on_both! {
    golden_stores_replay_to_the_same_events_or_are_refused_with_words
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projections/golden")
}

/// Returns the batches of a journal: each with its length before it, as 4 bytes, the lowest first.
fn batches(journal: &[u8]) -> Vec<Batch> {
    let (mut batches, mut rest) = (Vec::new(), journal);
    while let Some((length, more)) = rest.split_first_chunk() {
        let (batch, more) = more.split_at(u32::from_le_bytes(*length) as usize);
        batches.push(Batch::decode(batch.to_vec().into()).expect("a sound batch"));
        rest = more;
    }
    batches
}

#[test]
fn golden_stores_replay_to_the_same_state_or_are_refused_with_words() {
    let mut replayed = 0;
    for golden in goldens() {
        let read = |file: &str| fs::read(golden.join(file)).unwrap();
        let expected: Value = serde_json::from_slice(&read("expected.json")).unwrap();
        let batches = batches(&read("journal"));
        let mut end = Position::START;
        for batch in &batches {
            assert_eq!(batch.before(), end, "each batch continues the one before");
            end = batch.end();
        }
        assert_eq!(expected["end"], end.to_string());
        let commands: Result<Vec<StampedCommand>, RecoveryError> =
            batches.iter().flat_map(|batch| batch.records()).map(command_of).collect();
        let commands = match commands {
            Ok(commands) => commands,
            // A change of the rules: the journal is not replayed by others than those that it was written under.
            Err(refused) => {
                assert!(refused.to_string().contains("edition of the market's rules"), "{refused}");
                continue;
            }
        };
        replayed += 1;
        let mut exchange = Exchange::new();
        for command in &commands {
            exchange.apply(command);
        }
        let snapshot = read("snapshot");
        // The first byte is the version of the format.
        if snapshot[0] != exchange.snapshot()[0] {
            let refused = Exchange::restore(&snapshot).expect_err("it is of another version");
            assert!(refused.to_string().contains(&snapshot[0].to_string()), "{refused}");
            continue;
        }
        assert_eq!(expected["state_hash"], format!("{:032x}", exchange.state_hash()), "{}", golden.display());
        let mut restored = Exchange::restore(&snapshot).unwrap();
        let from = commands.iter().skip(restored.seq().0 as usize);
        assert!(from.len() > 0, "something follows the snapshot");
        for command in from {
            restored.apply(command);
        }
        assert_eq!(restored.state_hash(), exchange.state_hash(), "{}", golden.display());
    }
    assert!(replayed > 0, "this revision replays none of them; its README says how one is added");
}

async fn golden_stores_replay_to_the_same_events_or_are_refused_with_words(place: TestPlace) {
    for golden in goldens() {
        let place = place.another();
        let expected: Value =
            serde_json::from_slice(&fs::read(golden.join("expected.json")).unwrap()).unwrap();
        let batches = batches(&fs::read(golden.join("journal")).unwrap());
        if let Err(refused) =
            batches.iter().flat_map(|batch| batch.records()).try_for_each(|r| command_of(r).map(drop))
        {
            assert!(refused.to_string().contains("edition of the market's rules"), "{refused}");
            continue;
        }
        let store = Store::open(&place.options).await.unwrap();
        let mut writer = store.lead().await.unwrap().writer;
        for batch in &batches {
            writer.append(batch).await.unwrap();
        }
        drop(writer);
        store.close().await.unwrap();
        drop(store);
        let (engine, running) = place.start().await;
        projected(&engine).await;
        assert_eq!(expected["events"], events_hash(&place).await, "{}", golden.display());
        drop(engine);
        running.stop().await.unwrap();
    }
}

/// Returns the hash of all events, as messages of the API.
async fn events_hash(place: &TestPlace) -> String {
    let mut hash = Xxh3::new();
    let events = sqlx::query("SELECT message FROM events ORDER BY seq, idx");
    let events = events.fetch_all(&mut place.connect().await).await.unwrap();
    assert!(!events.is_empty());
    for event in events {
        hash.update(&event.get::<Vec<u8>, _>(0));
    }
    format!("{:032x}", hash.digest128())
}

/// Returns the folders of all revisions.
fn goldens() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut goldens: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    goldens.sort();
    goldens
}

/// Makes the golden store of this revision, in a folder that the variable names. A store that is there is never
/// changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run for a release, as the README beside the stores says"]
async fn make_the_golden_store_of_this_revision() {
    #[expect(clippy::disallowed_methods, reason = "the name of what is made")]
    let name = std::env::var("KUBEBID_GOLDEN").expect("KUBEBID_GOLDEN is the name of the revision");
    let place = TestPlace::sqlite();
    let mut market = Market::new(2026).closing().changing_fees();
    let mut snapshot = Vec::new();
    for _ in 0..2 {
        let (engine, running) = place.start().await;
        if snapshot.is_empty() {
            market.open(&engine).await;
        }
        market.run(&engine, 150).await;
        projected(&engine).await;
        if snapshot.is_empty() {
            snapshot = engine.ask(Exchange::snapshot).await.unwrap();
        }
        drop(engine);
        running.stop().await.unwrap();
    }
    let rows = sqlx::query("SELECT records FROM journal ORDER BY first_seq");
    let rows = rows.fetch_all(&mut place.connect().await).await.unwrap();
    let mut journal = Vec::new();
    for row in rows {
        let batch: Vec<u8> = row.get(0);
        journal.extend_from_slice(&(batch.len() as u32).to_le_bytes());
        journal.extend_from_slice(&batch);
    }
    let mut exchange = Exchange::new();
    let batches = batches(&journal);
    for record in batches.iter().flat_map(|batch| batch.records()) {
        exchange.apply(&command_of(record).unwrap());
    }
    let expected = json!({
        "end": batches.last().unwrap().end().to_string(),
        "state_hash": format!("{:032x}", exchange.state_hash()),
        "events": events_hash(&place).await,
    });
    let golden = folder().join(name);
    fs::create_dir(&golden).expect("a new folder");
    fs::write(golden.join("journal"), journal).unwrap();
    fs::write(golden.join("snapshot"), snapshot).unwrap();
    fs::write(golden.join("expected.json"), format!("{expected:#}\n")).unwrap();
}
