//! Tests that a query finds what it asks for, and no more than its account may see.

use crate::market::{ACCOUNTS, MARKETS, Market, projected};
use crate::place::TestPlace;
use kubebid_core::EventKind;
use kubebid_core::units::{AccountName, AllocationId, BidId, MarketName, Micros};
use kubebid_engine::events::visibility::{Viewer, redact};
use kubebid_engine::lifecycle::rebuild::rebuild;
use kubebid_engine::readmodel::queries::{AllocationQuery, BidQuery, ChargeQuery, EventQuery};
use kubebid_engine::readmodel::rows::{BidRow, BidState, EventRow};
use kubebid_engine::store::Labels;
use kubebid_engine::{Engine, Running};
use std::collections::{BTreeMap, BTreeSet};

crate::on_both! {
    bids_are_found
    allocations_are_found
    charges_are_found
    an_account_finds_the_events_that_it_may_see
    events_are_found_by_market_and_time_and_kind
    events_come_in_pages_both_ways
    a_search_that_has_looked_at_enough_stops_and_goes_on_from_there
    a_bid_is_found_by_its_tenant_only
    answers_are_the_same_after_a_rebuild
    numbers_beyond_all_of_ours_are_not_found_and_bound_nothing
}

async fn after(place: &TestPlace, seed: u64) -> (Engine, Running) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(seed);
    market.open(&engine).await;
    // The tables are written in at least ten steps, however fast the machine is.
    for _ in 0..10 {
        market.run(&engine, 25).await;
        projected(&engine).await;
    }
    // Every third bid has one label, every fifth another.
    let labels = |bid: u64| -> Labels {
        let team = bid.is_multiple_of(3).then(|| ("team".to_owned(), "blue".to_owned()));
        let app = bid.is_multiple_of(5).then(|| ("app".to_owned(), "web".to_owned()));
        team.into_iter().chain(app).collect()
    };
    let labels: BTreeMap<u64, Labels> =
        all_bids(&engine).await.iter().map(|row| (row.bid.0, labels(row.bid.0))).collect();
    engine.store().rows().put_labels(labels.iter().map(|(bid, labels)| (*bid, labels))).await.unwrap();
    (engine, running)
}

fn blue() -> Labels {
    Labels::from([("team".to_owned(), "blue".to_owned())])
}

async fn all_bids(engine: &Engine) -> Vec<BidRow> {
    engine.read_model().bids(&BidQuery { limit: 10_000, ..BidQuery::default() }).await.unwrap()
}

async fn bids_are_found(place: TestPlace) {
    let (engine, running) = after(&place, 31).await;
    let all = all_bids(&engine).await;
    for row in &all {
        assert_eq!(engine.read_model().bid(row.bid).await.unwrap().as_ref(), Some(row));
    }
    assert_eq!(engine.read_model().bid(BidId(0)).await.unwrap(), None);
    for account in ACCOUNTS {
        for market in MARKETS {
            for (unmet_only, labels) in [(false, Labels::new()), (true, Labels::new()), (false, blue())] {
                let query = BidQuery {
                    account: Some(account.to_owned()),
                    market: Some(MarketName::new(market)),
                    unmet_only,
                    labels: labels.clone(),
                    limit: 3,
                    ..BidQuery::default()
                };
                let wanted = all.iter().filter(|row| {
                    let kind = market.split('/').next().unwrap();
                    row.tenant == account
                        && (row.markets.iter().any(|name| name == market)
                            || row.instance_type.as_deref() == Some(kind))
                        && (!unmet_only || row.unmet > 0)
                        && (labels.is_empty() || row.bid.0.is_multiple_of(3))
                });
                let wanted: Vec<_> = wanted.cloned().collect();
                let mut found: Vec<BidRow> = Vec::new();
                loop {
                    let after = found.last().map_or(0, |row| row.bid.0);
                    let page = engine.read_model().bids(&BidQuery { after, ..query.clone() }).await.unwrap();
                    if page.is_empty() {
                        break;
                    }
                    found.extend(page);
                }
                assert_eq!(found, wanted);
            }
        }
    }
    running.stop().await.unwrap();
}

