//! Tests of past prices.

use crate::market::{MARKETS, Market, projected};
use crate::place::TestPlace;
use kubebid_core::event::Fact;
use kubebid_core::units::{MarketName, Micros};
use kubebid_engine::readmodel::rows::PricePoint;

crate::on_both! {
    every_change_is_a_point
    bars_cover_the_time_since_the_opening
}

async fn every_change_is_a_point(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut feed = engine.subscribe();
    let mut market = Market::new(21);
    market.open(&engine).await;
    market.run(&engine, 200).await;
    projected(&engine).await;
    let mut seen: Vec<Vec<PricePoint>> = vec![Vec::new(); MARKETS.len()];
    while let Ok(chunk) = feed.try_recv() {
        for step in &chunk.steps {
            for (index, event) in step.events.iter().enumerate() {
                if let Fact::PriceChanged { market, numbers } = event.fact {
                    let (seq, index, at) = (step.seq, index as u32, event.at);
                    seen[market.0 as usize].push(PricePoint { seq, index, at, numbers });
                }
            }
        }
    }
    for (name, seen) in MARKETS.into_iter().zip(seen) {
        let name = MarketName::new(name);
        let mut points: Vec<PricePoint> = Vec::new();
        loop {
            let after = points.last().copied();
            let page = engine.read_model().price_points(&name, Micros(0), None, after, 7).await.unwrap();
            if page.is_empty() {
                break;
            }
            points.extend(page);
        }
        assert!(points.len() > 20);
        assert_eq!(points, seen);
        let (from, to) = (seen[5].at, seen[15].at);
        let part = engine.read_model().price_points(&name, from, Some(to), None, 1000).await.unwrap();
        let wanted: Vec<_> = seen.into_iter().filter(|point| (from..to).contains(&point.at)).collect();
        assert_eq!(part, wanted);
    }
    running.stop().await.unwrap();
}

async fn bars_cover_the_time_since_the_opening(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(22);
    market.open(&engine).await;
    market.run(&engine, 200).await;
    projected(&engine).await;
    let now = engine.ask(|exchange| exchange.now()).await.unwrap();
    let hour = Micros::HOUR;
    let name = MarketName::new(MARKETS[0]);
    let all = engine.read_model().price_bars(&name, Micros(0), now, hour, 1000).await.unwrap();
    let points = engine.read_model().price_points(&name, Micros(0), None, None, 100_000).await.unwrap();
    assert!(all.len() > 10);
    assert_eq!(all.iter().map(|bar| bar.changes as usize).sum::<usize>(), points.len());
    for pair in all.windows(2) {
        assert_eq!(pair[0].start.after(hour), pair[1].start);
    }
    for bar in &all {
        let end = bar.start.after(hour);
        let close = points.iter().rfind(|point| point.at < end).unwrap();
        assert_eq!(bar.close, close.numbers.market_price);
        assert!(bar.low <= bar.open.min(bar.close) && bar.high >= bar.open.max(bar.close), "{bar:?}");
        assert!((bar.low..=bar.high).contains(&bar.mean), "{bar:?}");
    }
    // A page from the middle has the same bars.
    let page = engine.read_model().price_bars(&name, all[4].start, now, hour, 3).await.unwrap();
    assert_eq!(page, all[4..7]);
    // Pages that end early have the same bars too.
    let (mut pages, mut from, mut early) = (Vec::new(), Micros(0), 0);
    loop {
        let page = engine.read_model().price_bar_page(&name, from..now, hour, 1000, 3).await.unwrap();
        pages.extend(page.bars);
        from = pages.last().unwrap().start.after(hour);
        early += u32::from(page.stopped);
        if !page.stopped {
            break;
        }
    }
    assert_eq!(pages, all);
    assert!(early > 2, "one page looked at everything");
    running.stop().await.unwrap();
}
