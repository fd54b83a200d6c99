//! The auditor agrees with everything the exchange says, and with no stream of events that was doctored.
#![expect(clippy::wildcard_enum_match_arm, reason = "each doctor looks for one kind of event")]

use kubebid_core::answer::Auction;
use kubebid_core::command::{CancelMode, PlaceBid, RestingUnits, RuleChange};
use kubebid_core::event::{Bidder, ChargeReason, EndReason, Event, Fact, NoticeReason};
use kubebid_core::numbers::Supply;
use kubebid_core::units::{
    AccountId, AccountName, AllocationId, BidId, MarketId, MarketName, Micros, UnitName,
};
use kubebid_core::{Amount, Command, Exchange, MarketRules, Price, StampedCommand};
use market_sim::audit::{Auditor, Violation};
use market_sim::jsonl::{format_command, parse_command};

#[path = "same/generate.rs"]
mod generate;

const MARKET: MarketId = MarketId(0);

/// The rules of the stories' market: a fee of 1 %, and nodes that are protected for 900 s.
fn rules() -> Vec<RuleChange> {
    vec![RuleChange::number("fee_bps", 100), RuleChange::number("min_runtime_us", 900_000_000)]
}

/// Two units, three tenants; displacement, a claim that comes true, a rescission, an amendment, a lost
/// unit, releases: the events of each command, and the exchange as it is then.
fn lived() -> (Vec<Vec<Event>>, Exchange) {
    let mut exchange = Exchange::new();
    let market = || MarketName::new("gpu/test");
    let who = AccountName::new;
    let bid = |tenant: &str, ceiling: u64, nodes: u32| {
        Command::PlaceBid(PlaceBid {
            tenant: who(tenant),
            markets: Some(vec![market()]),
            instance_type: None,
            ceiling: Price(ceiling),
            min_nodes: 1,
            max_nodes: nodes,
            time_in_force: Default::default(),
            expire_at: None,
            on_preemption: Default::default(),
        })
    };
    let offer = |capacity| Command::PutOffer {
        provider: who("p"),
        market: market(),
        capacity,
        reserve: Price(1_000_000),
    };
    let ready = |allocation| Command::ReportReady { allocation: AllocationId(allocation), by: None };
    let amend = |tenant: &str, number, ceiling| Command::AmendBid {
        tenant: who(tenant),
        bid: BidId(number),
        ceiling: Some(Price(ceiling)),
        max_nodes: None,
    };
    let cancel = |tenant: &str, number| Command::CancelBid {
        tenant: who(tenant),
        bid: BidId(number),
        mode: CancelMode::Release,
    };
    let lost = Command::ReportUnitLost {
        provider: who("p"),
        unit: UnitName { market: market(), provider: who("p"), number: 1 },
    };
    let commands = [
        (0, Command::OpenMarket { market: market(), rules: rules() }),
        (0, offer(2)),
        (1, bid("a", 1_500_000, 1)), // 3: allocation 1
        (2, bid("b", 2_000_000, 1)), // 4: allocation 2
        (60, ready(1)),
        (70, ready(2)),
        (100, bid("c", 3_000_000, 1)), // 7: waits for the end of the protection of allocation 1
        (1000, Command::AdvanceTime),  // allocation 1 under notice, claimed by 7
        (1100, amend("a", 3, 2_950_000)), // rescinded; 7 displaces allocation 2
        (1500, Command::AdvanceTime),  // 7 has allocation 3
        (1600, ready(3)),
        (2000, amend("c", 7, 4_000_000)),
        (3600, lost),
        (4000, cancel("c", 7)),
        (5000, offer(1)),
        (5001, cancel("a", 3)),
    ];
    let mut heard = Vec::new();
    for (second, command) in commands {
        let answer = exchange.apply(&StampedCommand { at: Micros::seconds(second), key: None, command });
        let refused = answer.events.iter().any(|event| matches!(event.fact, Fact::Rejected { .. }));
        assert!(!refused, "{answer:?}");
        heard.push(answer.events);
    }
    (heard, exchange)
}

fn auditor() -> Auditor {
    let mut auditor = Auditor::new();
    auditor.set_rules(
        MARKET,
        &MarketName::new("gpu/test"),
        MarketRules::default().with(&rules()).expect("two rules"),
    );
    auditor
}

