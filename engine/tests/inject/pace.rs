//! A stepped clock that moves by itself.

use crate::place::TestPlace;
use crate::{Drill, MARKET, SECOND};
use kubebid_core::units::Micros;
use kubebid_engine::runtime::clock::Clock;
use kubebid_proto::v1;

async fn rate(drill: &Drill, rate: Option<u32>) -> v1::SetClockRateResponse {
    drill.api.set_clock_rate(&drill.admin, v1::SetClockRateRequest { rate }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_moves_until_its_rate_is_0_and_stands_still_after_a_restart() {
    let place = TestPlace::sqlite();
    let drill = Drill::new(&place).await;
    assert_eq!(rate(&drill, None).await, v1::SetClockRateResponse { rate: 0, at_us: 0 });
    drill.offer("p1", MARKET, 1, 1_000_000).await;
    drill.bid("t1", 1, 2_000_000).await;
    assert_eq!(rate(&drill, Some(100_000)).await.rate, 100_000);
    // The node is never reported ready, so its start time-out falls due on the way and is settled.
    drill
        .until(|exchange| exchange.now() >= Micros(900 * SECOND) && exchange.held_allocations().is_empty())
        .await;
    assert_eq!(rate(&drill, None).await.rate, 100_000);
    assert_eq!(rate(&drill, Some(0)).await.rate, 0);
    drill.at(10_000_000).await;
    let refusal = drill.api.set_clock_rate(&drill.admin, v1::SetClockRateRequest { rate: Some(1_000_001) });
    assert_eq!(refusal.await.unwrap_err().field.as_deref(), Some("rate"));
    rate(&drill, Some(1_000_000)).await;
    drill.until(|exchange| exchange.now() > Micros(10_000_000 * SECOND)).await;
    drill.stop().await;

    let drill = Drill::again(&place).await;
    assert_eq!(rate(&drill, None).await.rate, 0);
    drill.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_clock_has_no_rate() {
    let place = TestPlace::sqlite();
    let drill = Drill::with(&place, Clock::Real, true).await;
    let request = v1::SetClockRateRequest { rate: Some(2) };
    let refusal = drill.api.set_clock_rate(&drill.admin, request).await.unwrap_err();
    assert_eq!(refusal.code.word(), "REAL_CLOCK");
    drill.stop().await;
}