async fn allocations_are_found(place: TestPlace) {
    let (engine, running) = after(&place, 32).await;
    let find = async |query: AllocationQuery| {
        engine.read_model().allocations(&AllocationQuery { limit: 10_000, ..query }).await.unwrap()
    };
    let all = find(AllocationQuery::default()).await;
    assert!(all.len() > 50);
    for account in ACCOUNTS {
        let of = |labels: Labels| AllocationQuery {
            account: Some(account.to_owned()),
            labels,
            ..AllocationQuery::default()
        };
        let mine = all.iter().filter(|row| row.tenant == account || row.provider == account);
        assert_eq!(find(of(Labels::new())).await, mine.cloned().collect::<Vec<_>>());
        let blue_ones = all.iter().filter(|row| row.tenant == account && row.bid.0.is_multiple_of(3));
        assert_eq!(find(of(blue())).await, blue_ones.cloned().collect::<Vec<_>>());
    }
    let one = &all[all.len() / 2];
    let found = engine.read_model().allocation(one.allocation).await.unwrap();
    assert_eq!(found.as_ref(), Some(one));
    let on_unit = find(AllocationQuery { unit: Some(one.unit.clone()), ..AllocationQuery::default() }).await;
    assert_eq!(on_unit, all.iter().filter(|row| row.unit == one.unit).cloned().collect::<Vec<_>>());
    // A provider cannot search by bid.
    let query = AllocationQuery {
        account: Some(one.provider.clone()),
        bid: Some(one.bid),
        ..AllocationQuery::default()
    };
    assert!(find(query).await.is_empty());
    running.stop().await.unwrap();
}

async fn charges_are_found(place: TestPlace) {
    let (engine, running) = after(&place, 12).await;
    let find = async |query: ChargeQuery| {
        engine.read_model().charges(&ChargeQuery { limit: 10_000, ..query }).await.unwrap()
    };
    let all = find(ChargeQuery::default()).await;
    assert!(all.len() > 20);
    for account in ACCOUNTS {
        let query = ChargeQuery { account: Some(account.to_owned()), ..ChargeQuery::default() };
        let mine = all.iter().filter(|row| row.tenant == account || row.provider == account);
        assert_eq!(find(query).await, mine.cloned().collect::<Vec<_>>());
    }
    // The payer of a claim does not find it by the allocation, which is another tenant's.
    let claim = all.iter().find(|row| !row.own).unwrap();
    let query = ChargeQuery {
        allocation: Some(claim.allocation),
        account: Some(claim.tenant.clone()),
        ..ChargeQuery::default()
    };
    assert!(find(query.clone()).await.iter().all(|row| row.own));
    let provider = ChargeQuery { account: Some(claim.provider.clone()), ..query };
    assert!(find(provider).await.contains(claim));
    running.stop().await.unwrap();
}

async fn all_events(engine: &Engine) -> Vec<EventRow> {
    engine.read_model().events(&EventQuery { limit: 100_000, ..EventQuery::default() }).await.unwrap()
}

async fn an_account_finds_the_events_that_it_may_see(place: TestPlace) {
    let (engine, running) = after(&place, 34).await;
    let all = all_events(&engine).await;
    assert!(all.len() > 500);
    for account in ACCOUNTS {
        let viewer = Viewer::Account(AccountName::new(account));
        let seen: Vec<&EventRow> =
            all.iter().filter(|row| redact(row.event.clone(), &row.parties, &viewer).is_some()).collect();
        let query =
            EventQuery { account: Some(AccountName::new(account)), limit: 100_000, ..EventQuery::default() };
        let found = engine.read_model().events(&query).await.unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), seen);

        // A search by bid finds an event only if the bid is the account's own side of it.
        for bid in all_bids(&engine).await.iter().map(|row| row.bid).step_by(7) {
            let found = engine
                .read_model()
                .events(&EventQuery { bids: [bid].into(), ..query.clone() })
                .await
                .unwrap();
            let mine = |row: &&&EventRow| {
                let sides = [&row.parties.holder, &row.parties.claimant, &row.parties.former];
                sides.into_iter().flatten().any(|party| party.account.as_str() == account && party.bid == bid)
            };
            assert_eq!(
                found.iter().collect::<Vec<_>>(),
                seen.iter().filter(mine).copied().collect::<Vec<_>>()
            );
        }
        let labelled = EventQuery { labels: blue(), ..query.clone() };
        for row in engine.read_model().events(&labelled).await.unwrap() {
            let sides = [&row.parties.holder, &row.parties.claimant, &row.parties.former];
            let mine = sides.into_iter().flatten().filter(|party| party.account.as_str() == account);
            assert!(mine.into_iter().any(|party| party.bid.0.is_multiple_of(3)), "{row:?}");
        }
    }
    let bid = all.iter().filter_map(|row| row.parties.former.as_ref()).map(|party| party.bid).next().unwrap();
    let history = engine.read_model().bid_history(bid, 1000).await.unwrap();
    assert!(history.iter().any(|row| row.parties.former.as_ref().is_some_and(|party| party.bid == bid)));
    let history = engine.read_model().allocation_history(AllocationId(1), 1000).await.unwrap();
    assert!(!history.is_empty());
    running.stop().await.unwrap();
}

