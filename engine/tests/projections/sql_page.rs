//! The questions of docs/sql.md, asked as the role that `kubebid store grant-reader` makes.

use crate::market::{ACCOUNTS, Market, projected};
use crate::place::TestPlace;
use kubebid_engine::readmodel::TABLES;
use kubebid_engine::readmodel::queries::StatementQuery;
use kubebid_engine::store::{GrantError, Labels, grant_reader};
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

const PAGE: &str = include_str!("../../../docs/sql.md");

/// Returns the SQL blocks of the page, in order.
fn blocks() -> Vec<&'static str> {
    let blocks = PAGE.split("```sql\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().trim().trim_end_matches(';')).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_question_of_the_page_has_an_answer_for_a_reader() {
    let place = TestPlace::postgres();
    let (engine, running) = place.start().await;
    let mut market = Market::new(61);
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

    let mut lines = 0;
    for row in answers.last().unwrap() {
        let line = json(row);
        let account = line["account"].as_str().unwrap().to_owned();
        assert!(ACCOUNTS.contains(&&account[..]));
        let query = StatementQuery { account, from: None, to: None, labels: Labels::new(), by_label: None };
        let statement = engine.read_model().statement(&query).await.unwrap();
        let same = statement.iter().find(|row| row.market == line["market"]).unwrap();
        let sums = ["debit_micros", "credit_micros", "fee_micros"].map(|name| line[name].as_u64().unwrap());
        assert_eq!(sums.map(u128::from), [same.debit.0, same.credit.0, same.fee.0]);
        lines += 1;
    }
    assert!(lines > 3);

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
