//! The account of the caller.

use super::Api;
use crate::auth::caller::Caller;
use crate::store::Role;
use crate::wire::admin;
use crate::wire::status::ApiError;
use kubebid_proto::v1;

impl Api {
    /// GetAccount: returns the account of the caller, and what counts against its limits.
    pub async fn get_account(
        &self,
        caller: &Caller,
        _request: v1::GetAccountRequest,
    ) -> Result<v1::GetAccountResponse, ApiError> {
        let (account, limits) = (caller.account.clone(), self.limits_of(caller));
        let units_offered = self.0.engine.ask(move |exchange| exchange.units_offered(&account)).await?;
        let used = self.0.usage.of(&caller.account);
        Ok(v1::GetAccountResponse {
            name: caller.account.to_string(),
            roles: caller.roles.iter().map(admin::role_message).collect(),
            limits: Some(admin::limits_message(limits.own())),
            open_bids: used.bids,
            nodes_wanted: used.nodes,
            units_offered,
            drills_allowed: self.0.drills.is_some() && caller.roles.has(Role::Admin),
        })
    }
}
