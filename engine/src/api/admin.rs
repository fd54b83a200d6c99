//! Calls of administrators: open a market, change its rules, close it, move a stepped clock, and manage instance types, accounts
//! and tokens.

use super::Api;
use crate::auth::Secret;
use crate::auth::caller::Caller;
use crate::events::commit::{Step, hourly_bills};
use crate::readmodel::MANY_BILLS;
use crate::runtime::clock::{self, Clock};
use crate::runtime::intake::Submission;
use crate::store::{Account, NewToken};
use crate::wire::echo::quoted;
use crate::wire::status::{ApiError, Code};
use crate::wire::{admin, command, page, text};
use kubebid_core::Command;
use kubebid_core::units::{AccountName, Micros};
use kubebid_proto::v1;

impl Api {
    /// OpenMarket: opens a market with its rules, or a closed one again.
    pub async fn open_market(
        &self,
        caller: &Caller,
        request: v1::OpenMarketRequest,
    ) -> Result<v1::OpenMarketResponse, ApiError> {
        let done = self.execute_unkeyed(caller, command::open_market(request)?).await?;
        Ok(v1::OpenMarketResponse { seq: done.seq })
    }

    /// ChangeRules: replaces the rules of a market. Deadlines and protections that were given stay as
    /// they are.
    pub async fn change_rules(
        &self,
        caller: &Caller,
        request: v1::ChangeRulesRequest,
    ) -> Result<v1::ChangeRulesResponse, ApiError> {
        let done = self.execute_unkeyed(caller, command::change_rules(request)?).await?;
        Ok(v1::ChangeRulesResponse { seq: done.seq })
    }

    /// CloseMarket: closes a market for new bids and offers; it ends when it has no units.
    pub async fn close_market(
        &self,
        caller: &Caller,
        request: v1::CloseMarketRequest,
    ) -> Result<v1::CloseMarketResponse, ApiError> {
        let done = self.execute_unkeyed(caller, command::close_market(request)?).await?;
        Ok(v1::CloseMarketResponse { seq: done.seq })
    }

    /// AdvanceTime: moves a stepped clock, and settles everything that falls due on the way (R1).
    pub async fn advance_time(
        &self,
        caller: &Caller,
        request: v1::AdvanceTimeRequest,
    ) -> Result<v1::AdvanceTimeResponse, ApiError> {
        if self.0.engine.clock() != Clock::Stepped {
            return Err(Code::RealClock.into());
        }
        let mut submission = Submission::new(None, Command::AdvanceTime);
        submission.at = Some(Micros(command::number("to_us", request.to_us)?));
        submission.deadline = caller.deadline;
        let stepped = |step: &Step| (step.seq.0, step.at.0, hourly_bills(step));
        let (seq, at_us, bills) = self.engine().submit(submission, stepped).await?;
        if bills > MANY_BILLS {
            // The rows of one long step are written before the caller makes the next.
            let _ = self.projected_up_to(caller, seq).await;
        }
        Ok(v1::AdvanceTimeResponse { seq, at_us })
    }

    /// PutInstanceType: describes an instance type, or changes its description.
    pub async fn put_instance_type(
        &self,
        _caller: &Caller,
        request: v1::PutInstanceTypeRequest,
    ) -> Result<v1::PutInstanceTypeResponse, ApiError> {
        let instance_type = admin::instance_type(request.instance_type.unwrap_or_default())?;
        self.rows().put_instance_type(&instance_type).await?;
        Ok(v1::PutInstanceTypeResponse { instance_type: Some(admin::instance_type_message(instance_type)) })
    }

    /// PutAccount: creates an account, or changes its limits.
    pub async fn put_account(
        &self,
        _caller: &Caller,
        request: v1::PutAccountRequest,
    ) -> Result<v1::PutAccountResponse, ApiError> {
        text::name("name", &request.name)?;
        let limits = admin::limits(request.limits.unwrap_or_default())?;
        let account = Account { name: request.name, limits, created_at_us: clock::wall().0 };
        self.rows().put_account(&account).await?;
        self.0.auth.refresh().await?;
        let kept = self.rows().account(&account.name).await?.unwrap_or(account);
        Ok(v1::PutAccountResponse { account: Some(admin::account_message(kept)) })
    }

    /// ListAccounts: returns a page of accounts, by name.
    pub async fn list_accounts(
        &self,
        _caller: &Caller,
        request: v1::ListAccountsRequest,
    ) -> Result<v1::ListAccountsResponse, ApiError> {
        let size = page::size(request.page_size);
        let after: Option<String> = page::after(&request.page_token)?;
        let mut accounts = self.rows().accounts(after.as_deref().unwrap_or_default(), size + 1).await?;
        let end = page::truncate(&mut accounts, size, |account| account.name.clone());
        let accounts =
            accounts.into_iter().map(|account| (account.name.clone(), admin::account_message(account)));
        let (accounts, next_page_token) = page::fit(accounts, end);
        Ok(v1::ListAccountsResponse { accounts, next_page_token })
    }

