//! The configuration: flags and environment variables. No other file reads either.

use crate::api::ApiOptions;
use crate::auth::limits::Defaults;
use crate::lifecycle::options::{EngineOptions, LEASE, SNAPSHOT_EVERY, Start};
use crate::readmodel::retention::Retention;
use crate::runtime::clock::{Clock, MAX_CLOCK_JUMP};
use crate::server::{ConnectionLimits, ServerConfig, TlsFiles};
use crate::store::{Fault, StoreOptions};
use clap::{Args, ValueEnum, value_parser};
use http::HeaderValue;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The flags of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The URL of the store, which holds the journal and everything else that is durable: sqlite:PATH or postgres://…
    #[arg(
        long,
        env = "KUBEBID_STORE",
        default_value = "sqlite:kubebid.db",
        value_name = "URL",
        hide_env_values = true
    )]
    pub store: String,
    /// Creates a new store in a SQLite file although the admin token file or the write-ahead log of an earlier store is
    /// there. Usually these mean that the file was lost, or that another file was meant.
    #[arg(long, env = "KUBEBID_NEW_STORE")]
    pub new_store: bool,
    /// Connections to the store for reads of the tables. The journal, the accounts and all writes have others.
    #[arg(long, env = "KUBEBID_STORE_CONNECTIONS", default_value_t = 8, value_name = "N")]
    pub store_connections: u32,
    /// Seconds that a read of the tables may take in the store. A read that takes longer is ended and answered NOT_YET.
    #[arg(long, env = "KUBEBID_READ_TIMEOUT_SECONDS", default_value_t = 10, value_name = "N", value_parser = value_parser!(u64).range(1..=3600))]
    pub read_timeout_seconds: u64,
    /// Address of gRPC and REST.
    #[arg(long, env = "KUBEBID_LISTEN", default_value = "127.0.0.1:7440", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "KUBEBID_OPS_LISTEN", default_value = "127.0.0.1:7441", value_name = "ADDRESS")]
    pub ops_listen: SocketAddr,
    /// Certificate chain for TLS, in PEM.
    #[arg(long, env = "KUBEBID_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM.
    #[arg(long, env = "KUBEBID_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// File with the token of an administrator. If the file is missing, it is created with a new token, and only its
    /// owner may read it.
    #[arg(long, env = "KUBEBID_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Source of market time: real is the machine's clock, stepped moves only by AdvanceTime.
    #[arg(long, env = "KUBEBID_CLOCK", value_enum, default_value_t = ClockArg::Real)]
    pub clock: ClockArg,
    /// Seconds by which a step of the machine's clock may move market time. A longer step is refused: market time
    /// continues by the monotonic clock, and an alert says so.
    #[arg(long, env = "KUBEBID_MAX_CLOCK_JUMP_SECONDS", default_value_t = MAX_CLOCK_JUMP.as_secs(), value_name = "N", value_parser = value_parser!(u64).range(1..=86_400))]
    pub max_clock_jump_seconds: u64,
    /// Starts although the machine's clock is more than --max-clock-jump-seconds away from the database's clock, was
    /// moved by more than that since the last engine, or is that much earlier than the journal's last command. In the
    /// last case market time continues from that command.
    #[arg(long, env = "KUBEBID_ACCEPT_TIME_JUMP")]
    pub accept_time_jump: bool,
    /// Shows markets, prices and depth also to callers without a token.
    #[arg(long, env = "KUBEBID_PUBLIC_MARKETS")]
    pub public_markets: bool,
    /// Serves no market page at /.
    #[arg(long, env = "KUBEBID_NO_PAGE")]
    pub no_page: bool,
    /// An origin whose pages may call REST from a browser, such as `https://console.example.com`, or * for all. May be
    /// given several times, in the variable with commas. Without it no other page may (CORS).
    #[arg(long, env = "KUBEBID_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', value_parser = crate::rest::origin)]
    pub cors_origin: Vec<HeaderValue>,
    /// Lets administrators run drills: inject demand spikes, supply losses and pre-emptions, and make a stepped clock
    /// move by itself.
    #[arg(long, env = "KUBEBID_ALLOW_INJECT")]
    pub allow_inject: bool,
    /// Commands that may wait for the exchange, and as many questions to it. More are refused as BUSY.
    #[arg(long, env = "KUBEBID_INTAKE", default_value_t = 16_384, value_name = "N")]
    pub intake: usize,
    /// Commands by which the readable tables may lag. If they lag more, commands are refused as BUSY.
    #[arg(long, env = "KUBEBID_PROJECTION_LAG", default_value_t = 1_000_000, value_name = "N")]
    pub projection_lag: u64,
    /// Days for which events are kept. Older ones are dropped from the tables, a whole month at a time, and cursors
    /// that name them are answered GONE [default: for ever]
    #[arg(long, env = "KUBEBID_KEEP_EVENTS", value_name = "DAYS", value_parser = value_parser!(u32).range(1..))]
    pub keep_events: Option<u32>,
    /// Days for which price changes are kept. Older ones are dropped, a whole month at a time. Strategies need two days
    /// [default: for ever]
    #[arg(long, env = "KUBEBID_KEEP_PRICES", value_name = "DAYS", value_parser = value_parser!(u32).range(2..))]
    pub keep_prices: Option<u32>,
    /// Commands from one snapshot of the market to the next. About so many are replayed when the engine starts after a
    /// crash.
    #[arg(long, env = "KUBEBID_SNAPSHOT_EVERY", default_value_t = SNAPSHOT_EVERY, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub snapshot_every: u64,
    /// Hours between two checks of the whole journal while the engine leads; 0 for none. A damaged batch raises the
    /// alert JournalDamaged.
    #[arg(long, env = "KUBEBID_SCRUB_HOURS", default_value_t = 24, value_name = "N", value_parser = value_parser!(u64).range(0..=8760))]
    pub scrub_hours: u64,
    /// Waits while another engine leads on this store, which must be in PostgreSQL: follows the journal, and takes over
    /// when that engine stops or its lease runs out. Until then requests are answered NOT_LEADING.
    #[arg(long, env = "KUBEBID_STANDBY", conflicts_with = "take_over")]
    pub standby: bool,
    /// Fences an engine that leads, even if it is alive. Without this flag, the engine refuses to start beside one.
    #[arg(long)]
    pub take_over: bool,
    /// Length of the lease, in milliseconds. A standby takes over when the leader has not renewed it for this long; the
    /// leader renews it every third of this time. Only in PostgreSQL; all engines of a store need the same value.
    #[arg(long, env = "KUBEBID_LEASE_MS", default_value_t = LEASE.as_millis() as u64, value_name = "N", value_parser = value_parser!(u64).range(300..=600_000))]
    pub lease_ms: u64,
    /// Seconds for which open requests may go on when the service stops. After that the engine has the same time, and
    /// at least 10 seconds, to write what is left.
    #[arg(long, env = "KUBEBID_GRACE_SECONDS", default_value_t = 10, value_name = "N")]
    pub grace_seconds: u64,
    /// Connections to gRPC and REST that may be open at once. Further ones are closed immediately. [default: the files
    /// that the process may have open less 256, at most 4096]
    #[arg(long, env = "KUBEBID_MAX_CONNECTIONS", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub max_connections: Option<u32>,
    /// Connections from one address that may be open at once. An IPv6 network of 64 bits is one address. Callers that
    /// share a proxy may all have the same address. [default: half of --max-connections]
    #[arg(long, env = "KUBEBID_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub max_connections_per_address: Option<u32>,
    /// Seconds after which a connection without an open request is closed.
    #[arg(long, env = "KUBEBID_IDLE_SECONDS", default_value_t = 600, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub idle_seconds: u64,
    /// The limits of accounts that have none of their own.
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// The limits of accounts that have none of their own, as flags.
#[derive(Args, Clone, Debug)]
pub struct LimitArgs {
    /// The most bids of an account that search.
    #[arg(long, env = "KUBEBID_LIMIT_OPEN_BIDS", default_value_t = Defaults::default().open_bids, value_name = "N")]
    pub limit_open_bids: u64,
    /// The most nodes that the searching bids of an account want and its other bids still hold, in total.
    #[arg(long, env = "KUBEBID_LIMIT_NODES_WANTED", default_value_t = Defaults::default().nodes_wanted, value_name = "N")]
    pub limit_nodes_wanted: u64,
    /// The highest ceiling of a bid, in micro-dollars per node-hour [default: that of the market]
    #[arg(long, env = "KUBEBID_LIMIT_CEILING_MICROS", value_name = "MICROS")]
    pub limit_ceiling_micros: Option<u64>,
    /// The most requests of an account per second. A frame of bids counts as its bids, an offer as the units that it
    /// changes.
    #[arg(long, env = "KUBEBID_LIMIT_REQUESTS_PER_SECOND", default_value_t = Defaults::default().requests_per_second, value_name = "N")]
    pub limit_requests_per_second: u64,
    /// The most requests of an account that are open at once, with answers that it has not read yet. A stream of bids
    /// counts as 16.
    #[arg(long, env = "KUBEBID_LIMIT_OPEN_REQUESTS", default_value_t = Defaults::default().open_requests, value_name = "N")]
    pub limit_open_requests: u64,
    /// The most watches of an account that are open at once.
    #[arg(long, env = "KUBEBID_LIMIT_WATCHES", default_value_t = Defaults::default().watches, value_name = "N")]
    pub limit_watches: u64,
    /// The most requests per second without a valid token from one address: health, reflection, the API's document,
    /// public markets, wrong tokens.
    #[arg(long, env = "KUBEBID_LIMIT_ANONYMOUS_REQUESTS_PER_SECOND", default_value_t = Defaults::default().anonymous_requests_per_second, value_name = "N")]
    pub limit_anonymous_requests_per_second: u64,
    /// The most units that an account offers in all markets together.
    #[arg(long, env = "KUBEBID_LIMIT_UNITS_OFFERED", default_value_t = Defaults::default().units_offered, value_name = "N")]
    pub limit_units_offered: u64,
    /// The most units by which one command of an account may change an offer.
    #[arg(long, env = "KUBEBID_LIMIT_UNITS_PER_COMMAND", default_value_t = Defaults::default().units_per_command, value_name = "N")]
    pub limit_units_per_command: u64,
    /// The most commands of an account per second that the market refuses: they are journaled too. Ten seconds' worth
    /// may come at once.
    #[arg(long, env = "KUBEBID_LIMIT_REFUSALS_PER_SECOND", default_value_t = Defaults::default().refusals_per_second, value_name = "N")]
    pub limit_refusals_per_second: u64,
    /// The most commands of an account per day, because each lets the journal, the client keys and the tables grow. An
    /// offer counts as the units that it changes, a bid once more for each 256 bytes of labels.
    #[arg(long, env = "KUBEBID_LIMIT_COMMANDS_PER_DAY", default_value_t = Defaults::default().commands_per_day, value_name = "N")]
    pub limit_commands_per_day: u64,
}

