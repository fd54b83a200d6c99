//! A library of webhooks for Kubernetes. It knows nothing about the market.
//!
//! - [`conversion`] converts objects between the versions of a kind and keeps what a version cannot say. It is pure.
//! - [`admission`] answers reviews of objects with defaults and warnings.
//! - [`authority`] signs the certificates of the replicas, rotates its CA, and keeps the bundle in the cluster.
//! - [`definition`] makes one definition of the definitions of all versions.
//! - [`manifests`] converts files.
//! - [`migrate`] moves stored objects into another version.
//! - [`server`] serves all of it over HTTPS.
//! - [`process`] runs a program that has all of it.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod admission;
pub mod authority;
pub mod conversion;
pub mod definition;
pub mod manifests;
mod metrics;
pub mod migrate;
pub mod process;
pub mod server;
mod sparse;
