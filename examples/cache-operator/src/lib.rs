//! An example of an operator on kubebid-controller: a `Cache` is a set of Redis, Valkey or memcached servers.
//!
//! [`api`] defines the object in its two versions, [`children`] says which objects a cache consists of, [`status`] says
//! how it is, [`flush`] empties the servers of a cache that is deleted, and [`controller`] hands all to the library.
//! [`conversion`] converts between the versions, and [`webhooks`] says what the API server asks the operator.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[expect(unreachable_pub, reason = "the derive makes it so")]
pub mod api;
pub mod children;
pub mod controller;
pub mod conversion;
pub mod flush;
pub mod status;
pub mod webhooks;
