//! Tests of the intake: which commands are taken, which are refused, and which share a commit.

use crate::{bid, hash, hold, open_market, options, start, stop, submit, submit_keyed};
use kubebid_core::Command;
use kubebid_core::answer::Outcome;
use kubebid_core::units::Micros;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::{EngineOptions, Submission, SubmitError};
use std::time::Instant;
use tokio::task::JoinSet;

#[tokio::test]
async fn what_arrives_during_a_commit_shares_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    let release = hold(&engine).await;
    let mut bids = JoinSet::new();
    for n in 0..100 {
        let engine = engine.clone();
        bids.spawn(async move { submit(&engine, Command::PlaceBid(bid(&format!("t{n}"), 1000))).await });
    }
    tokio::task::yield_now().await;
    drop(release);
    let mut numbers: Vec<u64> = bids.join_all().await.into_iter().map(|(seq, _)| seq).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (2..=101).collect::<Vec<u64>>());
    let mut reader = engine.store().journal().read_from(2);
    let batches = reader.next_chunk().await.unwrap();
    assert!(batches.len() < 10, "{} commits for 100 commands", batches.len());
    stop(engine, running).await;
}

#[tokio::test]
async fn a_full_intake_refuses_and_uses_up_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let options = EngineOptions { intake: 2, ..options(folder.path(), Clock::Stepped) };
    let (engine, running) = start(options).await;
    submit(&engine, open_market()).await;
    let release = hold(&engine).await;
    let mut waiting = JoinSet::new();
    for n in 0..2 {
        let engine = engine.clone();
        waiting.spawn(async move { submit(&engine, Command::PlaceBid(bid(&format!("t{n}"), 1000))).await });
    }
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let refused = submit_keyed(&engine, Some("k"), Command::PlaceBid(bid("late", 1000))).await;
    assert_eq!(refused, Err(SubmitError::Full));
    drop(release);
    waiting.join_all().await;
    let again = submit_keyed(&engine, Some("k"), Command::PlaceBid(bid("late", 2000))).await;
    assert_eq!(again, Ok((4, Outcome::Accepted)));
    stop(engine, running).await;
}

#[tokio::test]
async fn a_command_whose_caller_has_gone_or_is_too_late_is_never_journaled() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    let release = hold(&engine).await;
    let gone = {
        let engine = engine.clone();
        tokio::spawn(async move { submit(&engine, Command::PlaceBid(bid("gone", 1000))).await })
    };
    tokio::task::yield_now().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let late = {
        let engine = engine.clone();
        let command = Command::PlaceBid(bid("late", 1000));
        let submission = Submission { deadline: Some(Instant::now()), ..Submission::new(None, command) };
        tokio::spawn(async move { engine.submit(submission, |_| ()).await })
    };
    tokio::task::yield_now().await;
    drop(release);
    assert_eq!(late.await.unwrap(), Err(SubmitError::TooLate));
    let (seq, _) = submit(&engine, Command::PlaceBid(bid("next", 1000))).await;
    assert_eq!(seq, 2);
    stop(engine, running).await;
}

#[tokio::test]
async fn a_stopping_engine_takes_no_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    running.stop().await.expect("it stops");
    let refused = submit_keyed(&engine, None, Command::PlaceBid(bid("t", 1000))).await;
    assert_eq!(refused, Err(SubmitError::Stopping));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_others_are_applied_keeps_its_order_and_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    submit(&engine, open_market()).await;
    let mut callers = JoinSet::new();
    for n in 0..256 {
        let engine = engine.clone();
        callers.spawn(async move {
            let mut told = Vec::new();
            for round in 1..=4 {
                let command = match n % 16 {
                    0 => Submission {
                        at: Some(Micros(1000 * round + n)),
                        ..Submission::new(None, Command::AdvanceTime)
                    },
                    _ => Submission::new(None, Command::PlaceBid(bid("t1", 1000))),
                };
                let answer = engine.submit(command, |step| (step.seq.0, step.at));
                told.push(answer.await.expect("the command is taken"));
            }
            told
        });
    }
    let mut told = callers.join_all().await.concat();
    told.sort_unstable();
    assert!(told.iter().map(|(seq, _)| *seq).eq(2..2 + 4 * 256));
    assert!(told.is_sorted_by_key(|(_, at)| *at) && told.last().is_some_and(|(_, at)| *at >= Micros(4000)));
    let before = hash(&engine).await;
    stop(engine, running).await;
    let (engine, running) = start(options(folder.path(), Clock::Stepped)).await;
    assert_eq!(hash(&engine).await, before);
    stop(engine, running).await;
}
