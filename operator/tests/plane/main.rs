//! The operator on a real control plane, with a real engine beside: each story has a namespace, a market and an
//! operator process of its own.
#![allow(clippy::disallowed_methods, reason = "a test writes as people do")]

mod bids;
mod component;
mod crashes;
mod crd;
mod demand;
mod external;
mod faults;
mod gang;
mod guide;
mod labels;
mod lost;
mod manifests;
mod market;
mod market_objects;
mod preemption;
mod prices;
mod purchases;
mod registration;
mod seen;
mod sets;
mod story;
mod told;
mod trust;
mod unreadable;
mod upgrade;
mod versions;
