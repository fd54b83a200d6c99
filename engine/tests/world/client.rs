//! A caller of REST: requests, answers, and streams of server-sent events.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

pub struct Client {
    address: SocketAddr,
    token: Option<String>,
    http: Http<HttpConnector, Full<Bytes>>,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// The body as JSON; null if it is not JSON.
    pub json: Value,
}

impl Answer {
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    pub fn field(&self) -> &str {
        self.json["field"].as_str().unwrap_or_default()
    }
}

impl Client {
    pub fn new(address: SocketAddr, token: Option<String>) -> Client {
        Client { address, token, http: Http::builder(TokioExecutor::new()).build_http() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], &body.to_string()).await
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let response = self.http.request(self.request(method, path, headers, body)).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: parts.status.as_u16(), headers: parts.headers, text, json }
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
    }

    /// Opens a stream, after the event with this id if there is one.
    pub async fn watch(&self, path: &str, last_event_id: Option<&str>) -> Stream {
        let headers: Vec<_> = last_event_id.map(|id| ("last-event-id", id)).into_iter().collect();
        let response = self.http.request(self.request("GET", path, &headers, "")).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { body: Body::new(response.into_body()), unread: String::new() }
    }
}

/// A stream of server-sent events.
pub struct Stream {
    body: Body,
    unread: String,
}

#[derive(Debug)]
pub struct Sent {
    pub name: String,
    pub id: String,
    pub data: Value,
}

impl Stream {
    /// Returns the next event. Comments are skipped.
    pub async fn next(&mut self) -> Option<Sent> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let sent = read(event);
                self.unread = rest.to_owned();
                if sent.is_some() {
                    return sent;
                }
            }
            let frame = tokio::time::timeout(Duration::from_secs(20), self.body.frame());
            let frame = frame.await.expect("the stream lives")?.ok()?;
            self.unread.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// Returns the next entries of this list of the frames, without bookmarks, and the id of their
    /// frame.
    pub async fn next_of(&mut self, list: &str) -> (Vec<Value>, String) {
        loop {
            let sent = self.next().await.expect("the stream lives");
            let found = sent.data[list].as_array().unwrap_or_else(|| panic!("{sent:?}")).clone();
            if !found.is_empty() {
                return (found, sent.id);
            }
        }
    }
}

fn read(event: &str) -> Option<Sent> {
    let field = |name: &str| {
        let found = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.map(|value| value.trim_start().to_owned())
    };
    let data = serde_json::from_str(&field("data")?).unwrap();
    Some(Sent { name: field("event").unwrap_or_default(), id: field("id").unwrap_or_default(), data })
}
