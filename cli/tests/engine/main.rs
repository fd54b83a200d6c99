//! What needs the engine as it is run: the `kubebid` that was built with this test, in a process of its own.

mod backup;
mod extremes;
mod inject;
mod journal;
mod kills;
mod lists;
mod login;
mod otlp;
mod output;
mod party;
mod postgres_crashes;
mod process;
mod regroup;
mod replay;
mod restores;
mod standby;
mod store_trouble;
mod strategy;
mod tenant;
mod up;
