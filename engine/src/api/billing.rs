//! Reads of charges. Sums over a period are in `statement.rs`.

use super::events::PageEnd;
use super::{Api, LOOKED_AT};
use crate::auth::caller::{AccountFilter, Caller};
use crate::readmodel::BilledPage;
use crate::readmodel::queries::ChargeQuery;
use crate::readmodel::rows::ChargeRow;
use crate::store::Labels;
use crate::wire::billing::Side;
use crate::wire::status::ApiError;
use crate::wire::{billing, page, text};
use kubebid_core::units::{AllocationId, BidId, Micros};
use kubebid_proto::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

impl Api {
    /// ListCharges: returns a page of charges in their order, then the nodes that are running, with
    /// what they have accrued.
    pub async fn list_charges(
        &self,
        caller: &Caller,
        request: v1::ListChargesRequest,
    ) -> Result<v1::ListChargesResponse, ApiError> {
        let size = page::size(request.page_size);
        let end: Option<End> = page::after(&request.page_token)?;
        let whose = caller.whose(request.account.as_deref())?;
        text::market("market", &request.market)?;
        let (from, to) = period(request.from_us, request.to_us)?;
        // What was applied when the call began is in the answer.
        let _turn = self.turn_to_read(caller, request.min_seq.max(self.engine().applied())).await?;
        let seq = self.engine().projected();
        let mut query = ChargeQuery {
            account: match &whose {
                AccountFilter::Of(account) => Some(account.to_string()),
                AccountFilter::Everybody => None,
            },
            from,
            to,
            market: (!request.market.is_empty()).then_some(request.market),
            bid: (request.bid > 0).then_some(BidId(known(request.bid))),
            allocation: (request.allocation > 0).then_some(AllocationId(known(request.allocation))),
            labels: text::labels("labels", request.labels)?,
            brief: request.brief,
            after: None,
            limit: size + 1,
        };
        let now = self.market_now().await?;
        let with_running = !request.final_only && is_open(request.from_us, request.to_us, now);
        // The charges that were found, and the place at which the page ends if it has room for all of them.
        let (mut found, mut end_of_found) = (Vec::<(End, v1::Charge)>::new(), None);
        let mut after = AllocationId(0);
        match end {
            Some(End::Running(id)) => after = AllocationId(id),
            end => {
                query.after = end.and_then(End::place);
                let BilledPage { mut rows, stopped } =
                    self.engine().read_model().charge_page(&query, LOOKED_AT as u64).await?;
                let place = |row: &ChargeRow| End::Charge(PageEnd((row.seq.0, row.index)));
                end_of_found = page::truncate(&mut rows, size, place);
                end_of_found = end_of_found.or_else(|| rows.last().filter(|_| stopped).map(place));
                let labels = self.labels(rows.iter().map(|row| row.bid)).await?;
                for row in rows {
                    let (place, side) = (place(&row), side(caller, &row.tenant));
                    let labels = of(&labels, row.bid);
                    found.push((place, billing::charge(row, labels, side)));
                }
            }
        }
        if with_running && end_of_found.is_none() {
            let room = size - found.len() as u32;
            query.limit = room + 1;
            let read: usize = found.iter().map(|(_, charge)| charge.segments.len()).sum();
            let most = LOOKED_AT.saturating_sub(read) as u64;
            let page = self.engine().read_model().running_page(&query, after, now, most).await?;
            let BilledPage { mut rows, stopped } = page;
            let more_follow = stopped || rows.len() > room as usize;
            rows.truncate(room as usize);
            let last = rows.last().map_or(after, |row| row.allocation);
            end_of_found = more_follow.then_some(End::Running(last.0));
            let labels = self.labels(rows.iter().map(|row| row.bid)).await?;
            for (row, accrued) in self.accrue(rows).await? {
                let (labels, side) = (of(&labels, row.bid), side(caller, &row.tenant));
                let place = End::Running(row.allocation.0);
                let mut charge = billing::running(row, accrued, labels, side);
                if request.brief {
                    charge.segments.clear();
                }
                found.push((place, charge));
            }
        }
        let (charges, next_page_token) = page::fit(found, end_of_found);
        Ok(v1::ListChargesResponse { seq, charges, next_page_token })
    }

    async fn labels(&self, bids: impl Iterator<Item = BidId>) -> Result<BTreeMap<u64, Labels>, ApiError> {
        let mut bids: Vec<u64> = bids.map(|bid| bid.0).collect();
        bids.sort_unstable();
        bids.dedup();
        Ok(self.engine().store().rows().labels_of(&bids).await?)
    }
}

fn of(labels: &BTreeMap<u64, Labels>, bid: BidId) -> Labels {
    labels.get(&bid.0).cloned().unwrap_or_default()
}

fn side(caller: &Caller, tenant: &str) -> Side {
    if caller.sees_all() {
        Side::All
    } else if caller.account.as_str() == tenant {
        Side::Tenant
    } else {
        Side::Provider
    }
}

/// Returns true if the present belongs to the period, so that running nodes count in it.
fn is_open(from_us: u64, to_us: u64, now: Micros) -> bool {
    from_us <= now.0 && (to_us == 0 || to_us > now.0)
}

/// Returns the two ends of a period. An end that is 0 is open.
///
/// # Errors
/// The period ends before it begins.
pub(super) fn period(from_us: u64, to_us: u64) -> Result<(Option<Micros>, Option<Micros>), ApiError> {
    if to_us > 0 && from_us > to_us {
        return Err(ApiError::bad_field("from_us", "is after to_us: a period ends after it begins"));
    }
    Ok((instant(from_us), instant(to_us)))
}

/// Returns an end of a period; 0 means that the period is open at this end.
fn instant(us: u64) -> Option<Micros> {
    (us > 0).then_some(Micros(known(us)))
}

/// Limits a number to what the store can hold. A number of 2^63 or more finds the same rows as the
/// largest one.
pub(super) fn known(number: u64) -> u64 {
    number.min(i64::MAX as u64)
}

/// The last entry of a page.
#[derive(Clone, Copy, Debug)]
enum End {
    Charge(PageEnd),
    /// All charges are returned; the page continues after this running node.
    Running(u64),
}

impl End {
    fn place(self) -> Option<(u64, u32)> {
        match self {
            End::Charge(end) => Some(end.0),
            End::Running(_) => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Charge(end) => end.fmt(f),
            End::Running(id) => write!(f, "r{id}"),
        }
    }
}

impl FromStr for End {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<End, Self::Err> {
        match text.strip_prefix('r') {
            Some(id) => Ok(End::Running(known(id.parse()?))),
            None => Ok(End::Charge(text.parse()?)),
        }
    }
}
