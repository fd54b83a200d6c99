//! Binds each method of the table to the function that answers it over gRPC. Messages come and go as
//! bytes, so that tonic's code is compiled only once instead of once for each message.

use super::malformed::unreadable;
use super::streams::{self, Frames, Watched};
use crate::api::Api;
use crate::auth::audit::{self, Entry};
use crate::auth::caller::Caller;
use crate::auth::methods::{methods, path_of};
use crate::auth::policy::Need;
use crate::wire::status::ApiError;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use prost::Message;
use tonic::Streaming;

/// The kind of a method, and the function that answers it.
#[derive(Clone, Copy)]
pub(super) enum Call {
    /// One request message, one response message.
    Once(fn(Api, Caller, Bytes) -> BoxFuture<'static, Result<Bytes, ApiError>>),
    /// One request message, a stream of responses.
    Watch(fn(Api, Caller, Bytes) -> BoxFuture<'static, Result<Watched, ApiError>>),
    /// A stream of requests, a stream of responses.
    Frames(fn(Api, Caller, Streaming<Bytes>) -> Frames),
}

macro_rules! call {
    (once($method:ident) $need:ident $name:ident) => {
        Call::Once(|api, caller, message| {
            Box::pin(async move {
                let request = read(message)?;
                let entry = Entry::begin(&caller, Need::$need, stringify!($name), &request);
                let answer = audit::ended(entry, api.$method(&caller, request).await)?;
                Ok(answer.encode_to_vec().into())
            })
        })
    };
    (watch($frames:ident, $messages:ident) $need:ident $name:ident) => {
        Call::Watch(|api, caller, message| {
            Box::pin(async move {
                let frames = api.$frames(&caller, read(message)?).await?;
                Ok(streams::answers(&api, caller, frames, |frame| frame.encode()))
            })
        })
    };
    (frames($method:ident) $need:ident $name:ident) => {
        Call::Frames(streams::$method)
    };
}

macro_rules! calls {
    ($($service:ident $method:ident $need:ident $kind:ident $functions:tt [$($verbs:tt)*])*) => {
        /// The function of each method, by its path.
        pub(super) const METHODS: &[(&str, Call)] = &[$((path_of!($service $method), call!($kind $functions $need $method)),)*];
    };
}

methods!(calls);

/// Decodes a message.
///
/// # Errors
/// `BAD_FIELD` with the field that cannot be read.
pub(super) fn read<M: Message + Default>(message: Bytes) -> Result<M, ApiError> {
    // prost reads a text of a slice at once; of `Bytes` it would clone a piece for each text.
    M::decode(&*message).map_err(|error| unreadable(&error.to_string()))
}
