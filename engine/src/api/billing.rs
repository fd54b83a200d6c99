//! Reads of bills: the charges of an account, and its sums in a period.

use super::Api;
use super::events::PageEnd;
use crate::auth::caller::{AccountFilter, Caller};
use crate::readmodel::queries::{ChargeQuery, StatementQuery};
use crate::readmodel::rows::RunningRow;
use crate::store::Labels;
use crate::wire::billing::{Accrued, Side, Sum};
use crate::wire::status::ApiError;
use crate::wire::{billing, page, text};
use kubebid_core::Amount;
use kubebid_core::units::{AllocationId, BidId, Micros};
use kubebid_proto::v1;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use v1::get_statement_response::Line;

/// The number of running nodes that are read at a time.
const MANY: u32 = 1000;

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
        self.settled_up_to(caller, request.min_seq).await?;
        let seq = self.engine().projected();
        let mut query = ChargeQuery {
            account: match &whose {
                AccountFilter::Of(account) => Some(account.to_string()),
                AccountFilter::Everybody => None,
            },
            from: instant(request.from_us),
            to: instant(request.to_us),
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
        let mut charges = Vec::new();
        let mut after = AllocationId(0);
        match end {
            Some(End::Running(id)) => after = AllocationId(id),
            end => {
                query.after = end.and_then(End::place);
                let mut rows = self.engine().read_model().charges(&query).await?;
                let next = page::cut(&mut rows, size, |row| End::Charge(PageEnd((row.seq.0, row.index))));
                let labels = self.labels(rows.iter().map(|row| row.bid)).await?;
                for row in rows {
                    let side = side(caller, &row.tenant);
                    charges.push(billing::charge(row.clone(), of(&labels, row.bid), side));
                }
                if !next.is_empty() {
                    return Ok(v1::ListChargesResponse { seq, charges, next_page_token: next });
                }
            }
        }
        let mut next_page_token = String::new();
        if with_running {
            let room = size - charges.len() as u32;
            query.limit = room + 1;
            let mut rows = self.engine().read_model().running(&query, after).await?;
            if rows.len() > room as usize {
                rows.truncate(room as usize);
                let last = rows.last().map_or(after, |row| row.allocation);
                next_page_token = page::token(End::Running(last.0));
            }
            let labels = self.labels(rows.iter().map(|row| row.bid)).await?;
            for (row, accrued) in self.accrue(rows).await? {
                let (labels, side) = (of(&labels, row.bid), side(caller, &row.tenant));
                let mut charge = billing::running(row, accrued, labels, side);
                if request.brief {
                    charge.segments.clear();
                }
                charges.push(charge);
            }
        }
        Ok(v1::ListChargesResponse { seq, charges, next_page_token })
    }

    /// GetStatement: returns the sums of an account in a period, by market and, on request, by the
    /// value of a label.
    pub async fn get_statement(
        &self,
        caller: &Caller,
        request: v1::GetStatementRequest,
    ) -> Result<v1::GetStatementResponse, ApiError> {
        let account = caller.whose_one(request.account.as_deref())?.to_string();
        text::text("by_label", &request.by_label, text::NOTE)?;
        let labels = text::labels("labels", request.labels)?;
        self.settled_up_to(caller, request.min_seq).await?;
        let seq = self.engine().projected();
        let by_label = (!request.by_label.is_empty()).then_some(request.by_label);
        let query = StatementQuery {
            account: account.clone(),
            from: instant(request.from_us),
            to: instant(request.to_us),
            labels: labels.clone(),
            by_label: by_label.clone(),
        };
        let mut lines = Lines::default();
        for row in self.engine().read_model().statement(&query).await? {
            let (debit, credit, fee, node_time_us) = (row.debit, row.credit, row.fee, row.node_time_us);
            let sum = Sum { debit, credit, fee, node_time_us };
            lines.at(row.market, row.label_value).0.add(&sum);
        }
        let now = self.market_now().await?;
        if is_open(request.from_us, request.to_us, now) {
            self.sum_running(&account, labels, by_label.as_deref(), &mut lines).await?;
        }
        let markets = self.engine().views().markets();
        let order: BTreeMap<String, u32> =
            markets.iter().map(|view| (view.name.to_string(), view.market.0)).collect();
        let mut found: Vec<_> = lines.0.into_iter().collect();
        found.sort_by_key(|((market, value), _)| (order.get(market).copied(), value.clone()));
        let (mut charged, mut accrued) = (Sum::default(), Sum::default());
        found.iter().for_each(|(_, (a, b))| {
            charged.add(a);
            accrued.add(b);
        });
        let lines = found.into_iter().map(|((market, label_value), (charged, accrued))| Line {
            market,
            label_value,
            charged: Some(charged.message()),
            accrued: Some(accrued.message()),
        });
        let is_over = request.to_us > 0 && request.to_us <= now.0;
        Ok(v1::GetStatementResponse {
            seq,
            account,
            from_us: request.from_us,
            to_us: if is_over { request.to_us } else { now.0 },
            charged: Some(charged.message()),
            accrued: Some(accrued.message()),
            lines: lines.collect(),
        })
    }

    /// Adds what the running nodes of an account have cost so far, as a tenant and as a provider.
    async fn sum_running(
        &self,
        account: &str,
        labels: Labels,
        by_label: Option<&str>,
        lines: &mut Lines,
    ) -> Result<(), ApiError> {
        let query = ChargeQuery {
            account: Some(account.to_owned()),
            labels,
            brief: true,
            limit: MANY,
            ..ChargeQuery::default()
        };
        let mut after = AllocationId(0);
        loop {
            let rows = self.engine().read_model().running(&query, after).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.allocation;
            let labels = match by_label {
                Some(_) => self.labels(rows.iter().map(|row| row.bid)).await?,
                None => BTreeMap::new(),
            };
            for (row, accrued) in self.accrue(rows).await? {
                let node_time_us = u128::from(accrued.to.since(row.ready_at).0);
                if row.tenant == account {
                    let value = by_label.and_then(|key| labels.get(&row.bid.0)?.get(key).cloned());
                    let sum = Sum { debit: accrued.debit, node_time_us, ..Sum::default() };
                    lines.at(row.market.clone(), value).1.add(&sum);
                }
                if row.provider == account && query.labels.is_empty() {
                    lines.at(row.market.clone(), None).1.add(&earned(&row, &accrued));
                }
            }
        }
    }

    /// Waits until the tables have everything that was applied when the call began.
    async fn settled_up_to(&self, caller: &Caller, min_seq: u64) -> Result<(), ApiError> {
        self.projected_up_to(caller, min_seq.max(self.engine().applied())).await
    }

    async fn labels(&self, bids: impl Iterator<Item = BidId>) -> Result<BTreeMap<u64, Labels>, ApiError> {
        let mut bids: Vec<u64> = bids.map(|bid| bid.0).collect();
        bids.sort_unstable();
        bids.dedup();
        Ok(self.engine().store().rows().labels_of(&bids).await?)
    }
}

fn earned(row: &RunningRow, accrued: &Accrued) -> Sum {
    Sum {
        debit: Amount::ZERO,
        credit: Amount(accrued.debit.0 - accrued.fee.0),
        fee: accrued.fee,
        node_time_us: u128::from(accrued.to.since(row.ready_at).0),
    }
}

/// Charged and accrued sums by market and value of the label.
#[derive(Default)]
struct Lines(BTreeMap<(String, Option<String>), (Sum, Sum)>);

impl Lines {
    fn at(&mut self, market: String, value: Option<String>) -> &mut (Sum, Sum) {
        self.0.entry((market, value)).or_default()
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

/// Returns an end of a period; 0 means that the period is open at this end.
pub(super) fn instant(us: u64) -> Option<Micros> {
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
