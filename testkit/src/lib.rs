//! Throw-away servers for tests.

#[cfg(feature = "operator")]
mod account;
mod guardian;
#[cfg(feature = "kubelet")]
mod kubelet;
mod plane;
mod port;
mod postgres;
#[cfg(feature = "operator")]
mod process;

#[cfg(feature = "operator")]
pub use account::Account;
#[cfg(feature = "kubelet")]
pub use kubelet::{Image, Kubelet, STORAGE_CLASS, Signal};
pub use plane::{Component, Plane};
pub use port::Port;
pub use postgres::{Cluster, Crash};
#[cfg(feature = "operator")]
pub use process::Process;
