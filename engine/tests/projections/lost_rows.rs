//! Tests that the commands after an accepted loss get nothing that belongs to the lost commands of the same numbers.

use crate::place::TestPlace;
use kubebid_core::Command;
use kubebid_core::units::MarketName;
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::lifecycle::rebuild::rebuild;
use kubebid_engine::readmodel::TABLES;
use kubebid_engine::store::{Fault, Role, Store};
use kubebid_engine::{Caller, EngineError, EngineOptions, Running, Submission};
use kubebid_proto::v1;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use std::collections::{BTreeMap, BTreeSet};

crate::on_both! {
    no_table_has_a_number_beyond_the_journals_end_after_a_rebuild
    the_next_bids_get_nothing_of_the_lost_ones_after_a_rebuild
    the_next_bids_get_nothing_of_the_lost_ones_after_a_start
    rows_beside_another_history_go_back_to_the_last_snapshot_in_common
}

const MARKET: &str = "gpu/east";

/// The columns that hold the number of a command. A bid has the number of the command that placed it.
const COMMANDS: [&str; 9] = [
    "first_seq",
    "last_seq",
    "seq",
    "bid",
    "bid_seq",
    "claim_seq",
    "claimant_bid",
    "former_claimant_bid",
    "watermark",
];

/// The other columns of whole numbers. A new column belongs here or to [`COMMANDS`]; if it belongs there and its table
/// is not made from the journal, `NUMBERED` of `engine/src/store/history.rs` needs the table.
const OTHERS: &[&str] = &[
    "allocated_at",
    "allocation",
    "amount_micros",
    "at",
    "at_us",
    "bytes",
    "capacity",
    "ceiling_micros",
    "claim_idx",
    "claimed",
    "closed_at",
    "created_at_us",
    "credit_micros",
    "debit_micros",
    "ended_at",
    "entry_price_micros",
    "epoch",
    "expire_at",
    "fee_micros",
    "first_event",
    "floor_micros",
    "from_at",
    "held",
    "highest_losing_micros",
    "id",
    "idx",
    "last_price_micros",
    "lowest_accepted_micros",
    "market_price_micros",
    "max_ceiling_micros",
    "max_commands_per_day",
    "max_nodes",
    "max_nodes_wanted",
    "max_open_bids",
    "max_refusals_per_second",
    "max_requests_per_second",
    "max_units_offered",
    "max_units_per_command",
    "mean_price_micros",
    "min_charge",
    "min_nodes",
    "notice_deadline",
    "notice_started_at",
    "number",
    "offset_us",
    "on_demand_price_micros",
    "one",
    "opened_at",
    "own",
    "part",
    "pid",
    "placed_at",
    "prices_from",
    "protected_until",
    "put_at",
    "ready_at",
    "remainder",
    "reserve_micros",
    "revoked_at_us",
    "start_by",
    "to_at",
    "total_fee_micros",
    "total_micros",
    "under_notice",
    "unmet",
];

/// A running engine on a place.
struct Shop {
    api: Api,
    running: Running,
}

impl Shop {
    async fn open(place: &TestPlace) -> Shop {
        let (engine, running) = place.start().await;
        Shop { api: Api::start(engine, ApiOptions::default()).await.unwrap(), running }
    }

    /// Stops the engine, and waits until it has released its store.
    async fn close(self, place: &TestPlace) {
        self.api.close();
        drop(self.api);
        self.running.stop().await.unwrap();
        while matches!(Store::open(&place.options).await, Err(Fault::InUse { .. })) {
            tokio::task::yield_now().await;
        }
    }

    /// Opens the market with this many units of the provider.
    async fn open_market(&self, engine: &kubebid_engine::Engine) {
        let open = Command::OpenMarket { market: MarketName::new(MARKET), rules: Vec::new() };
        engine.submit(Submission::new(None, open), |_| ()).await.unwrap();
    }

    async fn offer(&self, capacity: u32) {
        let request = v1::PutOfferRequest {
            market: MARKET.to_owned(),
            capacity,
            reserve_micros: 100,
            ..Default::default()
        };
        self.api.put_offer(&provider(), request).await.unwrap();
    }

    /// Places a bid for a node, with labels and a config if it is a secret one. Returns its number.
    async fn bid(&self, tenant: &Caller, key: &str, is_secret: bool) -> u64 {
        let mut request = v1::PlaceBidRequest {
            markets: vec![MARKET.to_owned()],
            ceiling_micros: 1000,
            max_nodes: 1,
            client_key: key.to_owned(),
            ..Default::default()
        };
        if is_secret {
            request.labels = [("secret".to_owned(), key.to_owned())].into();
            request.node_config = b"secret".to_vec();
        }
        self.api.place_bid(tenant, request).await.unwrap().bid
    }

