//! `kubebid up`: the engine on its embedded store and a small living market, in one process.

use crate::commands::local;
use crate::failure::{Exit, Failure, note};
use crate::output::write_line;
use crate::profile::{self, LOCAL, Profile};
use crate::telemetry;
use clap::Args;
use kubebid_client::Client;
use kubebid_client::v1::{GetAccountRequest, ListMarketsRequest, Market};
use kubebid_engine::api::ApiOptions;
use kubebid_engine::auth::bootstrap_admin;
use kubebid_engine::runtime::clock::Clock;
use kubebid_engine::server::{ConnectionLimits, ServeError, Server, ServerConfig};
use kubebid_engine::store::{Fault, StoreLocation, StoreOptions, forget_sqlite};
use kubebid_engine::{Engine, EngineError, EngineOptions};
use market_sim::demo::{self, Clients, setup};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Run a small living market on this machine, to try things
#[derive(Args)]
#[command(after_help = "\
It runs the engine on an embedded store, opens markets with short times (nodes are protected for
30 s, notices take 60 s), and lets synthetic tenants and providers trade in them. Everything is kept
in one folder; the next `kubebid up` goes on where this one stopped. Tokens are written to a profile,
which the other commands read. Drills are allowed: see `kubebid inject --help`.

Examples:
  kubebid up
  kubebid up --folder /tmp/market --fresh")]
pub(crate) struct Up {
    /// Folder that keeps everything [default: ~/.local/share/kubebid/up]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Forget what is in the folder
    #[arg(long)]
    fresh: bool,
    /// Address of gRPC, REST and the market page
    #[arg(long, env = "KUBEBID_LISTEN", default_value = "127.0.0.1:7440", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, env = "KUBEBID_OPS_LISTEN", default_value = "127.0.0.1:7441", value_name = "ADDRESS")]
    ops_listen: SocketAddr,
    /// Markets and people only: nobody synthetic trades
    #[arg(long)]
    quiet: bool,
    /// Open the market page in the browser, as tenant-a
    #[arg(long, conflicts_with = "no_page")]
    open: bool,
    /// Serve no market page
    #[arg(long, env = "KUBEBID_NO_PAGE")]
    no_page: bool,
}

/// The person as whom the commands and the page begin.
const PLAYED: &str = "tenant-a";
/// The maker that its tokens name.
const MAKER: &str = "kubebid up";
/// Advice on a start beside a market that runs.
const IN_USE_ADVICE: &str = "is another engine running? a second market needs its own folder and ports: name them with --folder, --listen and --ops-listen";

impl Up {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        telemetry::log_to_stderr("warn");
        let folder = self.folder.clone().or_else(profile::data_folder);
        let folder =
            folder.ok_or_else(|| Failure::usage("there is no home folder: name one with --folder"))?;
        let at = |error: std::io::Error| Failure::new(Exit::Fault, format!("{}: {error}", folder.display()));
        fs::create_dir_all(&folder).map_err(at)?;
        let (database, admin_file) = (folder.join("market.db"), folder.join("admin.token"));
        // Before anything is forgotten: an engine that cannot be reached starts no market anew.
        let server = self.bind().await?;
        if self.fresh {
            forget_sqlite(&database).map_err(|fault| unopened(&fault.into()))?;
            forget(&admin_file).map_err(at)?;
        }
        if admin_file.exists() && !database.exists() {
            let what = format!("{} is missing, and its market's token is there", database.display());
            return Err(
                Failure::new(Exit::Fault, what).next("put it back, or begin a new market with --fresh")
            );
        }
        let endpoint = format!("http://{}", server.address());
        let ops = server.ops_address().unwrap_or(self.ops_listen);
        let options = EngineOptions::new(StoreOptions::new(StoreLocation::Sqlite(database)), Clock::Real);
        // A laptop's clock may stand anywhere after a night, and nobody owes money here.
        let options = EngineOptions { accept_time_jump: true, ..options };
        let (engine, running) = Engine::start(options).await.map_err(|error| unopened(&error))?;
        bootstrap_admin(engine.store(), &admin_file).await.map_err(|error| local::fault(&error))?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(server.run(engine, running, async {
            let _ = stopped.await;
        }));