/// What the auditor says of the events once the first for which `doctor` says so is another.
fn told(doctor: impl Fn(&mut Fact) -> bool) -> Violation {
    let (mut heard, _) = lived();
    let doctored = heard.iter_mut().flatten().any(|event| doctor(&mut event.fact));
    assert!(doctored, "there is no such event");
    judged(&heard)
}

/// The same, without the first event that is like this.
fn untold(like: impl Fn(&Fact) -> bool) -> Violation {
    let (mut heard, _) = lived();
    let command = heard.iter_mut().find(|events| events.iter().any(|event| like(&event.fact)));
    let command = command.expect("there is such an event");
    let at = command.iter().position(|event| like(&event.fact)).expect("just seen");
    command.remove(at);
    judged(&heard)
}

/// The same, with the first event that is like this told twice.
fn repeated(like: impl Fn(&Fact) -> bool) -> Violation {
    let (mut heard, _) = lived();
    let command = heard.iter_mut().find(|events| events.iter().any(|event| like(&event.fact)));
    let command = command.expect("there is such an event");
    let at = command.iter().position(|event| like(&event.fact)).expect("just seen");
    command.insert(at, command[at].clone());
    judged(&heard)
}

fn judged(heard: &[Vec<Event>]) -> Violation {
    let mut auditor = auditor();
    let judged = heard.iter().try_for_each(|events| auditor.on_events(events));
    judged.expect_err("the auditor believed it").violation
}

#[test]
fn what_the_exchange_says_is_so() {
    let (heard, exchange) = lived();
    let mut auditor = auditor();
    for events in &heard {
        auditor.on_events(events).expect("nothing was doctored");
    }
    auditor.compare(MARKET, exchange.market_numbers(MARKET).1).expect("the same units");
    let sums = auditor.sums();
    assert_eq!((sums.debits, sums.fees), (exchange.totals().debits, exchange.totals().fees));
    assert_eq!((sums.allocations, sums.notices, sums.rescinded), (4, 2, 1));
    let charges = heard.iter().flatten().filter(|event| matches!(event.fact, Fact::Charged { .. })).count();
    assert_eq!(sums.bills_exact, charges as u64);
}

/// Plays commands, and has the auditor hear what came of each.
fn audited(story: &[StampedCommand]) -> Result<Auditor, String> {
    let (mut exchange, mut auditor) = (Exchange::new(), Auditor::new());
    let mut rules: Vec<MarketRules> = Vec::new();
    for stamped in story {
        match &stamped.command {
            Command::OpenMarket { market, rules: changes } if exchange.market_id(market).is_none() => {
                if let Ok(opened) = MarketRules::default().with(changes) {
                    auditor.set_rules(MarketId(rules.len() as u32), market, opened);
                }
            }
            Command::OpenMarket { market, rules: changes }
            | Command::ChangeRules { market, rules: changes } => {
                if let Some(id) = exchange.market_id(market)
                    && let Ok(changed) = rules[id.0 as usize].with(changes)
                {
                    auditor.set_rules(id, market, changed);
                }
            }
            _ => {}
        }
        let answer = exchange.apply(stamped);
        for event in &answer.events {
            let (Fact::MarketOpened { market } | Fact::RulesChanged { market }) = &event.fact else {
                continue;
            };
            rules.resize(rules.len().max(market.0 as usize + 1), MarketRules::default());
            let (Command::OpenMarket { rules: changes, .. } | Command::ChangeRules { rules: changes, .. }) =
                &stamped.command
            else {
                continue;
            };
            let changed = rules[market.0 as usize].with(changes);
            rules[market.0 as usize] = changed.expect("the exchange took them");
        }
        auditor.on_events(&answer.events).map_err(|error| error.to_string())?;
    }
    let (sums, totals) = (auditor.sums(), exchange.totals());
    assert_eq!((sums.debits, sums.fees), (totals.debits, totals.fees));
    Ok(auditor)
}

#[test]
fn every_bill_of_the_conformance_cases_is_known_beforehand() {
    let mut bills = 0;
    for file in ["scenarios.jsonl", "streams.jsonl"] {
        let path = format!("{}/../conformance/{file}", env!("CARGO_MANIFEST_DIR"));
        for case in std::fs::read_to_string(path).expect("the cases are in the repository").lines() {
            let case: serde_json::Value = serde_json::from_str(case).expect("a case");
            let commands = case["commands"].as_array().expect("commands");
            let story: Vec<StampedCommand> = commands
                .iter()
                .map(|command| parse_command(&command.to_string()).expect("a command"))
                .collect();
            let auditor = audited(&story).unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
            bills += auditor.sums().bills_exact;
        }
    }
    assert!(bills > 100, "{bills}");
}

