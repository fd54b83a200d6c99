//! The wire of KubeBid: `kubebid.auction.v1` and the code made from it.
//!
//! The messages and services are those of `kubebid/auction/v1/*.proto`, whose comments are the documentation of
//! the API. All messages have the JSON of proto3 with the field names of the `.proto`: 64-bit integers are
//! strings, and numbers are accepted; every field without `optional` is written; unknown fields are refused.
//!
//! With the feature `openapi` all of them are `utoipa::ToSchema` too.

mod codec;
#[cfg(feature = "openapi")]
mod schema;

pub use codec::Encoded;

/// All of `kubebid.auction.v1` as a serialised `google.protobuf.FileDescriptorSet`, comments included: what
/// server reflection answers from.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kubebid.auction.v1.bin"));

/// The package `kubebid.auction.v1`.
#[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unreachable_pub)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/kubebid.auction.v1.rs"));
    include!(concat!(env!("OUT_DIR"), "/kubebid.auction.v1.serde.rs"));
}
