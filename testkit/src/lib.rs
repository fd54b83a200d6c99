//! Throw-away servers for tests.

mod guardian;
#[cfg(feature = "kubelet")]
mod kubelet;
mod plane;
mod port;
mod postgres;

#[cfg(feature = "kubelet")]
pub use kubelet::{Image, Kubelet, STORAGE_CLASS, Signal};
pub use plane::{Component, Plane};
pub use port::Port;
pub use postgres::{Cluster, Crash};
