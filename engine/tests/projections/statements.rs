//! Tests that a statement is cut at the ends of its period: parts add up to the whole, and a closed period never changes.

use crate::market::{ACCOUNTS, Market, projected};
use crate::place::TestPlace;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Unit};
use kubebid_core::command::{Command, PlaceBid, RuleChange, RuleValue};
use kubebid_core::units::{AccountName, AllocationId, MarketName, Micros};
use kubebid_core::{Auction, Price};
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::store::{Labels, Role};
use kubebid_engine::{Caller, Engine, Submission};
use kubebid_proto::v1;
use sqlx::{AssertSqlSafe, Row};
use std::collections::BTreeMap;
use v1::get_statement_response::Sums;

crate::on_both! {
    parts_add_up_to_the_whole_in_every_time_zone
    a_closed_period_that_is_asked_again_has_the_same_figures
    hours_and_days_have_the_amounts_of_their_segments
    a_node_that_runs_across_the_end_of_a_month_is_cut_there
    a_node_that_turns_out_to_be_free_is_corrected_in_the_period_in_which_it_is_lost
    a_lower_fee_leaves_closed_periods_as_they_were
}

const HOUR: u64 = Micros::HOUR.0;
const DAY: u64 = Micros::DAY.0;

/// Zones of half hours and quarters, and with daylight saving.
const ZONES: [&str; 7] = [
    "UTC",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Chatham",
];

/// Times at which clocks are changed soon: in Berlin, on Lord Howe (by half an hour), in St. John's.
const BEGINNINGS: [&str; 3] =
    ["2023-10-28T17:11:12.345678Z", "2024-10-05T03:04:05.6Z", "2023-11-04T22:22:22Z"];

/// Amounts and node time, less what is corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Net {
    debit: i128,
    credit: i128,
    fee: i128,
    node_time: i128,
}

impl Net {
    fn add(&mut self, sums: &Option<Sums>, sign: i128) {
        let sums = sums.unwrap_or_default();
        self.debit += sign * i128::from(sums.debit_micros);
        self.credit += sign * i128::from(sums.credit_micros);
        self.fee += sign * i128::from(sums.fee_micros);
        self.node_time += sign * i128::from(sums.node_time_us);
    }
}

/// Net sums by market and value of the label.
type Nets = BTreeMap<(String, Option<String>), Net>;

/// Adds the lines of a statement, and checks that they add up to its sums.
fn add(nets: &mut Nets, answer: &v1::GetStatementResponse) {
    let mut all = Net::default();
    for (sums, sign) in [(&answer.charged, 1), (&answer.accrued, 1), (&answer.corrected, -1)] {
        all.add(sums, sign);
    }
    for line in &answer.lines {
        let net = nets.entry((line.market.clone(), line.label_value.clone())).or_default();
        for (sums, sign) in [(&line.charged, 1), (&line.accrued, 1), (&line.corrected, -1)] {
            net.add(sums, sign);
            all.add(sums, -sign);
        }
    }
    assert_eq!(all, Net::default(), "lines add up to the sums: {answer:?}");
    if answer.closed {
        assert_eq!(answer.accrued, Some(Sums::default()));
    }
}

struct Asked {
    engine: Engine,
    api: Api,
    admin: Caller,
}

impl Asked {
    async fn new(engine: &Engine) -> Asked {
        let api = Api::start(engine.clone(), ApiOptions::default()).await.unwrap();
        let blue = Labels::from([("team".to_owned(), "blue".to_owned())]);
        let bids = (1..2_000u64).filter(|bid| bid.is_multiple_of(2)).map(|bid| (bid, &blue));
        engine.store().rows().put_labels(bids).await.unwrap();
        Asked { engine: engine.clone(), api, admin: Caller::new("admin", [Role::Admin]) }
    }

    async fn now(&self) -> u64 {
        self.engine.ask(|exchange| exchange.now().0).await.unwrap()
    }