async fn events_are_found_by_market_and_time_and_kind(place: TestPlace) {
    let (engine, running) = after(&place, 35).await;
    let all = all_events(&engine).await;
    let find = async |query: EventQuery| {
        engine.read_model().events(&EventQuery { limit: 100_000, ..query }).await.unwrap()
    };
    let (from, to) = (all[all.len() / 3].at, all[all.len() / 2].at);
    let found = find(EventQuery { from: Some(from), to: Some(to), ..EventQuery::default() }).await;
    let wanted: Vec<_> = all.iter().filter(|row| (from..to).contains(&row.at)).cloned().collect();
    assert_eq!(found, wanted);
    assert!(find(EventQuery { from: Some(Micros(u64::MAX)), ..EventQuery::default() }).await.is_empty());

    let kinds = [EventKind::NoticeStarted, EventKind::Claimed].into();
    let found = find(EventQuery { kinds, ..EventQuery::default() }).await;
    assert!(found.len() > 10 && found.iter().all(|row| row.parties.holder.is_some()));

    // Events of the market, or of a bid that names it.
    let name = MarketName::new(MARKETS[2]);
    let found = find(EventQuery { markets: [name.clone()].into(), ..EventQuery::default() }).await;
    let bids = engine
        .read_model()
        .bids(&BidQuery { market: Some(name), limit: 10_000, ..BidQuery::default() })
        .await
        .unwrap();
    let naming: Vec<BidId> = bids.iter().map(|row| row.bid).collect();
    let wanted = all.iter().filter(|row| {
        let text = format!("{:?}", row.event);
        let is_bid = ["BidPlaced", "BidAmended", "BidClosed"].iter().any(|kind| text.contains(kind));
        let names = row.parties.holder.as_ref().is_some_and(|party| naming.contains(&party.bid));
        if is_bid { names } else { text.contains(MARKETS[2]) }
    });
    assert_eq!(found, wanted.cloned().collect::<Vec<_>>());
    running.stop().await.unwrap();
}

async fn events_come_in_pages_both_ways(place: TestPlace) {
    let (engine, running) = after(&place, 36).await;
    let all = all_events(&engine).await;
    for newest_first in [false, true] {
        let mut found: Vec<EventRow> = Vec::new();
        loop {
            let after = found.last().map(|row| (row.seq.0, row.index));
            let query = EventQuery { after, newest_first, limit: 113, ..EventQuery::default() };
            let page = engine.read_model().events(&query).await.unwrap();
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        if newest_first {
            found.reverse();
        }
        assert_eq!(found, all);
    }
    running.stop().await.unwrap();
}

async fn a_search_that_has_looked_at_enough_stops_and_goes_on_from_there(place: TestPlace) {
    let (engine, running) = after(&place, 36).await;
    let all = all_events(&engine).await;
    // One of the two kinds is frequent, so that no index finds both.
    let rare: BTreeSet<EventKind> = [EventKind::OfferPut, EventKind::BidAmended].into();
    for newest_first in [false, true] {
        for query in [
            EventQuery { kinds: rare.clone(), ..EventQuery::default() },
            EventQuery { labels: blue(), ..EventQuery::default() },
            EventQuery { account: Some(AccountName::new(ACCOUNTS[0])), ..EventQuery::default() },
        ] {
            let mut query = EventQuery { newest_first, limit: 100_000, ..query };
            let wanted = engine.read_model().events(&query).await.unwrap();
            assert!(!wanted.is_empty() && wanted.len() < all.len());
            let (mut found, mut pages) = (Vec::new(), 0);
            loop {
                let page = engine.read_model().event_page(&query, 1).await.unwrap();
                found.extend(page.events);
                pages += 1;
                assert!(pages < all.len(), "the search does not move on");
                match page.stopped_at {
                    Some(place) => query.after = Some(place),
                    None => break,
                }
            }
            assert_eq!(found, wanted);
            assert!(pages > 2, "one page looked at everything");
        }
    }
    for account in [None, Some(ACCOUNTS[1].to_owned())] {
        let states = [BidState::Closed].into();
        // One account has too few bids for several pages.
        let least = if account.is_none() { 2 } else { 1 };
        let mut query = BidQuery { account, states, limit: 10_000, ..BidQuery::default() };
        let wanted = engine.read_model().bids(&query).await.unwrap();
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = engine.read_model().bid_page(&query, 1).await.unwrap();
            found.extend(page.bids);
            pages += 1;
            assert!(pages < all.len(), "the search does not move on");
            match page.stopped_at {
                Some(bid) => query.after = bid,
                None => break,
            }
        }
        assert_eq!(found, wanted);
        assert!(pages >= least, "one page looked at everything");
    }
    running.stop().await.unwrap();
}

