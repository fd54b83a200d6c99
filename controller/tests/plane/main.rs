//! Controllers of the library on a real control plane.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

#[path = "../../examples/website.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod example;

#[path = "../../examples/storage.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod storage;

mod composite;
mod external;
mod manager;
mod story;
mod unreadable;
