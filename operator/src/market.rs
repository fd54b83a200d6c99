//! The market itself as Kubernetes objects: instance types, markets, accounts and offers are external resources at the engine.

#[expect(unreachable_pub, clippy::duplicated_attributes, reason = "the derive makes it so")]
mod account;
mod call_error;
#[expect(clippy::duplicated_attributes, reason = "the derive repeats columns of one type")]
mod instance_type;
#[expect(unreachable_pub, clippy::duplicated_attributes, reason = "the derive makes it so")]
mod market_object;
#[expect(unreachable_pub, clippy::duplicated_attributes, reason = "the derive makes it so")]
mod offer;

pub use account::{Account, AccountSpec, AccountStatus, Role, TokenSecret};
pub use instance_type::{InstanceType, InstanceTypeSpec};
pub use market_object::{Market, MarketRules, MarketSpec, Pricing};
pub use offer::{Offer, OfferSpec, OfferStatus};

use account::Accounts;
use instance_type::InstanceTypes;
use kube::Api;
use kubebid_client::Client;
use kubebid_controller::external::{External, Machine, Timing};
use kubebid_controller::object::objects;
use kubebid_controller::{ControllerOptions, Manager};
use market_object::Markets;
use offer::Offers;
use std::time::Duration;

/// Pattern of a price: at most six digits after the point.
const PRICE: &str = "^[0-9]{1,7}([.][0-9]{1,6})?$";

/// The times of all objects of the market. The engine answers at once.
const TIMING: Timing = Timing {
    poll: Duration::from_secs(5),
    resync: Some(Duration::from_secs(60)),
    retries: true,
    creation_grace: Duration::from_secs(2),
    progress_limit: Duration::from_secs(3600),
    patience: Duration::from_secs(120),
    finalizer_wait: Duration::from_secs(600),
    deletion_limit: None,
    call: Duration::from_secs(10),
};

/// Adds the controllers of instance types, markets and accounts. The client has an administrator's token.
pub fn add_markets(manager: &mut Manager, engine: &Client, cluster: &str) {
    let client = manager.client().clone();
    let api = || Api::all(client.clone());
    add(manager, InstanceTypes(engine.clone()), api(), cluster);
    add(
        manager,
        Markets { engine: engine.clone(), client: client.clone() },
        Api::all(client.clone()),
        cluster,
    );
    add(manager, Accounts { engine: engine.clone(), client: client.clone() }, Api::all(client), cluster);
}

/// Adds the controller of offers. The client has a provider's token.
pub fn add_offers(manager: &mut Manager, engine: &Client, cluster: &str, namespace: Option<&str>) {
    let client = manager.client().clone();
    let api = objects(&client, namespace);
    add(manager, Offers::new(engine.clone(), client), api, cluster);
}

fn add<E: External>(manager: &mut Manager, external: E, api: Api<E::Object>, cluster: &str) {
    manager.add(Machine::new(external, cluster), api, ControllerOptions::default());
}