/// The values of `--clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "clap would print the comment of a variant in --help")]
pub enum ClockArg {
    Real,
    Stepped,
}

impl ServeArgs {
    /// Returns the options of the engine.
    ///
    /// # Errors
    /// The URL of the store is not valid.
    pub fn engine_options(&self) -> Result<EngineOptions, Fault> {
        let mut store = StoreOptions::from_url(&self.store)?;
        store.connections = self.store_connections;
        store.over_remains = self.new_store;
        store.read_time_out = Duration::from_secs(self.read_timeout_seconds);
        let clock = match self.clock {
            ClockArg::Real => Clock::Real,
            ClockArg::Stepped => Clock::Stepped,
        };
        let options = EngineOptions::new(store, clock);
        Ok(EngineOptions {
            max_clock_jump: Duration::from_secs(self.max_clock_jump_seconds),
            accept_time_jump: self.accept_time_jump,
            intake: self.intake,
            projection_lag: self.projection_lag,
            retention: Retention { event_days: self.keep_events, price_days: self.keep_prices },
            snapshot_every: self.snapshot_every,
            scrub_every: (self.scrub_hours > 0).then(|| Duration::from_secs(3600 * self.scrub_hours)),
            start: match (self.standby, self.take_over) {
                (true, _) => Start::Standby,
                (false, true) => Start::TakeOver,
                (false, false) => Start::Alone,
            },
            lease: Duration::from_millis(self.lease_ms),
            ..options
        })
    }

