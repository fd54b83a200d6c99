//! An example of an operator on kubebid-controller: a `Mysql` is a MySQL server with its password, address and volume.
//!
//! [`api`] defines the object, [`children`] says which objects a server consists of, [`status`] says how it is, and
//! [`controller`] hands both to the library.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[expect(unreachable_pub, reason = "the derive makes it so")]
pub mod api;
pub mod children;
pub mod controller;
pub mod status;
