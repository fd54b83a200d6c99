//! The examples of clients in `examples/`, run by the commands of their pages against a live engine: quote, place, wait until ready, raise on
//! the first notice, checkpoint on the second, bill. The engine is killed and started again under an open watch. A second job ends with its work.

#[expect(dead_code, reason = "the tests of the engine use more of it")]
#[path = "engine/process.rs"]
mod process;

use kubebid_client::Client;
use kubebid_client::v1::{self, token::Role};
use process::{Engine, sqlite, token_of};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

const MARKET: &str = "h100-8x/eu-west";
const DOLLAR: u64 = 1_000_000;
/// The time to wait for a line. Go compiles all of gRPC if its cache is empty.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time of work that the pages give.
const SECONDS: &str = " 600\n";
/// The time of work of a job that is not disturbed. A garbage collection comes meanwhile.
const FEWER_SECONDS: &str = " 12\n";
/// The folders of installed tools, which are not copied.
const INSTALLED: [&str; 2] = [".venv", "node_modules"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of the project").to_owned()
}

/// Copies an example into a folder that looks like the project's, so that nothing is generated in the checkout.
fn copy(language: &str, project: &Path) -> PathBuf {
    let (from, to) = (root().join("examples").join(language), project.join("examples").join(language));
    fs::create_dir_all(&to).expect("a folder");
    for shared in ["proto", "scripts"] {
        symlink(root().join(shared), project.join(shared)).expect("a link");
    }
    for entry in fs::read_dir(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.expect("an entry");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if INSTALLED.contains(&entry.file_name().to_string_lossy().as_ref()) {
            symlink(path, to).expect("a link");
        } else if path.is_file() {
            fs::copy(path, to).expect("a copy");
        }
    }
    to
}

/// Returns the last `sh` block of an example's page, which generates the client and runs the job.
fn commands(language: &str) -> String {
    let path = root().join("examples").join(language).join("README.md");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let block = text.rsplit("```sh\n").next().and_then(|rest| rest.split("```").next());
    let program = Path::new(env!("CARGO_BIN_EXE_kubebid")).with_file_name("kubebid-job");
    let built =
        block.expect("it has commands").replace("cargo run -p kubebid-job --", &program.to_string_lossy());
    let is_there = program.is_file() || !built.contains("kubebid-job");
    assert!(
        is_there,
        "{} is missing, which a build of the workspace has: cargo build -p kubebid-job",
        program.display()
    );
    built
}

/// A job that runs. Killed with all that it started when dropped.
struct Job {
    shell: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    log: PathBuf,
}

impl Drop for Job {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.shell);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.shell.wait();
    }
}

impl Job {
    /// `ca_file` is the authority of an https endpoint.
    fn start(commands: &str, place: &Path, endpoint: &str, token: &str, ca_file: Option<&Path>) -> Job {
        let home = process::variable("HOME").unwrap_or_default();
        let path = process::variable("PATH").unwrap_or_default();
        let log = place.join("job.log");
        let mut shell = Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(place)
            .env("KUBEBID_ENDPOINT", endpoint)
            .env("KUBEBID_TOKEN", token)
            .envs(ca_file.map(|file| ("KUBEBID_CA_FILE", file)))
            // scripts/setup puts a Go here if the system's is too old.
            .env("PATH", format!("{home}/.cache/kubebid/go/bin:{path}"))
            // Everything is installed; what is compiled once is not compiled again for another folder.
            .envs([("GOPROXY", "off"), ("GOFLAGS", "-trimpath -buildvcs=false"), ("GOTOOLCHAIN", "local")])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("bash is there");
        let out = BufReader::new(shell.stdout.take().expect("it is piped"));
        let (send, lines) = channel();
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Job { shell, lines, seen: Vec::new(), log }
    }

    /// Waits for a line with this text.
    fn until(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(ended @ (RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) => {
                    let log = fs::read_to_string(&self.log).unwrap_or_default();
                    let hint = "scripts/setup installs what the examples need";
                    panic!("{ended} before `{text}` ({hint}):\n{}\n{log}", self.seen.join("\n"));
                }
            }
        }
    }

    /// Waits for the end.
    fn end(mut self) {
        let status = self.shell.wait().expect("it is our child");
        assert!(status.success(), "{status}: {}", fs::read_to_string(&self.log).unwrap_or_default());
    }
}