async fn a_bid_is_found_by_its_tenant_only(place: TestPlace) {
    let (engine, running) = after(&place, 40).await;
    for row in all_bids(&engine).await.iter().step_by(9) {
        for account in ACCOUNTS {
            let found = engine.read_model().bid_of(account, row.bid).await.unwrap();
            assert_eq!(found.as_ref(), Some(row).filter(|row| row.tenant == account));
        }
    }
    running.stop().await.unwrap();
}

/// A running engine writes many small transactions, and a rebuild writes few large ones.
async fn answers_are_the_same_after_a_rebuild(place: TestPlace) {
    let (engine, running) = after(&place, 38).await;
    let mut market = Market::new(39);
    market.run(&engine, 150).await;
    projected(&engine).await;
    let all = all_events(&engine).await;
    let questions = questions(&all);
    let mut before = Vec::new();
    for question in &questions {
        before.push(pages(&engine, question).await);
    }
    let bids = all_bids(&engine).await;
    assert!(before.iter().filter(|found| found.is_empty()).count() < questions.len() / 4);
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    let (engine, running) = place.start().await;
    assert_eq!(all_events(&engine).await, all);
    assert_eq!(all_bids(&engine).await, bids);
    for (question, before) in questions.iter().zip(&before) {
        assert_eq!(&pages(&engine, question).await, before, "{question:?}");
    }
    drop(engine);
    running.stop().await.unwrap();
}

fn questions(all: &[EventRow]) -> Vec<EventQuery> {
    let (from, to) = (all[all.len() / 3].at, all[all.len() * 2 / 3].at);
    let kinds =
        |kinds: &[&str]| kinds.iter().map(|kind| EventKind::of_word(kind).unwrap()).collect::<BTreeSet<_>>();
    let everything = EventQuery { limit: 40, ..EventQuery::default() };
    let of = |account: &str| EventQuery { account: Some(AccountName::new(account)), ..everything.clone() };
    let bids: Vec<BidId> = all.iter().filter_map(|row| Some(row.parties.claimant.as_ref()?.bid)).collect();
    let mut questions = vec![
        everything.clone(),
        EventQuery { kinds: kinds(&["notice_started", "claimed"]), ..everything.clone() },
        EventQuery { from: Some(from), to: Some(to), kinds: kinds(&["bid_closed"]), ..everything.clone() },
        EventQuery { bids: bids[..2].iter().copied().collect(), ..everything.clone() },
        EventQuery { bids: bids.into_iter().collect(), labels: blue(), ..everything.clone() },
        EventQuery { labels: blue(), ..everything.clone() },
        EventQuery { allocations: (1..9).map(AllocationId).collect(), ..everything.clone() },
    ];
    for account in ACCOUNTS {
        let allocations = (1..30).map(AllocationId).collect();
        questions.extend([
            of(account),
            EventQuery { kinds: kinds(&["bid_placed", "allocated"]), ..of(account) },
            EventQuery { labels: blue(), from: Some(from), ..of(account) },
            EventQuery { allocations, kinds: kinds(&["ended"]), ..of(account) },
        ]);
    }
    for market in MARKETS {
        let markets = BTreeSet::from([MarketName::new(market)]);
        questions.push(EventQuery { markets: markets.clone(), to: Some(to), ..everything.clone() });
        questions.push(EventQuery { markets, kinds: kinds(&["price_changed"]), ..of(ACCOUNTS[0]) });
    }
    let backwards =
        questions.clone().into_iter().map(|question| EventQuery { newest_first: true, ..question });
    let backwards: Vec<EventQuery> = backwards.collect();
    questions.extend(backwards);
    questions
}

