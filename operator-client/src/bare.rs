//! Calls without retries and conversions, for programs that measure an engine and not its client.

use crate::Client;
use crate::call::{Tries, in_time, send};
use crate::encoded::over;
use crate::error::Error;
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use tokio::net::TcpStream;
use tonic::codegen::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use tonic::codegen::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use tonic::codegen::http::{Method, Request, StatusCode, Version};
use tonic::{Code, Response, Status};

/// What comes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Room for what the engine sends before it is read.
const WINDOW: u32 = 1 << 20;
/// The longest time that gRPC can say in seconds.
const MOST_SECONDS: u64 = 99_999_999;

/// A way to call one rpc. Clones are cheap and share the connection.
#[derive(Clone, Debug)]
pub struct Bare {
    client: Client,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Plain(Plain),
    /// The client's own connection, with TLS, for the rpc at this path.
    Secure(&'static str),
}

/// A connection over plain `http`.
#[derive(Clone, Debug)]
struct Plain {
    requests: SendRequest<Bytes>,
    uri: Uri,
    headers: HeaderMap,
}

impl Client {
    /// For calls of the rpc at `path`, as in `/kubebid.auction.v1.BidService/PlaceBid`, with this client's token and
    /// timeout: over `http` a connection of its own to the endpoint in use, which knows of no other endpoints and no
    /// other tokens; over `https` the client's. Nothing is tried again.
    pub async fn bare(&self, path: &'static str) -> Result<Bare, Error> {
        let endpoint = self.endpoint();
        let uri = endpoint.parse::<Uri>();
        let mut parts = uri.map_err(|error| Error::Config(format!("`{endpoint}`: {error}")))?.into_parts();
        let plain = parts.scheme.get_or_insert(Scheme::HTTP) == &Scheme::HTTP;
        let Some(authority) = parts.authority.clone().filter(|_| plain) else {
            return Ok(Bare { client: self.clone(), way: Way::Secure(path) });
        };
        parts.path_and_query = Some(PathAndQuery::from_static(path));
        let uri = Uri::from_parts(parts).expect("with a scheme, an authority and a path");
        let requests = in_time(self.options.timeout, connect(&authority)).await;
        let requests = requests.map_err(|status| over(self, status))?;
        let mut headers = HeaderMap::new();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let timeout = format!("{}S", self.options.timeout.as_secs().clamp(1, MOST_SECONDS));
        headers.insert("grpc-timeout", HeaderValue::try_from(timeout).expect("digits and a letter"));
        if let Some(bearer) = self.credential.bearer() {
            // Not marked as sensitive: the connection knows it after the first call, as most clients of gRPC have it.
            let bearer = HeaderValue::from_bytes(bearer.as_bytes()).expect("it is a header's value");
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(Bare { client: self.clone(), way: Way::Plain(Plain { requests, uri, headers }) })
    }
}

async fn connect(authority: &Authority) -> Result<SendRequest<Bytes>, Status> {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.map_err(away)?;
    stream.set_nodelay(true).map_err(away)?;
    let mut http2 = client::Builder::new();
    http2.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let (requests, connection) = http2.handshake(stream).await.map_err(away)?;
    // Its end is seen by the next call.
    tokio::spawn(connection);
    Ok(requests)
}

impl Bare {
    /// A call with an encoded message; the answer's.
    pub async fn call(&self, message: &[u8]) -> Result<Bytes, Error> {
        let timeout = self.client.options.timeout;
        let answer = match &self.way {
            Way::Plain(plain) => in_time(timeout, plain.send(message)).await,
            Way::Secure(path) => {
                let mut tries = Tries::new(self.client.clone(), None);
                let (channel, request) = tries.request(Bytes::copy_from_slice(message));
                in_time(timeout, send(channel, path, request)).await.map(Response::into_inner)
            }
        };
        answer.map_err(|status| over(&self.client, status))
    }
}

impl Plain {
    async fn send(&self, message: &[u8]) -> Result<Bytes, Status> {
        let mut framed = BytesMut::with_capacity(PREFIX + message.len());
        framed.put_u8(0);
        framed.put_u32(message.len() as u32);
        framed.put_slice(message);
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let mut requests = self.requests.clone().ready().await.map_err(away)?;
        let (answer, mut body) = requests.send_request(request, false).map_err(away)?;
        body.send_data(framed.freeze(), true).map_err(away)?;
        let (head, mut body) = answer.await.map_err(away)?.into_parts();
        if head.status != StatusCode::OK {
            return Err(Status::unknown(format!("the answer is {} of HTTP", head.status)));
        }
        let mut message = Bytes::new();
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(away)?;
            let _ = body.flow_control().release_capacity(piece.len());
            message = if message.is_empty() { piece } else { [message, piece].concat().into() };
        }
        let trailers = body.trailers().await.map_err(away)?.unwrap_or(head.headers);
        match Status::from_header_map(&trailers) {
            Some(status) if status.code() == Code::Ok && message.len() >= PREFIX => {
                Ok(message.slice(PREFIX..))
            }
            Some(status) if status.code() != Code::Ok => Err(status),
            Some(_) | None => Err(Status::internal("an answer without a message or without its status")),
        }
    }
}

fn away(error: impl std::error::Error + Send + Sync + 'static) -> Status {
    Status::from_error(Box::new(error))
}