    /// Reports a node ready, with data to reach it if it is a secret one.
    async fn ready(&self, allocation: u64, is_secret: bool) {
        let access = v1::NodeAccess { user: "secret".to_owned(), ..Default::default() };
        let access = is_secret.then_some(access);
        let request = v1::ReportReadyRequest { allocation, access, ..Default::default() };
        self.api.report_ready(&provider(), request).await.unwrap();
    }
}

fn provider() -> Caller {
    Caller::new("p", [Role::Provider])
}

fn ann() -> Caller {
    Caller::new("ann", [Role::Tenant])
}

fn bob() -> Caller {
    Caller::new("bob", [Role::Tenant])
}

async fn change(place: &TestPlace, sql: &str) {
    let mut connection = place.connect().await;
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    // On SQLite the last connection leaves no log.
    connection.close().await.unwrap();
}

/// Runs a market in which ann has a node before the loss and two nodes after it, all with secrets. Cuts the journal
/// between them. Returns its end, and the bids after it.
async fn lose(place: &TestPlace) -> (u64, Vec<u64>) {
    let (engine, running) = place.start().await;
    let api = Api::start(engine.clone(), ApiOptions::default()).await.unwrap();
    let shop = Shop { api, running };
    shop.open_market(&engine).await;
    drop(engine);
    shop.offer(5).await;
    let kept = shop.bid(&ann(), "kept", true).await;
    shop.ready(1, true).await;
    shop.close(place).await;
    let end =
        place.connect().await.fetch_one("SELECT MAX(last_seq) FROM journal").await.unwrap().get::<i64, _>(0);
    let shop = Shop::open(place).await;
    let mut lost = Vec::new();
    for n in 0..2 {
        lost.push(shop.bid(&ann(), &format!("lost {n}"), true).await);
    }
    for allocation in [2, 3] {
        shop.ready(allocation, true).await;
    }
    shop.close(place).await;
    change(place, &format!("CREATE TABLE lost_journal AS SELECT * FROM journal WHERE last_seq > {end}"))
        .await;
    change(place, &format!("DELETE FROM journal WHERE last_seq > {end}")).await;
    assert!(kept as i64 <= end && lost.iter().all(|bid| *bid as i64 > end));
    (end as u64, lost)
}

/// Asserts that bob, who gets the numbers of ann's lost bids, sees nothing of hers, and that she still has the rest.
async fn assert_clean(place: &TestPlace, lost: &[u64]) {
    let shop = Shop::open(place).await;
    let bids = [shop.bid(&bob(), "lost 0", false).await, shop.bid(&bob(), "lost 1", false).await];
    assert_eq!(bids, lost, "the numbers are given again");
    for allocation in [2, 3] {
        shop.ready(allocation, false).await;
    }
    for bid in bids {
        let read = v1::GetBidRequest { bid, min_seq: bid };
        let bid = shop.api.get_bid(&bob(), read).await.unwrap().bid.unwrap();
        assert_eq!((bid.labels.len(), bid.node_config), (0, None));
    }
    for allocation in [2, 3] {
        let read = v1::GetAllocationRequest { allocation, min_seq: 0 };
        let seen = shop.api.get_allocation(&bob(), read).await.unwrap().allocation.unwrap();
        assert_eq!((seen.tenant(), &seen.access, &seen.node_config), ("bob", &None, &None));
        let seen = shop.api.get_allocation(&provider(), read).await.unwrap().allocation.unwrap();
        assert_eq!(seen.node_config, None, "the provider sets up no node by the config of another tenant");
    }
    let read = v1::GetAllocationRequest { allocation: 1, min_seq: 0 };
    let seen = shop.api.get_allocation(&ann(), read).await.unwrap().allocation.unwrap();
    assert_eq!((seen.node_config(), &seen.access.as_ref().unwrap().user[..]), (&b"secret"[..], "secret"));
    shop.close(place).await;
}

async fn refused(place: &TestPlace) {
    let options = EngineOptions::new(place.options.clone(), kubebid_engine::runtime::clock::Clock::Stepped);
    let started = kubebid_engine::Engine::start(options).await.map(|_| ());
    assert!(matches!(started, Err(EngineError::Store(Fault::HistoryLost(_)))), "{started:?}");
}

async fn the_next_bids_get_nothing_of_the_lost_ones_after_a_rebuild(place: TestPlace) {
    let (_, lost) = lose(&place).await;
    refused(&place).await;
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_clean(&place, &lost).await;
}

