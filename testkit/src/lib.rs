//! Throw-away servers for tests, and checks with random numbers.

#[cfg(feature = "operator")]
mod account;
#[cfg(feature = "webhooks")]
mod balancer;
mod guardian;
#[cfg(feature = "kubelet")]
mod kubelet;
mod output;
mod plane;
mod port;
mod postgres;
#[cfg(feature = "operator")]
mod process;
#[cfg(feature = "operator")]
mod readme;
mod seeds;
mod shown;
#[cfg(feature = "webhooks")]
pub mod tls;

#[cfg(feature = "operator")]
pub use account::Account;
#[cfg(feature = "webhooks")]
pub use balancer::Balancer;
#[cfg(feature = "kubelet")]
pub use kubelet::{Image, Kubelet, STORAGE_CLASS, Signal};
pub use output::{assert_copes_without_output, code_without_error_output};
pub use plane::{Component, Plane, PlaneEnd};
pub use port::Port;
pub use postgres::{Cluster, Crash};
#[cfg(feature = "operator")]
pub use process::Process;
#[cfg(feature = "operator")]
pub use readme::run_readme;
pub use seeds::for_each_seed;
pub use shown::missing_lines;
