//! What the strategies bid, in markets whose prices others have made.

use crate::market::place;
use crate::story::Story;
use kubebid_client::Client;
use kubebid_client::v1::token::Role;
use kubebid_operator::api::LABEL_BIDNODE;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const FLOOR: f64 = 2.0;

/// A market whose one unit somebody holds, and in which somebody waits for it at 2.60 dollars: 65 % of 4 dollars.
async fn open(story: &Story, other: &Client, market: &str) {
    // So long a notice that a raised reserve moves no price during the test.
    story.market.open(market, Duration::from_secs(600)).await;
    story.market.offer(market, 1, FLOOR).await;
    story.market.rival_bids(market, 1, 9.0).await;
    place(other, market, 1, 2.6).await;
}

#[tokio::test]
async fn the_ceilings_are_those_of_the_strategies() {
    let story = Story::begin("ceilings").await;
    let other = story.market.party("other", Role::Tenant).await;
    let strategies = ["cost-optimized", "balanced", "availability-optimized"];
    let floors = [("low", FLOOR, [2.6, 3.6, 4.5]), ("high", 3.8, [2.6, 3.8, 4.5])];
    // A region each: a bid above the others moves the price.
    let region = |floor: &str, strategy: &str| format!("{floor}-{}", strategy.split('-').next().unwrap());
    let mut expected = BTreeMap::new();
    for (name, floor, ceilings) in floors {
        for (strategy, ceiling) in strategies.iter().zip(ceilings) {
            let region = region(name, strategy);
            let market = format!("h100-8x/{region}");
            open(&story, &other, &market).await;
            let reference = || async {
                // A market in which nothing happens is not looked at.
                story.market.offer(&market, 1, FLOOR).await;
                story.market.reference(&market).await == Some(4_000_000)
            };
            story.eventually("the price was 2.60 dollars for most of the time", reference).await;
            story.market.offer(&market, 1, floor).await;
            expected.insert(region, kubebid_operator::api::micros(ceiling));
        }
    }
    for (name, _, _) in floors {
        for strategy in strategies {
            let region = region(name, strategy);
            let spec =
                json!({"instanceType": "h100-8x", "region": region, "maxBid": 4.5, "bidStrategy": strategy});
            story.bid(&region, spec).await;
        }
    }
    let bids = || async {
        let bids = story.market.live_bids().await.into_iter();
        bids.map(|bid| (bid.labels[LABEL_BIDNODE].clone(), bid.ceiling_micros)).collect::<BTreeMap<_, _>>()
    };
    story.eventually("each has its bid", || async { bids().await.len() == 6 }).await;
    assert_eq!(bids().await, expected);
    // The one below the floor waits, and is told what would win.
    story
        .until("high-cost", "it is below the floor", |status| {
            status.pending_bids == 1
                && status.conditions.iter().any(|it| it.message.contains("3.8 USD or more would win"))
        })
        .await;
}
