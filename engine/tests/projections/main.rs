//! Tests that the projections have what the exchange knows, however they were written.

mod charges;
mod dump;
mod faults;
mod fold;
mod golden;
mod history;
mod labels;
mod lost_rows;
mod market;
mod place;
mod prices;
mod queries;
mod retention;
mod sql_page;
mod statements;
mod tables;

/// Runs each test of a module once on PostgreSQL and once on SQLite.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::place::TestPlace::postgres()).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::place::TestPlace::sqlite()).await;
            })*
        }
    };
}
pub(crate) use on_both;