/// Returns everything that a query finds, page by page.
async fn pages(engine: &Engine, question: &EventQuery) -> Vec<EventRow> {
    let mut found: Vec<EventRow> = Vec::new();
    loop {
        let after = found.last().map(|row| (row.seq.0, row.index));
        // Each page is larger than the one before.
        let limit = question.limit + found.len() as u32;
        let query = EventQuery { after, limit, ..question.clone() };
        let page = engine.read_model().events(&query).await.unwrap();
        let last = (page.len() as u32) < limit;
        found.extend(page);
        if last {
            return found;
        }
    }
}

async fn numbers_beyond_all_of_ours_are_not_found_and_bound_nothing(place: TestPlace) {
    let (engine, running) = after(&place, 37).await;
    let tables = engine.read_model();
    let events = all_events(&engine).await;
    let charges = tables.charges(&ChargeQuery { limit: 10_000, ..ChargeQuery::default() }).await.unwrap();
    let market = MarketName::new(MARKETS[0]);
    let prices = async |from, to| tables.price_points(&market, from, to, None, 10_000).await.unwrap();
    assert!(!charges.is_empty() && !prices(Micros(0), None).await.is_empty());
    for beyond in [1 << 63, u64::MAX - 1, u64::MAX] {
        let (bid, allocation, at) = (BidId(beyond), AllocationId(beyond), Micros(beyond));
        assert_eq!(tables.bid(bid).await.unwrap(), None);
        assert_eq!(tables.allocation(allocation).await.unwrap(), None);
        let after = beyond;
        assert_eq!(tables.bids(&BidQuery { after, limit: 9, ..BidQuery::default() }).await.unwrap(), []);
        for query in [
            AllocationQuery { after, limit: 9, ..AllocationQuery::default() },
            AllocationQuery { bid: Some(bid), limit: 9, ..AllocationQuery::default() },
        ] {
            assert_eq!(tables.allocations(&query).await.unwrap(), []);
        }
        for query in [
            EventQuery { after: Some((beyond, 0)), limit: 9, ..EventQuery::default() },
            EventQuery { from: Some(at), limit: 9, ..EventQuery::default() },
            EventQuery { bids: [bid].into(), limit: 9, ..EventQuery::default() },
            EventQuery { allocations: [allocation].into(), limit: 9, ..EventQuery::default() },
        ] {
            assert_eq!(tables.events(&query).await.unwrap(), [], "{query:?}");
        }
        for (after, newest_first) in [(None, false), (Some((beyond, 0)), true)] {
            let query =
                EventQuery { to: Some(at), after, newest_first, limit: 100_000, ..EventQuery::default() };
            let mut found = tables.events(&query).await.unwrap();
            if newest_first {
                found.reverse();
            }
            assert_eq!(found, events);
        }
        for query in [
            ChargeQuery { after: Some((beyond, 0)), limit: 9, ..ChargeQuery::default() },
            ChargeQuery { from: Some(at), limit: 9, ..ChargeQuery::default() },
            ChargeQuery { bid: Some(bid), limit: 9, ..ChargeQuery::default() },
            ChargeQuery { allocation: Some(allocation), limit: 9, ..ChargeQuery::default() },
        ] {
            assert_eq!(tables.charges(&query).await.unwrap(), [], "{query:?}");
            let running = tables.running(&query, allocation).await.unwrap();
            assert_eq!(running, [], "{query:?}");
        }
        let until = ChargeQuery { to: Some(at), limit: 10_000, ..ChargeQuery::default() };
        assert_eq!(tables.charges(&until).await.unwrap(), charges);
        assert_eq!(prices(at, None).await, []);
        assert_eq!(prices(Micros(0), Some(at)).await, prices(Micros(0), None).await);
    }
    running.stop().await.unwrap();
}
