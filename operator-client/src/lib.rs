//! The client of the KubeBid auction.
//!
//! It adds to the generated stubs what every caller needs: a deadline on each call, retries that are safe because
//! they carry the same client key, a list of endpoints, a token that may change in its file, watches that go on
//! where they broke, and refusals as values.
//!
//! ```no_run
//! # async fn example() -> Result<(), kubebid_client::Error> {
//! use kubebid_client::{Client, Code, Error, v1};
//!
//! let client = Client::builder().endpoints(["http://127.0.0.1:7440"]).token("secret").build()?;
//! let request = v1::PlaceBidRequest {
//!     markets: vec!["h100-8x/eu-west".into()],
//!     ceiling_micros: 2_500_000,
//!     max_nodes: 4,
//!     ..Default::default()
//! };
//! match client.place_bid(request).await {
//!     Ok(placed) => println!("bid {}", placed.bid),
//!     Err(Error::Refused(refusal)) if refusal.code == Code::NotATick => println!("{refusal}"),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Units, keys, pages and cursors are explained at the head of `kubebid/auction/v1/common.proto`.

#![warn(missing_docs)]
// `println!` and `eprintln!` panic if nothing can be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bids;
mod call;
mod code;
mod config;
mod credential;
mod dollars;
mod endpoints;
mod error;
mod keys;
mod methods;
mod pages;
mod quote;
mod verdict;
mod watch;

pub use bids::{PlaceBids, Placed};
pub use call::Options;
pub use code::Code;
pub use config::{Builder, DEFAULT_ENDPOINT};
pub use dollars::{Dollars, DollarsError};
pub use error::{Error, FailedCall, Kind, Refusal};
pub use keys::KeyedRequest;
pub use kubebid_proto::v1;
pub use pages::{Page, PageRequest};
pub use quote::{CombinedQuote, quoted};
pub use watch::Watch;

/// The version of the programs. In a build of `scripts/release` it has the commit too.
pub const VERSION: &str = match option_env!("KUBEBID_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

use call::OnRetry;
use credential::Credential;
use endpoints::Endpoints;
use std::sync::Arc;
use std::time::Duration;

/// A connection to one exchange. Clones are cheap and share connections, endpoint and token.
#[derive(Clone, Debug)]
pub struct Client {
    endpoints: Arc<Endpoints>,
    credential: Arc<Credential>,
    options: Options,
    on_retry: OnRetry,
}

impl Client {
    /// Returns a builder with the defaults: [`DEFAULT_ENDPOINT`], no token.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes a client from the environment: `KUBEBID_ENDPOINTS` (a list with commas), `KUBEBID_TOKEN` or
    /// `KUBEBID_TOKEN_FILE`, `KUBEBID_CA_FILE`.
    pub fn from_env() -> Result<Self, Error> {
        Builder::from_env()?.build()
    }

    /// Returns how calls are made.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the same client with other options.
    pub fn with_options(&self, options: Options) -> Self {
        Client { options, ..self.clone() }
    }

    /// Returns the same client with another deadline: the time that a call may take in all, retries included.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        self.with_options(Options { deadline, ..self.options })
    }

    /// Returns the endpoint that is in use.
    pub fn endpoint(&self) -> &str {
        self.endpoints.name()
    }
}
