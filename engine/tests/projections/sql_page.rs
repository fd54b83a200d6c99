//! The questions of docs/sql.md, asked as the role that `kubebid store grant-reader` makes.

use crate::market::{ACCOUNTS, Market, projected};
use crate::place::TestPlace;
use kubebid_engine::Caller;
use kubebid_engine::api::{Api, ApiOptions};
use kubebid_engine::readmodel::TABLES;
use kubebid_engine::store::{GrantError, Labels, Role, grant_reader};
use kubebid_proto::v1;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

const PAGE: &str = include_str!("../../../docs/sql.md");

/// The beginning and the end of November 2026.
const NOVEMBER: (u64, u64) = (1_793_491_200_000_000, 1_796_083_200_000_000);

/// Returns the SQL blocks of the page, in order.
fn blocks() -> Vec<&'static str> {
    let blocks = PAGE.split("```sql\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().trim().trim_end_matches(';')).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_question_of_the_page_has_an_answer_for_a_reader() {
    let place = TestPlace::postgres();
    let (engine, running) = place.start().await;
    // The last question is about November 2026.
    let mut market = Market::new(61).changing_fees().beginning_at(NOVEMBER.1 - 14 * 3_600_000_000 + 123_456);
    market.open(&engine).await;
    market.run(&engine, 400).await;
    projected(&engine).await;
    let labels: Labels = [("team".to_owned(), "blue".to_owned())].into();
    let labels: Vec<(u64, &Labels)> = (1..=engine.applied()).map(|bid| (bid, &labels)).collect();
    engine.store().rows().put_labels(labels).await.unwrap();

    grant_reader(&place.options, "kubebid_reader", Some("it's a secret"), &TABLES).await.unwrap();
    // Granting it again changes nothing.
    grant_reader(&place.options, "kubebid_reader", None, &TABLES).await.unwrap();
    let mut reader = PgConnection::connect(place.url()).await.unwrap();
    reader.execute("SET ROLE kubebid_reader").await.unwrap();
    let mut answers = Vec::new();
    for block in blocks() {
        let sql = format!("SELECT CAST(row_to_json(answer) AS text) FROM ({block}) answer");
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut reader).await;
        let rows = rows.unwrap_or_else(|error| panic!("{error}\n{block}"));
        assert!(!rows.is_empty(), "nothing was found:\n{block}");
        answers.push(rows);
    }
    assert!(answers.len() >= 12);

    let api = Api::start(engine.clone(), ApiOptions::default()).await.unwrap();
    let admin = Caller::new("admin", [Role::Admin]);
    let mut lines = 0;
    for row in answers.last().unwrap() {
        let line = json(row);
        let account = line["account"].as_str().unwrap().to_owned();
        assert!(ACCOUNTS.contains(&&account[..]));
        let (from_us, to_us) = NOVEMBER;
        let request =
            v1::GetStatementRequest { from_us, to_us, account: Some(account), ..Default::default() };
        let statement = api.get_statement(&admin, request).await.unwrap();
        assert!(statement.closed);
        let same = statement.lines.iter().find(|row| row.market == line["market"].as_str().unwrap());
        let (charged, corrected) = same.map_or_else(Default::default, |line| (line.charged, line.corrected));
        let (charged, corrected) = (charged.unwrap_or_default(), corrected.unwrap_or_default());
        let sums = ["debit_micros", "credit_micros", "fee_micros"].map(|name| line[name].as_i64().unwrap());
        let net = |charged: u64, corrected: u64| charged as i64 - corrected as i64;
        assert_eq!(
            sums,
            [
                net(charged.debit_micros, corrected.debit_micros),
                net(charged.credit_micros, corrected.credit_micros),
                net(charged.fee_micros, corrected.fee_micros)
            ]
        );
        lines += 1;
    }
    assert!(lines > 3);
    api.close();
    drop(api);

    for forbidden in [
        "SELECT * FROM journal",
        "SELECT * FROM tokens",
        "SELECT * FROM accounts",
        "DELETE FROM bids",
        "UPDATE projection SET watermark = 0",
    ] {
        let refused = reader.execute(forbidden).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{forbidden}: {refused}");
    }
    drop(engine);
    running.stop().await.unwrap();
}

fn json(row: &PgRow) -> Value {
    serde_json::from_str(row.get(0)).unwrap()
}

#[tokio::test]
async fn every_table_and_column_has_a_comment() {
    let place = TestPlace::postgres();
    let (engine, running) = place.start().await;
    let mut connection = PgConnection::connect(place.url()).await.unwrap();
    for table in TABLES {
        let comments = "SELECT obj_description(to_regclass($1)) IS NOT NULL AND bool_and(
                            col_description(attrelid, attnum) IS NOT NULL)
                        FROM pg_attribute
                        WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
        let all: bool = sqlx::query_scalar(comments).bind(table).fetch_one(&mut connection).await.unwrap();
        assert!(all, "{table}");
    }
    drop(engine);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reader_needs_tables_and_a_server() {
    let refused = grant_reader(&TestPlace::sqlite().options, "kubebid_reader", None, &TABLES).await;
    assert!(matches!(refused, Err(GrantError::Sqlite)));
    let empty = TestPlace::postgres();
    let refused = grant_reader(&empty.options, "kubebid_reader", None, &TABLES).await;
    assert!(matches!(refused, Err(GrantError::NoTable("bids"))));
    let (engine, running) = empty.start().await;
    drop(engine);
    running.stop().await.unwrap();
    // Otherwise the engine's own role would be read-only from then on.
    let mut connection = PgConnection::connect(empty.url()).await.unwrap();
    let own: String =
        sqlx::query_scalar("SELECT CAST(current_user AS text)").fetch_one(&mut connection).await.unwrap();
    let refused = grant_reader(&empty.options, &own, None, &TABLES).await;
    assert!(matches!(refused, Err(GrantError::Writer(_))));
}
