//! Calls of one rpc with messages that are encoded already, tried once: a lean HTTP/2 client that takes little of the
//! processors that the engine needs.

use crate::streams::{in_time, stub};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, StatusCode, Version};
use kubebid_client::{Client, Error};
use kubebid_proto::Encoded;
use tokio::net::TcpStream;
use tonic::{Code, Response, Status};

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// The bytes that the engine may send before they are read.
const WINDOW: u32 = 1 << 20;
/// The longest time in seconds that gRPC can express.
const MAX_SECONDS: u64 = 99_999_999;

/// A connection for calls of one rpc. Clones are cheap and share the connection.
#[derive(Clone, Debug)]
pub struct Unary {
    client: Client,
    transport: Transport,
}

#[derive(Clone, Debug)]
enum Transport {
    Plain(Plain),
    /// The client's own connection, which has TLS, for the rpc at this path.
    Secure(&'static str),
}

/// A connection over plain `http`.
#[derive(Clone, Debug)]
struct Plain {
    requests: SendRequest<Bytes>,
    uri: Uri,
    headers: HeaderMap,
}

impl Unary {
    /// Connects for calls of the rpc at `path`, as in `/kubebid.auction.v1.BidService/PlaceBid`, with the token and
    /// the timeout of `client`.
    ///
    /// Over `http` this is a connection of its own to the endpoint in use; it does not turn to other endpoints or
    /// other tokens. Over `https` it is the client's connection.
    ///
    /// # Errors
    ///
    /// Returns why the endpoint cannot be reached.
    pub async fn connect(client: &Client, path: &'static str) -> Result<Unary, Error> {
        let endpoint = client.endpoint();
        let uri = endpoint.parse::<Uri>();
        let mut parts = uri.map_err(|error| Error::Config(format!("`{endpoint}`: {error}")))?.into_parts();
        let plain = parts.scheme.get_or_insert(Scheme::HTTP) == &Scheme::HTTP;
        let Some(authority) = parts.authority.clone().filter(|_| plain) else {
            return Ok(Unary { client: client.clone(), transport: Transport::Secure(path) });
        };
        parts.path_and_query = Some(PathAndQuery::from_static(path));
        let uri = Uri::from_parts(parts).expect("with a scheme, an authority and a path");
        let timeout = client.options().timeout;
        let requests = in_time(timeout, connect(&authority)).await;
        let requests = requests.map_err(|status| client.raw_error(status))?;
        let mut headers = HeaderMap::new();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let timeout = format!("{}S", timeout.as_secs().clamp(1, MAX_SECONDS));
        headers.insert("grpc-timeout", HeaderValue::try_from(timeout).expect("digits and a letter"));
        if let Some(bearer) = authorization(client) {
            headers.insert(AUTHORIZATION, bearer);
        }
        let plain = Plain { requests, uri, headers };
        Ok(Unary { client: client.clone(), transport: Transport::Plain(plain) })
    }

    /// Makes a call with an encoded message, and returns the encoded answer.
    ///
    /// # Errors
    ///
    /// Returns the refusal, or why there is no answer. The call is not tried again.
    pub async fn call(&self, message: &[u8]) -> Result<Bytes, Error> {
        let timeout = self.client.options().timeout;
        let answer = match &self.transport {
            Transport::Plain(plain) => in_time(timeout, plain.send(message)).await,
            Transport::Secure(path) => {
                let (channel, request) = self.client.raw_request(Bytes::copy_from_slice(message));
                let path = PathAndQuery::from_static(path);
                let call = async { stub(channel).await?.unary(request, path, Encoded).await };
                in_time(timeout, call).await.map(Response::into_inner)
            }
        };
        answer.map_err(|status| self.client.raw_error(status))
    }
}

/// Returns the header with the client's token, if it has one. It is not marked as sensitive, so that HTTP/2 sends it
/// in full only once, as it does for most clients of gRPC.
pub(crate) fn authorization(client: &Client) -> Option<HeaderValue> {
    let (_, request) = client.raw_request(());
    let bearer = request.metadata().get("authorization")?;
    Some(HeaderValue::from_bytes(bearer.as_bytes()).expect("it is a header's value"))
}

async fn connect(authority: &Authority) -> Result<SendRequest<Bytes>, Status> {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    let mut http2 = client::Builder::new();
    http2.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let (requests, connection) = http2.handshake(stream).await.map_err(broken)?;
    // The next call notices its end.
    tokio::spawn(connection);
    Ok(requests)
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
        let mut requests = self.requests.clone().ready().await.map_err(broken)?;
        let (answer, mut body) = requests.send_request(request, false).map_err(broken)?;
        body.send_data(framed.freeze(), true).map_err(broken)?;
        let (head, mut body) = answer.await.map_err(broken)?.into_parts();
        if head.status != StatusCode::OK {
            return Err(Status::unknown(format!("the answer is {} of HTTP", head.status)));
        }
        let mut message = Bytes::new();
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(broken)?;
            let _ = body.flow_control().release_capacity(piece.len());
            message = if message.is_empty() { piece } else { [message, piece].concat().into() };
        }
        let trailers = body.trailers().await.map_err(broken)?.unwrap_or(head.headers);
        match Status::from_header_map(&trailers) {
            Some(status) if status.code() == Code::Ok && message.len() >= PREFIX => {
                Ok(message.slice(PREFIX..))
            }
            Some(status) if status.code() != Code::Ok => Err(status),
            Some(_) | None => Err(Status::internal("an answer without a message or without its status")),
        }
    }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Status {
    Status::from_error(Box::new(error))
}
