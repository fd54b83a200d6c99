//! Response bodies that hold a value, such as a slot of the open requests, until they are sent.

use crate::auth::limits::Slot;
use crate::auth::policy::OpenCost;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets an open request count until its answer is read, and a watch until it ends.
pub(crate) fn held(response: Response, slot: Option<Slot>, cost: OpenCost) -> Response {
    let Some(slot) = slot else { return response };
    response.map(|body| match cost {
        OpenCost::Watch => Body::new(Held::new(body, slot)),
        OpenCost::Requests(_) => Body::new(Held::until_sent(body, slot)),
    })
}

/// A body that keeps a value until it has ended or its reader has gone.
#[derive(Debug)]
pub(crate) struct Held<T> {
    body: Body,
    value: T,
    /// Ties the value to the bytes as well. The connection may still have them in its buffers after
    /// the body has ended.
    tie: fn(Bytes, &T) -> Bytes,
}

impl<T> Held<T> {
    pub(crate) fn new(body: Body, value: T) -> Held<T> {
        Held { body, value, tie: |bytes, _| bytes }
    }

    /// Returns a body that keeps the value until its last byte is with the operating system.
    pub(crate) fn until_sent(body: Body, value: T) -> Held<T>
    where
        T: Clone + Send + 'static,
    {
        let tie = |bytes, value: &T| Bytes::from_owner(Tied { bytes, _value: value.clone() });
        Held { body, value, tie }
    }
}

struct Tied<T> {
    bytes: Bytes,
    _value: T,
}

impl<T> AsRef<[u8]> for Tied<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Held { body, value, tie } = self.get_mut();
        let polled = Pin::new(body).poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| tie(bytes, value)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
