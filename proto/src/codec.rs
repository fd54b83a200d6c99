//! Messages as the bytes they are on the wire.
//!
//! The generated stubs make all of tonic's carrying once more for each message. Whoever has many methods and
//! encodes and decodes by itself has it made once, with [`Encoded`].

use prost::bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A codec that carries messages which are encoded already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoded;

/// What each call sets aside at once: most messages are smaller, and for others it grows.
const BUFFER: usize = 512;
/// How much of a stream is gathered before it is sent.
const GATHERED: usize = 32 * 1024;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Encoded;
    type Decoder = Encoded;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Encoded {
        Encoded
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, GATHERED)
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, GATHERED)
    }
}
