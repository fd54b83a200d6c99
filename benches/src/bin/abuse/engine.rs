//! An engine with few files, a market, and those who call it.

use crate::Failure;
use crate::caller::{Caller, MEASURED};
use kubebid_proto::v1;
use prost::Message;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use v1::token::Role;

/// Files that the engine may have open.
const OPEN_FILES: &str = "1024";
const START: Duration = Duration::from_secs(60);
pub(crate) const MARKET: &str = "h100/eu";

#[derive(Debug)]
pub(crate) struct Engine {
    process: Child,
    pub(crate) address: SocketAddr,
    pub(crate) ops: SocketAddr,
    /// The tokens of a tenant that is measured, and of one that abuses, who is a provider too.
    pub(crate) quiet: String,
    pub(crate) loud: String,
    folder: TempDir,
}

/// The load has more connections than the engine has files.
pub(crate) fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it fails, some connections fail.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

impl Engine {
    pub(crate) async fn start(
        program: &Path,
        store: Option<String>,
        flags: &[String],
    ) -> Result<Engine, Failure> {
        let folder = tempfile::Builder::new().prefix("kubebid-abuse.").tempdir()?;
        let [address, ops] = [free_port()?, free_port()?];
        let own = format!("sqlite:{}", folder.path().join("kubebid.db").display());
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -n \"$0\" && exec \"$@\"", OPEN_FILES])
            .arg(program)
            .args(["serve", "--listen", &address.to_string(), "--ops-listen", &ops.to_string()])
            .arg("--admin-token-file")
            .arg(folder.path().join("admin.token"))
            .args(flags)
            .env("KUBEBID_STORE", store.unwrap_or(own))
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("log"))?);
        let process = command.spawn()?;
        let mut engine = Engine { process, address, ops, quiet: String::new(), loud: String::new(), folder };
        engine.ready().await?;
        engine.people().await?;
        Ok(engine)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + START;
        while !crate::spell::probe(self.ops, "/readyz").await.is_ok_and(|(status, _)| status == 200) {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("the engine ended with {status}: {}", self.log()).into());
            }
            if Instant::now() > until {
                return Err("the engine is not ready after a minute".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }

    /// Opens the market, and makes those who call: the quiet tenant has some bids that wait.
    async fn people(&mut self) -> Result<(), Failure> {
        let secret = fs::read_to_string(self.folder.path().join("admin.token"))?;
        let admin = Caller::connect(MEASURED, self.address, Some(secret.trim())).await?;
        let kind = v1::InstanceType { name: "h100".to_owned(), ..v1::InstanceType::default() };
        let kind = v1::PutInstanceTypeRequest { instance_type: Some(kind) };
        admin.call("AdminService/PutInstanceType", &kind).await?;
        let open = v1::OpenMarketRequest { market: MARKET.to_owned(), rules: None };
        admin.call("AdminService/OpenMarket", &open).await?;
        let both = [Role::Tenant, Role::Provider];
        self.loud = token(&admin, "loud", &both).await?;
        self.quiet = token(&admin, "quiet", &[Role::Tenant]).await?;
        let provider = token(&admin, "provider", &[Role::Provider]).await?;
        let provider = Caller::connect(MEASURED, self.address, Some(&provider)).await?;
        provider.call("OfferService/PutOffer", &offer(4)).await?;
        let quiet = Caller::connect(MEASURED, self.address, Some(&self.quiet)).await?;
        for _ in 0..200 {
            quiet.call("BidService/PlaceBid", &bid(100)).await?;
        }
        Ok(())
    }

    /// Returns how much memory the engine has.
    pub(crate) fn memory_mib(&self) -> Result<u64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line.and_then(|line| line.trim().split(' ').next()).unwrap_or("0").parse()?;
        Ok(kib / 1024)
    }
}

impl Drop for Engine {
    /// Its store goes too.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn token(admin: &Caller, account: &str, roles: &[Role]) -> Result<String, Failure> {
    let put = v1::PutAccountRequest { name: account.to_owned(), limits: None };
    admin.call("AdminService/PutAccount", &put).await?;
    let create = v1::CreateTokenRequest {
        account: account.to_owned(),
        roles: roles.iter().map(|role| i32::from(*role)).collect(),
        description: String::new(),
    };
    let made = admin.call("AdminService/CreateToken", &create).await?;
    Ok(v1::CreateTokenResponse::decode(made)?.secret)
}

pub(crate) fn bid(ceiling_micros: u64) -> v1::PlaceBidRequest {
    v1::PlaceBidRequest {
        markets: vec![MARKET.to_owned()],
        ceiling_micros,
        max_nodes: 1,
        ..v1::PlaceBidRequest::default()
    }
}

pub(crate) fn offer(capacity: u32) -> v1::PutOfferRequest {
    v1::PutOfferRequest {
        market: MARKET.to_owned(),
        capacity,
        reserve_micros: 1_000_000,
        ..v1::PutOfferRequest::default()
    }
}

/// A port that was free just now.
fn free_port() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
