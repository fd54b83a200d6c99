//! R19: funds, reservations, renewals and budgets.

use crate::story::check;
use expect_test::expect;

#[test]
fn the_example_of_the_rule_in_time() {
    check(
        "
        offer p1 1 @ 1.00
        fund t1 add 0.50
        bid t1 1 @ 2.00
        ready
        funds
        at 300s
        funds
        at 600s
        funds
        at 900s
        funds
        events
        at 1000s
        fund t1 add 0.10
        funds
        show
        fund t1 add 0.05
        events
        funds
        ",
        expect![[r#"
            t1 0.50: 0.333334 reserved, 0.166666 available

            t1 0.50: 0.416667 reserved, 0.083333 available

            t1 0.50: 0.50 reserved, 0.00 available

            t1 0.50: 0.416667 reserved, 0.083333 available, 1 unfunded

            900s t1 must leave p1/1 by 1200s: FUNDS
            900s market 1.00, entry 1.00

            t1 0.60: 0.416667 reserved, 0.183333 available, 1 unfunded

            t1 1 @ 2.00: p1/1 at 1.00 until 1200s, wants 1
            market 1.00, entry 1.00

            1000s t1 has 0.65
            1000s t1 keeps p1/1
            1000s market 1.00, entry 2.10

            t1 0.65: 0.611112 reserved, 0.038888 available
        "#]],
    );
}

#[test]
fn a_node_without_funds_ends_and_is_charged() {
    check(
        "
        offer p1 1 @ 1.00
        fund t1 add 0.50
        bid t1 1 @ 2.00
        ready
        at 1200s
        events
        funds
        bills
        ",
        expect![[r#"
            900s t1 must leave p1/1 by 1200s: FUNDS
            900s market 1.00, entry 1.00
            1200s t1 leaves p1/1: FUNDS
            1200s t1 pays 0.333333 for p1/1: FUNDS

            t1 0.166667: 0.00 reserved, 0.166667 available

            1200s t1 pays 0.333333 for p1/1: FUNDS
        "#]],
    );
}

#[test]
fn a_bid_without_funds_is_placed_and_waits_until_there_are_some() {
    check(
        "
        offer p1 1 @ 1.00
        fund t1 set 0.10
        bid t1 1 @ 1.00
        show
        fund t1 add 0.10
        show
        funds
        ",
        expect![[r#"
            t1 1 @ 1.00: wants 1
            market 1.00, entry 1.00, 1 free

            t1 1 @ 1.00: p1/1 starting at 1.00
            market 1.00, entry -

            t1 0.20: 0.166667 reserved, 0.033333 available
        "#]],
    );
}

#[test]
fn a_cheaper_bid_takes_what_is_too_little_for_a_dearer_one() {
    check(
        "
        offer p1 2 @ 1.00
        fund t1 set 0.20
        bid t1 1 @ 2.00 as dear
        bid t1 1 @ 1.10 as cheap
        bid t2 1 @ 1.00
        show
        ",
        expect![[r#"
            dear 1 @ 2.00: wants 1
            cheap 1 @ 1.10: p1/1 starting at 1.00
            t2 1 @ 1.00: p1/2 starting at 1.00
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn a_gang_takes_part_with_the_money_for_its_minimum() {
    check(
        "
        offer p1 3 @ 1.00
        fund t1 set 0.30
        bid t1 3 @ 1.00 min 2
        show
        fund t1 add 0.04
        show
        funds
        ",
        expect![[r#"
            t1 3 @ 1.00: wants 3
            market 1.00, entry 1.00, 3 free

            t1 3 @ 1.00: p1/1 starting at 1.00, p1/2 starting at 1.00, wants 1
            market 1.00, entry 1.00, 1 free

            t1 0.34: 0.333334 reserved, 0.006666 available
        "#]],
    );
}

#[test]
fn a_bid_without_funds_sets_no_price() {
    check(
        "
        offer p1 1 @ 1.00
        bid t2 1 @ 3.00
        ready
        bid t1 1 @ 2.00
        numbers
        fund t1 set 0
        numbers
        fund t1 unlimited
        numbers
        ",
        expect![[r#"
            market 2.00, entry -, floor 1.00, lowest 3.00, losing 2.00
            units 1: 0 free, 1 allocated, 0 notice, 0 claimed

            market 1.00, entry -, floor 1.00, lowest 3.00, losing 0.00
            units 1: 0 free, 1 allocated, 0 notice, 0 claimed

            market 2.00, entry -, floor 1.00, lowest 3.00, losing 2.00
            units 1: 0 free, 1 allocated, 0 notice, 0 claimed
        "#]],
    );
}

#[test]
fn a_raise_is_refused_if_it_is_not_covered_and_a_lowering_frees_money_at_the_next_renewal() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        fund t1 set 0.70
        bid t1 1 @ 2.00
        ready
        amend t1 @ 4.30
        amend t1 @ 4.20
        funds
        amend t1 @ 1.00
        funds
        amend t1 @ 4.20  # it is reserved still
        amend t1 @ 1.00
        at 300s
        funds
        amend t1 @ 4.20
        ",
        expect![[r#"
            amend t1 @ 4.30: NO_FUNDS

            t1 0.70: 0.70 reserved, 0.00 available

            t1 0.70: 0.70 reserved, 0.00 available

            t1 0.70: 0.25 reserved, 0.45 available
            amend t1 @ 4.20: NO_FUNDS

            t1 1 @ 1.00: p1/1 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn an_account_with_nothing_left_is_rescued_with_the_money_of_its_claim() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t2 1 @ 1.00
        ready
        fund t1 set 0.333334
        bid t1 1 @ 2.00
        funds
        offer p1 2 @ 1.00
        events
        funds
        ",
        expect![[r#"
            t1 0.333334: 0.333334 reserved, 0.00 available

            0s p1 offers 2 @ 1.00
            0s p1/2 is added
            0s t1 drops its claim on p1/1: RESCUED
            0s t1 gets p1/2
            0s t2 keeps p1/1
            0s market 1.00, entry 1.05

            t1 0.333334: 0.333334 reserved, 0.00 available
        "#]],
    );
}

#[test]
fn a_rescue_that_would_cost_more_than_there_is_does_not_happen() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t2 1 @ 1.00
        ready
        fund t1 set 0.333334
        bid t1 1 @ 2.00
        offer p2 1 @ 1.00
        show
        fund t1 add 0.09
        events
        funds
        ",
        expect![[r#"
            t2 1 @ 1.00: p1/1 at 1.00 until 300s for t1, p2/1 starting at 1.00
            t1 1 @ 2.00: claims p1/1
            market 1.00, entry 2.10

            0s t1 has 0.423334

            t1 0.423334: 0.333334 reserved, 0.09 available
        "#]],
    );
}

#[test]
fn a_rescue_that_lacks_nothing_happens_also_after_a_cut() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t2 1 @ 1.00
        ready
        fund t1 set 1
        bid t1 1 @ 2.00
        fund t1 set 0
        offer p1 2 @ 1.00
        events
        funds
        ",
        expect![[r#"
            0s p1 offers 2 @ 1.00
            0s p1/2 is added
            0s t1 drops its claim on p1/1: RESCUED
            0s t1 gets p1/2
            0s t2 keeps p1/1
            0s market 1.00, entry 1.05

            t1 0.00: 0.333334 reserved, -0.333334 available
        "#]],
    );
}

#[test]
fn a_claim_keeps_its_reservation_as_a_node() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t2 1 @ 1.00
        ready
        fund t1 set 0.50
        bid t1 1 @ 2.00
        rules notice=600s min_charge=600s
        renewals 60s
        at 299s
        funds
        at 300s
        events
        funds
        at 360s
        funds
        ",
        expect![[r#"
            t1 0.50: 0.333334 reserved, 0.166666 available

            300s t2 leaves p1/1: OUTBID
            300s t2 pays 0.083333 for p1/1: OUTBID
            300s t1 gets p1/1
            300s market 1.00, entry -

            t1 0.50: 0.366667 reserved, 0.133333 available

            t1 0.50: 0.366667 reserved, 0.133333 available
        "#]],
    );
}

#[test]
fn money_that_comes_after_the_unit_was_claimed_lets_the_claim_stand() {
    check(
        "
        offer p1 1 @ 1.00
        fund t1 set 0.17
        bid t1 1 @ 1.00
        ready
        at 300s
        bid t2 1 @ 1.50
        show
        fund t1 set 10
        show
        amend t1 @ 1.60
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 600s for t2, wants 1
            t2 1 @ 1.50: claims p1/1
            market 1.00, entry 1.575

            t1 1 @ 1.00: p1/1 at 1.00 until 600s for t2, wants 1
            t2 1 @ 1.50: claims p1/1
            market 1.00, entry 1.575

            t1 1 @ 1.60: p1/1 at 1.50
            t2 1 @ 1.50: wants 1
            market 1.50, entry -
        "#]],
    );
}

#[test]
fn the_dearest_live_nodes_are_renewed_first() {
    check(
        "
        offer p1 3 @ 1.00
        fund t1 set 0.80
        bid t1 1 @ 1.00 as low
        bid t1 1 @ 1.20 as high
        bid t1 1 @ 1.10 as middle
        ready
        at 300s
        funds
        fund t1 set 0.715
        funds
        at 600s
        events
        funds
        ",
        expect![[r#"
            t1 0.80: 0.80 reserved, 0.00 available

            t1 0.965: 0.80 reserved, 0.165 available

            600s middle must leave p1/3 by 900s: FUNDS
            600s market 1.00, entry 1.00

            t1 0.965: 0.958334 reserved, 0.006666 available, 1 unfunded
        "#]],
    );
}

#[test]
fn the_notices_of_a_renewal_come_in_the_order_of_the_nodes() {
    check(
        "
        offer p1 3 @ 1.00
        fund t1 set 0.65
        bid t1 1 @ 1.00 as low
        bid t1 1 @ 1.20 as high
        bid t1 1 @ 1.10 as middle
        ready
        fund t1 set 0.30
        at 300s
        events
        ",
        expect![[r#"
            300s low must leave p1/1 by 600s: FUNDS
            300s high must leave p1/2 by 600s: FUNDS
            300s middle must leave p1/3 by 600s: FUNDS
            300s market 1.00, entry 1.00
        "#]],
    );
}

#[test]
fn a_deadline_that_cannot_be_paid_moves_and_its_reason_stays() {
    check(
        "
        market min_runtime=7200s
        offer p1 1 @ 1.00
        fund t1 set 0.20
        bid t1 1 @ 1.00
        ready
        withdraw p1/1
        events
        at 300s
        events
        at 600s
        events
        ",
        expect![[r#"
            0s p1/1 is leaving
            0s t1 must leave p1/1 by 7200s: CAPACITY_WITHDRAWN
            0s market 0.00, entry -

            300s t1 must leave p1/1 by 600s already

            600s t1 leaves p1/1: CAPACITY_WITHDRAWN
            600s t1 pays 0.166666 for p1/1: CAPACITY_WITHDRAWN
            600s p1/1 is removed
        "#]],
    );
}

#[test]
fn a_cut_gives_no_notice_before_the_next_renewal() {
    check(
        "
        offer p1 2 @ 1.00
        fund t1 set 10
        bid t1 1 @ 1.00
        ready
        at 100s
        fund t1 set 0
        show
        funds
        bid t1 1 @ 1.00 as more
        at 300s
        show
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00
            market 1.00, entry 1.00, 1 free

            t1 0.027777: 0.166667 reserved, -0.13889 available

            t1 1 @ 1.00: p1/1 at 1.00 until 600s, wants 1
            more 1 @ 1.00: wants 1
            market 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn the_account_is_unlimited_again_and_its_unfunded_node_comes_back() {
    check(
        "
        offer p1 1 @ 1.00
        fund t1 set 0.17
        bid t1 1 @ 1.00
        ready
        at 400s
        show
        fund t1 unlimited
        events
        funds
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00 until 600s, wants 1
            market 1.00, entry 1.00

            400s t1 has unlimited funds
            400s t1 keeps p1/1
            400s market 1.00, entry -

            nothing
        "#]],
    );
}

#[test]
fn budgets_begin_with_a_month_of_utc_and_limit_an_unlimited_account_at_once() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        at 3600s
        budget t1 100
        events
        funds
        fund t2 set 5
        budget t2 10 rolls
        budget t3 none
        events
        at 2678399.999999s
        funds
        at 2678400s
        events
        funds
        at 5097600s
        events
        budget t1 none
        events
        at 7776000s
        funds
        ",
        expect![[r#"
            3600s t1 has 101.00, and 100.00 each month

            t1 101.00: 1.166667 reserved, 99.833333 available

            3600s t3 has unlimited funds, and no budget

            t1 0.00: 0.00 reserved, 0.00 available
            t2 5.00: 0.00 reserved, 5.00 available

            2678400s t1 has 100.00 from this month on
            2678400s t2 has 15.00 from this month on
            2678400s t1 gets p1/1
            2678400s market 1.00, entry -

            t1 100.00: 0.166667 reserved, 99.833333 available
            t2 15.00: 0.00 reserved, 15.00 available

            2679300s t1 leaves p1/1: START_TIMEOUT
            2679300s p1/1 rests
            2679300s market 1.00, entry -
            5097600s t1 has 100.00 from this month on
            5097600s t2 has 25.00 from this month on

            5097600s t1 has 100.00, and no budget

            t1 100.00: 0.00 reserved, 100.00 available
            t2 35.00: 0.00 reserved, 35.00 available
        "#]],
    );
}

#[test]
fn a_month_comes_before_the_renewal_of_the_same_instant() {
    check(
        "
        market a100/eu tick=1.00 ceiling_max=1000000000000
        offer p1 1 @ 1.00
        budget t1 744.10
        bid t1 1 @ 1.00
        ready
        at 2678400s
        events
        funds
        ",
        expect![[r#"
            900s market 1.00, entry 2.00
            2678400s t1 has 1488.10 from this month on

            t1 1488.10: 744.166667 reserved, 743.933333 available
        "#]],
    );
}

#[test]
fn a_renewal_leaves_an_unfunded_node_as_it_is() {
    check(
        "
        market notice=900s
        offer p1 1 @ 1.00
        fund t1 set 0.35
        bid t1 1 @ 1.00
        ready
        at 300s
        bid t2 1 @ 1.50
        fund t1 add 5
        funds
        at 600s
        funds
        show
        ",
        expect![[r#"
            t1 5.35: 0.333334 reserved, 5.016666 available, 1 unfunded

            t1 5.35: 0.333334 reserved, 5.016666 available, 1 unfunded

            t1 1 @ 1.00: p1/1 at 1.00 until 1200s for t2, wants 1
            t2 1 @ 1.50: claims p1/1
            market 1.00, entry 1.575
        "#]],
    );
}

#[test]
fn a_free_unit_is_given_before_a_node_comes_back_whose_bid_could_displace() {
    check(
        "
        market a100/us min_runtime=0s
        market a100/eu
        offer p1 2 @ 1.00 in a100/us
        offer p1 1 @ 1.00 in a100/eu
        bid t2 1 @ 1.00 in a100/us
        fund t1 set 0.35
        bid t1 1 @ 2.00 in a100/us as high
        ready a100/us:p1/1
        ready a100/us:p1/2
        at 300s
        bid t1 1 @ 1.00 in a100/eu as other
        fund t1 set 5
        events
        ",
        expect![[r#"
            300s t1 has 5.083333
            300s other gets a100/eu:p1/1
            300s high keeps a100/us:p1/2
            300s a100/us 1.00, entry 1.05
            300s a100/eu 1.00, entry -
        "#]],
    );
}

#[test]
fn commands_about_funds_are_refused_in_this_order() {
    check(
        "
        fund t1 add 2000000000000 keyless
        fund t1 add 1000000000000.000001
        fund t1 add -1000000000000.000001
        fund t1 set -0.000001
        fund t1 set 1000000000000.000001
        budget t1 -0.000001
        renewals 0.999999s
        renewals 86400.000001s
        fund t1 add 1 key k
        fund t1 add 1 key k
        fund t1 add 2 key k
        budget t1 5 key k
        at 200000s
        fund t1 add 1 key k  # these keys are kept for longer than a day
        bid t1 1 @ 1.00 key k  # and apart from those of the account
        funds
        ",
        expect![[r#"
            fund t1 add 2000000000000 keyless: KEY_REQUIRED
            fund t1 add 1000000000000.000001: BAD_AMOUNT
            fund t1 add -1000000000000.000001: BAD_AMOUNT
            fund t1 set -0.000001: BAD_AMOUNT
            fund t1 set 1000000000000.000001: BAD_AMOUNT
            budget t1 -0.000001: BAD_AMOUNT
            renewals 0.999999s: BAD_RULE
            renewals 86400.000001s: BAD_RULE
            fund t1 add 1 key k: REPEATED, ACCEPTED
            fund t1 add 2 key k: KEY_CONFLICT
            budget t1 5 key k: KEY_CONFLICT
            fund t1 add 1 key k: REPEATED, ACCEPTED

            t1 1.00: 0.00 reserved, 1.00 available
        "#]],
    );
}

#[test]
fn a_bid_takes_part_in_one_market_and_not_in_another() {
    check(
        "
        market a100/eu
        market a100/us notice=3600s
        offer p1 1 @ 1.00 in a100/eu
        offer p1 1 @ 0.50 in a100/us
        fund t1 set 0.20
        bid t1 2 @ 1.00 type a100
        show
        fund t1 set 2
        show
        ",
        expect![[r#"
            t1 2 @ 1.00: a100/eu:p1/1 starting at 1.00, wants 1
            a100/eu 1.00, entry -
            a100/us 0.50, entry 0.50, 1 free

            t1 2 @ 1.00: a100/eu:p1/1 starting at 1.00, a100/us:p1/1 starting at 0.50
            a100/eu 1.00, entry -
            a100/us 0.50, entry -
        "#]],
    );
}