/// The tables and snapshots were lost too, so that nothing but these rows shows that the journal has lost its end.
async fn the_next_bids_get_nothing_of_the_lost_ones_after_a_start(place: TestPlace) {
    let (_, lost) = lose(&place).await;
    for table in TABLES.iter().chain(&["snapshot", "snapshot_part"]) {
        change(&place, &format!("DELETE FROM {table}")).await;
    }
    change(&place, "UPDATE projection SET watermark = 0").await;
    assert_clean(&place, &lost).await;
}

async fn rows_beside_another_history_go_back_to_the_last_snapshot_in_common(place: TestPlace) {
    let (end, lost) = lose(&place).await;
    rebuild(&place.options, |_, _| ()).await.unwrap();
    // The market goes on with secrets of bob, until the lost end of the journal is found and put back in place.
    let shop = Shop::open(&place).await;
    let bids = [shop.bid(&bob(), "b 0", true).await, shop.bid(&bob(), "b 1", true).await];
    assert_eq!(bids, lost[..]);
    shop.close(&place).await;
    change(&place, &format!("DELETE FROM journal WHERE last_seq > {end}")).await;
    change(&place, "INSERT INTO journal SELECT * FROM lost_journal").await;
    refused(&place).await;
    rebuild(&place.options, |_, _| ()).await.unwrap();

    let shop = Shop::open(&place).await;
    for bid in bids {
        let read = v1::GetBidRequest { bid, min_seq: 0 };
        let bid = shop.api.get_bid(&ann(), read).await.unwrap().bid.unwrap();
        assert_eq!((bid.tenant.as_str(), bid.labels.len(), bid.node_config), ("ann", 0, None));
    }
    let read = v1::GetAllocationRequest { allocation: 1, min_seq: 0 };
    let seen = shop.api.get_allocation(&ann(), read).await.unwrap().allocation.unwrap();
    assert_eq!(seen.node_config(), b"secret");
    shop.close(&place).await;
}

/// Returns the columns of whole numbers of each table.
async fn columns(place: &TestPlace) -> BTreeMap<String, Vec<String>> {
    let sql = if place.is_postgres() {
        "SELECT c.relname::text, a.attname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
           AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid IN ('bigint'::regtype, 'int'::regtype)"
    } else {
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND c.type IN ('INTEGER', 'BIGINT')"
    };
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for row in sqlx::query(sql).fetch_all(&mut place.connect().await).await.unwrap() {
        found.entry(row.get(0)).or_default().push(row.get(1));
    }
    found.retain(|table, _| !["_sqlx_migrations", "lost_journal"].contains(&&table[..]));
    found
}

/// Returns the largest value of each column that holds numbers of commands, by table and column.
async fn largest(place: &TestPlace) -> BTreeMap<(String, String), u64> {
    let mut connection = place.connect().await;
    let mut largest = BTreeMap::new();
    for (table, columns) in columns(place).await {
        for column in columns {
            let is_known = COMMANDS.contains(&&column[..]) || OTHERS.contains(&&column[..]);
            assert!(is_known, "this test does not know the column {column} of {table}");
            if COMMANDS.contains(&&column[..]) {
                let sql = AssertSqlSafe(format!("SELECT COALESCE(MAX({column}), 0) FROM {table}"));
                let row = sqlx::query(sql).fetch_one(&mut connection).await.unwrap();
                largest.insert((table.clone(), column), row.get::<i64, _>(0) as u64);
            }
        }
        if table == "node_data" {
            let sql = "SELECT MAX(number) FROM node_data WHERE kind = 'config'";
            let row = sqlx::query(sql).fetch_one(&mut connection).await.unwrap();
            largest.insert((table, "number".to_owned()), row.get::<i64, _>(0) as u64);
        }
    }
    largest
}

async fn no_table_has_a_number_beyond_the_journals_end_after_a_rebuild(place: TestPlace) {
    let (end, _) = lose(&place).await;
    // A part of a snapshot that was not completed.
    let empty = if place.is_postgres() { "''" } else { "x''" };
    change(&place, &format!("INSERT INTO snapshot_part (seq, part, body) VALUES ({}, 7, {empty})", end + 1))
        .await;
    let before = largest(&place).await;
    let tables: BTreeSet<_> = before.keys().map(|(table, _)| table).collect();
    for table in tables {
        let is_beyond = before.iter().any(|((of, _), largest)| of == table && *largest > end);
        // The tables of the read model are emptied, whatever they have.
        let is_emptied = TABLES.contains(&&table[..]);
        assert!(is_beyond || is_emptied || table == "journal", "the story writes nothing into {table}");
    }
    rebuild(&place.options, |_, _| ()).await.unwrap();
    let beyond: Vec<_> = largest(&place).await.into_iter().filter(|(_, largest)| *largest > end).collect();
    assert!(beyond.is_empty(), "beyond command {end}: {beyond:?}");
}
