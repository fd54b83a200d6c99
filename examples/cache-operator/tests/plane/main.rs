//! The operator on a real control plane: each story has a namespace and an operator process of its own, which has the
//! rights of the manifests.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

mod children;
mod definition;
mod deletion;
mod down;
mod guide;
mod manifests;
mod operator;
mod partition;
mod replicas;
mod servers;
mod story;
mod webhooks;
