//! Policies that people thought of, by name.

use super::book::Role;
use super::policy::{
    Action, BasePrice, BidChoice, Condition, Count, Force, Level, MarketChoice, Mode, NewBid, NodeChoice,
    Policy, Rule, SLOTS_PER_ACCOUNT, Trigger,
};

const VALUE: Level = Level::of(BasePrice::Value, 100);
const FLOOR: Level = Level::of(BasePrice::Floor, 100);
const ENTRY: Level = Level::of(BasePrice::Entry, 100);
const MARKET: Level = Level::of(BasePrice::Market, 100);
const LOWEST: Level = Level::of(BasePrice::Lowest, 100);
const CEILING: Level = Level::of(BasePrice::Ceiling, 100);

/// Seconds after a raise under notice at which the ceiling may be lowered again under the default rules (R2).
const UNLOCKED: u16 = 3602;

/// The first slot of the second and of the third account.
const B: u8 = SLOTS_PER_ACCOUNT as u8;
const C: u8 = 2 * SLOTS_PER_ACCOUNT as u8;

/// Returns the truth of a role: a tenant bids its value for so many of its nodes, a provider offers all machines at
/// what they cost, and an agent that needs nothing does nothing.
pub fn truth(role: Role, count: Count) -> Policy {
    let rules = match role {
        Role::Tenant => honest(NewBid { count, ..NewBid::new(VALUE) }),
        Role::Seller => vec![rule(Trigger::Begin, &[], &[offer_all(VALUE)])],
        Role::Griefer => Vec::new(),
    };
    policy("truth", "Bids the value for what is needed; offers all machines at cost.", rules)
}

/// Returns the truth of a gang: all nodes or none.
pub(super) fn truth_of_gang() -> Policy {
    let all = Count::Percent(100);
    policy(
        "truth",
        "Bids the value for all nodes or none.",
        honest(NewBid { least: all, ..NewBid::new(VALUE) }),
    )
}

/// Returns the named policies of a role.
pub fn named(role: Role) -> Vec<Policy> {
    match role {
        Role::Tenant => tenants(),
        Role::Seller => sellers(),
        Role::Griefer => griefers(),
    }
}

fn policy(name: &str, about: &str, rules: Vec<Rule>) -> Policy {
    Policy { name: name.to_owned(), about: about.to_owned(), rules }
}

fn rule(when: Trigger, given: &[Condition], acts: &[Action]) -> Rule {
    Rule { when, given: given.to_vec(), acts: acts.to_vec() }
}

/// Places a bid and lets go of nodes under notice that others have replaced.
fn honest(bid: NewBid) -> Vec<Rule> {
    vec![rule(Trigger::Begin, &[], &[Action::Bid(bid)]), replace()]
}

fn replace() -> Rule {
    rule(Trigger::Ready, &[], &[Action::Release(BidChoice::All, NodeChoice::Surplus)])
}

fn offer_all(level: Level) -> Action {
    Action::Offer(1, MarketChoice::First, u8::MAX, level)
}

fn raise(who: BidChoice) -> Action {
    Action::Ceiling(who, VALUE)
}

fn lower(who: BidChoice) -> Action {
    Action::Ceiling(who, FLOOR)
}

fn with(mut rules: Vec<Rule>, more: Vec<Rule>) -> Vec<Rule> {
    rules.extend(more);
    rules
}

