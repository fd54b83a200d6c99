//! What may happen on the way to the tables.

use crate::dump::{assert_same, dump};
use crate::market::{Market, projected};
use crate::place::TestPlace;
use kubebid_engine::projections::rebuild;
use sqlx::{AssertSqlSafe, Executor};

crate::on_both! {
    tables_that_stopped_earlier_than_the_journal_are_carried_on
}

async fn tables_that_stopped_earlier_than_the_journal_are_carried_on(place: TestPlace) {
    let mut market = Market::new(41);
    let (engine, running) = place.start().await;
    market.open(&engine).await;
    market.run(&engine, 150).await;
    drop(engine);
    running.stop().await.unwrap();
    // As they are here ...
    let tables: Vec<&str> = dump(&place).await.keys().copied().collect();
    let mut connection = place.connect().await;
    for table in &tables {
        let save = format!("CREATE TABLE saved_{table} AS SELECT * FROM {table}");
        connection.execute(AssertSqlSafe(save)).await.unwrap();
    }
    let (engine, running) = place.start().await;
    market.run(&engine, 150).await;
    drop(engine);
    running.stop().await.unwrap();
    let wanted = dump(&place).await;
    // ... a crash may have left them.
    for table in &tables {
        connection.execute(AssertSqlSafe(format!("DELETE FROM {table}"))).await.unwrap();
        let restore = format!("INSERT INTO {table} SELECT * FROM saved_{table}");
        connection.execute(AssertSqlSafe(restore)).await.unwrap();
    }
    let (engine, running) = place.start().await;
    projected(&engine).await;
    assert_same(&dump(&place).await, &wanted);
    drop(engine);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_made_again() {
    let place = TestPlace::postgres();
    let (engine, running) = place.start().await;
    let mut connection = place.connect().await;
    let mut market = Market::new(42);
    market.open(&engine).await;
    for _ in 0..3 {
        market.run(&engine, 30).await;
        let kill = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
                    WHERE application_name = 'kubebid projections' AND datname = current_database()";
        connection.execute(kill).await.unwrap();
    }
    market.run(&engine, 30).await;
    projected(&engine).await;
    let live = dump(&place).await;
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(&place).await, &live);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_can_be_rebuilt_beside_a_running_engine() {
    let place = TestPlace::postgres();
    let (engine, running) = place.start().await;
    let mut market = Market::new(43);
    market.open(&engine).await;
    market.run(&engine, 150).await;
    projected(&engine).await;
    let (rebuilt, ()) = tokio::join!(rebuild(&place.options, |_, _| ()), market.run(&engine, 60));
    rebuilt.unwrap();
    projected(&engine).await;
    let together = dump(&place).await;
    drop(engine);
    running.stop().await.unwrap();
    rebuild(&place.options, |_, _| ()).await.unwrap();
    assert_same(&dump(&place).await, &together);
}
