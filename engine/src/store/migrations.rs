//! The schema migrations, compiled into the program.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

type Change = (&'static str, &'static str);

macro_rules! changes {
    ($database:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../migrations/", $database, "/", $name, ".sql")))),*]
    };
}

const POSTGRES: &[Change] = changes!("postgres":
    "0001_leader" "0002_journal" "0003_snapshot" "0004_accounts" "0005_tokens" "0006_bid_labels"
    "0007_instance_types" "0008_projection" "0009_bids" "0010_allocations" "0011_offers" "0012_events"
    "0013_prices" "0014_charges" "0015_lease" "0016_packs" "0017_clock"
    "0018_account_quotas" "0019_relational_tables" "0020_node_data" "0021_segment_fees"
);

const SQLITE: &[Change] = changes!("sqlite":
    "0001_leader" "0002_journal" "0003_snapshot" "0004_accounts" "0005_tokens" "0006_bid_labels"
    "0007_instance_types" "0008_projection" "0009_bids" "0010_allocations" "0011_offers" "0012_events"
    "0013_prices" "0014_charges" "0016_packs" "0017_clock"
    "0018_account_quotas" "0019_relational_tables" "0020_node_data" "0021_segment_fees"
);

pub(super) fn postgres() -> Migrator {
    migrator(POSTGRES)
}

pub(super) fn sqlite() -> Migrator {
    migrator(SQLITE)
}

fn migrator(changes: &[Change]) -> Migrator {
    Migrator::with_migrations(
        changes
            .iter()
            .map(|(name, sql)| {
                let (version, description) = name.split_once('_').expect("NNNN_what");
                Migration::new(
                    version.parse().expect("NNNN_what"),
                    Cow::Borrowed(description),
                    MigrationType::Simple,
                    sql.into_sql_str(),
                    false,
                )
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_compiled_in() {
        for (folder, changes) in [("postgres", POSTGRES), ("sqlite", SQLITE)] {
            let path = format!("{}/../migrations/{folder}", env!("CARGO_MANIFEST_DIR"));
            let mut files: Vec<String> = std::fs::read_dir(path)
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort();
            let listed: Vec<String> = changes.iter().map(|(name, _)| format!("{name}.sql")).collect();
            assert_eq!(listed, files);
        }
    }
}
