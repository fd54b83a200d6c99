//! Tests of what a store promises, on both databases.

mod ahead;
mod conformance;
mod damage;
mod deposed;
mod edge;
mod lease;
mod place;
mod postgres_faults;
mod proxy;
mod slow_connections;
mod snapshots;
mod sqlite_file;
mod wal;

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
