//! PutOffer, WithdrawUnit, ReportUnitLost, GetOffer, ListOffers.

use super::Api;
use crate::caller::Caller;
use crate::wire::command;
use crate::wire::status::ApiError;
use kubebid_proto::v1;

impl Api {
    pub async fn put_offer(
        &self,
        caller: &Caller,
        request: v1::PutOfferRequest,
    ) -> Result<v1::PutOfferResponse, ApiError> {
        let done = self.obey(caller, command::put_offer(&caller.account, &request)?).await?;
        Ok(v1::PutOfferResponse { seq: done.seq, repeated: done.repeated })
    }

    pub async fn withdraw_unit(
        &self,
        caller: &Caller,
        request: v1::WithdrawUnitRequest,
    ) -> Result<v1::WithdrawUnitResponse, ApiError> {
        let done = self.obey(caller, command::withdraw_unit(&caller.account, &request)?).await?;
        Ok(v1::WithdrawUnitResponse { seq: done.seq, repeated: done.repeated })
    }

    pub async fn report_unit_lost(
        &self,
        caller: &Caller,
        request: v1::ReportUnitLostRequest,
    ) -> Result<v1::ReportUnitLostResponse, ApiError> {
        let done = self.obey(caller, command::report_unit_lost(&caller.account, &request)?).await?;
        Ok(v1::ReportUnitLostResponse { seq: done.seq, repeated: done.repeated })
    }
}
