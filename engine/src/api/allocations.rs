//! Calls about allocations: read one, list them, report a node ready, give a node back.

use super::Api;
use super::bids::BYTES_PER_COMMAND;
use super::commands::Done;
use crate::auth::caller::{AccountFilter, Caller};
use crate::readmodel::queries::AllocationQuery;
use crate::readmodel::rows::{AllocationRow, NodeState};
use crate::store::{NodeDataKey, Role};
use crate::wire::allocation::AllocationNow;
use crate::wire::status::{ApiError, Code};
use crate::wire::{access, allocation, command, page, text};
use kubebid_core::Reject;
use kubebid_core::units::{AllocationId, BidId};
use kubebid_proto::v1;
use v1::allocation::State;

const ENDED: Code = Code::Market(Reject::Ended);
const ALREADY_READY: Code = Code::Market(Reject::AlreadyReady);

impl Api {
    /// ReportReady: reports that a node runs, so that its billing begins (R15). Answers when the access data is
    /// written. A node that is ready already gets new access data, if the request has some.
    pub async fn report_ready(
        &self,
        caller: &Caller,
        request: v1::ReportReadyRequest,
    ) -> Result<v1::ReportReadyResponse, ApiError> {
        let keyed = command::report_ready(&caller.account, &request)?;
        let data = access::access(request.access)?;
        let key = NodeDataKey::access(request.allocation);
        let content = data.iter().filter_map(|data| data.content.as_ref());
        let cost = 1 + (content.map(|content| content.len()).sum::<usize>() / BYTES_PER_COMMAND) as u64;
        let (pending, noting) = (self.0.pending_node_data.clone(), data.clone());
        let note = move |done: &Done| {
            if let (Some(data), false) = (noting, done.repeated) {
                pending.note(key, data.brought_by(done.seq));
            }
        };
        match self.execute_settling(caller, keyed, cost, note).await {
            Ok(done) if done.repeated => {
                self.compare_node_data(caller, key, done.seq, data.as_ref(), false).await?;
                Ok(v1::ReportReadyResponse { seq: done.seq, repeated: true })
            }
            Ok(done) => {
                if data.is_some() {
                    self.0.pending_node_data.kept(caller, &key).await?;
                }
                Ok(v1::ReportReadyResponse { seq: done.seq, repeated: false })
            }
            Err(ApiError { code: ALREADY_READY, seq: Some(seq), repeated, .. }) if data.is_some() => {
                // The market tells this to the parties of the node only.
                self.compare_node_data(caller, key, seq, data.as_ref(), true).await?;
                Ok(v1::ReportReadyResponse { seq, repeated })
            }
            Err(error) if error.code == ENDED => {
                let is_party = |row: &AllocationRow| is_tenant(caller, row) || is_provider(caller, row);
                Err(self.ended_for(caller, request.allocation, error, is_party).await)
            }
            Err(error) => Err(error),
        }
    }

    /// ReleaseAllocation: gives a node back (R14).
    pub async fn release_allocation(
        &self,
        caller: &Caller,
        request: v1::ReleaseAllocationRequest,
    ) -> Result<v1::ReleaseAllocationResponse, ApiError> {
        let keyed = command::release_allocation(&caller.account, &request)?;
        match self.execute(caller, keyed).await {
            Ok(done) => Ok(v1::ReleaseAllocationResponse { seq: done.seq, repeated: done.repeated }),
            Err(error) if error.code == ENDED => {
                Err(self.ended_for(caller, request.allocation, error, |row| is_tenant(caller, row)).await)
            }
            Err(error) => Err(error),
        }
    }

    /// GetAllocation: returns an allocation of the caller, as tenant or as provider.
    pub async fn get_allocation(
        &self,
        caller: &Caller,
        request: v1::GetAllocationRequest,
    ) -> Result<v1::GetAllocationResponse, ApiError> {
        self.projected_up_to(caller, request.min_seq).await?;
        let seq = self.0.engine.projected();
        let row = self.allocation_row(caller, request.allocation).await?;
        let row = row.ok_or_else(|| unknown(request.allocation))?;
        let is_tenant = caller.roles.has(Role::Tenant) && is_tenant(caller, &row);
        let is_provider = caller.roles.has(Role::Provider) && is_provider(caller, &row);
        let bid = row.bid;
        let found = self.as_they_are(caller, vec![row]).await?.pop();
        let mut found = found.ok_or_else(|| unknown(request.allocation))?;
        // Not for administrators: it may hold secrets of the two parties.
        let ended = found.state() == State::Ended;
        if !ended && (is_tenant || is_provider) {
            found.node_config = self.content_of(NodeDataKey::config(bid.0)).await?.map(Into::into);
        }
        if !ended && is_tenant {
            let access = self.content_of(NodeDataKey::access(found.allocation)).await?;
            found.access = access.map(access::stored_access).transpose()?;
        }
        Ok(v1::GetAllocationResponse { seq, allocation: Some(found) })
    }

