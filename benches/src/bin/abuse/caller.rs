//! Calls by the connection of HTTP/2 itself.

use crate::Failure;
use h2::client::{Builder, SendRequest};
use http::{Request, Response};
use prost::Message;
use prost::bytes::{BufMut, Bytes, BytesMut};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpSocket, TcpStream};

/// Where the tenant is that is measured, and where the one that abuses.
pub(crate) const MEASURED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
pub(crate) const ABUSES: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A connection with a token. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    requests: SendRequest<Bytes>,
    token: Option<String>,
}

pub(crate) async fn connect(from: Ipv4Addr, to: SocketAddr) -> Result<TcpStream, Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Caller {
    pub(crate) async fn connect(
        from: Ipv4Addr,
        to: SocketAddr,
        token: Option<&str>,
    ) -> Result<Caller, Failure> {
        Caller::with_window(from, to, token, 1 << 20).await
    }

    /// Takes so many bytes of each answer before they are read.
    pub(crate) async fn with_window(
        from: Ipv4Addr,
        to: SocketAddr,
        token: Option<&str>,
        window: u32,
    ) -> Result<Caller, Failure> {
        let stream = connect(from, to).await?;
        let mut builder = Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 24);
        let (requests, connection) = builder.handshake::<_, Bytes>(stream).await?;
        tokio::spawn(connection);
        Ok(Caller { requests, token: token.map(str::to_owned) })
    }

    /// Sends a request, and has the head of its answer.
    pub(crate) async fn begin(
        &self,
        method: &str,
        message: Bytes,
        end: bool,
    ) -> Result<(Response<h2::RecvStream>, h2::SendStream<Bytes>), Failure> {
        let mut requests = self.requests.clone().ready().await?;
        let mut request = Request::post(format!("http://x/kubebid.auction.v1.{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let (answer, mut body) = requests.send_request(request.body(())?, false)?;
        body.send_data(message, end)?;
        Ok((answer.await?, body))
    }

    /// Calls a method of a service, as in `BidService/PlaceBid`.
    pub(crate) async fn call(&self, method: &str, message: &impl Message) -> Result<Bytes, Failure> {
        self.call_framed(method, framed(message)).await
    }

    /// Calls with a message as it is on the wire.
    pub(crate) async fn call_framed(&self, method: &str, message: Bytes) -> Result<Bytes, Failure> {
        let (answer, _body) = self.begin(method, message, true).await?;
        let (head, mut body) = answer.into_parts();
        let mut read = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            read.put(data);
        }
        let trailers = body.trailers().await?.unwrap_or(head.headers);
        let status = trailers.get("grpc-status").map_or("", |status| status.to_str().unwrap_or_default());
        if status != "0" {
            let said = trailers.get("grpc-message").map(|said| said.to_str().unwrap_or_default().to_owned());
            return Err(format!("{method}: status {status}: {}", said.unwrap_or_default()).into());
        }
        let message = read.freeze();
        Ok(message.slice(5.min(message.len())..))
    }
}

/// A message as gRPC has it on the wire.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode(&mut bytes).expect("it grows");
    bytes.freeze()
}
