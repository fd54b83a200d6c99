//! A keep-alive connection of HTTP/1.1.

use crate::error::BenchError;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::fmt::Display;
use tokio::net::TcpStream;

/// A connection to an endpoint over plain `http`.
pub(crate) struct Http {
    sender: SendRequest<Empty<Bytes>>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    endpoint: String,
}

/// The status and the body of a response.
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Http {
    /// Connects to an endpoint as in `http://127.0.0.1:7440`. Requests have this header, if there is one.
    pub(crate) async fn connect(
        endpoint: &str,
        authorization: Option<HeaderValue>,
    ) -> Result<Http, BenchError> {
        let bad = |why: &str| BenchError::usage(format!("the endpoint `{endpoint}` is none here: {why}"));
        let uri: Uri = endpoint.parse().map_err(|_| bad("it is no URL"))?;
        if !matches!(uri.scheme_str(), None | Some("http")) {
            return Err(bad("only http is spoken without gRPC"));
        }
        let name = uri.host().ok_or_else(|| bad("it names no host"))?;
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((name, uri.port_u16().unwrap_or(80))).await;
        let stream = stream.map_err(|error| away(endpoint, &error))?;
        stream.set_nodelay(true).map_err(|error| away(endpoint, &error))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| away(endpoint, &error))?;
        // The next request notices its end.
        tokio::spawn(connection);
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("it names no host"))?;
        Ok(Http { sender, host, authorization, endpoint: endpoint.to_owned() })
    }

    /// Sends a GET request and reads the response.
    pub(crate) async fn get(&mut self, path: &Uri) -> Result<Page, BenchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = path.clone();
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        self.sender.ready().await.map_err(|error| away(&self.endpoint, &error))?;
        let response = self.sender.send_request(request).await;
        let response = response.map_err(|error| away(&self.endpoint, &error))?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| away(&self.endpoint, &error))?;
        Ok(Page { status, body: body.to_bytes() })
    }
}

fn away(endpoint: &str, error: &dyn Display) -> BenchError {
    BenchError::Unavailable(format!("{endpoint} does not answer: {error}"))
}
