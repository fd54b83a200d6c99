//! Tests that a repeated request mends what a crash leaves between the journal and the rows of labels
//! and of data of nodes.

use crate::place::TestPlace;
use kubebid_core::Command;
use kubebid_core::command::CancelMode;
use kubebid_core::units::{BidId, MarketName};
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::store::{Labels, NodeData, NodeDataKey, Role};
use kubebid_engine::wire::command;
use kubebid_engine::{Caller, Submission};
use kubebid_proto::v1;
use std::time::Duration;

crate::on_both! {
    a_repeat_brings_the_labels_that_a_crash_lost
    a_repeat_brings_the_node_config_that_a_crash_lost
    a_frame_of_repeats_gets_the_first_answers
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

async fn a_repeat_brings_the_node_config_that_a_crash_lost(place: TestPlace) {
    let caller = Caller::new("ann", [Role::Tenant]);
    let mine = v1::PlaceBidRequest { node_config: b"\0ssh\xff".to_vec(), ..request(&[]) };
    let config = NodeData::new(mine.node_config.clone().into());
    let (engine, running) = place.start().await;
    let open = Command::OpenMarket { market: MarketName::new(MARKET), rules: Vec::new() };
    engine.submit(Submission::new(None, open), |_| ()).await.unwrap();
    // The bid gets as far as the journal, and no further.
    let (key, bid, _) = command::place_bid(&caller.account, &mut mine.clone(), &mut None).unwrap();
    let placed = engine.submit(Submission::new(key, Command::PlaceBid(bid)), |step| step.seq.0);
    let placed = placed.await.unwrap();
    // Another one has its config, and ends while nothing deletes it.
    let ended = request(&[]);
    let (_, bid, _) = command::place_bid(&caller.account, &mut ended.clone(), &mut None).unwrap();
    let ended = engine.submit(Submission::new(None, Command::PlaceBid(bid)), |step| step.seq.0);
    let ended = ended.await.unwrap();
    let rows = engine.store().rows().clone();
    rows.put_node_data(&[(NodeDataKey::config(ended), config.brought_by(ended))]).await.unwrap();
    let (tenant, mode) = (caller.account.clone(), CancelMode::Release);
    let cancel = Command::CancelBid { tenant, bid: BidId(ended), mode };
    engine.submit(Submission::new(None, cancel), |_| ()).await.unwrap();
    running.stop().await.unwrap();
    drop((engine, rows));

    let (engine, running) = place.start().await;
    let rows = engine.store().rows().clone();
    let key = NodeDataKey::config(placed);
    assert_eq!(rows.node_data(key).await.unwrap(), None);
    let api = Api::start(engine, ApiOptions::default()).await.unwrap();
    for _ in 0..2 {
        let again = api.place_bid(&caller, mine.clone()).await.unwrap();
        assert_eq!((again.bid, again.repeated), (placed, true));
        assert_eq!(rows.node_data(key).await.unwrap(), Some(config.brought_by(placed)));
    }
    for other in [b"other".to_vec(), Vec::new()] {
        let other = v1::PlaceBidRequest { node_config: other, ..mine.clone() };
        let refused = api.place_bid(&caller, other).await.unwrap_err();
        assert_eq!(refused.code.word(), "KEY_CONFLICT");
    }
    let deleted = async {
        loop {
            let kept = rows.node_data(NodeDataKey::config(ended)).await.unwrap().unwrap();
            if kept.content.is_none() {
                return kept.sha256;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let hash = tokio::time::timeout(Duration::from_secs(120), deleted).await.unwrap();
    assert_eq!(hash, config.sha256);
    let later = config.brought_by(placed + 1);
    rows.put_node_data(&[(key, later.clone())]).await.unwrap();
    rows.put_node_data(&[(key, config.brought_by(placed))]).await.unwrap();
    assert_eq!(rows.node_data(key).await.unwrap(), Some(later), "an earlier command replaces nothing");
    api.close();
    drop((api, rows));
    running.stop().await.unwrap();
}

async fn a_frame_of_repeats_gets_the_first_answers(place: TestPlace) {
    use kubebid_proto::v1::place_bids_response::result::Outcome;
    let caller = Caller::new("ann", [Role::Tenant]);
    let (engine, running) = place.start().await;
    let open = Command::OpenMarket { market: MarketName::new(MARKET), rules: Vec::new() };
    engine.submit(Submission::new(None, open), |_| ()).await.unwrap();
    let api = Api::start(engine, ApiOptions::default()).await.unwrap();
    let mut bids: Vec<_> = (0..300)
        .map(|n| v1::PlaceBidRequest {
            client_key: format!("key {n}"),
            node_config: if n % 3 == 0 { Vec::new() } else { format!("config {n}").into() },
            ..if n % 2 == 0 { request(&[]) } else { request(&[("n", &n.to_string())]) }
        })
        .collect();
    let send = async |bids: &[v1::PlaceBidRequest]| {
        let began = std::time::Instant::now();
        let answer =
            api.place_bid_frame(&caller, v1::PlaceBidsRequest { bids: bids.to_vec() }).await.unwrap();
        println!("{} bids in {:?}", bids.len(), began.elapsed());
        answer.results.into_iter().map(|result| match result.outcome.unwrap() {
            Outcome::Placed(placed) => Ok((placed.bid, placed.repeated)),
            Outcome::Refused(refusal) => Err(refusal.reason),
        })
    };
    let first: Vec<_> = send(&bids).await.map(|answer| answer.unwrap().0).collect();
    for _ in 0..2 {
        let again: Vec<_> = send(&bids).await.map(Result::unwrap).collect();
        assert_eq!(again, first.iter().map(|bid| (*bid, true)).collect::<Vec<_>>());
    }
    // Each repeat stands for itself: those that differ are refused, and only those.
    bids[7].labels = [("n".to_owned(), "8".to_owned())].into();
    bids[10].node_config = b"another".to_vec();
    bids[12].node_config = b"one".to_vec();
    bids[15].labels.clear();
    bids.push(v1::PlaceBidRequest { labels: [("n".to_owned(), "x".to_owned())].into(), ..bids[0].clone() });
    let differs = [7, 10, 12, 15, 300];
    for (n, answer) in send(&bids).await.enumerate() {
        match answer {
            Ok((bid, true)) => assert!(bid == first[n] && !differs.contains(&n), "{n}"),
            Ok((_, false)) => panic!("{n} is placed again"),
            Err(reason) => assert!(reason == "KEY_CONFLICT" && differs.contains(&n), "{n}: {reason}"),
        }
    }
    api.close();
    drop(api);
    running.stop().await.unwrap();
}
