//! REST over a socket: bodies, refusals, streams, and the document that describes them.

mod document;
mod refusals;
mod requests;
mod streams;
#[path = "../world/mod.rs"]
mod world;