#[test]
fn every_bill_of_random_stories_is_known_beforehand() {
    let mut bills = 0;
    for seed in 0..500 {
        for family in generate::Family::ALL {
            let story = generate::story(family, seed, 80);
            let auditor = audited(&story).unwrap_or_else(|error| {
                let lines: Vec<String> = story.iter().map(format_command).collect();
                panic!("{family:?} with seed {seed}: {error}\n{}", lines.join("\n"))
            });
            bills += auditor.sums().bills_exact;
        }
    }
    assert!(bills > 5_000, "{bills}");
}

#[test]
fn units_are_not_made_up() {
    assert_eq!(untold(|fact| matches!(fact, Fact::UnitAdded { .. })), Violation::UnitNumber);
    assert_eq!(repeated(|fact| matches!(fact, Fact::UnitAdded { .. })), Violation::UnitNumber);
    let more = |fact: &mut Fact| match fact {
        Fact::OfferPut { capacity, .. } => {
            *capacity += 1;
            true
        }
        _ => false,
    };
    assert_eq!(told(more), Violation::Capacity { ours: 2, theirs: 3 });
    assert_eq!(
        untold(|fact| matches!(fact, Fact::UnitRemoved { .. })),
        Violation::Floor(Some(Price(1_000_000)))
    );
    let cheaper = |fact: &mut Fact| match fact {
        Fact::UnitAdded { reserve, .. } => {
            *reserve = Price(1);
            true
        }
        _ => false,
    };
    assert_eq!(told(cheaper), Violation::UnitReserve(Price(1)));
}

#[test]
fn the_count_of_units_is_compared() {
    let mut auditor = auditor();
    let (heard, exchange) = lived();
    heard.iter().try_for_each(|events| auditor.on_events(events)).expect("nothing was doctored");
    let ours = exchange.market_numbers(MARKET).1;
    let theirs = Supply { free: ours.free + 1, ..ours };
    assert_eq!(
        auditor.compare(MARKET, theirs).expect_err("one more").violation,
        Violation::Count { ours, theirs }
    );
}

#[test]
fn a_unit_is_given_once_and_to_whom_it_is_due() {
    let other_unit = |fact: &mut Fact| match fact {
        Fact::Allocated { node } if node.allocation.0 == 2 => {
            node.unit.number = 1;
            true
        }
        _ => false,
    };
    assert_eq!(told(other_unit), Violation::UnitHeld(AllocationId(1)));
    assert_eq!(
        repeated(|fact| matches!(fact, Fact::Allocated { .. })),
        Violation::AllocationNumber { expected: 2 }
    );
    let unknown = |fact: &mut Fact| match fact {
        Fact::Allocated { node } => {
            node.unit.number = 9;
            true
        }
        _ => false,
    };
    assert_eq!(told(unknown), Violation::UnknownUnit);
    let to_another = |fact: &mut Fact| match fact {
        Fact::Allocated { node } if node.allocation.0 == 3 => {
            (node.bid, node.tenant) = (BidId(4), AccountId(2));
            true
        }
        _ => false,
    };
    assert!(matches!(told(to_another), Violation::ClaimNotHonoured { bid: BidId(7), .. }));
    let kept_back = |fact: &Fact| matches!(fact, Fact::Allocated { node } if node.allocation.0 == 3);
    assert!(matches!(untold(kept_back), Violation::LowestAccepted(_) | Violation::ClaimNotHonoured { .. }));
}

#[test]
fn bids_get_what_they_want_at_their_price_and_no_more() {
    let dear = |fact: &mut Fact| match fact {
        Fact::BidPlaced { ceiling, .. } => {
            *ceiling = Price(900_000);
            true
        }
        _ => false,
    };
    let (ceiling, reserve) = (Price(900_000), Price(1_000_000));
    assert_eq!(told(dear), Violation::BelowReserve { ceiling, reserve });
    let fewer = |fact: &mut Fact| match fact {
        Fact::BidPlaced { min_nodes, max_nodes, .. } => {
            (*min_nodes, *max_nodes) = (0, 0);
            true
        }
        _ => false,
    };
    assert_eq!(told(fewer), Violation::TooManyNodes { max_nodes: 0, live: 1, claims: 0 });
    assert_eq!(untold(|fact| matches!(fact, Fact::BidPlaced { .. })), Violation::UnknownBid);
    assert_eq!(repeated(|fact| matches!(fact, Fact::BidPlaced { .. })), Violation::BidTwice);
    let stolen = |fact: &mut Fact| match fact {
        Fact::Allocated { node } => {
            node.tenant = AccountId(9);
            true
        }
        _ => false,
    };
    assert_eq!(told(stolen), Violation::NotItsTenant);
    let grown = |fact: &mut Fact| match fact {
        Fact::NoticeStarted { max_nodes, .. } => {
            *max_nodes += 5;
            true
        }
        _ => false,
    };
    assert_eq!(told(grown), Violation::MaxNodes { before: 1, after: 6 });
}