    /// ListAllocations: returns a page of allocations, by number.
    pub async fn list_allocations(
        &self,
        caller: &Caller,
        request: v1::ListAllocationsRequest,
    ) -> Result<v1::ListAllocationsResponse, ApiError> {
        let size = page::size(request.page_size);
        let account = match caller.whose(request.account.as_deref())? {
            AccountFilter::Of(account) => Some(account.to_string()),
            AccountFilter::Everybody => None,
        };
        let named = |field: &str, name: String| {
            text::text(field, &name, text::UNIT).map(|()| (!name.is_empty()).then_some(name))
        };
        let query = AllocationQuery {
            account,
            bid: (request.bid > 0).then_some(BidId(command::number("bid", request.bid)?)),
            market: named("market", request.market)?,
            states: allocation::states(request.states)?,
            under_notice_only: request.under_notice_only,
            labels: text::labels("labels", request.labels)?,
            unit: named("unit", request.unit)?,
            after: command::number("page_token", page::after(&request.page_token)?.unwrap_or(0))?,
            limit: size + 1,
        };
        let _turn = self.turn_to_read(caller, request.min_seq).await?;
        let seq = self.0.engine.projected();
        let mut rows = self.0.engine.read_model().allocations(&query).await?;
        let end = page::truncate(&mut rows, size, |row| row.allocation.0);
        let found = self.as_they_are(caller, rows).await?;
        let found = found.into_iter().map(|allocation| (allocation.allocation, allocation));
        let (allocations, next_page_token) = page::fit(found, end);
        Ok(v1::ListAllocationsResponse { seq, allocations, next_page_token, cursor: self.cursor(seq) })
    }

    /// Returns allocations with their labels and with what only the exchange knows at present. Those
    /// that the caller may not see are left out.
    async fn as_they_are(
        &self,
        caller: &Caller,
        rows: Vec<AllocationRow>,
    ) -> Result<Vec<v1::Allocation>, ApiError> {
        let bids: Vec<u64> = rows.iter().map(|row| row.bid.0).collect();
        let labels = self.rows().labels_of(&bids).await?;
        let mut found = Vec::with_capacity(rows.len());
        let asked: Vec<_> = rows.iter().map(|row| (row.allocation, row.bid)).collect();
        let present = self.0.engine.ask_each(asked, |exchange, (node, bid)| {
            (exchange.seq().0, exchange.view_allocation(node), exchange.bid_ceiling(bid))
        });
        for (mut row, (seq, view, ceiling)) in rows.into_iter().zip(present.await?) {
            let now = AllocationNow { view, ceiling };
            if row.state != NodeState::Ended && now.view.is_none() {
                // It has ended since the row was read. The tables have its last state.
                self.projected_up_to(caller, seq).await?;
                row = self.0.engine.read_model().allocation(row.allocation).await?.unwrap_or(row);
            }
            let labels = labels.get(&row.bid.0).cloned().unwrap_or_default();
            found.extend(allocation::message(row, labels, now, &caller.viewer()));
        }
        Ok(found)
    }

    /// Reads an allocation that the caller may see. For any other allocation the answer, and the time
    /// it takes, are those of one that does not exist.
    pub(super) async fn allocation_row(
        &self,
        caller: &Caller,
        number: u64,
    ) -> Result<Option<AllocationRow>, ApiError> {
        let Ok(number) = command::number("allocation", number) else { return Ok(None) };
        let party = (!caller.sees_all()).then_some(caller.account.as_str());
        Ok(self.0.engine.read_model().allocation_of(party, AllocationId(number)).await?)
    }

    /// Returns ENDED only to the parties of the allocation.
    async fn ended_for(
        &self,
        caller: &Caller,
        number: u64,
        error: ApiError,
        is_party: impl Fn(&AllocationRow) -> bool,
    ) -> ApiError {
        if let Err(late) = self.projected_up_to(caller, error.seq.unwrap_or(0)).await {
            return late;
        }
        match self.allocation_row(caller, number).await {
            Ok(Some(row)) if is_party(&row) => error,
            Ok(_) => ApiError { seq: error.seq, ..unknown(number) },
            Err(fault) => fault,
        }
    }
}

fn is_tenant(caller: &Caller, row: &AllocationRow) -> bool {
    row.tenant == caller.account.as_str()
}

fn is_provider(caller: &Caller, row: &AllocationRow) -> bool {
    row.provider == caller.account.as_str()
}

fn unknown(number: u64) -> ApiError {
    ApiError::new(Code::Market(Reject::UnknownAllocation)).saying(format!("you have no allocation {number}"))
}
