//! R15: each claim ends in one row of the table, or is charged.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_claim_that_becomes_a_node_or_that_another_bid_takes_costs_nothing() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 1.50
        bid t3 1 @ 2.00
        at 300s
        bills
        ",
        expect![[r#"
            300s t1 pays 0.083333 for p1/1: OUTBID
        "#]],
    );
}

#[test]
fn a_claim_is_free_of_charge_when_the_holder_raises_or_the_provider_takes_the_unit() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 3 @ 1.00
        ready
        bid t2 3 @ 1.50
        lost p1/1
        withdraw p1/2
        amend t1 @ 1.50
        events
        bills
        ",
        expect![[r#"
            0s t1 bids now 3 @ 1.50
            0s t2 drops its claim on p1/3: HOLDER_RAISED
            0s t1 keeps p1/3

            nothing
        "#]],
    );
}

#[test]
fn a_rescue_by_a_unit_of_the_same_provider_is_free_in_any_market() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s
        offer p1 1 @ 1.00 in a100/eu
        bid t1 1 @ 1.00 in a100/eu
        ready
        bid t2 1 @ 2.00 type a100
        offer p1 1 @ 1.00 in a100/us
        events
        bills
        ",
        expect![[r#"
            0s p1 offers 1 @ 1.00
            0s a100/us:p1/1 is added
            0s t2 drops its claim on a100/eu:p1/1: RESCUED
            0s t2 gets a100/us:p1/1
            0s t1 keeps a100/eu:p1/1
            0s a100/eu 1.00, entry 1.05
            0s a100/us 1.00, entry -

            nothing
        "#]],
    );
}

#[test]
fn a_rescue_by_another_providers_unit_costs_the_minimum_charge() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        offer p2 1 @ 1.00
        events
        bills
        ",
        expect![[r#"
            0s p2 offers 1 @ 1.00
            0s p2/1 is added
            0s t2 pays 0.083333 for p1/1: CLAIM_DROPPED
            0s t2 drops its claim on p1/1: RESCUED
            0s t2 gets p2/1
            0s t1 keeps p1/1
            0s market 1.00, entry 1.05

            0s t2 pays 0.083333 for p1/1: CLAIM_DROPPED
        "#]],
    );
}

#[test]
fn a_claim_given_up_for_a_node_that_comes_back_is_charged() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        offer p2 1 @ 1.00
        bid t1 1 @ 3.00
        bid t2 1 @ 1.50
        ready
        at 10s withdraw p1/1        # t1 claims the node of t2
        show
        at 20s offer p1 1 @ 1.00
        events
        bills
        ",
        expect![[r#"
            t1 1 @ 3.00: p1/1 at 1.00 until 310s, claims p2/1
            t2 1 @ 1.50: p2/1 at 1.00 until 310s for t1, wants 1
            market 1.50, entry 3.15

            20s p1 offers 1 @ 1.00
            20s p1/1 is back
            20s t1 pays 0.125 for p2/1: CLAIM_DROPPED
            20s t1 drops its claim on p2/1: RESCUED
            20s t1 keeps p1/1
            20s t2 keeps p2/1
            20s market 1.00, entry 1.575

            20s t1 pays 0.125 for p2/1: CLAIM_DROPPED
        "#]],
    );
}

#[test]
fn to_lower_to_shrink_to_expire_and_to_begin_to_sell_are_charged() {
    check(
        "
        market min_runtime=0s
        offer p1 4 @ 1.00
        bid t1 4 @ 1.00
        ready
        bid t2 1 @ 2.00
        bid t3 2 @ 2.00
        bid t4 1 @ 2.00 until 60s
        at 10s amend t2 @ 1.00
        at 20s amend t3 to 1
        at 30s offer t3 1 @ 5.00
        at 60s
        bills
        ",
        expect![[r#"
            10s t2 pays 0.083333 for p1/4: CLAIM_DROPPED
            20s t3 pays 0.083333 for p1/2: CLAIM_DROPPED
            30s t3 pays 0.083333 for p1/3: CLAIM_DROPPED
            60s t4 pays 0.083333 for p1/1: CLAIM_DROPPED
        "#]],
    );
}

#[test]
fn notices_for_nothing_by_own_supply_cost_what_they_should() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 0.50
        bid t1 3 @ 2.00
        ready
        bid griefer 3 @ 2.20
        at 10s offer griefer 1 @ 9.00
        bills
        ",
        expect![[r#"
            10s griefer pays 0.166666 for p1/1: CLAIM_DROPPED
            10s griefer pays 0.166666 for p1/2: CLAIM_DROPPED
            10s griefer pays 0.166666 for p1/3: CLAIM_DROPPED
        "#]],
    );
}

#[test]
fn the_charge_is_what_the_claim_would_have_paid_before_the_command() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 2 @ 1.40
        ready
        bid t2 1 @ 3.00
        bid t3 1 @ 1.45
        at 10s amend t2 @ 1.00
        bills
        ",
        expect![[r#"
            10s t2 pays 0.116666 for p1/2: CLAIM_DROPPED
        "#]],
    );
}