#[test]
fn notices_are_kept_to_the_microsecond() {
    let longer = |fact: &mut Fact| match fact {
        Fact::NoticeStarted { deadline, .. } => {
            deadline.0 += 1;
            true
        }
        _ => false,
    };
    assert_eq!(told(longer), Violation::Deadline(Micros::seconds(960 + 300)));
    let (mut heard, _) = lived();
    for event in heard.iter_mut().flatten() {
        if matches!(event.fact, Fact::NoticeStarted { .. }) {
            event.at = Micros::seconds(901);
        }
    }
    let first = heard.iter().flatten().position(|event| event.at == Micros::seconds(901));
    assert!(first.is_some());
    assert_eq!(judged(&heard), Violation::Protected(Micros::seconds(960)));
    let ended = |fact: &Fact| matches!(fact, Fact::Ended { node, .. } if node.allocation.0 == 2);
    assert!(matches!(untold(ended), Violation::NotOwed | Violation::Overdue { .. }));
    let otherwise = |fact: &mut Fact| match fact {
        Fact::Ended { reason, .. } if *reason == EndReason::Outbid => {
            *reason = EndReason::CapacityWithdrawn;
            true
        }
        _ => false,
    };
    assert_eq!(
        told(otherwise),
        Violation::WrongEnd { notice: Some(NoticeReason::Outbid), end: EndReason::CapacityWithdrawn }
    );
    assert_eq!(untold(|fact| matches!(fact, Fact::NoticeStarted { .. })), Violation::NoNotice);
    assert_eq!(
        untold(|fact| matches!(fact, Fact::Claimed { .. })),
        Violation::DisplacedForNobody(AllocationId(1))
    );
}

#[test]
fn the_lowest_ceiling_goes_first() {
    let dearest = |fact: &mut Fact| match fact {
        Fact::BidPlaced { bidder, ceiling, .. } if bidder.bid.0 == 4 => {
            *ceiling = Price(1_200_000);
            true
        }
        _ => false,
    };
    let lie = told(dearest);
    assert!(matches!(lie, Violation::LowestAccepted(Some(Price(1_200_000)))), "{lie:?}");
    let weak = |fact: &mut Fact| match fact {
        Fact::BidPlaced { bidder, ceiling, .. } if bidder.bid.0 == 7 => {
            *ceiling = Price(1_510_000);
            true
        }
        _ => false,
    };
    assert_eq!(told(weak), Violation::HighestLosing(Price(1_510_000)));
    // The same lie, with prices that fit it.
    let (mut heard, _) = lived();
    for event in heard.iter_mut().flatten() {
        weak(&mut event.fact);
        if let Fact::PriceChanged { numbers, .. } = &mut event.fact
            && numbers.highest_losing == Price(3_000_000)
        {
            numbers.highest_losing = Price(1_510_000);
        }
    }
    assert_eq!(judged(&heard), Violation::CeilingNeeded(Price(1_575_000)));
}

#[test]
fn claims_are_whose_they_are() {
    let another = |fact: &mut Fact| match fact {
        Fact::ClaimDropped { by, .. } => {
            *by = Bidder { bid: BidId(4), tenant: AccountId(2) };
            true
        }
        _ => false,
    };
    assert_eq!(told(another), Violation::NoClaim);
    assert_eq!(untold(|fact| matches!(fact, Fact::ClaimDropped { .. })), Violation::StillClaimed);
    let was = |fact: &mut Fact| match fact {
        Fact::Claimed { was, by, .. } => {
            *was = Some(*by);
            true
        }
        _ => false,
    };
    assert_eq!(told(was), Violation::NotThatClaim);
}

