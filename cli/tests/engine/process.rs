//! An engine in a process of its own.

use kubebid_client::v1::{self, token::Role};
use kubebid_client::{Client, Options};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
    address: SocketAddr,
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
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (store, folder) = (store.to_owned(), folder.to_owned());
        Engine { process: serve(&store, &folder, address, flags), address, store, folder }
    }

    /// Killed, and begun again on the same store at the same address.
    pub(crate) fn restart(&mut self, flags: &[&str]) {
        self.kill();
        self.process = serve(&self.store, &self.folder, self.address, flags);
    }

    fn kill(&mut self) {
        // SIGKILL: it cannot say good-bye.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
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

fn serve(store: &str, folder: &Path, address: SocketAddr, flags: &[&str]) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log"));
    let process = Command::new(binary())
        .args(["serve", "--store", store, "--ops-listen", "127.0.0.1:0", "--listen"])
        .arg(address.to_string())
        .args(["--limit-requests-per-second", "1000000", "--limit-open-bids", "10000000"])
        .args(["--limit-nodes-wanted", "10000000"])
        .arg("--admin-token-file")
        .arg(folder.join("admin.token"))
        .args(flags)
        .stdin(Stdio::null())
        .stderr(log.expect("a log"))
        .spawn();
    process.expect("the engine can be started")
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
