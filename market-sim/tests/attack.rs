//! The named attacks, briefly, against the default rules: one test for each kind of cheat. A rule that is taken out of
//! the core makes the test of its kind fail. `just attack` searches for hours of market time instead.

use market_sim::attack::{
    Action, BasePrice, Baseline, Count, Level, Measurement, NewBid, Policy, Role, Rule, Runs, Setting,
    Trigger, named,
};
use std::num::NonZeroUsize;

const SEEDS: std::ops::Range<u64> = 0..8;

fn runs() -> Runs {
    Runs { rules: Vec::new(), threads: NonZeroUsize::new(2).expect("not 0") }
}

fn policies(role: Role, names: &[&str]) -> Vec<Policy> {
    let all = named(role);
    let found = |name: &&str| all.iter().find(|policy| policy.name == **name).cloned();
    names.iter().map(|name| found(name).unwrap_or_else(|| panic!("no policy is named {name}"))).collect()
}

fn baseline(setting: Setting) -> Baseline {
    runs().baseline(setting, SEEDS).expect("the truth runs to its end")
}

fn measure(setting: Setting, names: &[&str]) -> Vec<Measurement> {
    let baseline = baseline(setting);
    let measured = |policy: Policy| runs().measure(&baseline, &policy).expect("a policy runs to its end");
    policies(setting.role(), names).into_iter().map(measured).collect()
}

/// Asserts that none of these policies gains more than 1 % of the truthful payoff beyond its interval.
fn nothing_is_gained(setting: Setting, names: &[&str]) {
    for measured in measure(setting, names) {
        let gain = measured.gain_percent.expect("the truth brings something");
        assert!(!measured.is_cheat(), "{} in {}: gains {gain:.2} %", measured.policy, measured.setting);
    }
}

/// Asserts that a dollar of harm costs at least 50 cents.
fn harm_costs(setting: Setting, names: &[&str]) {
    for measured in measure(setting, names) {
        let harm = measured.harm.expect("the agent needs nothing");
        assert!(
            !measured.is_cheat(),
            "{} in {}: ${:.2} of harm for ${:.2}",
            measured.policy,
            measured.setting,
            harm.dollars,
            harm.cost
        );
    }
}

const FLICKERS: [&str; 6] =
    ["flicker", "flicker-dip", "flicker-early", "flicker-close", "early-lowering", "lowering-at-notice"];

#[test]
fn a_price_under_notice_is_frozen_so_that_no_flicker_gains() {
    for setting in [Setting::OneOfTen, Setting::Corner] {
        nothing_is_gained(setting, &FLICKERS);
    }
}

#[test]
fn a_raise_under_notice_locks_the_ceiling_so_that_few_claims_come_to_nothing() {
    // A notice of 300 s and a lock of 3600 s leave room for nine notices in ten hours.
    let measured = measure(Setting::OneOfTen, &["flicker"]);
    let flicker = &measured[0];
    assert!(flicker.broken_claims[0] <= 10.0, "{} claims came to nothing", flicker.broken_claims[0]);
    assert!(flicker.own_notices <= 10.0, "{} notices", flicker.own_notices);
}

/// With a minimum runtime of 15 minutes the two gain 146 % and 267 % if the demand of withdrawn nodes sets the price at once.
#[test]
fn a_provider_that_withdraws_units_and_puts_them_back_earns_little_more() {
    for measured in measure(Setting::Seller, &["seller-flicker-all", "reserve-flicker"]) {
        let gain = measured.gain_percent.expect("the truth brings something").mean;
        assert!(gain < 20.0, "{}: gains {gain:.2} %", measured.policy);
    }
    let flicker = measure(Setting::Seller, &["seller-flicker"]);
    let gain = flicker[0].gain_percent.expect("the truth brings something").mean;
    assert!(gain < 130.0, "seller-flicker: gains {gain:.2} %");
}

