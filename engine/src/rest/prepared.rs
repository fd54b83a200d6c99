//! Documents that are compressed and tagged before they are asked for.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use xxhash_rust::xxh3::xxh3_128;

/// A document that does not change, in plain and compressed.
#[derive(Clone)]
pub(super) struct Prepared {
    media_type: HeaderValue,
    plain: Bytes,
    gzip: Bytes,
    /// The hash of the plain document, in hexadecimal digits.
    tag: String,
}

impl Prepared {
    pub(super) fn new(media_type: &'static str, plain: Bytes) -> Prepared {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&plain).expect("a vector grows");
        Prepared {
            media_type: HeaderValue::from_static(media_type),
            gzip: gzip.finish().expect("a vector grows").into(),
            tag: format!("{:032x}", xxh3_128(&plain)),
            plain,
        }
    }

    /// Returns the number of bytes of the compressed document.
    #[cfg(test)]
    pub(super) fn compressed_bytes(&self) -> usize {
        self.gzip.len()
    }

    /// Returns the document as the caller accepts it, or 304 if the caller has it already.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Response {
        let text_of = |name| headers.get(name).and_then(|text: &HeaderValue| text.to_str().ok());
        // No browser and no HTTP library gives gzip the weight 0.
        let compressed = text_of(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
        // Each encoding is a representation with a tag of its own (RFC 9110, section 8.8.3).
        let tag = format!("\"{}{}\"", self.tag, if compressed { "-gzip" } else { "" });
        let is_known = text_of(header::IF_NONE_MATCH).is_some_and(|known| known.contains(&tag));
        let mut response = match (is_known, compressed) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => ([(header::CONTENT_ENCODING, "gzip")], self.gzip.clone()).into_response(),
            (false, false) => self.plain.clone().into_response(),
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, self.media_type.clone());
        headers.insert(header::ETAG, tag.try_into().expect("hexadecimal digits in quotes"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}
