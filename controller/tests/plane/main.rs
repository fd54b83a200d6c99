//! Controllers of the library on a real control plane.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

#[path = "../../examples/website.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod example;

mod composite;
mod manager;
mod story;
