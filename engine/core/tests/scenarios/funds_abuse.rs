//! R19: the ways in which an account could spend more than it has, or evict others for nothing.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_raise_under_notice_is_reserved() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 0.50
        fund t1 set 0.25
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 5.00
        funds
        amend t1 @ 2.00
        amend t1 @ 1.50
        funds
        at 300s
        bills
        ",
        expect![[r#"
            t1 0.25: 0.166667 reserved, 0.083333 available
            amend t1 @ 2.00: NO_FUNDS

            t1 0.25: 0.25 reserved, 0.00 available

            300s t1 pays 0.041666 for p1/1: OUTBID
        "#]],
    );
}

#[test]
fn a_month_that_begins_pays_no_cost_of_the_last_one() {
    check(
        "
        market a100/eu tick=1.00 ceiling_max=1000000000000
        offer p1 1 @ 1.00
        budget t1 800
        bid t1 1 @ 1.00
        ready
        at 2678400s
        events
        funds
        at 5097600s
        funds
        show
        ",
        expect![[r#"
            900s market 1.00, entry 2.00
            2678400s t1 has 1544.00 from this month on

            t1 1544.00: 744.166667 reserved, 799.833333 available

            t1 2216.00: 1416.166667 reserved, 799.833333 available

            t1 1 @ 1.00: p1/1 at 1.00
            market 1.00, entry 2.00
        "#]],
    );
}

#[test]
fn changed_rules_bill_for_no_longer_than_is_reserved() {
    check(
        "
        offer p1 1 @ 1.00
        fund t1 set 0.20
        bid t1 1 @ 1.00
        ready
        rules notice=3600s min_charge=3600s
        at 300s
        events
        at 600s
        bills
        fund t2 set 0.20
        rules notice=300s min_charge=300s
        bid t2 1 @ 1.00
        rules min_charge=3600s
        release p1/1
        bills
        ",
        expect![[r#"
            300s t1 must leave p1/1 by 600s: FUNDS
            300s market 1.00, entry 1.00

            600s t1 pays 0.166666 for p1/1: FUNDS

            600s t2 pays 0.083333 for p1/1: RELEASED
        "#]],
    );
}

#[test]
fn a_lowered_ceiling_pays_nothing_twice() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        fund t1 set 2.00
        bid t1 1 @ 12.00
        ready
        amend t1 @ 1.00
        bid t1 1 @ 11.00 as other
        show
        funds
        ",
        expect![[r#"
            t1 1 @ 1.00: p1/1 at 1.00
            other 1 @ 11.00: wants 1
            market 1.00, entry 1.00, 1 free

            t1 2.00: 2.00 reserved, 0.00 available
        "#]],
    );
}

#[test]
fn a_node_that_begins_at_a_renewal_without_money_pays_for_the_eviction() {
    check(
        "
        market a100/eu min_runtime=0s
        market a100/us min_runtime=0s
        offer p1 1 @ 1.00 in a100/eu
        offer p2 1 @ 1.00 in a100/us
        bid t2 1 @ 1.00 in a100/us
        ready
        at 300s
        fund t1 set 0.52
        bid t1 1 @ 2.00 in a100/eu
        bid t1 1 @ 1.05 in a100/us as rush
        ready a100/eu:p1/1
        funds
        at 600s
        events
        release a100/us:p2/1
        bills
        funds
        ",
        expect![[r#"
            t1 0.52: 0.508334 reserved, 0.011666 available

            600s t2 leaves a100/us:p2/1: OUTBID
            600s t2 pays 0.166666 for a100/us:p2/1: OUTBID
            600s rush gets a100/us:p2/1
            600s rush must leave a100/us:p2/1 by 900s: FUNDS
            600s t2 claims a100/us:p2/1: STANDING
            600s a100/us 1.00, entry 1.05

            600s t2 pays 0.166666 for a100/us:p2/1: OUTBID
            600s t1 pays 0.083333 for a100/us:p2/1: RELEASED

            t1 0.436667: 0.416667 reserved, 0.02 available
        "#]],
    );
}

#[test]
fn no_fraction_of_a_micro_dollar_is_lost() {
    check(
        "
        market tick=0.000001 min_charge=0s
        offer p1 3 @ 0.000001
        fund t1 set 0.000001
        bid t1 3 @ 0.000001
        ready
        funds
        at 900s
        show
        funds
        ",
        expect![[r#"
            t1 0.000001: 0.000001 reserved, 0.00 available

            t1 3 @ 0.000001: p1/1 at 0.000001 until 1200s, p1/2 at 0.000001 until 1200s, p1/3 at 0.000001 until 1200s, wants 3
            market 0.000001, entry 0.000001

            t1 0.000001: 0.000001 reserved, 0.00 available, 3 unfunded
        "#]],
    );
}

#[test]
fn money_that_a_start_timeout_frees_comes_before_the_renewal_of_the_same_instant() {
    check(
        "
        market start_timeout=300s
        offer p1 2 @ 1.00
        fund t1 set 0.40
        bid t1 1 @ 1.00 as works
        bid t1 1 @ 1.20 as never
        ready p1/2
        at 300s
        events
        funds
        ",
        expect![[r#"
            300s works leaves p1/1: START_TIMEOUT
            300s p1/1 rests
            300s market 1.00, entry -

            t1 0.40: 0.283334 reserved, 0.116666 available
        "#]],
    );
}

#[test]
fn the_first_funds_of_a_running_account_do_not_pay_for_the_past() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        at 2592000s
        fund t1 add 500
        funds
        +300s
        show
        ",
        expect![[r#"
            t1 1220.00: 720.166667 reserved, 499.833333 available

            t1 1 @ 1.00: p1/1 at 1.00
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn the_nodes_of_a_gang_end_one_by_one() {
    check(
        "
        offer p1 3 @ 1.00
        fund t1 set 0.60
        bid t1 3 @ 1.00 min 3
        ready
        at 300s
        show
        at 600s
        show
        funds
        ",
        expect![[r#"
            t1 3 @ 1.00: p1/1 at 1.00, p1/2 at 1.00 until 600s, p1/3 at 1.00 until 600s, wants 2
            market 1.00, entry 1.00

            t1 3 @ 1.00: p1/1 at 1.00 until 900s, wants 3
            market 1.00, entry 1.00, 2 free

            t1 0.266668: 0.25 reserved, 0.016668 available, 1 unfunded
        "#]],
    );
}

#[test]
fn a_lowering_and_a_raise_of_another_bid_take_no_claim_away() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        fund t1 set 0.80
        bid t1 1 @ 3.00 as high
        bid t1 1 @ 1.00 as low
        ready
        at 300s
        bid t2 1 @ 1.00
        show
        at 599s
        amend high @ 1.00
        funds
        amend high @ 3.00
        show
        ",
        expect![[r#"
            high 1 @ 3.00: p1/1 at 1.00
            low 1 @ 1.00: p1/2 at 1.00 until 600s for t2, wants 1
            t2 1 @ 1.00: claims p1/2
            market 1.00, entry 1.05

            t1 0.80: 0.75 reserved, 0.05 available, 1 unfunded

            high 1 @ 3.00: p1/1 at 1.00
            low 1 @ 1.00: p1/2 at 1.00 until 600s for t2, wants 1
            t2 1 @ 1.00: claims p1/2
            market 1.00, entry 1.05
        "#]],
    );
}

#[test]
fn what_a_frozen_price_costs_stays_reserved_after_the_notice_is_rescinded() {
    check(
        "
        market min_runtime=0s notice=3600s
        offer p1 1 @ 0.50
        fund t1 set 10
        bid t1 1 @ 2.00
        ready
        bid t2 1 @ 1.90
        at 200s
        amend t1 @ 0.50
        at 301s
        funds
        at 590s
        cancel t2 release
        show
        funds
        at 600s
        funds
        ",
        expect![[r#"
            t1 10.00: 2.216667 reserved, 7.783333 available

            t1 1 @ 0.50: p1/1 at 0.50
            market 0.50, entry 0.525

            t1 10.00: 2.216667 reserved, 7.783333 available

            t1 10.00: 0.854445 reserved, 9.145555 available
        "#]],
    );
}

#[test]
fn a_rescue_pays_for_no_own_node_with_the_money_of_its_claim() {
    check(
        "
        offer p1 1 @ 1.00
        fund t1 set 0.44
        bid t1 1 @ 2.20 as dear
        bid t1 1 @ 1.00 as cheap
        ready
        at 300s
        show
        fund t1 add 0.05
        offer p1 2 @ 1.00
        show
        funds
        ",
        expect![[r#"
            dear 1 @ 2.20: p1/1 at 1.00 until 600s for cheap, wants 1
            cheap 1 @ 1.00: claims p1/1
            market 1.00, entry 1.05

            dear 1 @ 2.20: p1/1 at 1.00 until 600s, wants 1
            cheap 1 @ 1.00: p1/2 starting at 1.00
            market 1.00, entry 1.00

            t1 0.49: 0.433334 reserved, 0.056666 available, 1 unfunded
        "#]],
    );
}
