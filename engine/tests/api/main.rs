//! The api over gRPC: an engine on a temporary store, its server on a port of the loopback, and the generated
//! client.

mod admin;
mod allocations;
mod edge;
mod limits;
mod placing;
mod raw;
mod rights;
mod service;
mod world;
