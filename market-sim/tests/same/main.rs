//! The exchange and the reference model are given the same random commands and must answer alike:
//! events, numbers, state, entry prices; the invariants hold; a snapshot is the state.
//!
//! `KUBEBID_COMMANDS` sets how many commands each test takes (200,000 by default, and 60,000 with funds), `KUBEBID_SEED`
//! where to begin. A failure prints the shortest story it could find, ready for `market-sim play`.

mod compare;
mod generate;

use compare::Pair;
use generate::Family;
use kubebid_core::answer::Auction;
use kubebid_core::event::{EndReason, Fact, NoticeReason};
use kubebid_core::{Exchange, Reject};
use market_sim::jsonl::format_command;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PER_STORY: u64 = 80;

#[expect(clippy::disallowed_methods, reason = "how long a run is to be, not what it does")]
fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn the_exchange_answers_as_the_model_does() {
    let families = Family::ALL.len() as u64;
    compare(200_000, |n| Family::ALL[(n % families) as usize]);
}

#[test]
fn the_exchange_answers_as_the_model_does_with_funds() {
    compare(60_000, |_| Family::Funds);
}

/// Stories in which funds decide nothing would compare nothing.
#[test]
fn funds_are_short_in_the_stories_with_funds() {
    let mut counts = BTreeMap::new();
    for seed in 0..100 {
        let mut exchange = Exchange::new();
        let answers = generate::story(Family::Funds, seed, PER_STORY);
        for event in answers.iter().flat_map(|command| exchange.apply(command).events) {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these are about funds")]
            let what = match event.fact {
                Fact::NoticeStarted { reason: NoticeReason::Funds, .. } => "notices",
                Fact::NoticeMoved { .. } => "moved deadlines",
                Fact::Ended { reason: EndReason::Funds, .. } => "ends",
                Fact::BudgetRenewed { .. } => "months",
                Fact::Rejected { reason: Reject::NoFunds } => "raises that are refused",
                _ => continue,
            };
            *counts.entry(what).or_insert(0) += 1;
        }
    }
    assert!(counts.len() == 5 && counts.values().all(|count| *count >= 3), "{counts:?}");
}

/// Compares them in stories of these families, with this many commands unless the environment sets another number.
fn compare(commands: u64, family: impl Fn(u64) -> Family) {
    let commands = from_env("KUBEBID_COMMANDS", commands);
    let first = from_env("KUBEBID_SEED", 1);
    for n in 0..commands.div_ceil(PER_STORY) {
        let (family, seed) = (family(n), first + n);
        if let Err(difference) = run(family, seed) {
            let story = generate::story(family, seed, PER_STORY);
            let short = shorten(story, &difference);
            let lines: Vec<String> = short.iter().map(format_command).collect();
            let error = replay(&short).expect_err("the shortened story still fails");
            panic!("{family:?} with seed {seed}:\n{}\n\n{error}\n", lines.join("\n"));
        }
        if n % 12_500 == 12_499 {
            eprintln!("{} commands alike", (n + 1) * PER_STORY);
        }
    }
}

fn run(family: Family, seed: u64) -> Result<(), String> {
    replay(&generate::story(family, seed, PER_STORY))
}

fn replay(story: &[kubebid_core::StampedCommand]) -> Result<(), String> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut pair = Pair::new();
        for command in story {
            pair.apply(command)?;
        }
        Ok(())
    }));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!(
            "panic: {}",
            text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
        ))
    })
}

/// Leaves out commands one by one, as long as it fails. Numbers of bids shift with the commands before
/// them, so a command left out becomes an AdvanceTime first; those are dropped from the end only.
fn shorten(
    mut story: Vec<kubebid_core::StampedCommand>,
    _difference: &str,
) -> Vec<kubebid_core::StampedCommand> {
    while story.len() > 1 && replay(&story[..story.len() - 1]).is_err() {
        story.pop();
    }
    for n in (0..story.len()).rev() {
        let mut shorter = story.clone();
        shorter[n].command = kubebid_core::Command::AdvanceTime;
        shorter[n].key = None;
        if shorter[n] != story[n] && replay(&shorter).is_err() {
            story = shorter;
        }
    }
    story
}