    /// Returns the configuration of the server.
    pub fn server_config(&self) -> ServerConfig {
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        ServerConfig {
            listen: self.listen,
            ops: Some(self.ops_listen),
            tls: tls.map(|(certificates, key)| TlsFiles { certificates, key }),
            grace: Duration::from_secs(self.grace_seconds),
            connections: ConnectionLimits::new(
                self.max_connections.map(|max| max as usize),
                self.max_connections_per_address.map(|max| max as usize),
                Duration::from_secs(self.idle_seconds),
            ),
            cors_origins: self.cors_origin.clone(),
            api: ApiOptions {
                public_markets: self.public_markets,
                allow_inject: self.allow_inject,
                page: !self.no_page,
                limits: self.limits.defaults(),
            },
        }
    }
}

impl LimitArgs {
    fn defaults(&self) -> Defaults {
        Defaults {
            open_bids: self.limit_open_bids,
            nodes_wanted: self.limit_nodes_wanted,
            ceiling_micros: self.limit_ceiling_micros.unwrap_or(u64::MAX),
            requests_per_second: self.limit_requests_per_second,
            open_requests: self.limit_open_requests,
            watches: self.limit_watches,
            anonymous_requests_per_second: self.limit_anonymous_requests_per_second,
            units_offered: self.limit_units_offered,
            units_per_command: self.limit_units_per_command,
            refusals_per_second: self.limit_refusals_per_second,
            commands_per_day: self.limit_commands_per_day,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::bench_stubs::OmittedParts;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        serve: ServeArgs,
    }

    #[test]
    fn without_flags_it_serves_the_loopback_on_an_embedded_store() {
        let args = Program::try_parse_from(["serve"]).unwrap().serve;
        let config = args.server_config();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7440");
        assert_eq!(config.ops.unwrap().to_string(), "127.0.0.1:7441");
        assert!(config.tls.is_none());
        assert!(!config.api.allow_inject, "drills are for those who ask for them");
        assert!(config.cors_origins.is_empty());
        assert_eq!(config.api.limits, Defaults::default());
        assert_eq!(args.engine_options().unwrap().clock, Clock::Real);
    }

    #[test]
    fn no_flag_leaves_out_a_part_of_the_engine() {
        let args = Program::try_parse_from(["serve"]).unwrap().serve;
        assert_eq!(args.engine_options().unwrap().omitted, OmittedParts::default());
        assert!(Program::try_parse_from(["serve", "--leave-out", "journal"]).is_err());
    }

    #[test]
    fn snapshots_have_commands_between_them() {
        let every = |n| Program::try_parse_from(["serve", "--snapshot-every", n]).map(|p| p.serve);
        assert_eq!(every("500").unwrap().engine_options().unwrap().snapshot_every, 500);
        assert!(every("0").is_err());
    }

    #[test]
    fn a_standby_does_not_take_over_and_an_engine_alone_does_not_fence() {
        let started = |flags: &[&str]| {
            let args = Program::try_parse_from([&["serve"], flags].concat())?.serve;
            Ok::<_, clap::Error>(args.engine_options().unwrap())
        };
        assert_eq!(started(&[]).unwrap().start, Start::Alone);
        assert_eq!(started(&["--standby"]).unwrap().start, Start::Standby);
        assert_eq!(started(&["--take-over", "--lease-ms", "900"]).unwrap().lease.as_millis(), 900);
        assert!(started(&["--standby", "--take-over"]).is_err());
        assert!(started(&["--lease-ms", "10"]).is_err());
    }

    #[test]
    fn origins_are_given_one_by_one_or_with_commas() {
        let flags = ["serve", "--cors-origin", "https://a.example", "--cors-origin", "http://b.example:81,*"];
        let origins = Program::try_parse_from(flags).unwrap().serve.server_config().cors_origins;
        assert_eq!(origins, ["https://a.example", "http://b.example:81", "*"]);
        assert!(Program::try_parse_from(["serve", "--cors-origin", "https://a.example/page"]).is_err());
    }

    #[test]
    fn a_certificate_comes_with_its_key() {
        assert!(Program::try_parse_from(["serve", "--tls-cert", "a.pem"]).is_err());
        let both = ["serve", "--tls-cert", "a.pem", "--tls-key", "b.pem"];
        assert!(Program::try_parse_from(both).unwrap().serve.server_config().tls.is_some());
    }
}
