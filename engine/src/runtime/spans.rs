//! Tracing spans of requests. They are made only if a collector is configured.

use futures_util::future::Either;
use http::HeaderMap;
use opentelemetry::global;
use opentelemetry::propagation::Extractor;
use std::pin::Pin;
use tracing::instrument::{Instrument, Instrumented};
use tracing::{Level, Span, debug_span, enabled, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of the spans, at level DEBUG. Without a collector, a request costs one check of a flag.
pub const TARGET: &str = "kubebid::request";

/// Returns the span of a request, as a child of the span that its `traceparent` names.
pub(crate) fn request(wire: &'static str, method: &str, headers: &HeaderMap) -> Span {
    let span = debug_span!(
        target: TARGET,
        "request",
        otel.name = method,
        otel.kind = "server",
        otel.status_code = field::Empty,
        wire,
        method,
        code = field::Empty,
        seq = field::Empty,
    );
    if !span.is_disabled() {
        let parent = global::get_text_map_propagator(|propagator| propagator.extract(&Headers(headers)));
        // This fails if spans are only logged, which is no error.
        let _ = span.set_parent(parent);
    }
    span
}

/// A future with its span. It is boxed only if it is traced, so that a request without a span is not made
/// larger.
pub(crate) type Within<F> = Either<F, Pin<Box<Instrumented<F>>>>;

pub(crate) fn within<F: Future>(span: Span, doing: F) -> Within<F> {
    if span.is_disabled() { Either::Left(doing) } else { Either::Right(Box::pin(doing.instrument(span))) }
}

/// Records the number of the request's command in its span.
pub(crate) fn stamped(seq: u64) {
    if enabled!(target: TARGET, Level::DEBUG) {
        // Collectors know signed numbers only, and would turn another type into a text.
        Span::current().record("seq", i64::try_from(seq).unwrap_or(i64::MAX));
    }
}

/// Records the outcome of the request in its span.
pub(crate) fn answered(code: tonic::Code, word: &'static str) {
    if enabled!(target: TARGET, Level::DEBUG) {
        let span = Span::current();
        span.record("code", word);
        if is_our_fault(code) {
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// Returns true for errors that are the engine's fault. By the convention for servers, a refusal is not
/// an error.
fn is_our_fault(code: tonic::Code) -> bool {
    use tonic::Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    matches!(code, Unknown | DeadlineExceeded | Unimplemented | Internal | Unavailable | DataLoss)
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
