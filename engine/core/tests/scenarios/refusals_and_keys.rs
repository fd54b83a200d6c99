//! R16: refusals, and repeated answers.

use crate::story::check;
use expect_test::expect;

#[test]
fn a_key_repeats_the_first_answer_whatever_it_was() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00 key k
        bid t1 1 @ 2.00 key k
        bid t1 1 @ 2.10 key k
        bid t2 1 @ 0.00005 key k
        +100s bid t2 1 @ 0.00005 key k
        bid t2 1 @ 1.00 key other
        show
        ",
        expect![[r#"
            bid t1 1 @ 2.00 key k: REPEATED, ACCEPTED
            bid t1 1 @ 2.10 key k: KEY_CONFLICT
            bid t2 1 @ 0.00005 key k: NOT_A_TICK
            +100s bid t2 1 @ 0.00005 key k: REPEATED, NOT_A_TICK

            t1 1 @ 2.00: p1/1 starting at 1.00
            t2 1 @ 1.00: wants 1
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn a_key_lives_for_24_hours_of_market_time_from_its_first_use() {
    check(
        "
        bid t1 1 @ 1.00 key k
        at 86399s bid t1 1 @ 1.00 key k
        at 86399s bid t1 1 @ 1.10 key k
        at 86400s bid t1 as again 1 @ 1.00 key k
        show
        ",
        expect![[r#"
            at 86399s bid t1 1 @ 1.00 key k: REPEATED, ACCEPTED
            at 86399s bid t1 1 @ 1.10 key k: KEY_CONFLICT

            t1 1 @ 1.00: wants 1
            again 1 @ 1.00: wants 1
            market 1.00, entry -
        "#]],
    );
}

#[test]
fn a_key_belongs_to_its_account() {
    check(
        "
        offer p1 1 @ 1.00 key k
        bid t1 1 @ 2.00 key k
        bid t2 1 @ 2.00 key k
        ready p1/1 by t1 key ready
        ready p1/1 by t1 key ready
        ready p1/1 by p1 key ready
        ready p1/1 by t2 key ready
        ",
        expect![[r#"
            ready p1/1 by t1 key ready: REPEATED, ACCEPTED
            ready p1/1 by p1 key ready: ALREADY_READY
            ready p1/1 by t2 key ready: NOT_YOURS

            t1 1 @ 2.00: p1/1 at 2.00
            t2 1 @ 2.00: wants 1
            market 2.00, entry -
        "#]],
    );
}

#[test]
fn the_first_check_that_fails_is_the_answer() {
    check(
        "
        market tick=0.01 ceiling_max=10.00 bid_nodes_max=5
        bid t1 0 @ 0.001 in b200/us
        bid t1 6 min 7 @ 0.001
        bid t1 6 @ 20.001
        bid t1 5 @ 20.001 until 0s
        bid t1 5 @ 20.00 until 0s
        bid t1 5 @ 10.00 until 0s
        bid t1 5 @ 10.00 until 9s ioc
        numbers
        ",
        expect![[r#"
            bid t1 0 @ 0.001 in b200/us: UNKNOWN_MARKET
            bid t1 6 min 7 @ 0.001: BAD_NODES
            bid t1 6 @ 20.001: TOO_MANY_NODES
            bid t1 5 @ 20.001 until 0s: NOT_A_TICK
            bid t1 5 @ 20.00 until 0s: CEILING_TOO_HIGH
            bid t1 5 @ 10.00 until 0s: EXPIRED
            bid t1 5 @ 10.00 until 9s ioc: BAD_TIF

            market 0.00, entry -, floor -, lowest -, losing 0.00
            units 0: 0 free, 0 allocated, 0 notice, 0 claimed
        "#]],
    );
}

#[test]
fn nobody_commands_what_is_somebody_elses() {
    check(
        "
        offer p1 1 @ 1.00
        bid t1 1 @ 2.00
        amend t1 @ 3.00 by t2
        cancel t1 release by t2
        release p1/1 by t2
        withdraw p1/1 by p2
        lost p1/1 by p2
        amend t9 @ 3.00
        release node-1 by t1
        release node-1 by t1
        release node-2 by t1
        ",
        expect![[r#"
            amend t1 @ 3.00 by t2: NOT_YOURS
            cancel t1 release by t2: NOT_YOURS
            release p1/1 by t2: NOT_YOURS
            withdraw p1/1 by p2: NOT_YOURS
            lost p1/1 by p2: NOT_YOURS
            amend t9 @ 3.00: UNKNOWN_BID
            release node-1 by t1: ENDED
            release node-2 by t1: UNKNOWN_ALLOCATION

            market 1.00, entry 1.00, 1 free
        "#]],
    );
}

#[test]
fn the_rules_of_a_market_are_checked_before_any_of_them_is_changed() {
    check(
        "
        market tick=0.01
        market a100/eu
        rules tick=0.02
        rules notice=60s tick=0.02
        rules notice=60s colour=red
        rules notice=60s fee=10001
        rules tick=0.01 min_runtime=0s  # the same tick is none other
        offer p1 1 @ 1.00
        bid t1 1 @ 1.00
        ready
        bid t2 1 @ 2.00
        ",
        expect![[r#"
            market a100/eu: MARKET_EXISTS
            rules tick=0.02: BAD_RULE
            rules notice=60s tick=0.02: BAD_RULE
            rules notice=60s colour=red: UNKNOWN_RULE
            rules notice=60s fee=10001: BAD_RULE

            t1 1 @ 1.00: p1/1 at 1.00 until 300s for t2, wants 1
            t2 1 @ 2.00: claims p1/1
            market 1.00, entry 2.10
        "#]],
    );
}
