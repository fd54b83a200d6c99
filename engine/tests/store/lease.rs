//! Tests of which engine may take a lease from which.

use std::time::Duration;

use kubebid_engine::store::{AppendError, Fault, Leadership, Lease, LeaseCondition, Store};
use sqlx::Executor;
use tokio::task::JoinSet;

use crate::place::{TestPlace, append_all, batch};

const LONG: Duration = Duration::from_secs(600);

async fn lead(store: &Store, taking: LeaseCondition, length: Duration) -> Option<Leadership> {
    store.lead_by_lease(taking, length).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_renewed_is_taken_by_force_only() {
    let place = TestPlace::postgres();
    let (one, two) = (place.open().await, place.open().await);
    let mut led = lead(&one, LeaseCondition::Lapsed, LONG).await.expect("nobody has led yet");
    let mut lease = led.lease.take().unwrap();
    for taking in [LeaseCondition::Lapsed, LeaseCondition::LapsedOrDead] {
        assert!(lead(&two, taking, LONG).await.is_none());
    }
    assert!(two.lease().await.unwrap().remaining > LONG / 2);
    let before = two.lease().await.unwrap().until_us;
    assert!(lease.renew().await.unwrap());
    assert!(two.lease().await.unwrap().until_us > before);
    // An attempt that fails leaves the epoch as it is.
    let batches = append_all(&mut *led.writer, led.head, &[2]).await;

    let other = lead(&two, LeaseCondition::Anyway, LONG).await.expect("it is taken by force");
    assert_eq!(other.head, batches[0].end());
    let answer = led.writer.append(&batch(other.head, 1)).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    assert!(!lease.renew().await.unwrap());
    // The lease is not ours, so it cannot be given back.
    lease.give_back().await.unwrap();
    assert!(lead(&one, LeaseCondition::Lapsed, LONG).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_dead_process_can_be_taken() {
    let place = TestPlace::postgres();
    let (one, two) = (place.open().await, place.open().await);
    let led = lead(&one, LeaseCondition::Lapsed, LONG).await.unwrap();
    drop(led);
    // The server notices in its own time that the session has ended.
    while lead(&two, LeaseCondition::LapsedOrDead, LONG).await.is_none() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lapsed_lease_is_renewed_unless_another_engine_took_it() {
    let place = TestPlace::postgres();
    let store = place.open().await;
    let mut led = lead(&store, LeaseCondition::Lapsed, Duration::from_millis(200)).await.unwrap();
    let mut lease = led.lease.take().unwrap();
    while !store.lease().await.unwrap().remaining.is_zero() {
        tokio::task::yield_now().await;
    }
    assert!(renew(&mut lease).await);
    while lead(&store, LeaseCondition::Lapsed, LONG).await.is_none() {
        tokio::task::yield_now().await;
    }
    assert!(!renew(&mut lease).await);
}

/// Renews a lease, again and again if a busy machine connects more slowly than its short length allows.
async fn renew(lease: &mut Lease) -> bool {
    loop {
        match lease.renew().await {
            Err(Fault::TimedOut { .. }) => {}
            renewed => return renewed.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_given_back_is_free_at_once() {
    let place = TestPlace::postgres();
    let store = place.open().await;
    let led = lead(&store, LeaseCondition::Lapsed, LONG).await.unwrap();
    led.lease.unwrap().give_back().await.unwrap();
    assert!(store.lease().await.unwrap().remaining.is_zero());
    assert!(lead(&store, LeaseCondition::Lapsed, LONG).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_waiting_engines_one_leads() {
    let place = TestPlace::postgres();
    for _ in 0..5 {
        let mut waiting = JoinSet::new();
        for _ in 0..6 {
            let store = place.open().await;
            waiting.spawn(async move { lead(&store, LeaseCondition::Lapsed, LONG).await });
        }
        let mut led: Vec<_> = waiting.join_all().await.into_iter().flatten().collect();
        assert_eq!(led.len(), 1);
        led.remove(0).lease.unwrap().give_back().await.unwrap();
    }
}

#[tokio::test]
async fn sqlite_has_no_lease() {
    let place = TestPlace::sqlite();
    let store = place.open().await;
    assert!(!store.has_lease());
    assert!(lead(&store, LeaseCondition::Lapsed, LONG).await.unwrap().lease.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_is_not_renamed_once_another_engine_has_taken_it() {
    let place = TestPlace::postgres();
    let store = place.open().await;
    // Each writer that takes the journal is overtaken at once.
    place
        .connect()
        .await
        .execute(
            "CREATE FUNCTION overtake() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF pg_trigger_depth() = 1 THEN UPDATE leader SET epoch = epoch + 1; END IF;
                 RETURN NULL;
             END $$;
             CREATE TRIGGER overtake AFTER UPDATE OF holder ON leader FOR EACH ROW EXECUTE FUNCTION overtake()",
        )
        .await
        .unwrap();
    let name = store.journal().id();
    assert_eq!(store.rename_journal().await.unwrap(), None);
    assert_eq!(place.open().await.journal().id(), name);
}