#[test]
fn every_bill_is_what_is_owed() {
    let dearer = |fact: &mut Fact| match fact {
        Fact::Charged { debit, fee, .. } => {
            *debit = Amount(debit.0 * 10);
            *fee = debit.fee(100);
            true
        }
        _ => false,
    };
    assert!(matches!(told(dearer), Violation::Bill { .. }));
    let cheaper = |fact: &mut Fact| match fact {
        Fact::Charged { debit, fee, .. } => {
            *debit = Amount(debit.0 / 10);
            *fee = debit.fee(100);
            true
        }
        _ => false,
    };
    assert!(matches!(told(cheaper), Violation::Bill { .. }));
    assert!(matches!(untold(|fact| matches!(fact, Fact::Charged { .. })), Violation::NotCharged { .. }));
    assert_eq!(repeated(|fact| matches!(fact, Fact::Charged { .. })), Violation::NotOwed);
    let fee = |fact: &mut Fact| match fact {
        Fact::Charged { fee, .. } => {
            fee.0 += 1;
            true
        }
        _ => false,
    };
    assert!(matches!(told(fee), Violation::Fee(_)));
    assert_eq!(repeated(|fact| matches!(fact, Fact::Ready { .. })), Violation::ReadyTwice);
}

#[test]
fn prices_follow_from_ceilings_and_reserves() {
    let numbers = |change: fn(&mut kubebid_core::numbers::Numbers)| {
        told(move |fact| match fact {
            Fact::PriceChanged { numbers, .. } if numbers.lowest_accepted.is_some() => {
                change(numbers);
                true
            }
            _ => false,
        })
    };
    assert_eq!(numbers(|n| n.lowest_accepted = None), Violation::LowestAccepted(Some(Price(1_500_000))));
    assert_eq!(numbers(|n| n.floor = Some(Price(5))), Violation::Floor(Some(Price(1_000_000))));
    assert_eq!(numbers(|n| n.market_price = Price(9_000_000)), Violation::PriceAboveLowest);
    assert!(matches!(numbers(|n| n.market_price.0 -= 100), Violation::MarketPrice(_)));
    assert!(matches!(numbers(|n| n.highest_losing.0 += 100), Violation::HighestLosing(_)));
}

#[test]
fn time_does_not_run_back() {
    let (mut heard, _) = lived();
    let event =
        heard.iter_mut().flatten().find(|event| event.at == Micros::seconds(100)).expect("the third bid");
    event.at = Micros::seconds(1);
    assert_eq!(judged(&heard), Violation::TimeRunsBack { now: Micros::seconds(70) });
}

/// A unit that rests and is resumed, a gang that regroups, a ceiling that is raised under notice and lowered after its lock.
fn rested_and_regrouped() -> Vec<Vec<Event>> {
    let mut exchange = Exchange::new();
    let market = || MarketName::new("gpu/test");
    let who = AccountName::new;
    let bid = |tenant: &str, ceiling: u64, (min_nodes, max_nodes): (u32, u32)| {
        Command::PlaceBid(PlaceBid {
            tenant: who(tenant),
            markets: Some(vec![market()]),
            instance_type: None,
            ceiling: Price(ceiling),
            min_nodes,
            max_nodes,
            time_in_force: Default::default(),
            expire_at: None,
            on_preemption: Default::default(),
        })
    };
    let offer =
        Command::PutOffer { provider: who("p"), market: market(), capacity: 3, reserve: Price(1_000_000) };
    let ready = |allocation| Command::ReportReady { allocation: AllocationId(allocation), by: None };
    let amend = |ceiling| Command::AmendBid {
        tenant: who("a"),
        bid: BidId(3),
        ceiling: Some(Price(ceiling)),
        max_nodes: None,
    };
    let cancel =
        |tenant: &str, number, mode| Command::CancelBid { tenant: who(tenant), bid: BidId(number), mode };
    let commands = [
        (0, Command::OpenMarket { market: market(), rules: rules() }),
        (0, offer),
        (1, bid("a", 1_500_000, (1, 1))), // 3: allocation 1 on unit 1, which is never ready
        (901, Command::AdvanceTime),      // unit 1 rests; allocation 2
        (910, ready(2)),
        (920, Command::ResumeUnits { provider: who("p"), units: RestingUnits::AllIn(market()) }),
        (930, bid("g", 2_000_000, (2, 2))), // 7: allocations 3 and 4
        (940, ready(3)),
        (950, ready(4)),
        (2000, bid("c", 1_600_000, (1, 1))), // 10: a has a notice
        (2100, amend(3_000_000)),            // which is rescinded; the ceiling is locked until 3000
        (2200, amend(3_100_000)),
        (2300, cancel("g", 7, CancelMode::Regroup)), // c gets one of its nodes, and the gang waits
        (3000, amend(2_500_000)),
        (3100, cancel("c", 10, CancelMode::Release)),
    ];
    let mut heard = Vec::new();
    for (second, command) in commands {
        let answer = exchange.apply(&StampedCommand { at: Micros::seconds(second), key: None, command });
        let refused = answer.events.iter().any(|event| matches!(event.fact, Fact::Rejected { .. }));
        assert!(!refused, "{answer:?}");
        heard.push(answer.events);
    }
    heard
}

