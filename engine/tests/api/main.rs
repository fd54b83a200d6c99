//! Tests of the API over gRPC: an engine on a temporary store, its server on a port of the loopback, and
//! the generated client.

mod admin;
mod allocations;
mod audit;
mod compression;
mod connections;
mod cors;
mod disclosure;
mod edge;
mod fields;
mod funds;
mod limits;
mod lists;
mod node_data;
mod placing;
mod raw;
mod regrouping;
#[path = "../world/client.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests of REST use the rest")]
mod rest;
mod resting;
mod rights;
mod service;
mod sizes;
mod unread;
mod world;
