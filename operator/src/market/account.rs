//! `Account`: an account of the engine, and a Secret with a token for it.

use super::call_error;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta};
use kube::{CustomResource, Resource as _, ResourceExt as _};
use kubebid_client::{Client, v1};
use kubebid_controller::external::{
    Answer, CallError, DeleteAnswer, External, ExternalStatus, Managed, Observed, Request, Timing,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;

/// The key of a token's name in its Secret.
const TOKEN_ID: &str = "token-id";
/// The key of a token's secret in its Secret.
const TOKEN: &str = "token";

/// An account of the KubeBid auction, and a Secret with a token for it.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "market.kubebid.io",
    version = "v1alpha1",
    kind = "Account",
    status = "AccountStatus",
    printcolumn(name = "Roles", type_ = "string", json_path = ".spec.roles"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AccountSpec {
    /// The limits of the account; one that is absent is the engine's default.
    #[serde(default)]
    pub limits: AccountLimits,
    /// The roles of the bearer of the token.
    #[schemars(length(min = 1, max = 4), extend("x-kubernetes-list-type" = "set"))]
    pub roles: Vec<Role>,
    /// The Secret for the token. One that is deleted is made anew with another token.
    pub token_secret: TokenSecret,
}

/// The limits of an account, as in the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AccountLimits {
    /// Bids that search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_bids: Option<u32>,
    /// Nodes that its bids want and hold, in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_wanted: Option<u32>,
    /// The ceiling of a bid, in micro-dollars per node-hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_micros: Option<u64>,
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Units that its offers have in all markets together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units_offered: Option<u32>,
    /// Units by which one change of an offer may change its capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units_per_command: Option<u32>,
    /// Commands a second that the market refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusals_per_second: Option<u32>,
    /// Commands a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands_per_day: Option<u32>,
}

/// A role of the bearer of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Bids, and sees its own.
    Tenant,
    /// Offers, and sees its own.
    Provider,
    /// Sees markets, and changes nothing.
    Viewer,
    /// Everything, for every account.
    Admin,
}

/// The Secret of a token: the keys are `token` and `token-id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The state of an account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AccountStatus {
    /// Its state at the engine.
    #[serde(flatten)]
    pub external: ExternalStatus,
}

impl Managed for Account {
    fn external(&self) -> Option<&ExternalStatus> {
        self.status.as_ref().map(|status| &status.external)
    }

    fn external_mut(&mut self) -> &mut ExternalStatus {
        &mut self.status.get_or_insert_default().external
    }
}

impl AccountLimits {
    fn to_api(&self) -> v1::AccountLimits {
        v1::AccountLimits {
            open_bids: self.open_bids,
            nodes_wanted: self.nodes_wanted,
            ceiling_micros: self.ceiling_micros,
            requests_per_second: self.requests_per_second,
            units_offered: self.units_offered,
            units_per_command: self.units_per_command,
            refusals_per_second: self.refusals_per_second,
            commands_per_day: self.commands_per_day,
        }
    }
}

fn api_role(role: Role) -> i32 {
    let role = match role {
        Role::Tenant => v1::token::Role::Tenant,
        Role::Provider => v1::token::Role::Provider,
        Role::Viewer => v1::token::Role::Viewer,
        Role::Admin => v1::token::Role::Admin,
    };
    role.into()
}

/// Accounts at the engine, which cannot be removed there: a deletion revokes the token.
pub(super) struct Accounts {
    pub(super) engine: Client,
    pub(super) client: kube::Client,
}

impl Accounts {
    async fn put(&self, object: &Account) -> Result<Answer<()>, CallError> {
        let put =
            v1::PutAccountRequest { name: object.name_any(), limits: Some(object.spec.limits.to_api()) };
        self.engine.put_account(put).await.map_err(|error| call_error::of(&error))?;
        Ok(Answer::done())
    }

    /// Returns the live tokens that were made for this object.
    async fn tokens(&self, object: &Account) -> Result<Vec<v1::Token>, CallError> {
        let list = v1::ListTokensRequest { account: object.name_any(), ..Default::default() };
        let listed = self.engine.all(list).await.map_err(|error| call_error::of(&error))?;
        let mark = mark(object);
        Ok(listed.tokens.into_iter().filter(|token| token.description.starts_with(&mark)).collect())
    }

    /// Returns the Secret of an account.
    async fn secret(&self, object: &Account) -> Result<Option<Secret>, CallError> {
        let TokenSecret { namespace, name } = &object.spec.token_secret;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await;
        found.map_err(|error| CallError::transient("SecretNotRead", format!("the cluster: {error}")))
    }

