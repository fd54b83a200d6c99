//! The limits of connections: how many may be open, how long a silent one is kept, and which ones are
//! always answered.

use crate::world::{World, bid};
use kubebid_engine::api::ApiOptions;
use kubebid_engine::server::ServerConfig;
use kubebid_proto::v1;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const ANOTHER: [u8; 4] = [127, 0, 0, 2];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(30);

fn config(change: impl FnOnce(&mut ServerConfig)) -> ServerConfig {
    let mut config = World::config(ApiOptions::default());
    change(&mut config);
    config
}

async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(from), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Waits until the server has closed a connection.
async fn until_closed(stream: &mut TcpStream) {
    let closed = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {} };
    tokio::time::timeout(LONG, closed).await.expect("the server closes it");
}

/// Sends a request that needs no token. Returns the status; `None` if the connection was closed instead.
async fn ask(stream: &mut TcpStream) -> Option<u16> {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.ok()?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.ok()?;
    std::str::from_utf8(&line[9..]).unwrap().parse().ok()
}

/// Returns a frame of HTTP/2 that belongs to no stream.
fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[0, 0, content.len() as u8, kind, 0, 0, 0, 0, 0][..], content].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_on_which_no_request_begins_is_closed() {
    let soon = Duration::from_millis(50);
    let world = World::serving(config(|config| config.connections.first_request = soon), 64).await;
    let http2 = [PREFACE, &frame(4, b"")].concat();
    for said in [
        &b""[..],
        b"P",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nhost: a-long-name-of-a-host\r\n",
        &PREFACE[..20],
        &http2,
        &[&http2[..], &frame(6, b"are you?")].concat(),
    ] {
        let mut stream = connect(LOOPBACK, world.address).await;
        stream.write_all(said).await.unwrap();
        until_closed(&mut stream).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_do_not_keep_a_connection_without_a_valid_token() {
    let soon = Duration::from_millis(200);
    let world = World::serving(config(|config| config.connections.first_request = soon), 64).await;
    let mut stream = connect(LOOPBACK, world.address).await;
    stream.write_all(&[PREFACE, &frame(4, b"")].concat()).await.unwrap();
    let pings = async {
        while stream.write_all(&frame(6, b"are you?")).await.is_ok()
            && stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, pings).await.expect("the server closes it");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valid_token_keeps_a_quiet_connection_and_another_one_does_not() {
    let limits = |config: &mut ServerConfig| config.connections.first_request = Duration::from_millis(50);
    let world = World::serving(config(limits), 64).await;
    let token = world.tenant("t1").await.bearer.0.unwrap();
    let [mut kept, mut forged] =
        [connect(LOOPBACK, world.address).await, connect(LOOPBACK, world.address).await];
    let ask_with = async |stream: &mut TcpStream, token: &str| {
        let head = format!("GET /v1/bids HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        answer(stream).await.0
    };
    assert!(ask_with(&mut kept, &token).await.starts_with("http/1.1 200"));
    assert!(ask_with(&mut forged, "kb_forged").await.starts_with("http/1.1 401"));
    until_closed(&mut forged).await;
    assert!(ask_with(&mut kept, &token).await.starts_with("http/1.1 200"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_an_open_request_is_closed_after_a_while_and_a_watch_is_not() {
    let soon = |config: &mut ServerConfig| {
        config.connections.first_request = Duration::from_millis(50);
        config.connections.idle = Duration::from_millis(50);
    };
    let world = World::serving(config(soon), 64).await;
    let t1 = world.tenant("t1").await;
    let mut events = t1.events().watch_events(v1::WatchEventsRequest::default()).await.unwrap().into_inner();
    let mut stream = connect(LOOPBACK, world.address).await;
    assert_eq!(ask(&mut stream).await, Some(200));
    until_closed(&mut stream).await;
    // The same request again. By now the watch has been open for longer than an idle connection may
    // be.
    let mut stream = connect(LOOPBACK, world.address).await;
    assert_eq!(ask(&mut stream).await, Some(200));
    until_closed(&mut stream).await;
    t1.place(bid(100)).await.unwrap();
    while events.message().await.unwrap().expect("the watch goes on").events.is_empty() {}
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_of_one_address_leave_room_for_others_and_for_probes() {
    let limits = |config: &mut ServerConfig| {
        config.connections.max = 5;
        config.connections.max_per_address = 3;
        config.connections.max_newcomers_per_network = 5;
    };
    // One connection is that of the test's own client.
    let world = World::serving(config(limits), 64).await;
    let mut silent = vec![connect(LOOPBACK, world.address).await, connect(LOOPBACK, world.address).await];
    until_closed(&mut connect(LOOPBACK, world.address).await).await;
    let mut other = connect(ANOTHER, world.address).await;
    assert_eq!(ask(&mut other).await, Some(200));
    silent.push(connect(ANOTHER, world.address).await);
    until_closed(&mut connect(ANOTHER, world.address).await).await;
    let mut probe = connect(LOOPBACK, world.ops).await;
    probe.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut metrics = String::new();
    probe.read_to_string(&mut metrics).await.unwrap();
    for reason in ["max_connections", "max_connections_per_address"] {
        let refused = format!("kubebid_connections_refused_total{{port=\"api\",reason=\"{reason}\"}}");
        let line = metrics.lines().find(|line| line.starts_with(&refused)).expect("it is counted");
        assert!(!line.ends_with(" 0"), "{line}");
    }
    drop(silent);
    // Repeats until the server has noticed that the connections are closed.
    while ask(&mut connect(LOOPBACK, world.address).await).await != Some(200) {
        tokio::task::yield_now().await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_while_all_other_threads_are_busy() {
    let world = World::start().await;
    let (began, has_begun) = std::sync::mpsc::channel();
    let mut busy = Vec::new();
    for _ in 0..2 {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let began = began.clone();
        tokio::spawn(async move {
            began.send(()).unwrap();
            let _ = released.recv();
        });
        busy.push(release);
        has_begun.recv().unwrap();
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        let mut probe = std::net::TcpStream::connect(world.ops).unwrap();
        probe.set_read_timeout(Some(LONG)).unwrap();
        write!(probe, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    drop(busy);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_token_have_a_rate_for_each_address() {
    let world = World::serving(config(|c| c.api.limits.anonymous_requests_per_second = 3), 64).await;
    let mut stream = connect(LOOPBACK, world.address).await;
    let mut statuses = Vec::new();
    while statuses.last() != Some(&429) {
        stream = connect(LOOPBACK, world.address).await;
        statuses.push(ask(&mut stream).await.unwrap());
    }
    assert!(statuses.len() > 3, "a second's worth is to be had at once: {statuses:?}");
    assert_eq!(ask(&mut connect(ANOTHER, world.address).await).await, Some(200));
    drop(stream);
    // A caller with a token has a rate of its own.
    world.tenant("t1").await.place(bid(100)).await.unwrap();
    world.stop().await;
}

/// Reads a response that has a content length.
async fn answer(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the connection goes on"));
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_whose_body_comes_later_keeps_its_connection() {
    let world = World::start().await;
    let mut stream = connect(LOOPBACK, world.address).await;
    for path in ["/v1/bids", "/v1/nowhere", "/v1/bids?what=this"] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // Waits a moment, because a server that does not wait for the body would answer first.
        let _ = tokio::time::timeout(Duration::from_millis(100), stream.readable()).await;
        stream.write_all(b"{\"markets\":[\"a/b\"]} ").await.unwrap();
        let (head, _) = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 4") && !head.contains("connection: close"), "{path}: {head}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_an_end_has_the_deadline_of_its_request() {
    let world = World::start().await;
    let t1 = world.tenant("t1").await;
    let mut stream = connect(LOOPBACK, world.address).await;
    let token = t1.bearer.0.unwrap();
    let head = format!(
        "POST /v1/bids HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nrequest-timeout: 0\r\n\
         content-length: 200\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (head, body) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 504") && head.contains("connection: close"), "{head}");
    assert!(body.contains("NOT_YET"), "{body}");
    until_closed(&mut stream).await;
    world.stop().await;
}
