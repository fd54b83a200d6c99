//! Tests that a repeated request mends what a crash leaves between the journal and the rows of labels.

use crate::place::TestPlace;
use kubebid_core::Command;
use kubebid_core::units::MarketName;
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::store::{Labels, Role};
use kubebid_engine::wire::command;
use kubebid_engine::{Caller, Submission};
use kubebid_proto::v1;

crate::on_both! {
    a_repeat_brings_the_labels_that_a_crash_lost
}

const MARKET: &str = "gpu/east";

fn request(labels: &[(&str, &str)]) -> v1::PlaceBidRequest {
    v1::PlaceBidRequest {
        markets: vec![MARKET.to_owned()],
        ceiling_micros: 1000,
        max_nodes: 1,
        client_key: "the key".to_owned(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Default::default()
    }
}

async fn a_repeat_brings_the_labels_that_a_crash_lost(place: TestPlace) {
    let caller = Caller::new("ann", [Role::Tenant]);
    let mine = request(&[("team", "blue"), ("app", "web")]);
    let (engine, running) = place.start().await;
    let open = Command::OpenMarket { market: MarketName::new(MARKET), rules: Vec::new() };
    engine.submit(Submission::new(None, open), |_| ()).await.unwrap();
    // The bid gets as far as the journal, and no further.
    let (key, bid, labels) = command::place_bid(&caller.account, &mut mine.clone(), &mut None).unwrap();
    let placed = engine.submit(Submission::new(key, Command::PlaceBid(bid)), |step| step.seq.0);
    let placed = placed.await.unwrap();
    assert!(engine.ask(|_| -> () { panic!("as a bug would") }).await.is_err());
    running.ended().await.unwrap_err();
    drop(engine);

    let (engine, running) = place.start().await;
    let rows = engine.store().rows().clone();
    assert!(rows.labels_of(&[placed]).await.unwrap().is_empty());
    let api = Api::start(engine, ApiOptions::default()).await.unwrap();
    for _ in 0..2 {
        let again = api.place_bid(&caller, mine.clone()).await.unwrap();
        assert_eq!((again.bid, again.repeated), (placed, true));
        assert_eq!(rows.labels_of(&[placed]).await.unwrap(), [(placed, labels.clone())].into());
    }
    let red = Labels::from([("team".to_owned(), "red".to_owned())]);
    assert!(rows.bids_labelled(&red, 0, 9).await.unwrap().is_empty());
    for other in [request(&[("team", "red")]), request(&[])] {
        let refused = api.place_bid(&caller, other).await.unwrap_err();
        assert_eq!(refused.code.word(), "KEY_CONFLICT");
    }
    assert_eq!(rows.labels_of(&[placed]).await.unwrap(), [(placed, labels)].into());
    api.close();
    drop((api, rows));
    running.stop().await.unwrap();
}
