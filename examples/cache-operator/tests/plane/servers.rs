//! Real servers on a kubelet whose pods are processes: Redis, memcached, and Redis in the place of Valkey.

use crate::story::Story;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kubebid_cache_operator::api::Phase;
use kubebid_cache_operator::api::v1beta1::Cache;
use kubebid_cache_operator::children::{SENTINEL_PORT, SERVER};
use kubebid_cache_operator::controller::FINALIZER;
use kubebid_controller::composite::CLEANUP_INCOMPLETE;
use kubebid_testkit::{Kubelet, Signal};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time without a server that takes writes, after the one that took them was killed. Usually it is less than a
/// second; an election that fails on a busy machine is repeated after 30 s.
const FAILOVER_MAX: Duration = Duration::from_secs(45);

/// The Cache `shop`, whose servers are processes.
struct Servers {
    story: Story,
    kubelet: &'static Kubelet,
    port: u16,
    /// More options of the client.
    options: Vec<String>,
}

impl Servers {
    /// Begins with servers that are ready.
    async fn begin(namespace: &'static str, engine: &'static str, spec: Value) -> Servers {
        let (story, kubelet) = Story::with_servers(namespace).await;
        Servers::on(story, kubelet, engine, spec).await
    }

    async fn on(story: Story, kubelet: &'static Kubelet, engine: &'static str, mut spec: Value) -> Servers {
        spec["engine"] = json!(engine);
        story.create("shop", spec).await;
        story.until_phase("shop", Phase::Ready).await;
        let port = if engine == "memcached" { 11211 } else { 6379 };
        Servers { story, kubelet, port, options: Vec::new() }
    }

    async fn pod(&self, number: u32) -> Pod {
        self.story.api().get(&format!("shop-cache-{number}")).await.unwrap()
    }

    /// Returns the address of a pod; an empty one if it has none.
    async fn ip(&self, number: u32) -> String {
        let pod = self.story.api::<Pod>().get_opt(&format!("shop-cache-{number}")).await.unwrap();
        pod.and_then(|pod| pod.status?.pod_ip).unwrap_or_default()
    }

    /// Sends a command to a server of Redis. Returns its answer, or why there is none.
    async fn ask(&self, number: u32, command: &[&str]) -> String {
        self.ask_port(number, self.port, command).await
    }

    async fn ask_port(&self, number: u32, port: u16, command: &[&str]) -> String {
        let (ip, port) = (self.ip(number).await, port.to_string());
        let mut client = Command::new("timeout");
        client.args(["10", "redis-cli", "-h", &ip, "-p", &port]).args(&self.options);
        let output = client.args(command).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        text(&output.stdout) + &text(&output.stderr)
    }

    /// Waits until a server answers so.
    async fn until_answer(&self, number: u32, command: &[&str], wanted: &str) {
        let what = format!("{command:?} of {number} is {wanted}");
        self.story.eventually(&what, || async { self.ask(number, command).await == wanted }).await;
    }

    /// Returns a number of `INFO`.
    async fn info(&self, number: u32, name: &str) -> u64 {
        let info = self.ask(number, &["info"]).await;
        let mut lines = info.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.next().unwrap_or_else(|| panic!("no {name}: {info}")).trim().parse().unwrap()
    }