    async fn statement(&self, account: &str, from_us: u64, to_us: u64) -> v1::GetStatementResponse {
        let request = v1::GetStatementRequest {
            from_us,
            to_us,
            account: Some(account.to_owned()),
            by_label: "team".to_owned(),
            ..Default::default()
        };
        self.api.get_statement(&self.admin, request).await.unwrap()
    }
}

fn at(text: &str) -> u64 {
    text.parse::<Timestamp>().unwrap().as_microsecond() as u64
}

/// Returns the beginnings of the local days and hours between two instants.
fn local_cuts(zone: &str, from: u64, to: u64) -> Vec<u64> {
    let zone = TimeZone::get(zone).unwrap();
    let local = |at: u64| Timestamp::from_microsecond(at as i64).unwrap().to_zoned(zone.clone());
    let (mut day, mut hour, end) =
        (local(from).start_of_day().unwrap(), local(from).round(Unit::Hour).unwrap(), local(to));
    let mut cuts = Vec::new();
    while day < end {
        cuts.push(day.timestamp().as_microsecond() as u64);
        day = day.tomorrow().unwrap().start_of_day().unwrap();
    }
    while hour < end {
        cuts.push(hour.timestamp().as_microsecond() as u64);
        hour = &hour + 1.hour();
    }
    cuts.retain(|cut| *cut > from);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

async fn parts_add_up_to_the_whole_in_every_time_zone(place: TestPlace) {
    let mut corrected = 0;
    for (n, beginning) in BEGINNINGS.into_iter().enumerate() {
        let place = place.another();
        let (engine, running) = place.start().await;
        let begin = at(beginning);
        let mut market = Market::new(90 + n as u64).changing_fees().beginning_at(begin);
        market.open(&engine).await;
        let asked = Asked::new(&engine).await;
        market.run(&engine, 450).await;
        projected(&engine).await;
        let now = asked.now().await;
        assert!(now > begin + DAY, "the clocks are changed in this time");
        let mut whole = BTreeMap::new();
        for account in ACCOUNTS {
            let mut nets = Nets::new();
            add(&mut nets, &asked.statement(account, 0, 0).await);
            whole.insert(account, nets);
        }
        let (totals, accrued) =
            engine.ask(|exchange| (exchange.totals(), exchange.accruals())).await.unwrap();
        let accrued: u128 = accrued.iter().map(|accrual| accrual.bill.round().0).sum();
        let debits: i128 = whole.values().flatten().map(|(_, net)| net.debit).sum();
        assert_eq!(debits as u128, totals.debits.0 + accrued);

        let random: Vec<u64> = (0..6).map(|_| begin + market.random(now - begin)).collect();
        let mut all_cuts: Vec<Vec<u64>> = ZONES.iter().map(|zone| local_cuts(zone, begin, now)).collect();
        // Days alone, and any instants at all.
        all_cuts.push(vec![begin + DAY]);
        all_cuts.push(random);
        for (n, mut cuts) in all_cuts.into_iter().enumerate() {
            cuts.sort_unstable();
            // A few of them, with different ones for each zone.
            let cuts: Vec<u64> = cuts.into_iter().skip(n % 3).step_by(5).collect();
            for account in ACCOUNTS {
                let mut parts = Nets::new();
                let ends = [0].into_iter().chain(cuts.iter().copied()).chain([0]).collect::<Vec<_>>();
                for period in ends.windows(2) {
                    let answer = asked.statement(account, period[0], period[1]).await;
                    corrected += usize::from(answer.corrected != Some(Sums::default()));
                    add(&mut parts, &answer);
                }
                parts.retain(|_, net| *net != Net::default());
                let mut whole = whole[account].clone();
                whole.retain(|_, net| *net != Net::default());
                assert_eq!(parts, whole, "{account}, cut at {cuts:?}");
            }
        }
        asked.api.close();
        drop((asked, engine));
        running.stop().await.unwrap();
    }
    assert!(corrected > 0, "nothing was corrected");
}

async fn a_closed_period_that_is_asked_again_has_the_same_figures(place: TestPlace) {
    let (engine, running) = place.start().await;
    let begin = at("2024-10-05T03:04:05.6Z");
    let mut market = Market::new(77).changing_fees().beginning_at(begin);
    market.open(&engine).await;
    let asked = Asked::new(&engine).await;
    let mut closed: Vec<v1::GetStatementResponse> = Vec::new();
    for _ in 0..24 {
        market.run(&engine, 15).await;
        let now = asked.now().await;
        for _ in 0..8 {
            let account = ACCOUNTS[market.random(6) as usize];
            let to = match market.random(3) {
                0 => now / HOUR * HOUR,
                1 => now / HOUR * HOUR - HOUR / 2,
                _ => now - market.random(6 * HOUR),
            };
            let from = if market.random(2) == 0 { 0 } else { to - market.random(8 * HOUR) };
            let answer = asked.statement(account, from, to).await;
            assert_eq!(answer.to_us, to);
            assert_eq!(answer.closed, to.next_multiple_of(HOUR) <= now);
            if answer.closed {
                closed.push(answer);
            }
        }
        for before in closed.iter().rev().step_by(3).take(12) {
            let again = asked.statement(&before.account, before.from_us, before.to_us).await;
            assert_eq!(again, v1::GetStatementResponse { seq: again.seq, ..before.clone() });
        }
    }
    projected(&engine).await;
    for before in &closed {
        let again = asked.statement(&before.account, before.from_us, before.to_us).await;
        assert_eq!(again, v1::GetStatementResponse { seq: again.seq, ..before.clone() });
    }
    let some = closed.iter().filter(|answer| !answer.lines.is_empty()).count();
    assert!(some > 60, "{some} of {} with lines", closed.len());
    asked.api.close();
    drop((asked, engine));
    running.stop().await.unwrap();
}

async fn hours_and_days_have_the_amounts_of_their_segments(place: TestPlace) {
    let (engine, running) = place.start().await;
    let mut market = Market::new(31).changing_fees();
    market.open(&engine).await;
    let asked = Asked::new(&engine).await;
    market.run(&engine, 400).await;
    projected(&engine).await;
    let (now, mut connection) = (asked.now().await, place.connect().await);
    let last = now / HOUR * HOUR;
    for (from, to) in
        [(0, last), (last - 5 * HOUR, last), (last - 10 * HOUR, last - 5 * HOUR), (0, last - DAY)]
    {
        for account in ACCOUNTS {
            let (mut debit, mut credit) = (0, 0);
            let instant = |us: u64| match place.is_postgres() {
                true => format!("to_timestamp({})", us / 1_000_000),
                false => us.to_string(),
            };
            let sql = format!(
                "SELECT CAST(coalesce(sum(CASE WHEN coalesce(c.tenant, a.tenant) = '{account}' THEN s.amount_micros END), 0) AS bigint) AS debit,
                        CAST(coalesce(sum(CASE WHEN a.provider = '{account}' THEN s.amount_micros - s.fee_micros END), 0) AS bigint) AS credit
                 FROM charge_segments s JOIN allocations a ON a.allocation = s.allocation
                 LEFT JOIN charges c ON c.seq = s.claim_seq AND c.idx = s.claim_idx
                 WHERE s.from_at >= {} AND s.from_at < {}",
                instant(from),
                instant(to)
            );
            let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap();
            debit += i128::from(row.get::<i64, _>("debit"));
            credit += i128::from(row.get::<i64, _>("credit"));
            let mut nets = Nets::new();
            let answer = asked.statement(account, from, to).await;
            assert!(answer.closed);
            add(&mut nets, &answer);
            let sum = |part: fn(&Net) -> i128| nets.values().map(part).sum::<i128>();
            assert_eq!(
                (sum(|net| net.debit), sum(|net| net.credit)),
                (debit, credit),
                "{account} {from} {to}"
            );
        }
    }
    asked.api.close();
    drop((asked, engine));
    running.stop().await.unwrap();
}

/// A market in which one tenant runs one node at a price, and rules that a test needs.
struct Story {
    engine: Engine,
    asked: Asked,
    running: kubebid_engine::Running,
}

impl Story {
    async fn new(place: &TestPlace, begin: &str, rules: &[(&str, u64)], price: u64) -> Story {
        let (engine, running) = place.start().await;
        let asked = Asked::new(&engine).await;
        let story = Story { engine, asked, running };
        let number = |(name, value): &(&str, u64)| RuleChange {
            name: (*name).into(),
            value: RuleValue::Number(*value),
        };
        story.at(begin).await;
        let (market, provider) = (MarketName::new("gpu/east"), AccountName::new("p1"));
        let rules = rules.iter().map(number).collect();
        story.send(Command::OpenMarket { market: market.clone(), rules }).await;
        story
            .send(Command::PutOffer { provider, market: market.clone(), capacity: 1, reserve: Price(price) })
            .await;
        story
            .send(Command::PlaceBid(PlaceBid {
                tenant: AccountName::new("ann"),
                markets: Some(vec![market]),
                instance_type: None,
                ceiling: Price(price),
                min_nodes: 1,
                max_nodes: 1,
                time_in_force: Default::default(),
                expire_at: None,
                on_preemption: Default::default(),
            }))
            .await;
        story.send(Command::ReportReady { allocation: AllocationId(1), by: None }).await;
        story
    }

    async fn send(&self, command: Command) {
        self.engine.submit(Submission::new(None, command), |_| ()).await.unwrap();
    }

    async fn at(&self, text: &str) {
        let at = Some(Micros(at(text)));
        let submission = Submission { at, ..Submission::new(None, Command::AdvanceTime) };
        self.engine.submit(submission, |_| ()).await.unwrap();
    }

    async fn fee(&self, fee_bps: u64) {
        let rules = vec![RuleChange { name: "fee_bps".into(), value: RuleValue::Number(fee_bps) }];
        self.send(Command::ChangeRules { market: MarketName::new("gpu/east"), rules }).await;
    }

    async fn release(&self) {
        let tenant = AccountName::new("ann");
        self.send(Command::ReleaseAllocation { tenant, allocation: AllocationId(1) }).await;
    }

    async fn of(&self, account: &str, from: &str, to: &str) -> v1::GetStatementResponse {
        self.asked.statement(account, at(from), at(to)).await
    }

    async fn stop(self) {
        self.asked.api.close();
        let Story { engine, asked, running } = self;
        drop((engine, asked));
        running.stop().await.unwrap();
    }
}

fn debits(answer: &v1::GetStatementResponse) -> (u64, u64, u64) {
    let debit = |sums: &Option<Sums>| sums.unwrap().debit_micros;
    (debit(&answer.charged), debit(&answer.accrued), debit(&answer.corrected))
}

fn earnings(sums: &Option<Sums>) -> (u64, u64) {
    (sums.unwrap().credit_micros, sums.unwrap().fee_micros)
}

async fn a_node_that_runs_across_the_end_of_a_month_is_cut_there(place: TestPlace) {
    // 192 hours in December, 31 and a quarter in January.
    let story = Story::new(&place, "2025-12-24T00:00:00Z", &[], 1_234_500).await;
    story.at("2026-01-01T12:10:00Z").await;
    let december = story.of("ann", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z").await;
    assert_eq!((debits(&december), december.closed), ((237_024_000, 0, 0), true));
    assert_eq!(december.charged.unwrap().node_time_us, 192 * HOUR);
    let january = story.of("ann", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z").await;
    assert_eq!((debits(&january), january.closed), ((0, 15_019_750, 0), false));
    // A month of India begins in the middle of an hour, and is closed once that hour is over.
    let of_india = ["2025-11-30T18:30:00Z", "2025-12-31T18:30:00Z", "2026-01-31T18:30:00Z"];
    let december_in_india = story.of("ann", of_india[0], of_india[1]).await;
    assert_eq!((debits(&december_in_india), december_in_india.closed), ((230_234_250, 0, 0), true));

    story.at("2026-01-02T07:15:00Z").await;
    story.release().await;
    assert_eq!(
        story.of("ann", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z").await.charged,
        december.charged
    );
    assert_eq!(story.of("ann", of_india[0], of_india[1]).await.charged, december_in_india.charged);
    story.at("2026-02-01T00:00:00Z").await;
    let january = story.of("ann", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z").await;
    // 31.25 hours at 1.2345.
    assert_eq!((debits(&january), january.closed), ((38_578_125, 0, 0), true));
    let earned = story.of("p1", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z").await;
    assert_eq!(earned.charged.unwrap().credit_micros, 38_578_125);
    let refused =
        v1::GetStatementRequest { from_us: 2, to_us: 1, account: Some("ann".into()), ..Default::default() };
    let refused = story.asked.api.get_statement(&story.asked.admin, refused).await.unwrap_err();
    assert!(refused.message.contains("from_us is after to_us"), "{}", refused.message);
    story.stop().await;
}

async fn a_node_that_turns_out_to_be_free_is_corrected_in_the_period_in_which_it_is_lost(place: TestPlace) {
    let rules = [("min_runtime_us", 900_000_000), ("fee_bps", 1_000)];
    let story = Story::new(&place, "2025-12-31T23:54:00Z", &rules, 10_000_000).await;
    story.at("2026-01-01T00:01:00Z").await;
    let (december, january) =
        (["2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]);
    let before = story.of("ann", december[0], december[1]).await;
    assert_eq!((debits(&before), before.closed), ((1_000_000, 0, 0), true));
    let earned = story.of("p1", december[0], december[1]).await;
    assert_eq!(earnings(&earned.charged), (900_000, 100_000));
    story.at("2026-01-01T00:03:00Z").await;
    let provider = AccountName::new("p1");
    let unit = story
        .engine
        .ask(|exchange| exchange.names().unit(exchange.dump().allocations[0].unit))
        .await
        .unwrap();
    story.send(Command::ReportUnitLost { provider, unit }).await;
    story.at("2026-02-01T00:00:00Z").await;
    assert_eq!(story.of("ann", december[0], december[1]).await.charged, before.charged);
    let after = story.of("ann", january[0], january[1]).await;
    assert_eq!((debits(&after), after.closed), ((0, 0, 1_000_000), true));
    assert_eq!(after.corrected.unwrap().node_time_us, HOUR / 10);
    let earned = story.of("p1", january[0], january[1]).await;
    assert_eq!((earnings(&earned.charged), earnings(&earned.corrected)), ((0, 0), (900_000, 100_000)));
    // Within one period nothing is shown.
    let both = story.of("ann", december[0], january[1]).await;
    assert!(both.lines.is_empty(), "{both:?}");
    story.stop().await;
}

async fn a_lower_fee_leaves_closed_periods_as_they_were(place: TestPlace) {
    let story = Story::new(&place, "2025-12-31T20:00:00Z", &[("fee_bps", 1_000)], 10_000_000).await;
    story.at("2026-01-01T00:00:00Z").await;
    let (december, january) =
        (["2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]);
    let before = story.of("p1", december[0], december[1]).await;
    assert_eq!(earnings(&before.charged), (36_000_000, 4_000_000));
    // The whole charge has the fee of the instant at which it is made, although it is made in the same microsecond.
    story.fee(500).await;
    story.release().await;
    story.at("2026-02-01T00:00:00Z").await;
    assert_eq!(
        story.of("p1", december[0], december[1]).await,
        v1::GetStatementResponse { seq: story.engine.applied(), ..before }
    );
    let after = story.of("p1", january[0], january[1]).await;
    assert_eq!((earnings(&after.charged), earnings(&after.corrected)), ((2_000_000, 0), (0, 2_000_000)));
    let all = story.of("p1", december[0], january[1]).await;
    assert_eq!(earnings(&all.charged), (38_000_000, 2_000_000));
    story.stop().await;
}