fn tenants() -> Vec<Policy> {
    let value = NewBid::new(VALUE);
    let floor = NewBid::new(FLOOR);
    let bid = |bid: NewBid| rule(Trigger::Begin, &[], &[Action::Bid(bid)]);
    // The lowering is refused while it is locked, so that it is tried again.
    let lowered = || {
        vec![
            rule(Trigger::Unprotected(0), &[Condition::UnderNotice(false)], &[lower(BidChoice::This)]),
            rule(
                Trigger::Every(60),
                &[Condition::Protected(false), Condition::UnderNotice(false)],
                &[lower(BidChoice::Slot(0))],
            ),
        ]
    };
    let shade = |percent: u16| {
        policy(
            &format!("shading-{percent}"),
            &format!("Bids {percent} % of the value."),
            honest(NewBid::new(Level::of(BasePrice::Value, percent))),
        )
    };
    let single = |level: Level| {
        let bids = (0..B)
            .map(|slot| Action::Bid(NewBid { slot, count: Count::OneBeyond(slot), ..NewBid::new(level) }));
        rule(Trigger::Begin, &[], &bids.collect::<Vec<Action>>())
    };
    let stepped = (0..B).map(|slot| {
        let level = Level::of(BasePrice::Value, 100 - 4 * u16::from(slot));
        Action::Bid(NewBid { slot, count: Count::OneBeyond(slot), ..NewBid::new(level) })
    });
    let stepped = rule(Trigger::Begin, &[], &stepped.collect::<Vec<Action>>());
    vec![
        shade(95),
        shade(80),
        shade(50),
        policy(
            "sniping",
            "Looks every minute, and bids IOC when nodes are to be had for at most the value.",
            vec![
                rule(
                    Trigger::Every(60),
                    &[Condition::EntryAtMost(VALUE)],
                    &[Action::Bid(NewBid { force: Force::Ioc, ..value })],
                ),
                replace(),
            ],
        ),
        policy(
            "ioc-probes",
            "Bids IOC at the floor, at the market price and at the value, every five minutes.",
            vec![
                rule(
                    Trigger::Every(300),
                    &[],
                    &[FLOOR, MARKET, VALUE]
                        .map(|level| Action::Bid(NewBid { force: Force::Ioc, ..NewBid::new(level) })),
                ),
                replace(),
            ],
        ),
        policy(
            "flicker",
            "Lowers to the reserve when unprotected, raises one second before each deadline, lowers in the next \
             command.",
            with(
                vec![
                    bid(value),
                    rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This), lower(BidChoice::This)]),
                ],
                lowered(),
            ),
        ),
        policy(
            "flicker-dip",
            "The flicker, with a ceiling that first falls by one tick.",
            with(
                vec![
                    bid(value),
                    rule(
                        Trigger::Deadline(1),
                        &[],
                        &[
                            raise(BidChoice::This),
                            Action::Ceiling(BidChoice::This, CEILING.ticks(-1)),
                            lower(BidChoice::This),
                        ],
                    ),
                ],
                lowered(),
            ),
        ),
        policy(
            "flicker-early",
            "The flicker, with the raise 150 seconds before each deadline.",
            with(
                vec![
                    bid(value),
                    rule(Trigger::Deadline(150), &[], &[raise(BidChoice::This), lower(BidChoice::This)]),
                ],
                lowered(),
            ),
        ),
        policy(
            "flicker-close",
            "The flicker, by a bid that does not search again for a node under notice.",
            with(
                vec![
                    bid(NewBid { close: true, ..value }),
                    rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This), lower(BidChoice::This)]),
                ],
                lowered(),
            ),
        ),
        policy(
            "early-lowering",
            "Lowers to the reserve when unprotected, and raises at once at each notice.",
            with(vec![bid(value), rule(Trigger::Notice, &[], &[raise(BidChoice::This)])], lowered()),
        ),
        policy(
            "lowering-at-notice",
            "Bids the value, and lowers to the reserve at each notice.",
            vec![
                bid(value),
                rule(Trigger::Notice, &[], &[lower(BidChoice::This)]),
                rule(Trigger::Lost, &[], &[raise(BidChoice::This)]),
                rule(Trigger::Rescinded, &[], &[raise(BidChoice::This)]),
            ],
        ),
        policy(
            "sleeper",
            "Bids the reserve, and raises to the value one second before the deadline.",
            vec![bid(floor), rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This)])],
        ),
        policy(
            "sleeper-again",
            "The sleeper, which lowers again when no rival waits.",
            vec![
                bid(floor),
                rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This)]),
                rule(
                    Trigger::Every(60),
                    &[Condition::Rivals(false), Condition::UnderNotice(false), Condition::Protected(false)],
                    &[lower(BidChoice::Slot(0))],
                ),
            ],
        ),
        policy(
            "sleeper-keep",
            "The sleeper, whose bid is closed with KEEP when it has its node.",
            vec![
                bid(floor),
                rule(
                    Trigger::Ready,
                    &[Condition::Full(true)],
                    &[Action::Cancel(BidChoice::This, Mode::Keep)],
                ),
                rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This)]),
            ],
        ),
        policy("splitting", "A bid for each node, each at the value.", vec![single(VALUE), replace()]),
        policy("steps", "A bid for each node, each 4 % of the value lower.", vec![stepped, replace()]),
        policy(
            "turns",
            "A bid for each node at the reserve; the one under notice raises to the value one second before its \
             deadline, and lowers when it may.",
            vec![
                single(FLOOR),
                rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This)]),
                rule(
                    Trigger::Rescinded,
                    &[],
                    &[
                        Action::Wait(UNLOCKED),
                        lower(BidChoice::This),
                        Action::Wait(300),
                        lower(BidChoice::This),
                    ],
                ),
                rule(Trigger::Lost, &[], &[raise(BidChoice::This)]),
                replace(),
            ],
        ),
        policy(
            "turns-released",
            "The same, but each bid releases its node before the deadline and bids again.",
            vec![
                single(FLOOR),
                rule(
                    Trigger::Deadline(1),
                    &[],
                    &[Action::Release(BidChoice::This, NodeChoice::UnderNotice), raise(BidChoice::This)],
                ),
                rule(Trigger::Unprotected(0), &[], &[lower(BidChoice::This)]),
            ],
        ),
        policy(
            "self-outbidding",
            "A second account outbids the first at each notice, and the first the second.",
            vec![
                bid(floor),
                rule(
                    Trigger::Notice,
                    &[],
                    &[Action::Bid(NewBid { slot: B, count: Count::Nodes(1), ..value })],
                ),
                rule(Trigger::Unprotected(0), &[], &[lower(BidChoice::This)]),
                replace(),
            ],
        ),
        policy(
            "release-and-bid",
            "Bids the reserve; at each notice it releases the node and bids again at the value.",
            vec![
                bid(floor),
                rule(
                    Trigger::Notice,
                    &[],
                    &[Action::Cancel(BidChoice::This, Mode::Release), Action::Bid(value)],
                ),
                rule(Trigger::Unprotected(0), &[], &[lower(BidChoice::This)]),
            ],
        ),
        policy(
            "shield",
            "A second account takes a node at the reserve, whose ceiling caps everybody's price while it is protected.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[Action::Bid(value), Action::Bid(NewBid { slot: B, count: Count::Nodes(1), ..floor })],
                ),
                replace(),
            ],
        ),
        policy(
            "shield-renewed",
            "The same; the second account releases its node at the end of the protection and bids again.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[Action::Bid(value), Action::Bid(NewBid { slot: B, count: Count::Nodes(1), ..floor })],
                ),
                rule(
                    Trigger::Unprotected(0),
                    &[Condition::CeilingBelow(Level::of(BasePrice::Value, 60))],
                    &[
                        Action::Cancel(BidChoice::Slot(B), Mode::Release),
                        Action::Bid(NewBid { slot: B, count: Count::Nodes(1), ..floor }),
                    ],
                ),
                rule(
                    Trigger::Every(120),
                    &[Condition::FreeUnits(true)],
                    &[Action::Bid(NewBid { slot: B, count: Count::Nodes(1), ..floor })],
                ),
            ],
        ),
        policy(
            "sybil-supply",
            "A second account offers units that it does not have, and resumes them when their starts time out.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[Action::Bid(value), Action::Offer(1, MarketChoice::First, 3, FLOOR)],
                ),
                rule(Trigger::Every(60), &[], &[Action::Resume(1)]),
            ],
        ),
        policy(
            "minimum",
            "Bids the value for all nodes or none.",
            honest(NewBid { least: Count::Percent(100), ..value }),
        ),
        policy(
            "minimum-low",
            "Bids the reserve for all nodes or none, and raises at each notice.",
            vec![
                bid(NewBid { least: Count::Percent(100), ..floor }),
                rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This)]),
            ],
        ),
        policy(
            "regroup",
            "Bids the value for all nodes or none, and regroups at the end of each protection for a new one.",
            vec![
                bid(NewBid { least: Count::Percent(100), ..value }),
                rule(Trigger::Unprotected(0), &[], &[Action::Cancel(BidChoice::This, Mode::Regroup)]),
            ],
        ),
        policy(
            "regroup-at-notice",
            "Bids the value for all nodes or none, and regroups before each deadline.",
            vec![
                bid(NewBid { least: Count::Percent(100), ..value }),
                rule(Trigger::Deadline(1), &[], &[Action::Cancel(BidChoice::This, Mode::Regroup)]),
            ],
        ),
        policy(
            "two-bids",
            "A bid in each market, and the surplus is released.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[
                        Action::Bid(NewBid { market: MarketChoice::First, ..value }),
                        Action::Bid(NewBid { slot: 1, market: MarketChoice::Second, ..value }),
                    ],
                ),
                rule(Trigger::Ready, &[], &[Action::Cancel(BidChoice::Next(2), Mode::Release)]),
            ],
        ),
        policy(
            "cheap-elsewhere",
            "Bids the value in the first market only, and the reserve in the second.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[
                        Action::Bid(NewBid { market: MarketChoice::First, ..value }),
                        Action::Bid(NewBid { slot: 1, market: MarketChoice::Second, ..floor }),
                    ],
                ),
                replace(),
            ],
        ),
        policy(
            "flicker-first",
            "The flicker in the first market only, also while it is closing.",
            with(
                vec![
                    bid(NewBid { market: MarketChoice::First, ..value }),
                    rule(Trigger::Deadline(1), &[], &[raise(BidChoice::This), lower(BidChoice::This)]),
                ],
                lowered(),
            ),
        ),
    ]
}

