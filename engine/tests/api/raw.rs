//! A client that sends any bytes as any method's message.

use crate::world::Caller;
use bytes::{Buf, BufMut, Bytes};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// A codec for which messages are bytes.
#[derive(Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}

/// Sends one message. Returns what comes back, for a method of any kind.
pub(crate) async fn call(
    caller: &Caller,
    method: &str,
    message: impl Into<Bytes>,
) -> Result<Option<Bytes>, Status> {
    let mut client = Grpc::new(caller.channel.clone());
    client.ready().await.unwrap();
    let (metadata, extensions, ()) = caller.bearer.clone().call(Request::new(()))?.into_parts();
    let request = Request::from_parts(metadata, extensions, message.into());
    let path = method.parse().unwrap();
    let mut answers = client.server_streaming(request, path, Raw).await?.into_inner();
    answers.message().await
}
