//! The api over gRPC: an engine on a temporary store, its server on a port of the loopback, and the generated
//! client.

mod admin;
mod allocations;
mod connections;
mod edge;
mod fields;
mod limits;
mod lists;
mod placing;
mod raw;
mod rights;
mod service;
mod tellings;
mod unread;
mod world;
