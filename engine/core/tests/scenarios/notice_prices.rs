//! R8 and R2: the price of a node under notice stands still, and a raise under notice locks the ceiling. Stories in time: who
//! lowers and raises again and again gains nothing.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_tenant_that_lowers_and_raises_pays_what_it_paid_before() {
    check(
        "
        offer p1 2 @ 0.50
        bid t1 2 @ 9.00
        bid t2 1 @ 1.90
        ready
        show
        at 900s amend t1 @ 0.50     # t2 claims one node; its demand is met, so the price falls
        show
        at 1199s amend t1 @ 9.00
        show
        at 1200s amend t1 @ 0.50
        at 2098s amend t1 @ 0.50
        at 2099s amend t1 @ 0.50
        show
        at 4500s cancel t1 release
        bills
        ",
        expect![[r#"
            t1 2 @ 9.00: p1/1 at 1.90, p1/2 at 1.90
            t2 1 @ 1.90: wants 1
            market 1.90, entry -

            t1 2 @ 0.50: p1/1 at 0.50, p1/2 at 1.90 until 1200s for t2, wants 1
            t2 1 @ 1.90: claims p1/2
            market 0.50, entry 0.525

            t1 2 @ 9.00: p1/1 at 1.90, p1/2 at 1.90
            t2 1 @ 1.90: wants 1
            market 1.90, entry 9.45
            at 1200s amend t1 @ 0.50: PROTECTED
            at 2098s amend t1 @ 0.50: PROTECTED

            t1 2 @ 0.50: p1/1 at 0.50, p1/2 at 1.90 until 2399s for t2, wants 1
            t2 1 @ 1.90: claims p1/2
            market 0.50, entry 0.525

            2399s t1 pays 1.266138 for p1/2: OUTBID
            3599s t1 pays 1.199861 for p1/1: OUTBID
        "#]],
    );
}

#[test]
fn an_outbid_node_pays_the_frozen_price_whatever_becomes_of_the_market() {
    check(
        "
        market min_runtime=0s
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        bid t2 1 @ 1.90
        show
        at 100s bid t3 1 @ 3.00
        show
        at 150s cancel t2 keep
        at 200s offer p1 1 @ 0.10
        show
        at 400s
        bills
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.90
            t2 1 @ 1.90: wants 1
            market 1.90, entry 2.10

            t1 1 @ 2.00: p1/1 at 1.90 until 400s for t3, wants 1
            t2 1 @ 1.90: wants 1
            t3 1 @ 3.00: claims p1/1
            market 2.00, entry 3.15

            t1 1 @ 2.00: p1/1 at 1.90 until 400s for t3, wants 1
            t3 1 @ 3.00: claims p1/1
            market 2.00, entry 3.15

            400s t1 pays 0.211111 for p1/1: OUTBID
        "#]],
    );
}

#[test]
fn under_a_providers_notice_the_price_may_fall_and_never_rises() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 1 @ 5.00
        bid t2 1 @ 4.00
        bid t3 1 @ 2.00
        ready
        show
        at 100s withdraw p1/1       # t1 pays 2.00, and asks for another node
        show
        at 200s cancel t3 keep
        show
        at 300s bid t4 1 @ 3.50
        show
        at 400s
        show
        bills
        ",
        expect![[r#"
            t1 1 @ 5.00: p1/1 at 2.00
            t2 1 @ 4.00: p1/2 at 2.00
            t3 1 @ 2.00: wants 1
            market 2.00, entry 4.20

            t1 1 @ 5.00: p1/1 at 2.00 until 400s, claims p1/2
            t2 1 @ 4.00: p1/2 at 2.00 until 400s for t1, wants 1
            t3 1 @ 2.00: wants 1
            market 4.00, entry 5.25

            t1 1 @ 5.00: p1/1 at 2.00 until 400s, claims p1/2
            t2 1 @ 4.00: p1/2 at 2.00 until 400s for t1, wants 1
            market 4.00, entry 5.25

            t1 1 @ 5.00: p1/1 at 2.00 until 400s, claims p1/2
            t2 1 @ 4.00: p1/2 at 2.00 until 400s for t1, wants 1
            t4 1 @ 3.50: wants 1
            market 4.00, entry 5.25

            t1 1 @ 5.00: p1/2 starting at 4.00
            t2 1 @ 4.00: wants 1
            t4 1 @ 3.50: wants 1
            market 4.00, entry -

            400s t1 pays 0.222222 for p1/1: CAPACITY_WITHDRAWN
            400s t2 pays 0.222222 for p1/2: OUTBID
        "#]],
    );
}

#[test]
fn the_frozen_price_is_the_one_before_the_command() {
    check(
        "
        market min_runtime=0s
        offer p2 1 @ 0.50
        bid t2 1 @ 1.00
        offer p1 2 @ 1.50
        bid t1 2 @ 2.00
        ready
        show
        at 100s offer p1 1 @ 0.10   # a lower reserve, and a notice for one of the nodes
        show
        at 200s bid t3 1 @ 0.90     # the price rises, up to what the node cost before
        show
        at 400s
        bills
        ",
        expect![[r#"
            t2 1 @ 1.00: p2/1 at 0.50
            t1 2 @ 2.00: p1/1 at 1.50, p1/2 at 1.50
            market 0.50, entry 1.05

            t2 1 @ 1.00: p2/1 at 0.50 until 400s for t1, wants 1
            t1 2 @ 2.00: p1/1 at 1.00, p1/2 at 1.00 until 400s, claims p2/1
            market 1.00, entry 2.10

            t2 1 @ 1.00: p2/1 at 0.50 until 400s for t1, wants 1
            t1 2 @ 2.00: p1/1 at 1.00, p1/2 at 1.00 until 400s, claims p2/1
            t3 1 @ 0.90: wants 1
            market 1.00, entry 2.10

            400s t2 pays 0.055555 for p2/1: OUTBID
            400s t1 pays 0.125 for p1/2: CAPACITY_WITHDRAWN
        "#]],
    );
}

#[test]
fn a_provider_that_withdraws_a_unit_and_puts_it_back_is_paid_no_more() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 1 @ 2.00
        bid t2 1 @ 3.00
        bid t3 1 @ 4.00
        ready
        withdraw p1/3
        show
        at 299s offer p1 3 @ 1.00
        show
        withdraw p1/3
        at 598s offer p1 3 @ 1.00
        withdraw p1/3
        show
        numbers
        at 3600s
        show
        bills
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.00 until 300s for t3, wants 1
            t2 1 @ 3.00: p1/2 at 2.00
            t3 1 @ 4.00: p1/3 at 1.00 until 300s, claims p1/1
            market 2.00, entry 3.15

            t1 1 @ 2.00: p1/1 at 1.00
            t2 1 @ 3.00: p1/2 at 1.00
            t3 1 @ 4.00: p1/3 at 1.00
            market 1.00, entry 2.10

            t1 1 @ 2.00: p1/1 at 1.00 until 898s for t3, wants 1
            t2 1 @ 3.00: p1/2 at 2.00
            t3 1 @ 4.00: p1/3 at 1.00 until 898s, claims p1/1
            market 2.00, entry 3.15

            market 2.00, entry 3.15, floor 1.00, lowest 3.00, losing 2.00
            units 3: 0 free, 1 allocated, 2 notice, 1 claimed

            t1 1 @ 2.00: wants 1
            t2 1 @ 3.00: wants 1
            t3 1 @ 4.00: wants 1
            market 4.00, entry -, 2 resting

            299s t3 pays 0.166666 for p1/1: CLAIM_DROPPED
            598s t3 pays 0.166666 for p1/1: CLAIM_DROPPED
            898s t1 pays 0.249444 for p1/1: OUTBID
            898s t3 pays 0.249444 for p1/3: CAPACITY_WITHDRAWN
            2098s t2 pays 1.165555 for p1/2: OUTBID
        "#]],
    );
}

#[test]
fn a_provider_that_withdraws_units_at_one_ceiling_and_puts_them_back_is_paid_no_more() {
    check(
        "
        market min_runtime=0s
        offer p1 3 @ 1.00
        bid t1 1 @ 2.00
        bid t2 1 @ 2.00
        bid t3 1 @ 2.00
        ready
        withdraw p1/3
        show
        at 299s offer p1 3 @ 1.00
        withdraw p1/3
        at 598s offer p1 3 @ 1.00
        at 3600s cancel t1 release
        cancel t2 release
        cancel t3 release
        bills
        ",
        expect![[r#"
            t1 1 @ 2.00: p1/1 at 1.00
            t2 1 @ 2.00: p1/2 at 1.00
            t3 1 @ 2.00: p1/3 at 1.00 until 300s, wants 1
            market 1.00, entry 2.10

            3600s t1 pays 1.00 for p1/1: RELEASED
            3600s t2 pays 1.00 for p1/2: RELEASED
            3600s t3 pays 1.00 for p1/3: RELEASED
        "#]],
    );
}

#[test]
fn demand_beyond_what_a_providers_notice_gave_back_counts_at_once() {
    check(
        "
        market min_runtime=0s
        offer p1 2 @ 1.00
        bid t1 1 @ 5.00
        bid t2 1 @ 4.00
        ready
        withdraw p1/2
        show
        amend t2 to 2               # one node more than it had
        show
        ",
        expect![[r#"
            t1 1 @ 5.00: p1/1 at 1.00
            t2 1 @ 4.00: p1/2 at 1.00 until 300s, wants 1
            market 1.00, entry 5.25

            t1 1 @ 5.00: p1/1 at 4.00
            t2 2 @ 4.00: p1/2 at 1.00 until 300s, wants 2
            market 4.00, entry 5.25
        "#]],
    );
}

#[test]
fn a_raise_under_notice_locks_the_ceiling_for_the_longest_minimum_runtime_even_if_it_was_too_low() {
    check(
        "
        market a100/eu
        market a100/us min_runtime=1800s
        offer p1 1 @ 1.00 in a100/eu
        offer p2 1 @ 1.00 in a100/us
        bid t1 2 @ 2.00 type a100
        ready
        at 1800s bid t2 2 @ 3.00 type a100
        events
        at 2000s amend t1 @ 2.50
        at 2100s amend t1 @ 2.00    # both nodes are still under notice
        at 2100s amend t1 to 1
        at 3799s amend t1 @ 2.00
        at 3800s amend t1 @ 2.00
        show
        ",
        expect![[r#"
            900s a100/eu 1.00, entry 2.10
            1800s a100/us 1.00, entry 2.10
            1800s t2 bids 2 @ 3.00 for any a100
            1800s t1 must leave a100/eu:p1/1 by 2100s: OUTBID
            1800s t2 claims a100/eu:p1/1: DISPLACED
            1800s t1 must leave a100/us:p2/1 by 2100s: OUTBID
            1800s t2 claims a100/us:p2/1: DISPLACED
            1800s a100/eu 2.00, entry 3.15
            1800s a100/us 2.00, entry 3.15
            at 2100s amend t1 @ 2.00: PROTECTED
            at 3799s amend t1 @ 2.00: PROTECTED

            t1 1 @ 2.00: wants 1
            t2 2 @ 3.00: wants 2
            a100/eu 3.00, entry -, 1 resting
            a100/us 3.00, entry -, 1 resting
        "#]],
    );
}

#[test]
fn a_locked_ceiling_may_be_raised_released_and_cancelled() {
    check(
        "
        market min_runtime=900s
        offer p1 2 @ 1.00
        bid t1 2 @ 2.00
        ready
        at 900s bid t2 1 @ 3.00
        at 1000s amend t1 @ 4.00
        at 1001s amend t1 @ 5.00
        release p1/1
        cancel t1 release
        show
        ",
        expect![[r#"
            t2 1 @ 3.00: p1/1 starting at 1.00
            market 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn the_lock_comes_before_the_reserve_and_ends_to_the_microsecond() {
    check(
        "
        market min_runtime=10s
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        ready
        at 10s bid t2 1 @ 3.00
        at 20s amend t1 @ 4.00
        at 29.999999s amend t1 @ 0.50
        at 30s amend t1 @ 0.50
        at 30s amend t1 @ 1.00
        show
        ",
        expect![[r#"
            at 29.999999s amend t1 @ 0.50: PROTECTED
            at 30s amend t1 @ 0.50: BELOW_RESERVE

            t1 1 @ 1.00: p1/1 at 3.00 until 330s for t2, wants 1
            t2 1 @ 3.00: claims p1/1
            market 1.00, entry 3.15
        "#]],
    );
}