fn sellers() -> Vec<Policy> {
    let markup = |percent: u16| {
        policy(
            &format!("markup-{percent}"),
            &format!("Offers all machines at {percent} % of their cost."),
            vec![rule(Trigger::Begin, &[], &[offer_all(Level::of(BasePrice::Value, percent))])],
        )
    };
    let shill = NewBid { slot: C, count: Count::Nodes(1), ..NewBid::new(LOWEST.ticks(-1)) };
    vec![
        markup(150),
        markup(300),
        policy(
            "withholding",
            "Offers all machines but one.",
            vec![rule(Trigger::Begin, &[], &[Action::Offer(1, MarketChoice::First, 5, VALUE)])],
        ),
        policy(
            "seller-flicker",
            "Withdraws a unit and puts it back after 299 seconds, again and again.",
            vec![
                rule(Trigger::Begin, &[], &[offer_all(VALUE)]),
                rule(Trigger::Every(300), &[], &[Action::Withdraw(1), Action::Wait(299), offer_all(VALUE)]),
            ],
        ),
        policy(
            "seller-flicker-all",
            "The same with four of six units.",
            vec![
                rule(Trigger::Begin, &[], &[offer_all(VALUE)]),
                rule(
                    Trigger::Every(300),
                    &[],
                    &[Action::Offer(1, MarketChoice::First, 2, VALUE), Action::Wait(299), offer_all(VALUE)],
                ),
            ],
        ),
        policy(
            "reserve-flicker",
            "Raises the reserve above all ceilings and lowers it after 299 seconds, again and again.",
            vec![
                rule(Trigger::Begin, &[], &[offer_all(VALUE)]),
                rule(
                    Trigger::Every(1500),
                    &[],
                    &[offer_all(Level::of(BasePrice::Value, 1000)), Action::Wait(299), offer_all(VALUE)],
                ),
            ],
        ),
        policy(
            "losing-units",
            "Reports a unit lost every 20 minutes, and offers it again.",
            vec![
                rule(Trigger::Begin, &[], &[offer_all(VALUE)]),
                rule(Trigger::Every(1200), &[], &[Action::Lose(1), Action::Wait(60), offer_all(VALUE)]),
            ],
        ),
        policy(
            "shill",
            "An accomplice's bid just below the lowest accepted one sets the \
             price.",
            vec![
                rule(Trigger::Begin, &[], &[offer_all(VALUE)]),
                rule(Trigger::At(2400), &[], &[Action::Bid(shill)]),
                rule(Trigger::Every(300), &[], &[Action::Ceiling(BidChoice::Slot(C), LOWEST.ticks(-1))]),
            ],
        ),
    ]
}

