//! A fresh place for a store, and an engine on it.

use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::store::{StoreLocation, StoreOptions};
use kubebid_engine::{Engine, EngineOptions, Running};
use kubebid_testkit::Cluster;
use sqlx::{AnyConnection, Connection};
use tempfile::TempDir;

pub(crate) struct TestPlace {
    pub(crate) options: StoreOptions,
    url: String,
    _folder: Option<TempDir>,
}

impl TestPlace {
    pub(crate) fn postgres() -> Self {
        let url = Cluster::shared().database();
        Self { options: StoreOptions::new(StoreLocation::Postgres(url.clone())), url, _folder: None }
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let url = format!("sqlite:{}", path.display());
        Self { options: StoreOptions::new(StoreLocation::Sqlite(path)), url, _folder: Some(folder) }
    }

    /// Returns another place of the same kind.
    pub(crate) fn another(&self) -> Self {
        match self.options.location {
            StoreLocation::Postgres(_) => Self::postgres(),
            StoreLocation::Sqlite(_) => Self::sqlite(),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.options.location, StoreLocation::Postgres(_))
    }

    pub(crate) async fn start(&self) -> (Engine, Running) {
        let options = EngineOptions::new(self.options.clone(), Clock::Stepped);
        Engine::start(options).await.unwrap()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Opens a connection that the store does not know of.
    pub(crate) async fn connect(&self) -> AnyConnection {
        sqlx::any::install_default_drivers();
        AnyConnection::connect(&self.url).await.unwrap()
    }
}