    /// Returns true if the Secret has the one live token of this object, with the roles that it should have.
    async fn has_token(&self, object: &Account) -> Result<bool, CallError> {
        let (secret, tokens) = (self.secret(object).await?, self.tokens(object).await?);
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let id = data.get(TOKEN_ID).filter(|_| data.contains_key(TOKEN)).map(|id| id.0.as_slice());
        let wanted: BTreeSet<i32> = object.spec.roles.iter().copied().map(api_role).collect();
        Ok(match &tokens[..] {
            [token] => id == Some(token.token_id.as_bytes()) && token.roles.iter().copied().collect::<BTreeSet<_>>() == wanted,
            _ => false,
        })
    }

    async fn revoke_all(&self, object: &Account) -> Result<(), CallError> {
        for token in self.tokens(object).await? {
            let revoke = v1::RevokeTokenRequest { token_id: token.token_id };
            self.engine.revoke_token(revoke).await.map_err(|error| call_error::of(&error))?;
        }
        Ok(())
    }
}

/// The begin of the descriptions of an object's tokens.
fn mark(object: &Account) -> String {
    format!("KubeBid operator, Account {}, attempt ", object.uid().unwrap_or_default())
}

/// Returns the Secret with a token.
fn secret(object: &Account, token: &str, token_id: &str) -> Secret {
    let data = [(TOKEN, token), (TOKEN_ID, token_id)];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            namespace: Some(object.spec.token_secret.namespace.clone()),
            name: Some(object.spec.token_secret.name.clone()),
            owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(data.into()),
        ..Secret::default()
    }
}

impl External for Accounts {
    type Object = Account;
    type Payload = ();
    type Details = ();

    const NAME: &'static str = "accounts";
    const COMPLETES: bool = true;

    fn identity(&self, object: &Account) -> String {
        object.name_any()
    }

    async fn observe(&self, request: &Request<'_, Self>) -> Result<(Observed, ()), CallError> {
        let (object, name) = (request.object, request.object.name_any());
        let list = v1::ListAccountsRequest::default();
        let listed = self.engine.all(list).await.map_err(|error| call_error::of(&error))?;
        let there = listed.accounts.into_iter().find(|account| account.name == name);
        let Some(there) = there else { return Ok((Observed::Missing, ())) };
        let has_limits = there.limits.unwrap_or_default() == object.spec.limits.to_api();
        // The hook has not made a token yet, or makes one after the next write.
        let is_completing = object.external().is_none_or(|status| status.completed_spec.is_none());
        let observed = if has_limits && (is_completing || self.has_token(object).await?) {
            Observed::Ready
        } else {
            Observed::UpdateRequired
        };
        Ok((observed, ()))
    }

    async fn create(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        self.put(request.object).await
    }

    async fn update(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        self.put(request.object).await
    }

    /// Makes a token and its Secret, unless they are there.
    async fn complete(&self, request: &Request<'_, Self>) -> Result<(), CallError> {
        let object = request.object;
        if self.has_token(object).await? {
            return Ok(());
        }
        // Also one whose Secret was never written: nobody has it.
        self.revoke_all(object).await?;
        let there = self.secret(object).await?;
        let is_foreign = |secret: &Secret| {
            !secret.owner_references().iter().any(|it| Some(&it.uid) == object.uid().as_ref())
        };
        if there.as_ref().is_some_and(is_foreign) {
            let TokenSecret { namespace, name } = &object.spec.token_secret;
            let message = format!("the Secret {namespace}/{name} exists and was not made for this object");
            return Err(CallError::terminal("SecretExists", message));
        }
        let attempt = object.external().map_or(0, |status| status.attempt);
        let create = v1::CreateTokenRequest {
            account: object.name_any(),
            roles: object.spec.roles.iter().copied().map(api_role).collect(),
            description: format!("{}{attempt}", mark(object)),
        };
        let made = self.engine.create_token(create).await.map_err(|error| call_error::of(&error))?;
        kubebid_controller::failpoint::hit("account-token");
        let id = made.token.map(|token| token.token_id).unwrap_or_default();
        let (secret, writer) = (secret(object, &made.secret, &id), &request.context.writer);
        let written = match there {
            None => writer.create(&secret).await.map(|created| created.is_some()),
            Some(there) => {
                let patched = writer.patch(&there, json!({"data": secret.data})).await;
                patched.map(|patched| patched.is_some())
            }
        };
        let why = match written {
            Ok(true) => return Ok(()),
            Ok(false) => "the Secret came or went meanwhile".to_owned(),
            Err(error) => error.to_string(),
        };
        self.revoke_all(object).await?;
        Err(CallError::transient("SecretNotWritten", why))
    }

    async fn delete(&self, request: &Request<'_, Self>) -> Result<DeleteAnswer, CallError> {
        self.revoke_all(request.object).await?;
        Ok(DeleteAnswer::Gone)
    }

    fn timing(&self) -> Timing {
        super::TIMING
    }
}
