//! Converts offers and their units.

use kubebid_core::units::{AccountName, MarketName, UnitName};
use kubebid_core::views::{OfferView, UnitView};
use kubebid_proto::v1;
use v1::unit::State;

/// Returns an offer as a message.
pub(crate) fn message(
    view: &OfferView,
    market: &MarketName,
    provider: &AccountName,
    put_at_us: u64,
) -> v1::Offer {
    let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    v1::Offer {
        provider: provider.to_string(),
        market: market.to_string(),
        capacity: small(view.capacity),
        reserve_micros: view.reserve.0,
        free: small(view.free),
        allocated: small(view.allocated),
        notice: small(view.notice),
        leaving: small(view.leaving),
        put_at_us,
        resting: small(view.resting),
    }
}

/// Returns a unit of an offer as a message.
pub(crate) fn unit(unit: &UnitView, market: &MarketName, provider: &AccountName, of: &OfferView) -> v1::Unit {
    let name = UnitName { market: market.clone(), provider: provider.clone(), number: unit.unit.number };
    v1::Unit {
        unit: name.to_string(),
        state: state_of(unit).into(),
        allocation: unit.allocation.map(|allocation| allocation.0),
        reserve_micros: of.reserve.0,
    }
}

fn state_of(unit: &UnitView) -> State {
    match (unit.allocation, unit.leaving, unit.under_notice) {
        (None, ..) if unit.resting => State::Resting,
        (None, ..) => State::Free,
        (Some(_), true, _) => State::Leaving,
        (Some(_), false, true) => State::Notice,
        (Some(_), false, false) => State::Allocated,
    }
}
