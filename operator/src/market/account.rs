//! `Account`: an account of the engine, and a Secret with a token for it.
//!
//! The Secret is there before the token, so that a Secret that cannot be written costs no token. Both end together: the
//! Secret has no owner, because the garbage collector would remove it while its token still works.

use super::call_error;
use super::offer::Offer;
use crate::api::BidNode;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, ObjectList, ObjectMeta};
use kube::core::DeserializeGuard;
use kube::{CustomResource, KubeSchema, ResourceExt as _};
use kubebid_client::{Client, v1};
use kubebid_controller::external::{
    Answer, CallError, DeleteAnswer, External, ExternalStatus, Managed, Observed, Request, Timing,
};
use kubebid_controller::{ObjectName, api_error, clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The key of a token's name in its Secret.
const TOKEN_ID: &str = "token-id";
/// The key of a token's secret in its Secret.
const TOKEN: &str = "token";
/// The annotation of a Secret with the name of its Account.
const ANNOTATION_ACCOUNT: &str = "market.kubebid.io/account";

/// An account of the KubeBid auction, and a Secret with a token for it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "market.kubebid.io",
    version = "v1alpha1",
    kind = "Account",
    status = "AccountStatus",
    doc = "An account of the KubeBid auction, and a Secret with a token for it.",
    printcolumn(name = "Roles", type_ = "string", json_path = ".spec.roles"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("self.tokenSecret == oldSelf.tokenSecret")
        .message("tokenSecret cannot be changed: make another Account")
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

/// The time for which a deleted Account waits for BidNodes to be deleted: `kubectl delete -k FOLDER` deletes one object after
/// the other.
const BIDNODES_WAIT: Duration = Duration::from_secs(10);

/// Accounts at the engine, which cannot be removed there: a deletion revokes the token.
pub(super) struct Accounts {
    pub(super) engine: Client,
    pub(super) client: kube::Client,
}

/// The Secret of an account, and the live tokens that are its own.
struct Tokens {
    secret: Option<Secret>,
    live: Vec<v1::Token>,
}

impl Tokens {
    /// Returns true if the Secret has the one live token, with the roles that it should have.
    fn are_as_wanted(&self, object: &Account) -> bool {
        let wanted: BTreeSet<i32> = object.spec.roles.iter().copied().map(api_role).collect();
        let [token] = &self.live[..] else { return false };
        let has_token =
            self.secret.as_ref().and_then(|it| it.data.as_ref()).is_some_and(|data| data.contains_key(TOKEN));
        has_token
            && token_id(self.secret.as_ref()) == Some(token.token_id.as_bytes())
            && token.roles.iter().copied().collect::<BTreeSet<_>>() == wanted
    }
}

impl Accounts {
    async fn put(&self, object: &Account) -> Result<Answer<()>, CallError> {
        let put =
            v1::PutAccountRequest { name: object.name_any(), limits: Some(object.spec.limits.to_api()) };
        self.engine.put_account(put).await.map_err(call_error::of)?;
        Ok(Answer::done())
    }

    /// Returns the Secret, and the live tokens of the account that were made for this object or are in its Secret.
    async fn tokens(&self, object: &Account) -> Result<Tokens, CallError> {
        let secret = self.secret(object).await?;
        let list = v1::ListTokensRequest { account: object.name_any(), ..Default::default() };
        let listed = self.engine.all(list).await.map_err(call_error::of)?;
        let (begin, id) = (description(object), token_id(secret.as_ref().filter(|it| is_of(it, object))));
        let is_own = |token: &v1::Token| {
            token.description.starts_with(&begin) || id == Some(token.token_id.as_bytes())
        };
        let live = listed.tokens.into_iter().filter(is_own).collect();
        Ok(Tokens { secret, live })
    }

    /// Returns the Secret of an account.
    async fn secret(&self, object: &Account) -> Result<Option<Secret>, CallError> {
        let TokenSecret { namespace, name } = &object.spec.token_secret;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await;
        found.map_err(|error| not_read("SecretNotRead", &error))
    }

    /// Returns what an account has at the engine that is ended with its token: an open bid, or a node.
    async fn in_trade(&self, object: &Account) -> Result<Option<String>, CallError> {
        // Lists may be behind the commands of a moment ago.
        let last = self.engine.first(v1::ListMarketsRequest::default(), 1).await.map_err(call_error::of)?;
        let (account, min_seq) = (Some(object.name_any()), last.seq);
        let bids = v1::ListBidsRequest {
            account: account.clone(),
            states: vec![v1::bid::State::Open.into()],
            min_seq,
            ..Default::default()
        };
        let bids = self.engine.first(bids, 1).await.map_err(call_error::of)?.bids;
        let states = [v1::allocation::State::Starting, v1::allocation::State::Active];
        let nodes = v1::ListAllocationsRequest {
            account,
            states: states.map(i32::from).into(),
            min_seq,
            ..Default::default()
        };
        let nodes = self.engine.first(nodes, 1).await.map_err(call_error::of)?.allocations;
        let bid = bids.first().map(|bid| format!("bid {} is open", bid.bid));
        let node = || nodes.first().map(|node| format!("allocation {} has not ended", node.allocation));
        Ok(bid.or_else(node))
    }

    /// Returns an object in the cluster whose controller needs the token: an Offer of the account, or a BidNode that is
    /// being deleted, or may be in a moment.
    async fn in_cluster(&self, object: &Account) -> Result<Option<String>, CallError> {
        let (client, params) = (self.client.clone(), ListParams::default());
        let unread = |error| not_read("DependentsNotRead", &error);
        let offers = Api::<DeserializeGuard<Offer>>::all(client.clone()).list(&params).await;
        let offers = or_undefined(offers).map_err(unread)?;
        let name = object.name_any();
        // An Offer that this version cannot read may be of any account.
        let is_own =
            |offer: &&DeserializeGuard<Offer>| offer.0.as_ref().map_or(true, |offer| offer.is_sold_by(&name));
        if let Some(offer) = offers.iter().find(is_own) {
            return Ok(Some(format!("Offer {} is there", ObjectName::of(offer))));
        }
        let bidnodes = Api::<BidNode>::all(client).list_metadata(&params).await;
        let bidnodes = or_undefined(bidnodes).map_err(unread)?;
        if let Some(deleted) = bidnodes.iter().find(|bidnode| bidnode.metadata.deletion_timestamp.is_some()) {
            return Ok(Some(format!("BidNode {} is being deleted", ObjectName::of(deleted))));
        }
        let deleted_at = object.metadata.deletion_timestamp.as_ref();
        let is_recent = deleted_at.is_some_and(|time| clock::since(time.0) < BIDNODES_WAIT);
        let living = bidnodes.first().filter(|_| is_recent);
        Ok(living.map(|bidnode| format!("BidNode {} may be deleted too", ObjectName::of(bidnode))))
    }

    async fn revoke(&self, tokens: Vec<v1::Token>) -> Result<(), CallError> {
        for token in tokens {
            let revoke = v1::RevokeTokenRequest { token_id: token.token_id };
            self.engine.revoke_token(revoke).await.map_err(call_error::of)?;
        }
        Ok(())
    }
}

/// Returns the begin of the descriptions of an object's tokens.
fn description(object: &Account) -> String {
    format!("KubeBid operator, Account {}, attempt ", object.uid().unwrap_or_default())
}

/// Returns the name of the token in a Secret.
fn token_id(secret: Option<&Secret>) -> Option<&[u8]> {
    secret?.data.as_ref()?.get(TOKEN_ID).map(|id| id.0.as_slice())
}

/// Returns true if a Secret was made for an Account of this name.
fn is_of(secret: &Secret, object: &Account) -> bool {
    secret.annotations().get(ANNOTATION_ACCOUNT) == Some(&object.name_any())
}

/// Returns the Secret before it has a token.
fn empty_secret(object: &Account) -> Secret {
    let TokenSecret { namespace, name } = object.spec.token_secret.clone();
    let annotations = Some([(ANNOTATION_ACCOUNT.to_owned(), object.name_any())].into());
    let metadata =
        ObjectMeta { namespace: Some(namespace), name: Some(name), annotations, ..ObjectMeta::default() };
    Secret { metadata, ..Secret::default() }
}

/// Returns the objects of a list; none if their kind is not defined in the cluster.
fn or_undefined<K: Clone>(listed: kube::Result<ObjectList<K>>) -> kube::Result<Vec<K>> {
    match listed {
        Ok(list) => Ok(list.items),
        Err(error) if api_error::is_not_found(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn not_read(reason: &'static str, error: &kube::Error) -> CallError {
    CallError::transient(reason, format!("the cluster: {}", api_error::message(error)))
}

fn not_written(why: impl Into<String>) -> CallError {
    CallError::transient("SecretNotWritten", why)
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
        let listed = self.engine.all(list).await.map_err(call_error::of)?;
        let there = listed.accounts.into_iter().find(|account| account.name == name);
        let Some(there) = there else { return Ok((Observed::Missing, ())) };
        let has_limits = there.limits.unwrap_or_default() == object.spec.limits.to_api();
        // The hook has not made a token yet, or makes one after the next write.
        let is_completing = object.external().is_none_or(|status| status.completed_spec.is_none());
        let observed = if has_limits && (is_completing || self.tokens(object).await?.are_as_wanted(object)) {
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

    /// Makes the Secret and its token, unless they are there.
    async fn complete(&self, request: &Request<'_, Self>) -> Result<(), CallError> {
        let (object, writer) = (request.object, &request.context.writer);
        let tokens = self.tokens(object).await?;
        if tokens.are_as_wanted(object) {
            return Ok(());
        }
        // Also one whose Secret was never written: nobody has it.
        self.revoke(tokens.live).await?;
        let secret = match tokens.secret {
            Some(secret) if is_of(&secret, object) => secret,
            Some(_) => {
                let TokenSecret { namespace, name } = &object.spec.token_secret;
                let message =
                    format!("the Secret {namespace}/{name} exists and was not made for this account");
                return Err(CallError::terminal("SecretExists", message));
            }
            None => {
                let created = writer.create(&empty_secret(object)).await;
                let created = created.map_err(|error| not_written(error.to_string()))?;
                created.ok_or_else(|| not_written("the Secret came meanwhile"))?
            }
        };
        let attempt = object.external().map_or(0, |status| status.attempt);
        let create = v1::CreateTokenRequest {
            account: object.name_any(),
            roles: object.spec.roles.iter().copied().map(api_role).collect(),
            description: format!("{}{attempt}", description(object)),
        };
        let made = self.engine.create_token(create).await.map_err(call_error::of)?;
        kubebid_controller::failpoint::hit("account-token");
        let token = made.token.unwrap_or_default();
        let data = [(TOKEN, &made.secret), (TOKEN_ID, &token.token_id)];
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
        let data: BTreeMap<String, ByteString> = data.into();
        let why = match writer.patch(&secret, json!({"data": data})).await {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => "the Secret went meanwhile".to_owned(),
            Err(error) => error.to_string(),
        };
        self.revoke(vec![token]).await?;
        Err(not_written(why))
    }

    /// Keeps the token while something is ended with it: without it a bid could search for ever.
    async fn needed_by(&self, request: &Request<'_, Self>) -> Result<Option<String>, CallError> {
        let needed_by = match self.in_trade(request.object).await? {
            Some(needed_by) => Some(needed_by),
            None => self.in_cluster(request.object).await?,
        };
        Ok(needed_by.map(|what| format!("{what}: the token is revoked after that")))
    }

    /// Revokes the token, and deletes its Secret.
    async fn delete(&self, request: &Request<'_, Self>) -> Result<DeleteAnswer, CallError> {
        let tokens = self.tokens(request.object).await?;
        self.revoke(tokens.live).await?;
        if let Some(secret) = tokens.secret.filter(|secret| is_of(secret, request.object)) {
            let deleted = request.context.writer.delete(&secret).await;
            deleted.map_err(|error| CallError::transient("SecretNotDeleted", error.to_string()))?;
        }
        Ok(DeleteAnswer::Gone)
    }

    fn timing(&self) -> Timing {
        super::TIMING
    }
}
