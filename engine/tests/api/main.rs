//! The api over gRPC: an engine on a temporary store, its server on a port of the loopback, and the generated
//! client.

mod admin;
mod allocations;
mod connections;
mod edge;
mod limits;
mod placing;
mod raw;
mod rights;
mod service;
mod unread;
mod world;
