//! Request bodies with a deadline.

use super::middleware::late;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// The time that a message may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the same body, which fails if it has not come to its end in time.
pub(super) fn body(body: Body) -> Body {
    Body::new(Timed { body, patience: PATIENCE, late: None })
}

struct Timed {
    body: Body,
    patience: Duration,
    /// Set as soon as the body has to be waited for.
    late: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Timed { body, patience, late: waiting } = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        ready!(waiting.get_or_insert_with(|| Box::pin(sleep(*patience))).as_mut().poll(cx));
        Poll::Ready(Some(Err(axum::Error::new(late().into_status()))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::BodyExt;
    use std::convert::Infallible;
    use tonic::{Code, Status};

    #[tokio::test]
    async fn a_message_without_an_end_has_a_deadline() {
        let endless = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let timed = Timed { body: endless, patience: Duration::ZERO, late: None };
        let error = Body::new(timed).collect().await.unwrap_err();
        assert_eq!(Status::from_error(error.into()).code(), Code::DeadlineExceeded);
    }
}