    /// FundAccount: changes the funds of an account (R19).
    pub async fn fund_account(
        &self,
        caller: &Caller,
        request: v1::FundAccountRequest,
    ) -> Result<v1::FundAccountResponse, ApiError> {
        let account = AccountName::new(&request.account);
        let done = self.execute(caller, command::fund_account(request)?).await?;
        let funds = self.funds_of(account).await?;
        Ok(v1::FundAccountResponse { seq: done.seq, repeated: done.repeated, funds })
    }

    /// SetBudget: sets the monthly budget of an account, or ends it (R19).
    pub async fn set_budget(
        &self,
        caller: &Caller,
        request: v1::SetBudgetRequest,
    ) -> Result<v1::SetBudgetResponse, ApiError> {
        let account = AccountName::new(&request.account);
        let done = self.execute(caller, command::set_budget(request)?).await?;
        let funds = self.funds_of(account).await?;
        Ok(v1::SetBudgetResponse { seq: done.seq, repeated: done.repeated, funds })
    }

    /// SetRenewal: sets the time between two renewals of funded accounts (R19).
    pub async fn set_renewal(
        &self,
        caller: &Caller,
        request: v1::SetRenewalRequest,
    ) -> Result<v1::SetRenewalResponse, ApiError> {
        let renewal = Micros(command::number("renewal_us", request.renewal_us)?);
        let done = self.execute_unkeyed(caller, Command::SetRenewal { renewal }).await?;
        Ok(v1::SetRenewalResponse { seq: done.seq })
    }

    /// CreateToken: creates a token. Its secret is in this answer only; the store keeps the hash.
    pub async fn create_token(
        &self,
        _caller: &Caller,
        request: v1::CreateTokenRequest,
    ) -> Result<v1::CreateTokenResponse, ApiError> {
        text::name("account", &request.account)?;
        text::text("description", &request.description, text::NOTE)?;
        let secret = Secret::random();
        let token = NewToken {
            sha256: secret.sha256(),
            account: request.account,
            roles: admin::roles(&request.roles)?,
            note: request.description,
            created_at_us: clock::wall().0,
        };
        let Some(id) = self.rows().add_token(&token).await? else {
            let what = format!("there is no account {}", quoted(&token.account));
            return Err(ApiError::new(Code::UnknownAccount).saying(what));
        };
        self.0.auth.refresh().await?;
        let kept = self.token_numbered(id).await?;
        Ok(v1::CreateTokenResponse { secret: secret.reveal().to_owned(), token: Some(kept) })
    }

    /// ListTokens: returns a page of tokens, without their secrets.
    pub async fn list_tokens(
        &self,
        _caller: &Caller,
        request: v1::ListTokensRequest,
    ) -> Result<v1::ListTokensResponse, ApiError> {
        let size = page::size(request.page_size);
        let after = page::after(&request.page_token)?.unwrap_or(0);
        let after = command::number("page_token", after)?;
        let account = (!request.account.is_empty()).then_some(&request.account[..]);
        if let Some(account) = account {
            text::name("account", account)?;
        }
        let rows = self.rows();
        let mut tokens = if request.include_revoked {
            rows.tokens(account, after, size + 1).await?
        } else {
            rows.unrevoked_tokens(account, after, size + 1).await?
        };
        let end = page::truncate(&mut tokens, size, |token| token.id);
        let (tokens, next_page_token) =
            page::fit(tokens.into_iter().map(|token| (token.id, admin::token_message(token))), end);
        Ok(v1::ListTokensResponse { tokens, next_page_token })
    }

    /// RevokeToken: ends a token, and the streams that were opened with it.
    pub async fn revoke_token(
        &self,
        _caller: &Caller,
        request: v1::RevokeTokenRequest,
    ) -> Result<v1::RevokeTokenResponse, ApiError> {
        let id = request.token_id.parse().ok().filter(|id| command::number("token_id", *id).is_ok());
        let id: u64 = id.ok_or(Code::UnknownToken)?;
        self.rows().revoke_token(id, clock::wall().0).await?;
        self.0.auth.refresh().await?;
        Ok(v1::RevokeTokenResponse { token: Some(self.token_numbered(id).await?) })
    }

    async fn token_numbered(&self, id: u64) -> Result<v1::Token, ApiError> {
        let token = self.rows().token_numbered(id).await?;
        Ok(admin::token_message(token.ok_or(Code::UnknownToken)?))
    }
}