#[test]
fn claims_that_are_given_up_cost_what_they_do() {
    for setting in [Setting::Full, Setting::Roomy] {
        harm_costs(
            setting,
            &[
                "claim-and-cancel",
                "claim-and-expire",
                "claim-and-lower",
                "own-supply",
                "accomplice-repriced",
                "puppet",
                "own-node-back",
            ],
        );
    }
}

#[test]
fn nodes_that_are_taken_and_released_cost_what_they_do() {
    harm_costs(Setting::Full, &["evicting", "evicting-ready"]);
}

#[test]
fn a_minimum_and_regrouping_for_a_new_protection_gain_nothing() {
    nothing_is_gained(Setting::Corner, &["minimum", "regroup", "regroup-at-notice"]);
    // A gang that regroups before a deadline gives up nodes that are worth nothing to it: that is no cheat.
    nothing_is_gained(Setting::Gang, &["minimum", "regroup"]);
}

#[test]
fn several_bids_and_accounts_of_a_tenant_with_one_node_gain_nothing() {
    for setting in [Setting::OneOfTen, Setting::TwoMarkets] {
        nothing_is_gained(setting, &["splitting", "steps", "release-and-bid", "two-bids", "sniping"]);
    }
    // They begin with a bid at the reserve. In one-of-ten that one is protected when the rival comes, as the sleeper's is.
    nothing_is_gained(Setting::TwoMarkets, &["self-outbidding", "ioc-probes"]);
}

#[test]
fn a_closing_market_is_no_place_to_flicker() {
    nothing_is_gained(Setting::Closing, &["flicker-first", "flicker"]);
}

#[test]
fn a_simulated_world_pays_for_no_flicker_and_no_sleeper() {
    let baseline = runs().baseline(Setting::World, 0..3).expect("the truth runs to its end");
    for policy in policies(Role::Tenant, &["flicker", "sleeper", "shading-80"]) {
        let measured = runs().measure(&baseline, &policy).expect("a policy runs to its end");
        assert!(!measured.is_cheat(), "{}: {:?}", measured.policy, measured.gain_percent);
    }
}

#[test]
fn the_truth_gains_nothing_over_itself_and_a_run_repeats_to_the_cent() {
    for setting in Setting::ALL {
        let seeds = 0..2;
        let once = runs().baseline(setting, seeds.clone()).expect("the truth runs to its end");
        let again = Runs { threads: NonZeroUsize::MIN, ..runs() };
        assert_eq!(
            once.outcomes,
            again.baseline(setting, seeds).expect("again").outcomes,
            "{}",
            setting.name()
        );
        if setting.role() == Role::Tenant {
            assert!(once.outcomes.iter().all(|outcome| outcome.used > 0.0), "{}", setting.name());
        }
    }
}

/// In one command of this run a tenant gives up two claims on one node, at two ceilings. The search found it.
#[test]
fn the_auditor_knows_what_a_tenant_owes_for_two_claims_on_one_node() {
    let value = NewBid::new(Level::of(BasePrice::Value, 100));
    let single = |slot| Action::Bid(NewBid { slot, count: Count::OneBeyond(slot), ..value });
    let rule = |when, acts| Rule { when, given: Vec::new(), acts };
    let rules = vec![
        rule(Trigger::Price, vec![Action::Bid(value)]),
        rule(Trigger::Begin, (0..10).map(single).collect()),
    ];
    let policy = Policy { name: "found".to_owned(), about: String::new(), rules };
    let outcome = runs().play(Setting::World, 2_000_003, &policy).map_err(|error| error.to_string());
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn no_run_ends_early_whatever_the_policy() {
    for setting in Setting::ALL.into_iter().filter(|setting| *setting != Setting::World) {
        let baseline = runs().baseline(setting, 0..2).expect("the truth runs to its end");
        for policy in named(setting.role()) {
            let measured = runs().measure(&baseline, &policy).expect("a policy runs to its end");
            assert!(measured.gain.mean.is_finite(), "{}", measured.policy);
        }
    }
}
