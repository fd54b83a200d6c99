//! Tests of the clock: steps forward and back, and a suspended machine.

use super::*;
use std::sync::atomic::AtomicU64;

const DAYS_30: u64 = 30 * Micros::DAY.0;

/// A machine whose clocks a test sets.
#[derive(Debug)]
pub(crate) struct TestMachine {
    pub(crate) wall: AtomicU64,
    pub(crate) boot: AtomicU64,
}

impl TestMachine {
    pub(crate) fn new() -> Arc<TestMachine> {
        let (wall, boot) = (AtomicU64::new(1_700_000_000_000_000), AtomicU64::new(5_000_000));
        Arc::new(TestMachine { wall, boot })
    }

    fn pass(&self, us: u64) {
        self.wall.fetch_add(us, Ordering::Relaxed);
        self.boot.fetch_add(us, Ordering::Relaxed);
    }

    fn step(&self, us: i64) {
        let wall = self.wall.load(Ordering::Relaxed).saturating_add_signed(us);
        self.wall.store(wall, Ordering::Relaxed);
    }
}

impl MachineClock for TestMachine {
    fn wall(&self) -> Micros {
        Micros(self.wall.load(Ordering::Relaxed))
    }

    fn since_boot(&self) -> Micros {
        Micros(self.boot.load(Ordering::Relaxed))
    }

    fn boot_id(&self) -> Option<String> {
        Some("a boot".to_owned())
    }
}

fn clock(machine: &Arc<TestMachine>) -> MarketClock {
    MarketClock::new(Clock::Real, machine.clone(), MAX_CLOCK_JUMP)
}

#[test]
fn a_step_within_the_bound_is_followed_and_a_longer_one_is_not_in_either_direction() {
    let machine = TestMachine::new();
    let clock = clock(&machine);
    let begin = machine.wall();
    machine.step(59_000_000);
    assert_eq!(clock.now(Micros(0)), Micros(begin.0 + 59_000_000));
    for step in [DAYS_30 as i64, -(DAYS_30 as i64)] {
        machine.step(step);
        machine.pass(7);
        assert_eq!(clock.now(Micros(0)), Micros(machine.wall().0.saturating_add_signed(-step)));
        machine.step(-step);
    }
    assert_eq!(clock.now(Micros(0)), machine.wall());
    assert_eq!(clock.now(Micros(u64::MAX)), Micros(u64::MAX), "never backwards");
}

#[test]
fn a_suspended_machine_does_not_jump() {
    let machine = TestMachine::new();
    let clock = clock(&machine);
    machine.pass(DAYS_30);
    assert_eq!(clock.now(Micros(0)), machine.wall());
}

#[test]
fn an_engine_that_was_off_for_a_month_starts_by_the_clock_and_one_whose_journal_is_ahead_does_not() {
    let machine = TestMachine::new();
    let clock = clock(&machine);
    let known = |last: u64| Known { last: Some(Micros(last)), ..Known::default() };
    let wall = machine.wall().0;
    assert_eq!(check(&clock, &known(wall - DAYS_30), false), Ok(()));
    assert_eq!(check(&clock, &known(wall + 60_000_000), false), Ok(()));
    let ahead = check(&clock, &known(wall + DAYS_30), false);
    assert!(matches!(ahead, Err(ClockFault::JournalAhead { .. })), "{ahead:?}");
    assert_eq!(check(&clock, &known(wall + DAYS_30), true), Ok(()));
    clock.go_on_from(Micros(wall + DAYS_30));
    machine.pass(5);
    assert_eq!(clock.now(Micros(0)), Micros(wall + DAYS_30 + 5), "it does not stand still");
}

#[test]
fn a_clock_that_was_moved_between_two_engines_of_one_boot_is_noticed() {
    let machine = TestMachine::new();
    let mark = clock(&machine).to_note();
    let known = Known { mark, ..Known::default() };
    machine.pass(DAYS_30);
    assert_eq!(check(&clock(&machine), &known, false), Ok(()));
    machine.step(DAYS_30 as i64);
    let moved = check(&clock(&machine), &known, false);
    assert!(matches!(moved, Err(ClockFault::Moved { .. })), "{moved:?}");
    assert_eq!(check(&clock(&machine), &known, true), Ok(()));
    // After another boot the two clocks have nothing in common.
    let other = known.mark.clone().map(|mark| ClockMark { boot_id: "another".to_owned(), ..mark });
    assert_eq!(check(&clock(&machine), &Known { mark: other, ..Known::default() }, false), Ok(()));
}

#[test]
fn a_clock_that_is_not_the_databases_is_noticed() {
    let machine = TestMachine::new();
    let known = |database| Known { database: Some(Micros(database)), ..Known::default() };
    let wall = machine.wall().0;
    assert_eq!(check(&clock(&machine), &known(wall - 60_000_000), false), Ok(()));
    for database in [wall - DAYS_30, wall + DAYS_30] {
        let apart = check(&clock(&machine), &known(database), false);
        assert!(matches!(apart, Err(ClockFault::Apart { .. })), "{apart:?}");
    }
}

#[test]
fn the_next_engine_is_told_of_a_step_that_was_followed_once() {
    let machine = TestMachine::new();
    let clock = clock(&machine);
    assert!(clock.to_note().is_some());
    assert_eq!(clock.to_note(), None);
    machine.step(30_000_000);
    clock.now(Micros(0));
    assert_eq!(clock.to_note().map(|mark| mark.boot_id), Some("a boot".to_owned()));
    assert_eq!(clock.to_note(), None);
}
