//! An engine in a process of its own.

use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Client, Options};
use kubebid_testkit::Port;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

#[expect(clippy::disallowed_methods, reason = "how long a run is to be, and of what")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// `KUBEBID_BINARY`, or the `kubebid` that was built with this test.
pub(crate) fn binary() -> PathBuf {
    variable("KUBEBID_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_kubebid").into(), PathBuf::from)
}

/// An embedded store in the folder.
pub(crate) fn sqlite(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("kubebid.db").display())
}

/// Killed when dropped.
pub(crate) struct Engine {
    process: Child,
    port: Port,
    ops: Port,
    store: String,
    folder: PathBuf,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Engine {
    /// With its log and the token of its administrator in the folder.
    pub(crate) fn start(store: &str, folder: &Path, flags: &[&str]) -> Engine {
        let (port, ops) = (Port::hold(), Port::hold());
        let (store, folder) = (store.to_owned(), folder.to_owned());
        Engine { process: serve(&store, &folder, &port, &ops, flags), port, ops, store, folder }
    }

    /// Killed, and begun again on the same store at the same address.
    pub(crate) fn restart(&mut self, flags: &[&str]) {
        self.kill();
        self.process = serve(&self.store, &self.folder, &self.port, &self.ops, flags);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("the process is ours");
    }

    /// From here on it gets no more memory than that for its data.
    pub(crate) fn limit_memory(&self, bytes: u64) {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        prlimit(Some(Pid::from_child(&self.process)), Resource::Data, limit).expect("the process is ours");
    }

    /// Stops it where it is, and waits until none of its threads runs any more. It may have ended by itself.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.process.id());
        // Behind the name, which is in parentheses.
        let stands = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z']));
        let all_stand = || {
            let mut threads = std::fs::read_dir(&threads).expect("it is there");
            threads.all(|thread| {
                std::fs::read_to_string(thread.expect("a thread").path().join("stat")).is_ok_and(stands)
            })
        };
        while !all_stand() {
            std::thread::yield_now();
        }
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("it is our child")
    }

    /// Status and body of what it answers on its port for health and metrics; none where nobody listens.
    pub(crate) fn ops(&self, path: &str) -> Option<(u16, String)> {
        http(self.ops.address(), path, "").ok()
    }

    /// The same on the port of its API, as the bearer of a token.
    pub(crate) fn rest(&self, path: &str, token: &str) -> (u16, String) {
        http(self.port.address(), path, token).expect("it listens")
    }

    /// Ended in order.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.process.wait().expect("it is our child");
        assert!(status.success(), "{status}");
    }

    pub(crate) fn kill(&mut self) {
        // SIGKILL: it cannot say good-bye.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// Engines come and go: a call waits for the next one.
    pub(crate) fn client(&self, token: &str) -> Client {
        let options = Options { deadline: Duration::from_secs(60), tries: u32::MAX, ..Options::default() };
        let builder = Client::builder().endpoints([self.endpoint()]).token(token);
        builder.options(options).build().expect("a client")
    }

    pub(crate) async fn admin_token(&self) -> String {
        let path = self.folder.join("admin.token");
        for _ in 0..600 {
            if let Ok(token) = std::fs::read_to_string(&path)
                && !token.trim().is_empty()
            {
                return token.trim().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap();
        panic!("the engine made no token; its log:\n{log}");
    }

    pub(crate) async fn admin(&self) -> Client {
        self.client(&self.admin_token().await)
    }
}

/// Status and the whole answer of a GET over HTTP/1.
fn http(address: SocketAddr, path: &str, token: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let bearer = format!("authorization: Bearer {token}\r\n");
    let bearer = if token.is_empty() { "" } else { &bearer };
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n{bearer}connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(std::io::ErrorKind::InvalidData)?, answer))
}

fn serve(store: &str, folder: &Path, port: &Port, ops: &Port, flags: &[&str]) -> Child {
    let [listen, ops] = [port, ops].map(|port| port.address().to_string());
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log"));
    let process = Command::new(binary())
        .args(["serve", "--store", store, "--listen", &listen, "--ops-listen", &ops])
        .args(["--limit-requests-per-second", "1000000", "--limit-open-bids", "10000000"])
        .args(["--limit-nodes-wanted", "10000000", "--limit-commands-per-day", "1000000000"])
        .arg("--admin-token-file")
        .arg(folder.join("admin.token"))
        .args(flags)
        // In KiB. The limit of memory counts what the allocator reserves; by itself it reserves 128 MiB at a time.
        .env("MIMALLOC_ARENA_RESERVE", "16384")
        .stdin(Stdio::null())
        .stderr(log.expect("a log"))
        .spawn();
    process.expect("the engine can be started")
}

/// Opens a market with the usual rules, and gives the token of a new tenant.
pub(crate) async fn market_and_tenant(admin: &Client, market: &str, tenant: &str) -> String {
    let open = v1::OpenMarketRequest { market: market.into(), rules: None };
    admin.open_market(open).await.expect("the market opens");
    token_of(admin, tenant, Role::Tenant).await
}

/// The token of a new account.
pub(crate) async fn token_of(admin: &Client, account: &str, role: Role) -> String {
    admin
        .put_account(v1::PutAccountRequest { name: account.into(), limits: None })
        .await
        .expect("an account");
    let token = v1::CreateTokenRequest {
        account: account.into(),
        roles: vec![role as i32],
        description: String::new(),
    };
    admin.create_token(token).await.expect("a token").secret
}
