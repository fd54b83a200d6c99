//! Webhooks of the library on a real control plane.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

#[path = "../kind/mod.rs"]
mod kind;

mod bundles;
mod down;
mod files;
mod migration;
mod panic;
mod replica;
mod rotation;
mod story;
mod watch;