/// Returns what the auditor says of that story after the first event for which `doctor` gives others in its place is replaced by them.
fn told_of_resting(doctor: impl Fn(&Fact) -> Option<Vec<Fact>>) -> Violation {
    let mut heard = rested_and_regrouped();
    let places =
        heard.iter().enumerate().flat_map(|(command, events)| (0..events.len()).map(move |at| (command, at)));
    let (command, at) = places
        .clone()
        .find(|(command, at)| doctor(&heard[*command][*at].fact).is_some())
        .expect("such an event");
    let event = heard[command].remove(at);
    for (more, fact) in doctor(&event.fact).expect("just seen").into_iter().enumerate() {
        heard[command].insert(at + more, Event { at: event.at, fact });
    }
    judged(&heard)
}

#[test]
fn the_auditor_agrees_with_units_that_rest_gangs_that_regroup_and_ceilings_that_are_locked() {
    let (heard, mut auditor) = (rested_and_regrouped(), auditor());
    for events in &heard {
        auditor.on_events(events).expect("nothing was doctored");
    }
    let seen = |like: fn(&Fact) -> bool| heard.iter().flatten().filter(|event| like(&event.fact)).count();
    assert_eq!(seen(|fact| matches!(fact, Fact::UnitResting { .. })), 1);
    assert_eq!(seen(|fact| matches!(fact, Fact::UnitResumed { .. })), 1);
    assert_eq!(seen(|fact| matches!(fact, Fact::Ended { reason: EndReason::Regrouped, .. })), 2);
}

#[test]
fn a_unit_rests_if_its_node_was_not_ready_and_only_then() {
    let without = told_of_resting(|fact| matches!(fact, Fact::UnitResting { .. }).then(Vec::new));
    assert_eq!(without, Violation::NotTimedOut);
    let twice =
        |fact: &Fact| matches!(fact, Fact::UnitResting { .. }).then(|| vec![fact.clone(), fact.clone()]);
    assert_eq!(told_of_resting(twice), Violation::NotTimedOut);
    let still = told_of_resting(|fact| matches!(fact, Fact::UnitResumed { .. }).then(Vec::new));
    assert_eq!(still, Violation::UnitRests);
    let twice =
        |fact: &Fact| matches!(fact, Fact::UnitResumed { .. }).then(|| vec![fact.clone(), fact.clone()]);
    assert_eq!(told_of_resting(twice), Violation::UnitDoesNotRest);
}

#[test]
fn a_regrouped_bid_wants_as_many_nodes_as_before_and_pays_for_those_it_gave_back() {
    let fewer = |fact: &Fact| match fact {
        Fact::Ended { node, max_nodes, reason: reason @ EndReason::Regrouped } => {
            Some(vec![Fact::Ended { node: *node, max_nodes: max_nodes - 1, reason: *reason }])
        }
        _ => None,
    };
    assert_eq!(told_of_resting(fewer), Violation::MaxNodes { before: 2, after: 1 });
    let free =
        |fact: &Fact| matches!(fact, Fact::Charged { reason: ChargeReason::Regrouped, .. }).then(Vec::new);
    assert!(matches!(told_of_resting(free), Violation::NotCharged { .. }));
}

#[test]
fn a_ceiling_that_was_raised_under_notice_is_not_lowered_at_once() {
    let lowered = |fact: &Fact| match fact {
        Fact::BidAmended { bidder, max_nodes, bid_seq, ceiling: Price(3_100_000) } => {
            let (bidder, max_nodes, bid_seq) = (*bidder, *max_nodes, *bid_seq);
            Some(vec![Fact::BidAmended { bidder, max_nodes, bid_seq, ceiling: Price(1_700_000) }])
        }
        _ => None,
    };
    assert_eq!(told_of_resting(lowered), Violation::Locked(Micros::seconds(3000)));
}