fn griefers() -> Vec<Policy> {
    let one = NewBid { count: Count::Nodes(1), ..NewBid::new(ENTRY) };
    let again = |acts: &[Action]| vec![rule(Trigger::Every(300), &[], acts)];
    vec![
        policy(
            "losing-bid",
            "Bids just below the lowest accepted bid, and so sets everybody's price.",
            vec![
                rule(Trigger::At(600), &[], &[Action::Bid(NewBid { level: LOWEST.ticks(-1), ..one })]),
                rule(Trigger::Every(300), &[], &[Action::Ceiling(BidChoice::Slot(0), LOWEST.ticks(-1))]),
            ],
        ),
        policy(
            "losing-bid-above",
            "Bids 4 % more than the lowest accepted bid, which does not win either.",
            vec![rule(
                Trigger::At(1500),
                &[],
                &[Action::Bid(NewBid { level: Level::of(BasePrice::Lowest, 104), ..one })],
            )],
        ),
        policy(
            "evicting",
            "Takes a node at the entry price, and releases it at once, every five minutes.",
            vec![
                rule(Trigger::Every(300), &[], &[Action::Bid(one)]),
                rule(Trigger::Got, &[], &[Action::Cancel(BidChoice::This, Mode::Release)]),
            ],
        ),
        policy(
            "evicting-ready",
            "The same, but it releases the node when it is ready.",
            vec![
                rule(Trigger::Every(300), &[], &[Action::Bid(one)]),
                rule(Trigger::Ready, &[], &[Action::Cancel(BidChoice::This, Mode::Release)]),
            ],
        ),
        policy(
            "claim-and-cancel",
            "Claims a node and cancels after a second, every five minutes.",
            again(&[Action::Bid(one), Action::Wait(1), Action::Cancel(BidChoice::Slot(0), Mode::Release)]),
        ),
        policy(
            "claim-and-expire",
            "Claims a node with a bid that expires after two seconds, every five minutes.",
            again(&[Action::Bid(NewBid { force: Force::Gtt(2), ..one })]),
        ),
        policy(
            "claim-and-lower",
            "Claims a node and lowers its ceiling after a second, every five minutes.",
            again(&[
                Action::Bid(one),
                Action::Ceiling(BidChoice::Slot(0), ENTRY),
                Action::Wait(1),
                Action::Ceiling(BidChoice::Slot(0), FLOOR),
            ]),
        ),
        policy(
            "own-supply",
            "Claims a node; an accomplice's unit at the floor then frees the claim. The unit is released and withdrawn.",
            again(&[
                Action::Bid(one),
                Action::Wait(1),
                Action::Offer(1, MarketChoice::First, 1, FLOOR),
                Action::Wait(1),
                Action::Cancel(BidChoice::Slot(0), Mode::Release),
                Action::Offer(1, MarketChoice::First, 0, FLOOR),
            ]),
        ),
        policy(
            "accomplice-repriced",
            "The same with a unit that is put up before at a high reserve, and re-priced.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[Action::Offer(1, MarketChoice::First, 1, Level::of(BasePrice::Floor, 1000))],
                ),
                rule(
                    Trigger::Every(300),
                    &[],
                    &[
                        Action::Bid(one),
                        Action::Wait(1),
                        Action::Offer(1, MarketChoice::First, 1, FLOOR),
                        Action::Wait(1),
                        Action::Cancel(BidChoice::Slot(0), Mode::Release),
                        Action::Offer(1, MarketChoice::First, 1, Level::of(BasePrice::Floor, 1000)),
                    ],
                ),
            ],
        ),
        policy(
            "puppet",
            "The same with a unit that a third account holds until the claim is there.",
            vec![
                rule(Trigger::Begin, &[], &[Action::Offer(1, MarketChoice::First, 1, FLOOR)]),
                rule(
                    Trigger::Every(300),
                    &[],
                    &[
                        Action::Bid(NewBid { slot: C, level: LOWEST, ..one }),
                        Action::Wait(1),
                        Action::Bid(one),
                        Action::Wait(1),
                        Action::Cancel(BidChoice::Slot(C), Mode::Release),
                        Action::Wait(1),
                        Action::Cancel(BidChoice::Slot(0), Mode::Release),
                    ],
                ),
            ],
        ),
        policy(
            "own-node-back",
            "A puppet claims the griefer's own node; the griefer claims a rival's; the puppet gives up, and the own \
             node comes back in place of the claim.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[
                        Action::Offer(1, MarketChoice::First, 1, FLOOR),
                        Action::Bid(NewBid { level: FLOOR, ..one }),
                    ],
                ),
                rule(
                    Trigger::Every(600),
                    &[],
                    &[
                        Action::Bid(NewBid { slot: C, level: Level::of(BasePrice::Lowest, 106), ..one }),
                        Action::Wait(1),
                        Action::Ceiling(BidChoice::Slot(0), Level::of(BasePrice::Lowest, 102)),
                        Action::Wait(1),
                        Action::Cancel(BidChoice::Slot(C), Mode::Release),
                        Action::Wait(200),
                        Action::Ceiling(BidChoice::Slot(0), FLOOR),
                    ],
                ),
            ],
        ),
        policy(
            "never-ready",
            "Takes a node at the entry price and never reports it ready.",
            vec![
                rule(Trigger::Begin, &[], &[Action::Silent(true)]),
                rule(Trigger::Every(60), &[], &[Action::Bid(NewBid { close: true, ..one })]),
            ],
        ),
        policy(
            "no-machines",
            "Offers units that it does not have below all others.",
            vec![
                rule(
                    Trigger::Begin,
                    &[],
                    &[Action::Offer(1, MarketChoice::First, 4, Level::of(BasePrice::Floor, 50))],
                ),
                rule(Trigger::Every(60), &[], &[Action::Resume(1)]),
            ],
        ),
        policy(
            "evicting-then-no-machines",
            "Claims a node, and an offer of units that do not exist takes the evicted tenant.",
            vec![rule(
                Trigger::Every(300),
                &[],
                &[
                    Action::Bid(one),
                    Action::Wait(1),
                    Action::Offer(1, MarketChoice::First, 4, FLOOR),
                    Action::Wait(2),
                    Action::Cancel(BidChoice::Slot(0), Mode::Release),
                    Action::Wait(200),
                    Action::Offer(1, MarketChoice::First, 0, FLOOR),
                ],
            )],
        ),
    ]
}
