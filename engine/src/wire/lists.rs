//! The maximum length of each repeated field of a request: one table, which a test compares with the `.proto`.

use super::status::ApiError;
use super::text::LABELS;
use std::collections::BTreeSet;

/// The maximum of most lists.
const ENTRIES: usize = 100;
/// The maximum of the maps of an instance type.
const ENTRIES_OF_A_TYPE: usize = 64;
/// The maximum of the lists of access data.
const ENTRIES_OF_ACCESS: usize = 16;

/// The maximum number of entries of each repeated field of a request, by message and field. The labels of a bid and of
/// a filter are checked by `text.rs`, a frame of bids by PlaceBids.
pub const MAXIMA: [(&str, usize); 21] = [
    ("PlaceBidRequest.markets", ENTRIES),
    ("PlaceBidRequest.labels", LABELS),
    ("PlaceBidsRequest.bids", 1000),
    ("QuoteBidRequest.markets", ENTRIES),
    ("ListBidsRequest.states", ENTRIES),
    ("ListBidsRequest.labels", LABELS),
    ("ListAllocationsRequest.states", ENTRIES),
    ("ListAllocationsRequest.labels", LABELS),
    ("NodeAccess.addresses", ENTRIES_OF_ACCESS),
    ("NodeAccess.ports", ENTRIES_OF_ACCESS),
    ("ListChargesRequest.labels", LABELS),
    ("GetStatementRequest.labels", LABELS),
    ("EventFilter.kinds", ENTRIES),
    ("EventFilter.markets", ENTRIES),
    ("EventFilter.bids", ENTRIES),
    ("EventFilter.allocations", ENTRIES),
    ("EventFilter.labels", LABELS),
    ("WatchPricesRequest.markets", ENTRIES),
    ("InstanceType.allocatable", ENTRIES_OF_A_TYPE),
    ("InstanceType.node_labels", ENTRIES_OF_A_TYPE),
    ("CreateTokenRequest.roles", ENTRIES),
];

/// Returns the maximum of a list of the table.
///
/// # Panics
/// If the table does not have the list.
pub fn maximum(list: &str) -> usize {
    let found = MAXIMA.iter().find(|(known, _)| *known == list);
    found.unwrap_or_else(|| panic!("{list} has no maximum")).1
}

/// Refuses a list with more entries than its maximum. `list` is its name in the table, `field` its name in the request.
pub fn at_most(list: &str, field: &str, entries: usize) -> Result<(), ApiError> {
    let most = maximum(list);
    if entries > most {
        return Err(ApiError::bad_field(field, format!("has {entries} entries; {most} are allowed")));
    }
    Ok(())
}

/// Returns a list without its duplicates, or refuses it as [`at_most`] does.
pub fn distinct<T: Ord>(list: &str, field: &str, entries: Vec<T>) -> Result<BTreeSet<T>, ApiError> {
    at_most(list, field, entries.len())?;
    Ok(entries.into_iter().collect())
}
