//! Tests that every micro-dollar of the exchange is in the charges, and every one of a charge in its
//! segments.

use crate::market::{ACCOUNTS, Market, projected};
use crate::place::TestPlace;
use kubebid_core::event::ChargeReason;
use kubebid_core::money::Amount;
use kubebid_core::units::{AllocationId, Micros};
use kubebid_core::views::Accrual;
use kubebid_engine::Engine;
use kubebid_engine::readmodel::queries::{ChargeQuery, StatementQuery};
use kubebid_engine::readmodel::rows::{ChargeRow, Mark, Segment};
use kubebid_engine::store::Labels;

crate::on_both! {
    charges_add_up_to_the_totals_of_the_exchange
    segments_add_up_to_the_debit
    segments_add_up_to_the_debit_while_fees_change
    running_nodes_have_accrued_what_the_exchange_says
    statements_are_sums_of_charges
}

async fn after(place: &TestPlace, seed: u64) -> (Engine, kubebid_engine::Running) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(seed);
    market.open(&engine).await;
    market.run(&engine, 400).await;
    projected(&engine).await;
    (engine, running)
}

async fn all(engine: &Engine) -> Vec<ChargeRow> {
    let query = ChargeQuery { limit: 100_000, ..ChargeQuery::default() };
    engine.read_model().charges(&query).await.unwrap()
}

async fn charges_add_up_to_the_totals_of_the_exchange(place: TestPlace) {
    let (engine, running) = after(&place, 11).await;
    let totals = engine.ask(|exchange| exchange.totals()).await.unwrap();
    let charges = all(&engine).await;
    let sum = |part: fn(&ChargeRow) -> Amount| Amount(charges.iter().map(|charge| part(charge).0).sum());
    assert!(totals.debits.0 > 0 && totals.fees.0 > 0);
    assert_eq!(sum(|charge| charge.debit), totals.debits);
    assert_eq!(sum(|charge| charge.fee), totals.fees);
    assert_eq!(sum(|charge| charge.credit), totals.credits);
    assert!(charges.iter().all(|charge| charge.debit.0 == charge.fee.0 + charge.credit.0));
    running.stop().await.unwrap();
}

fn follow(segments: &[Segment]) {
    for pair in segments.windows(2) {
        assert_eq!(pair[0].to, pair[1].from);
    }
    // One without a length only moves the fee.
    for segment in segments.iter().filter(|segment| !segment.min_charge && segment.to > segment.from) {
        let hour = |at: Micros| at.0 / Micros::HOUR.0;
        assert_eq!(hour(segment.from), hour(Micros(segment.to.0 - 1)), "{segment:?}");
        // The mean is exact except for its rounding.
        let least = segment.mean_price.over(segment.to.since(segment.from)).round();
        assert!(segment.amount.0 + 1 >= least.0 && segment.amount.0 <= least.0 + 2, "{segment:?}");
    }
}

async fn segments_add_up_to_the_debit(place: TestPlace) {
    let (engine, running) = after(&place, 12).await;
    let charges = all(&engine).await;
    assert!(charges.iter().any(|charge| charge.reason == ChargeReason::ClaimDropped));
    check_segments(&charges);
    running.stop().await.unwrap();
}

async fn segments_add_up_to_the_debit_while_fees_change(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(12).changing_fees();
    market.open(&engine).await;
    market.run(&engine, 400).await;
    projected(&engine).await;
    let charges = all(&engine).await;
    assert!(charges.iter().any(|charge| charge.fee > Amount::ZERO));
    check_segments(&charges);
    running.stop().await.unwrap();
}

