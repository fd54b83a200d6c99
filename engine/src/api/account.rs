//! An account: what counts against its limits, and what it can spend.

use super::Api;
use crate::auth::caller::Caller;
use crate::store::Role;
use crate::wire::admin;
use crate::wire::status::ApiError;
use kubebid_core::units::AccountName;
use kubebid_proto::v1;

impl Api {
    /// GetAccount: returns the caller's account, or the one that an administrator asks for.
    pub async fn get_account(
        &self,
        caller: &Caller,
        request: v1::GetAccountRequest,
    ) -> Result<v1::GetAccountResponse, ApiError> {
        let name = caller.whose_one(request.account.as_deref())?;
        self.applied_up_to(caller, request.min_seq).await?;
        let limits = self.0.auth.defaults().under(self.0.auth.session(&name).limit_state.limits());
        let account = name.clone();
        let units_offered = self.0.engine.ask(move |exchange| exchange.units_offered(&account)).await?;
        let used = self.0.usage.of(&name);
        Ok(v1::GetAccountResponse {
            name: name.to_string(),
            roles: caller.roles.iter().map(admin::role_message).collect(),
            limits: Some(admin::limits_message(limits.own())),
            open_bids: used.bids,
            nodes_wanted: used.nodes,
            units_offered,
            drills_allowed: self.0.drills.is_some() && caller.roles.has(Role::Admin),
            funds: self.funds_of(name).await?,
        })
    }

    /// Returns what an account can spend; None if it is unlimited.
    pub(super) async fn funds_of(&self, account: AccountName) -> Result<Option<v1::Funds>, ApiError> {
        let funds = self.0.engine.ask(move |exchange| exchange.account_funds(&account)).await?;
        Ok(funds.map(|funds| admin::funds_message(&funds)))
    }
}
