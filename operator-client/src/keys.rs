//! Requests with a client key: repeated with the same key they are executed at most once.

use crate::v1;
use uuid::Uuid;

/// A request with a client key.
pub trait KeyedRequest {
    /// Returns its key, which is empty if it has none.
    fn client_key_mut(&mut self) -> &mut String;

    /// Gives it a random key unless it has one, and returns the key.
    fn ensure_key(&mut self) -> &str {
        let key = self.client_key_mut();
        if key.is_empty() {
            key.push_str(Uuid::new_v4().hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        }
        key
    }
}

macro_rules! keyed {
    ($($request:ident)*) => {$(
        impl KeyedRequest for v1::$request {
            fn client_key_mut(&mut self) -> &mut String {
                &mut self.client_key
            }
        }
    )*};
}

keyed! {
    PlaceBidRequest AmendBidRequest CancelBidRequest
    PutOfferRequest WithdrawUnitRequest ReportUnitLostRequest ResumeUnitsRequest FundAccountRequest SetBudgetRequest
    ReportReadyRequest ReleaseAllocationRequest
}
