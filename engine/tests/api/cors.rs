//! Pages of other origins: what a browser asks before it lets them call REST.

use crate::world::World;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kubebid_engine::api::ApiOptions;
use kubebid_engine::server::ServerConfig;
use std::net::SocketAddr;

const CONSOLE: &str = "https://console.example";
const ALLOWED: &str = "access-control-allow-origin";

/// Returns a service whose REST pages of these origins may call.
async fn world(origins: &[&str]) -> World {
    let cors_origins = origins.iter().map(|origin| origin.parse().unwrap()).collect();
    World::serving(ServerConfig { cors_origins, ..World::config(ApiOptions::default()) }, 16_384).await
}

async fn send(to: SocketAddr, method: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
    let mut request = Request::builder().method(method).uri(format!("http://{to}/v1/bids"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    client.request(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// Sends what a browser sends before a page of this origin may place a bid.
async fn preflight(to: SocketAddr, origin: &str) -> Response<Incoming> {
    let wanted = "authorization,content-type,idempotency-key";
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", wanted),
    ];
    send(to, "OPTIONS", &headers).await
}

fn header<'a>(response: &'a Response<Incoming>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_no_page_of_another_origin_may_call() {
    let world = world(&[]).await;
    let preflight = preflight(world.address, CONSOLE).await;
    assert_eq!((preflight.status().as_u16(), header(&preflight, ALLOWED)), (405, ""));
    let answer = send(world.address, "GET", &[("origin", CONSOLE)]).await;
    assert_eq!((answer.status().as_u16(), header(&answer, ALLOWED)), (401, ""));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_named_origin_may_place_bids_and_read_refusals() {
    let world = world(&["http://localhost:3000", CONSOLE]).await;
    let allowed = preflight(world.address, CONSOLE).await;
    assert_eq!((allowed.status().as_u16(), header(&allowed, ALLOWED)), (200, CONSOLE));
    assert!(header(&allowed, "access-control-allow-methods").contains("POST"));
    let headers = header(&allowed, "access-control-allow-headers").to_lowercase();
    for needed in ["authorization", "content-type", "idempotency-key", "last-event-id"] {
        assert!(headers.contains(needed), "{headers}");
    }
    // The token is a header that the page sends, not a cookie that the browser adds.
    assert_eq!(header(&allowed, "access-control-allow-credentials"), "");
    let refused = send(world.address, "GET", &[("origin", CONSOLE)]).await;
    assert_eq!((refused.status().as_u16(), header(&refused, ALLOWED)), (401, CONSOLE));
    assert!(header(&refused, "vary").contains("origin"), "a cache keeps the answers apart");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_may_not_call() {
    let world = world(&[CONSOLE]).await;
    for other in ["https://console.example.evil.example", "http://console.example", "null"] {
        let preflight = preflight(world.address, other).await;
        assert_eq!(header(&preflight, ALLOWED), "", "{other}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_star_lets_pages_of_all_origins_call() {
    let world = world(&["*"]).await;
    assert_eq!(header(&preflight(world.address, CONSOLE).await, ALLOWED), "*");
    world.stop().await;
}