fn check_segments(charges: &[ChargeRow]) {
    let kinds = |wanted: fn(&ChargeRow) -> bool| charges.iter().filter(|charge| wanted(charge)).count();
    assert!(kinds(|charge| charge.segments.iter().any(|segment| segment.min_charge)) > 0);
    assert!(kinds(|charge| charge.segments.len() > 2) > 0);
    for charge in charges {
        let sum: u128 = charge.segments.iter().map(|segment| segment.amount.0).sum();
        assert_eq!(sum, charge.debit.0, "{charge:?}");
        let fees: i64 = charge.segments.iter().map(|segment| segment.fee).sum();
        assert_eq!(fees as u128, charge.fee.0, "{charge:?}");
        assert_eq!(charge.segments[0].from, charge.from);
        assert_eq!(charge.segments.last().unwrap().to, charge.to);
        follow(&charge.segments);
    }
}

async fn running_nodes_have_accrued_what_the_exchange_says(place: TestPlace) {
    let (engine, running) = after(&place, 13).await;
    let (now, bills) = engine.ask(|exchange| (exchange.now(), exchange.accruals())).await.unwrap();
    let query = ChargeQuery { limit: 1000, ..ChargeQuery::default() };
    let rows = engine.read_model().running(&query, AllocationId(0)).await.unwrap();
    assert!(rows.iter().any(|row| !row.segments.is_empty()));
    assert_eq!(rows.len(), bills.len());
    for (mut row, Accrual { allocation, bill, fee_bps }) in rows.into_iter().zip(bills) {
        assert_eq!(row.allocation, allocation);
        let fee = bill.round().fee(fee_bps);
        row.segments.extend(row.mark.segment_to(Mark { at: now, bill, fee }));
        follow(&row.segments);
        let sum: u128 = row.segments.iter().map(|segment| segment.amount.0).sum();
        assert_eq!(sum, bill.round().0, "{row:?}");
    }
    running.stop().await.unwrap();
}

async fn statements_are_sums_of_charges(place: TestPlace) {
    let (engine, running) = after(&place, 14).await;
    let charges = all(&engine).await;
    let tagged = |bid: u64| bid.is_multiple_of(2);
    let labels = Labels::from([("team".to_owned(), "blue".to_owned())]);
    let bids: Vec<u64> = charges.iter().map(|charge| charge.bid.0).filter(|bid| tagged(*bid)).collect();
    engine.store().rows().put_labels(bids.iter().map(|bid| (*bid, &labels))).await.unwrap();
    let middle = charges[charges.len() / 2].at;
    for account in ACCOUNTS {
        for (from, to) in [(None, None), (Some(middle), None), (None, Some(middle))] {
            let of_period = |charge: &&ChargeRow| {
                from.is_none_or(|from| charge.at >= from) && to.is_none_or(|to| charge.at < to)
            };
            let paid = |charge: &ChargeRow| if charge.tenant == account { charge.debit.0 } else { 0 };
            let got = |charge: &ChargeRow| if charge.provider == account { charge.credit.0 } else { 0 };
            let query = StatementQuery {
                account: account.to_owned(),
                from,
                to,
                labels: Labels::new(),
                by_label: Some("team".to_owned()),
            };
            let lines = engine.read_model().statement(&query).await.unwrap();
            let here = || charges.iter().filter(of_period);
            assert_eq!(lines.iter().map(|line| line.debit.0).sum::<u128>(), here().map(paid).sum());
            assert_eq!(lines.iter().map(|line| line.credit.0).sum::<u128>(), here().map(got).sum());
            let blue = lines.iter().filter(|line| line.label_value.is_some());
            let blue_here = here().filter(|charge| tagged(charge.bid.0));
            assert_eq!(blue.map(|line| line.debit.0).sum::<u128>(), blue_here.map(paid).sum());

            let query = StatementQuery { labels: labels.clone(), by_label: None, ..query };
            let lines = engine.read_model().statement(&query).await.unwrap();
            let blue: u128 = lines.iter().map(|line| line.debit.0 + line.credit.0).sum();
            assert_eq!(blue, here().filter(|charge| tagged(charge.bid.0)).map(paid).sum());
        }
    }
    running.stop().await.unwrap();
}
