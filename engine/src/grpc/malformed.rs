//! Maps messages that could not be read to codes: malformed ones are the caller's fault, and too large ones exhaust a
//! limit.

use crate::wire::status::{ApiError, Code};
use tonic::Status;

/// The beginning of all prost error messages.
const PROST: &str = "failed to decode Protobuf message: ";

/// Returns the error for the caller; `None` if the status means something else.
pub(super) fn malformed(status: &Status) -> Option<ApiError> {
    let (code, said) = (status.code(), status.message());
    if [tonic::Code::OutOfRange, tonic::Code::ResourceExhausted].contains(&code) {
        let sizes = said.split_once("found ").map(|(_, sizes)| sizes);
        let error = ApiError::new(Code::TooLarge);
        return Some(match sizes {
            Some(sizes) => error.saying(format!("the message is too large: {sizes}")),
            None => error,
        });
    }
    if code == tonic::Code::Unimplemented {
        let compressed = said.contains("compressed");
        return Some(match compressed {
            true => ApiError::new(Code::UnsupportedEncoding).at("grpc-encoding"),
            false => Code::UnknownMethod.into(),
        });
    }
    if code != tonic::Code::Internal {
        return None;
    }
    Some(ApiError::new(Code::BadField).saying(format!("the request is malformed: {said}")))
}

/// Splits an error of prost, such as `PlaceBidRequest.client_key: invalid string value: …`, into the field and the
/// fault.
pub(super) fn unreadable(said: &str) -> ApiError {
    let mut field: Vec<&str> = Vec::new();
    let mut rest = said.strip_prefix(PROST).unwrap_or(said);
    while let Some((head, tail)) = rest.split_once(": ")
        && let Some((message, name)) = head.split_once('.')
        && message.starts_with(|letter: char| letter.is_ascii_uppercase())
        && !message.contains(' ')
    {
        field.push(name);
        rest = tail;
    }
    if field.is_empty() {
        return ApiError::new(Code::BadField).saying(format!("the message is malformed: {rest}"));
    }
    let field = field.join(".");
    ApiError::new(Code::BadField).saying(format!("{field} is malformed: {rest}")).at(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_utf8_is_refused_with_its_field() {
        let said = "PlaceBidRequest.client_key: invalid string value: data is not UTF-8 encoded";
        let error = unreadable(&format!("{PROST}{said}"));
        assert_eq!(error.code, Code::BadField);
        assert_eq!(error.field.as_deref(), Some("client_key"));
        assert_eq!(error.message, "client_key is malformed: invalid string value: data is not UTF-8 encoded");
        let nested = format!("{PROST}PlaceBidsRequest.bids: PlaceBidRequest.markets: invalid string value");
        assert_eq!(unreadable(&nested).field.as_deref(), Some("bids.markets"));
    }

    #[test]
    fn a_message_that_cannot_be_decoded_names_no_field() {
        let error = unreadable(&format!("{PROST}invalid varint"));
        assert_eq!((error.code, error.field), (Code::BadField, None));
        let error = malformed(&Status::internal("Missing request message.")).unwrap();
        assert_eq!(error.code, Code::BadField);
    }

    #[test]
    fn a_message_that_is_too_large_is_refused_with_its_size() {
        let said = "Error, decoded message length too large: found 70000 bytes, the limit is: 65536 bytes";
        let error = malformed(&Status::out_of_range(said)).unwrap();
        assert_eq!(error.code, Code::TooLarge);
        assert!(error.message.contains("70000"), "{}", error.message);
    }
}
