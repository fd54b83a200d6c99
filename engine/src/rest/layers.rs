//! The layers that every answer of REST passes: compression, and the headers for caches, browsers, and pages of other origins.

use super::{IDEMPOTENCY_KEY, LAST_EVENT_ID, REQUEST_TIMEOUT};
use axum::Router;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::map_response;
use axum::response::Response;
use std::time::Duration;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate, SizeAbove};
use tower_http::cors::{AllowOrigin, CorsLayer};

/// The smallest answer that is compressed, in bytes. A smaller one fits into one packet anyway.
const LEAST_COMPRESSED: u64 = 1024;
/// The time for which a browser remembers the answer to a preflight request.
const PREFLIGHT_AGE: Duration = Duration::from_secs(3600);
/// The origin that stands for all origins.
const ANY_ORIGIN: &str = "*";

/// Returns the routes with their answers compressed if the caller accepts gzip. Streams are not compressed. Pages
/// of `origins` may call the routes; a page sends its token itself, never a cookie.
pub(crate) fn layered(router: Router, origins: &[HeaderValue]) -> Router {
    let worthwhile = SizeAbove::new(LEAST_COMPRESSED).and(DefaultPredicate::new());
    let compression =
        CompressionLayer::new().gzip(true).quality(CompressionLevel::Fastest).compress_when(worthwhile);
    let router = router.layer(compression).layer(map_response(kept_by_nobody));
    if origins.is_empty() {
        return router;
    }
    let allowed = if origins.iter().any(|origin| origin == ANY_ORIGIN) {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().cloned())
    };
    let cors = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_NONE_MATCH,
            IDEMPOTENCY_KEY,
            LAST_EVENT_ID,
            REQUEST_TIMEOUT,
        ])
        .expose_headers([header::ETAG, header::RETRY_AFTER])
        .max_age(PREFLIGHT_AGE);
    router.layer(cors)
}

/// An answer is its caller's alone: no cache keeps it, but for documents that say themselves how long, and no browser takes
/// it for another kind of document.
async fn kept_by_nobody(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Parses an origin as a browser sends it, such as `https://console.example.com`, or `*` for all origins.
///
/// # Errors
/// The text is not a scheme, `://`, and a host with or without a port, as a browser writes them.
pub(crate) fn origin(text: &str) -> Result<HeaderValue, String> {
    const SHAPE: &str = "an origin is like https://console.example.com or http://localhost:3000, in lower case and \
                         without a path; * is all origins";
    if text == ANY_ORIGIN {
        return Ok(HeaderValue::from_static(ANY_ORIGIN));
    }
    let schemes = [("http://", 80), ("https://", 443)];
    let found = schemes.iter().find_map(|(scheme, port)| Some((text.strip_prefix(scheme)?, *port)));
    let (rest, default_port) = found.ok_or(SHAPE)?;
    let authority: Authority = rest.parse().map_err(|_| SHAPE)?;
    let (host, port) = (authority.host(), authority.port_u16());
    let written = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    if host.is_empty() || written != rest || host != host.to_ascii_lowercase() {
        return Err(SHAPE.to_owned());
    }
    if host.contains('*') {
        return Err("* in a host matches no page: name each host, or give * alone for all origins".to_owned());
    }
    if port == Some(default_port) {
        return Err(format!("a browser does not send the port {default_port} of this scheme: leave it out"));
    }
    text.parse().map_err(|_| SHAPE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_nothing_else() {
        for good in ["https://a.example", "http://localhost:3000", "http://[::1]:8080", "*"] {
            assert_eq!(origin(good).unwrap(), good);
        }
        for bad in [
            "",
            "a.example",
            "https://",
            "https://a.example/",
            "https://A.example",
            "https://u@a.example",
            "https://a.example:",
            "https://a.example:08443",
            "https://a.example:84430",
            "null",
        ] {
            assert!(origin(bad).unwrap_err().starts_with("an origin is like "), "{bad}");
        }
    }

    #[test]
    fn an_origin_that_no_browser_sends_is_refused_with_the_reason() {
        for bad in ["https://*.example.com", "https://*", "http://*:3000"] {
            assert!(origin(bad).unwrap_err().starts_with("* in a host matches no page"), "{bad}");
        }
        for bad in ["https://a.example:443", "http://a:80", "http://[::1]:80"] {
            assert!(origin(bad).unwrap_err().ends_with("leave it out"), "{bad}");
        }
        for good in ["http://a.example:443", "https://a.example:80", "http://[fd00::80]"] {
            assert_eq!(origin(good).unwrap(), good);
        }
    }
}