        let admin_token = fs::read_to_string(&admin_file).map_err(at)?.trim().to_owned();
        let admin = client(&endpoint, &admin_token)?;
        setup::open(&admin).await?;
        let (profile, profile_path) = profile_of(&endpoint, &folder);
        let people = people(&admin, admin_token, &endpoint, &profile).await?;
        setup::revoke_tokens(&admin, MAKER).await?;
        let participants = if self.quiet { None } else { Some(participants(&admin, &endpoint).await?) };
        let mut life = pin!(async {
            match participants {
                Some(participants) => demo::run(setup::markets(), participants, 1).await,
                None => std::future::pending().await,
            }
        });
        if !self.quiet {
            tokio::select! {
                () = &mut life => {}
                () = first_prices(&admin) => {}
            }
        }
        // The market is up for whoever reads the profile, and may be stopped from then on.
        let signal = local::stop_signal();
        write_profile(profile, &profile_path, &endpoint, &people).map_err(at)?;
        write_line(&self.welcome(&endpoint, ops, &people, &profile_path))?;
        if self.open {
            open_page(&page_link(&endpoint, &people[PLAYED]));
        }
        tokio::select! {
            () = life => {}
            () = signal => {}
        }
        note("stopping; the next `kubebid up` goes on from here");
        let _ = stop.send(());
        let served = serving.await.map_err(|error| local::fault(&error))?;
        served.map_err(|error| local::fault(&error))
    }

    async fn bind(&self) -> Result<Server, Failure> {
        let config = ServerConfig {
            listen: self.listen,
            ops: Some(self.ops_listen),
            tls: None,
            grace: Duration::from_secs(2),
            connections: ConnectionLimits::default(),
            cors_origins: Vec::new(),
            // The prices of a market to try things with are no secret, and the page shows them at once.
            api: ApiOptions {
                public_markets: true,
                allow_inject: true,
                page: !self.no_page,
                ..ApiOptions::default()
            },
        };
        Server::bind(config).await.map_err(|error| {
            let failure = local::unserved(&error);
            if matches!(error, ServeError::Listen { .. }) { failure.next(IN_USE_ADVICE) } else { failure }
        })
    }

    fn welcome(
        &self,
        endpoint: &str,
        ops: SocketAddr,
        people: &BTreeMap<String, String>,
        profile: &Path,
    ) -> String {
        let market = setup::MARKETS[0].name;
        let all = setup::UNITS;
        let names: Vec<&str> = setup::MARKETS.iter().map(|market| market.name).collect();
        let export = if Some(profile) == profile::default_path().as_deref() {
            String::new()
        } else {
            format!("  export KUBEBID_PROFILE={}\n", profile.display())
        };
        format!(
            "KubeBid is up at {endpoint} (gRPC and REST), metrics at http://{ops}/metrics.
Markets: {}. Nodes are protected for 30 s, a notice takes 60 s.

{}

Try, in another terminal:
{export}  kubebid price                                           what nodes cost now
  kubebid bid place {market} --max 16 --nodes 1    you are tenant-a: at most $16 a node-hour
  kubebid alloc list                                      the node you got, and its price
  kubebid watch events                                    what happens, as it happens
This outbids you; within a minute your node gets a notice:
  kubebid --as tenant-b bid place {market} --max 20 --nodes {all}
Keep the node by raising above its price to stay, and see what it cost:
  kubebid bid amend BID --max 40
  kubebid charges statement
Sell a node, which you boot and report ready once it is sold (docs/tutorials/provider.md):
  kubebid --as provider offer put {market} --capacity 1 --reserve 8
Take a node away for a drill, or see what else can go wrong:
  kubebid --as admin inject preempt ALLOCATION
  kubebid inject --help

Ctrl-C stops.",
            names.join(", "),
            self.credentials(endpoint, people, profile),
        )
    }

    /// Returns the links to the page, or without a page the tokens.
    fn credentials(&self, endpoint: &str, people: &BTreeMap<String, String>, profile: &Path) -> String {
        let profile = profile.display();
        let lines = |shown: &dyn Fn(&str) -> String| {
            let lines = people.iter().map(|(name, token)| format!("  {name:<10}{}", shown(token)));
            lines.collect::<Vec<_>>().join("\n")
        };
        if self.no_page {
            return format!("Tokens, also in {profile}:\n{}", lines(&str::to_owned));
        }
        format!(
            "The market page in a browser; each link logs in with a token, also in {profile}:\n{}",
            lines(&|token| page_link(endpoint, token)),
        )
    }
}