    /// Writes so many megabytes to a server of Redis. Returns how many entries it refused.
    async fn fill(&self, megabytes: usize) -> u64 {
        let value = "x".repeat(10_000);
        let commands = (0..megabytes * 100).fold(String::new(), |mut all, number| {
            let _ = write!(all, "SET entry-{number} {value}\r\n");
            all
        });
        let mut client = Command::new("timeout")
            .args(["60", "redis-cli", "-h", &self.ip(0).await, "--pipe"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = client.stdin.take().unwrap();
        let writes = std::thread::spawn(move || std::io::Write::write_all(&mut input, commands.as_bytes()));
        let output = client.wait_with_output().unwrap();
        writes.join().unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = text.split("errors: ").nth(1).and_then(|rest| rest.split(',').next());
        errors.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap()
    }

    /// Sends lines to a server of memcached, and returns what it answers before it hangs up.
    async fn memcached(&self, lines: &str) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let server = tokio::net::TcpStream::connect((self.ip(0).await, self.port)).await.unwrap();
        let (mut reader, mut writer) = server.into_split();
        let lines = format!("{lines}quit\r\n");
        let writes = tokio::spawn(async move { writer.write_all(lines.as_bytes()).await });
        let mut answer = String::new();
        reader.read_to_string(&mut answer).await.unwrap();
        writes.await.unwrap().unwrap();
        answer
    }

    /// Returns a number of `stats` of memcached.
    async fn statistic(&self, name: &str) -> u64 {
        let stats = self.memcached("stats\r\n").await;
        let mut lines = stats.lines().filter_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        lines.next().unwrap_or_else(|| panic!("no {name}: {stats}")).parse().unwrap()
    }

    /// Deletes the Cache, which another finalizer keeps together with its servers. Waits until the operator has emptied them.
    async fn until_flushed(&self) {
        let finalizers = json!({"metadata": {"finalizers": [FINALIZER, "example.com/theirs"]}});
        self.story.patch::<Cache>("shop", finalizers).await;
        self.story.delete::<Cache>("shop").await;
        let is_let_go =
            |cache: &Cache| cache.metadata.finalizers.as_deref() == Some(&["example.com/theirs".to_owned()]);
        self.story.until::<Cache>("shop", is_let_go).await;
    }

    /// Lets the Cache go, with its servers.
    async fn until_gone(&self) {
        self.story.patch::<Cache>("shop", json!({"metadata": {"finalizers": []}})).await;
        self.story.until_gone::<Pod>("shop-cache-0").await;
    }

    /// Waits until another server than this one leads and takes a write. Returns it.
    async fn until_led_by_another(&self, than: u32, key: &str) -> u32 {
        let is_written = || async {
            let leader = self.leader().await.filter(|leader| *leader != than)?;
            (self.ask(leader, &["set", key, "1"]).await == "OK").then_some(leader)
        };
        let found = std::sync::OnceLock::new();
        let is_led = || async { is_written().await.is_some_and(|leader| found.set(leader).is_ok()) };
        self.story.eventually("another server leads and takes writes", is_led).await;
        *found.get().unwrap()
    }

    /// Returns the server that leads, if one and no other says so.
    async fn leader(&self) -> Option<u32> {
        let mut leaders = Vec::new();
        for number in 0..3 {
            if self.ask(number, &["role"]).await.starts_with("master") {
                leaders.push(number);
            }
        }
        if leaders.len() == 1 { leaders.pop() } else { None }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_has_its_settings_keeps_its_limit_follows_and_is_emptied() {
    let servers = Servers::begin("redis", "redis", json!({"memory": "16Mi"})).await;
    assert_eq!(servers.ask(0, &["config", "get", "maxmemory"]).await, "maxmemory\n12582912");
    assert_eq!(servers.ask(0, &["config", "get", "save"]).await, "save");
    for follower in [1, 2] {
        assert!(servers.ask(follower, &["role"]).await.starts_with("slave\nshop-cache-0.shop-cache\n"));
        assert!(servers.ask(follower, &["set", "a", "1"]).await.starts_with("READONLY"));
    }
    assert_eq!(servers.ask(0, &["set", "a", "1"]).await, "OK");
    servers.until_answer(2, &["get", "a"], "1").await;
    // Twice the memory: the oldest entries go.
    assert_eq!(servers.fill(24).await, 0);
    assert!(servers.info(0, "evicted_keys").await > 0);
    // The buffers for its replicas count as well, until they have followed.
    let within_limit = || async { servers.info(0, "used_memory").await <= 13 << 20 };
    servers.story.eventually("the memory is within the limit", within_limit).await;
    servers.until_flushed().await;
    for server in 0..3 {
        assert_eq!(servers.ask(server, &["dbsize"]).await, "0");
    }
    servers.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_policy_rolls_the_servers_and_full_ones_refuse_writes() {
    let servers = Servers::begin("valkey", "valkey", json!({"memory": "16Mi", "replicas": 1})).await;
    assert_eq!(servers.ask(0, &["config", "get", "maxmemory-policy"]).await, "maxmemory-policy\nallkeys-lru");
    let (pod, config) =
        (servers.pod(0).await, servers.story.api::<ConfigMap>().get("shop-cache").await.unwrap());
    servers.story.patch::<Cache>("shop", json!({"spec": {"evictionPolicy": "noeviction"}})).await;
    servers.story.until_replaced(&pod).await;
    servers.story.until_phase("shop", Phase::Ready).await;
    assert_ne!(servers.story.api::<ConfigMap>().get("shop-cache").await.unwrap().data, config.data);
    assert!(servers.fill(24).await > 0, "writes beyond the limit are refused");
    assert_eq!(servers.info(0, "evicted_keys").await, 0);
    servers.story.delete::<Cache>("shop").await;
    servers.story.until_gone::<Cache>("shop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memcached_has_its_settings_keeps_its_limit_and_is_emptied() {
    let servers = Servers::begin("memcached", "memcached", json!({"memory": "64Mi"})).await;
    assert_eq!(servers.statistic("limit_maxbytes").await, 48 << 20);
    let value = "x".repeat(100_000);
    let lines = (0..1000).fold(String::new(), |mut all, number| {
        let _ = write!(all, "set entry-{number} 0 0 {} noreply\r\n{value}\r\n", value.len());
        all
    });
    servers.memcached(&lines).await;
    assert!(servers.statistic("evictions").await > 0);
    assert!(servers.statistic("bytes").await <= 48 << 20);
    assert!(servers.memcached("get entry-999\r\n").await.starts_with("VALUE"));
    servers.until_flushed().await;
    assert_eq!(servers.memcached("get entry-999\r\n").await, "END\r\n");
    assert_eq!(servers.statistic("cmd_flush").await, 1);
    servers.until_gone().await;
}

/// Makes a Secret with a certificate for the endpoint of the Cache `shop`, and a file with its authority.
async fn make_certificate(story: &Story, folder: &Path) -> String {
    let host = format!("shop-cache.{}.svc.cluster.local", story.namespace);
    let issued = rcgen::generate_simple_self_signed([host]).unwrap();
    let (certificate, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let files = json!({"tls.crt": certificate, "tls.key": key, "ca.crt": certificate});
    story.make::<Secret>(json!({"metadata": {"name": "keys"}, "stringData": files})).await;
    let file = folder.join("ca.crt");
    std::fs::write(&file, certificate).unwrap();
    file.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_servers_follow_fail_over_and_are_emptied() {
    let (story, kubelet) = Story::with_servers("encrypted").await;
    let folder = tempfile::tempdir().unwrap();
    let authority = make_certificate(&story, folder.path()).await;
    let tls = json!({"enabled": true, "secretName": "keys"});
    let spec = json!({"memory": "16Mi", "tls": tls, "highAvailability": {"enabled": true}});
    let mut servers = Servers::on(story, kubelet, "valkey", spec).await;
    assert_ne!(servers.ask(0, &["ping"]).await, "PONG", "nothing is said in the open");
    servers.options = ["--tls", "--cacert", &authority].map(str::to_owned).to_vec();
    assert_eq!(servers.ask(0, &["set", "a", "1"]).await, "OK");
    servers.until_answer(2, &["get", "a"], "1").await;
    let knows_all = || async {
        servers.ask_port(1, SENTINEL_PORT, &["info", "sentinel"]).await.contains("slaves=2,sentinels=3")
    };
    servers.story.eventually("the Sentinels know each other", knows_all).await;
    servers.until_flushed().await;
    for server in 0..3 {
        assert_eq!(servers.ask(server, &["dbsize"]).await, "0");
    }
    servers.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_memcached_is_emptied() {
    let (story, kubelet) = Story::with_servers("encrypted-memcached").await;
    let folder = tempfile::tempdir().unwrap();
    make_certificate(&story, folder.path()).await;
    let tls = json!({"enabled": true, "secretName": "keys"});
    let servers = Servers::on(story, kubelet, "memcached", json!({"memory": "64Mi", "tls": tls})).await;
    servers.until_flushed().await;
    let events = servers.story.api::<Event>().list(&Default::default()).await.unwrap();
    assert!(
        !events.iter().any(|event| event.reason.as_deref() == Some(CLEANUP_INCOMPLETE)),
        "all were emptied"
    );
    servers.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_leads_when_the_first_is_killed_and_writes_go_on() {
    let high = json!({"memory": "16Mi", "highAvailability": {"enabled": true}});
    let servers = Servers::begin("failover", "redis", high).await;
    servers.story.eventually("the first leads", || async { servers.leader().await == Some(0) }).await;
    assert_eq!(servers.ask(0, &["set", "a", "1"]).await, "OK");
    for follower in [1, 2] {
        servers.until_answer(follower, &["get", "a"], "1").await;
    }
    // Each Sentinel knows the two others and both followers.
    let known = || async {
        let mut known = Vec::new();
        for server in 0..3 {
            let answer = servers.ask_port(server, SENTINEL_PORT, &["info", "sentinel"]).await;
            known.push(answer.contains("status=ok") && answer.contains("slaves=2,sentinels=3"));
        }
        known == [true; 3]
    };
    servers.story.eventually("the Sentinels know each other", known).await;

    let killed = Instant::now();
    servers.kubelet.signal(servers.story.namespace, "shop-cache-0", SERVER, Signal::KILL);
    let leader = servers.until_led_by_another(0, "b").await;
    let failover = killed.elapsed();
    println!("another server led and took writes {failover:?} after the first was killed");
    assert!(failover <= FAILOVER_MAX, "{failover:?}");
    assert_eq!(servers.ask(leader, &["get", "a"]).await, "1", "nothing is lost");
    // The first follows, and has all entries.
    servers.until_answer(0, &["get", "b"], "1").await;
    assert!(servers.ask(0, &["role"]).await.starts_with("slave"));
    servers.story.until_phase("shop", Phase::Ready).await;

    // So it is when the pod of the leader is deleted.
    let deleted = Instant::now();
    servers.story.delete::<Pod>(&format!("shop-cache-{leader}")).await;
    let next = servers.until_led_by_another(leader, "c").await;
    println!("a third server led and took writes {:?} after the pod was deleted", deleted.elapsed());
    servers.until_answer(leader, &["get", "c"], "1").await;
    assert_eq!(servers.ask(next, &["get", "a"]).await, "1", "nothing is lost");
    servers.story.delete::<Cache>("shop").await;
    servers.story.until_gone::<Cache>("shop").await;
}
