//! Tests that drills are off unless they are enabled.

use crate::place::TestPlace;
use crate::{Drill, MARKET};
use kubebid_engine::runtime::clock::Clock;
use kubebid_proto::v1;

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_not_started_for_drills_refuses_all_of_them_and_says_how_to() {
    let place = TestPlace::sqlite();
    let drill = Drill::with(&place, Clock::Stepped, false).await;
    drill.open(MARKET).await;
    drill.offer("p1", MARKET, 1, 1000).await;
    let (api, admin) = (&drill.api, &drill.admin);
    let before = api.engine().applied();
    let demand =
        v1::InjectDemandRequest { market: MARKET.to_owned(), nodes: 1, ceiling_micros: 2000, duration_us: 1 };
    let loss = v1::InjectLossRequest { account: "p1".to_owned(), ..Default::default() };
    let restore = v1::RestoreOffersRequest { account: "p1".to_owned(), ..Default::default() };
    let refusals = [
        api.inject_demand(admin, demand).await.err(),
        api.end_demand(admin, Default::default()).await.err(),
        api.inject_loss(admin, loss).await.err(),
        api.restore_offers(admin, restore).await.err(),
        api.preempt_allocation(admin, Default::default()).await.err(),
        api.set_clock_rate(admin, v1::SetClockRateRequest { rate: Some(60) }).await.err(),
    ];
    for refusal in refusals {
        let refusal = refusal.expect("it is refused");
        assert_eq!(refusal.code.word(), "INJECT_DISABLED");
        assert!(refusal.message.contains("--allow-inject"), "{refusal}");
    }
    assert_eq!(api.engine().applied(), before, "nothing is journaled");
    drill.stop().await;
}