/// Returns the failure of a store, with advice if another engine has it open.
fn unopened(error: &EngineError) -> Failure {
    let failure = local::fault(error);
    if matches!(error, EngineError::Store(Fault::InUse { .. })) {
        failure.next(IN_USE_ADVICE)
    } else {
        failure
    }
}

fn forget(file: &Path) -> std::io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn client(endpoint: &str, token: &str) -> Result<Client, Failure> {
    Ok(Client::builder().endpoints([endpoint]).token(token).build()?)
}

/// Returns a token for each of those whom people play: that of the profile if it still works, else a new one.
async fn people(
    admin: &Client,
    admin_token: String,
    endpoint: &str,
    profile: &Profile,
) -> Result<BTreeMap<String, String>, Failure> {
    let known = profile.contexts.get(LOCAL).map(|context| &context.tokens);
    let mut tokens = BTreeMap::from([("admin".to_owned(), admin_token)]);
    for (name, role) in setup::PEOPLE {
        let known = known.and_then(|tokens| tokens.get(name));
        let token = match known {
            Some(token) if token_works_for(name, endpoint, token).await => token.clone(),
            Some(_) | None => setup::token(admin, name, role, MAKER).await?,
        };
        tokens.insert(name.to_owned(), token);
    }
    Ok(tokens)
}

async fn token_works_for(account: &str, endpoint: &str, token: &str) -> bool {
    let Ok(client) = client(endpoint, token) else { return false };
    client.get_account(GetAccountRequest::default()).await.is_ok_and(|answer| answer.name == account)
}

async fn participants(admin: &Client, endpoint: &str) -> Result<Clients, Failure> {
    let participants =
        setup::clients(async |name, role| client(endpoint, &setup::token(admin, name, role, MAKER).await?));
    participants.await
}

/// Returns the usual profile and its path, or that of the folder if the usual one has a context `local` of another engine.
/// Waits until every market has a reference price, so that who reads the prices sees some. On a busy machine it waits
/// for ten seconds at most.
async fn first_prices(admin: &Client) {
    let has_price =
        |market: &Market| market.price.as_ref().is_some_and(|price| price.reference_price_micros.is_some());
    let priced = async {
        loop {
            let answer = admin.all(ListMarketsRequest::default()).await;
            if answer.is_ok_and(|answer| answer.markets.iter().all(has_price)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(10), priced).await;
}

fn profile_of(endpoint: &str, folder: &Path) -> (Profile, PathBuf) {
    let is_ours = |profile: &Profile| profile.contexts.get(LOCAL).is_none_or(|it| it.endpoint == endpoint);
    let usual = profile::default_path().and_then(|path| match Profile::read(&path) {
        Ok(profile) => Some((profile.unwrap_or_default(), path)).filter(|(profile, _)| is_ours(profile)),
        Err(_) => None,
    });
    usual.unwrap_or_else(|| {
        let path = folder.join("profile.toml");
        (Profile::read(&path).ok().flatten().unwrap_or_default(), path)
    })
}

/// Writes the context `local` into the profile, and uses it.
fn write_profile(
    mut profile: Profile,
    path: &Path,
    endpoint: &str,
    people: &BTreeMap<String, String>,
) -> std::io::Result<()> {
    let local = profile.contexts.entry(LOCAL.to_owned()).or_default();
    (local.endpoint, local.default) = (endpoint.to_owned(), Some(PLAYED.to_owned()));
    local.tokens.extend(people.clone());
    if let Some(before) = profile.current.replace(LOCAL.to_owned()).filter(|before| before != LOCAL) {
        note(format_args!(
            "note: the context is `{LOCAL}` now; back to the one before: kubebid context use {before}"
        ));
    }
    profile.write(path)
}

/// Returns the link that logs in to the market page. A browser never sends what follows the `#`.
fn page_link(endpoint: &str, token: &str) -> String {
    format!("{endpoint}/#token={token}")
}

/// Opens a link in the browser of the desktop. Without one it says how to go on.
fn open_page(link: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut opening = Command::new(opener);
    opening.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = opening.spawn() {
        note(format_args!(
            "the browser cannot be opened ({opener}: {error}); open the link of {PLAYED} yourself"
        ));
    }
}