/// Makes a certificate for the address of an endpoint, which is its own authority, and its key.
fn certificate(folder: &Path, endpoint: &str) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("engine.crt"), folder.join("engine.key"));
    let address: std::net::SocketAddr = endpoint.trim_start_matches("https://").parse().expect("an address");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
        ])
        .args(["-subj", "/CN=engine", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-addext", &format!("subjectAltName=IP:{}", address.ip())])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl is there: scripts/setup installs it");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (certificate, key)
}

/// Outbids everybody for the one node of the market.
async fn outbid(rival: &Client, dollars: u64) {
    let bid = v1::PlaceBidRequest {
        markets: vec![MARKET.to_owned()],
        ceiling_micros: dollars * DOLLAR,
        max_nodes: 1,
        ..v1::PlaceBidRequest::default()
    };
    rival.place_bid(bid).await.expect("a bid");
}

/// Offers so many nodes.
async fn offer(provider: &Client, capacity: u32) {
    let offer = v1::PutOfferRequest {
        market: MARKET.to_owned(),
        capacity,
        reserve_micros: 8 * DOLLAR,
        ..v1::PutOfferRequest::default()
    };
    provider.put_offer(offer).await.expect("an offer");
}

/// Reports all nodes ready, as their provider does, after the job has placed its bid.
async fn report_ready(provider: &Client, job: &mut Job) {
    let placed = job.until(" placed");
    // A bid has the number of the command that placed it.
    let bid = placed.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("its number");
    let request = v1::ListAllocationsRequest {
        states: vec![v1::allocation::State::Starting.into()],
        min_seq: bid,
        ..v1::ListAllocationsRequest::default()
    };
    for started in provider.list_allocations(request).await.expect("a list").allocations {
        let ready =
            v1::ReportReadyRequest { allocation: started.allocation, ..v1::ReportReadyRequest::default() };
        provider.report_ready(ready).await.expect("a report");
    }
}

async fn story(language: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = Engine::start(&sqlite(folder.path()), folder.path(), &[]);
    let admin = engine.admin().await;
    let hour_us = 3_600_000_000;
    let rules = v1::MarketRules {
        min_runtime_us: Some(0),
        min_charge_us: Some(0),
        notice_us: Some(hour_us),
        ..v1::MarketRules::default()
    };
    let open = v1::OpenMarketRequest { market: MARKET.to_owned(), rules: Some(rules) };
    admin.open_market(open).await.expect("a market");
    let provider_token = token_of(&admin, "acme", Role::Provider).await;
    let provider = engine.client(&provider_token);
    offer(&provider, 1).await;
    let rival = engine.client(&token_of(&admin, "rival", Role::Tenant).await);
    let tenant = token_of(&admin, "vision", Role::Tenant).await;

    let place = copy(language, folder.path());
    let commands = commands(language);
    let mut job = Job::start(&commands, &place, &engine.endpoint(), &tenant, None);
    assert_eq!(job.until("quote"), "quote: 1 nodes need $8.00");
    report_ready(&provider, &mut job).await;
    job.until(" ready: work begins");
    engine.restart(&[]);
    outbid(&rival, 10).await;
    job.until(": raise to $");
    job.until(" stays");
    outbid(&rival, 20).await;
    job.until(": checkpoint and release");
    job.until(" ended");
    let bill = job.until("bill: $");
    assert!(bill["bill: $".len()..].parse::<f64>().expect("dollars") > 0.0, "{bill}");
    job.end();

    // The rivals have two nodes, and the work on the third is done before anybody wants it.
    // The engine serves TLS meanwhile.
    offer(&provider, 3).await;
    let shorter = commands.replace(SECONDS, FEWER_SECONDS);
    assert_ne!(shorter, commands);
    let https = engine.endpoint().replace("http:", "https:");
    let (certificate, key) = certificate(folder.path(), &https);
    engine.restart(&["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()]);
    let provider = Client::builder().endpoints([&https]).token(&provider_token).ca_file(&certificate);
    let provider = provider.build().expect("a client");
    let mut job = Job::start(&shorter, &place, &https, &tenant, Some(&certificate));
    report_ready(&provider, &mut job).await;
    job.until("bill: $");
    job.end();
    engine.restart(&[]);
    let bids = engine.client(&tenant).list_bids(v1::ListBidsRequest::default()).await.expect("a list").bids;
    assert!(bids.len() == 2 && bids.iter().all(|bid| bid.held + bid.unmet == 0), "{bids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_in_python_runs() {
    story("python").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_in_typescript_runs() {
    story("typescript").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_in_go_runs() {
    story("go").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_in_rust_runs() {
    story("rust").await;
}
