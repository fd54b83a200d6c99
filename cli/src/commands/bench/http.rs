//! A keep-alive connection of HTTP/1.1.

use crate::failure::{Exit, Failure};
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::fmt::Display;
use tokio::net::TcpStream;

pub(super) struct Http {
    sender: SendRequest<Empty<Bytes>>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    endpoint: String,
}

/// A status and a body.
pub(super) struct Page {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl Http {
    /// To an endpoint as in `http://127.0.0.1:7440`, with the secret of a token where there is one.
    pub(super) async fn connect(endpoint: &str, secret: Option<&str>) -> Result<Http, Failure> {
        let bad = |why: &str| Failure::usage(format!("the endpoint `{endpoint}` is none here: {why}"));
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
        // Its end is seen by the next request.
        tokio::spawn(connection);
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("it names no host"))?;
        let authorization = secret.map(|secret| HeaderValue::from_str(&format!("Bearer {secret}")));
        let authorization = authorization.transpose().map_err(|_| Failure::usage("the token is none"))?;
        Ok(Http { sender, host, authorization, endpoint: endpoint.to_owned() })
    }

    pub(super) async fn get(&mut self, path: &Uri) -> Result<Page, Failure> {
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

fn away(endpoint: &str, error: &dyn Display) -> Failure {
    Failure::new(Exit::Unavailable, format!("{endpoint} does not answer: {error}"))
}
