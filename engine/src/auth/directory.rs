//! All tokens and accounts in memory, refreshed from the store, and what each account and each address has used of its
//! limits.

use super::Secret;
use crate::auth::caller::{Caller, Roles};
use crate::auth::limits::{Bucket, Defaults, Rate, Slots};
use crate::store::{Fault, Limits, Rows};
use arc_swap::ArcSwap;
use kubebid_core::units::AccountName;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};
use tracing::warn;

/// The interval at which the store is read again.
const REFRESH: Duration = Duration::from_secs(3);
/// The number of rows that are read at a time.
const PAGE: u32 = 1000;

/// The directory of tokens and accounts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Auth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rows: Rows,
    defaults: Defaults,
    known: ArcSwap<Known>,
    /// The account of callers without a credential whose address is not known.
    nobody: Arc<LimitState>,
    /// Held while the store is read, so that an older reading never replaces a newer one.
    reading: Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    tokens: HashMap<[u8; 32], Arc<Credential>>,
    /// The same tokens, oldest first.
    credentials: Vec<([u8; 32], Arc<Credential>)>,
    accounts: HashMap<AccountName, Arc<LimitState>>,
}

/// A token that is not revoked.
#[derive(Debug)]
struct Credential {
    id: u64,
    limit_state: Arc<LimitState>,
    roles: Roles,
    live: watch::Sender<bool>,
}

/// The limits of one account or one address, and what is used of them.
#[derive(Debug)]
pub(crate) struct LimitState {
    pub(crate) account: AccountName,
    limits: ArcSwap<Limits>,
    pub(crate) requests: Bucket,
    pub(crate) refusals: Bucket,
    pub(crate) commands: Bucket,
    /// Held by the command that changes the account's offers until it is applied, so that there is
    /// one at a time.
    pub(crate) offering: Arc<Mutex<()>>,
    pub(crate) open_requests: Slots,
    pub(crate) watches: Slots,
    /// A permit for each read of the tables that the account may have at a time.
    pub(crate) reads: Arc<Semaphore>,
    /// The requests that were not admitted.
    not_admitted: Bucket,
    /// Answers that are held back because there are many such requests.
    held_back: Slots,
}

/// The most reads of the tables that one account has at a time: half of the connections that a store has for them by default. The
/// others wait in order, so that the reads of another account find a connection.
const READS_OF_ACCOUNT: usize = 4;
/// The rate at which requests that are not admitted are answered without a wait. As many may come at
/// once.
const NOT_ADMITTED: Rate = Rate::per_second(500);
/// The most answers that are held back at once: each keeps a stream of its connection open.
const HELD_BACK: u64 = 8192;

impl LimitState {
    fn new(account: AccountName, limits: Limits) -> Arc<LimitState> {
        Arc::new(LimitState {
            account,
            limits: ArcSwap::from_pointee(limits),
            requests: Bucket::default(),
            refusals: Bucket::default(),
            commands: Bucket::default(),
            offering: Arc::default(),
            open_requests: Slots::default(),
            watches: Slots::default(),
            reads: Arc::new(Semaphore::new(READS_OF_ACCOUNT)),
            not_admitted: Bucket::default(),
            held_back: Slots::default(),
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        **self.limits.load()
    }

    /// Waits before a request that is not admitted is answered, if there are many. A caller that sends such requests as
    /// fast as they are answered would otherwise keep the processors from all others.
    pub(crate) async fn hold_back(&self) {
        let wait = self.not_admitted.wait(NOT_ADMITTED);
        self.not_admitted.charge(1, NOT_ADMITTED);
        if !wait.is_zero()
            && let Some(_held) = self.held_back.take(1, HELD_BACK)
        {
            tokio::time::sleep(wait).await;
        }
    }

    /// Applies other limits from now on. The buckets become full, because what was taken at another
    /// rate would take another time to come back.
    fn change_limits(&self, limits: Limits) {
        if self.limits() != limits {
            self.limits.store(Arc::new(limits));
            [&self.requests, &self.refusals, &self.commands].into_iter().for_each(Bucket::fill);
        }
    }
}

/// The session of a caller: its credential, and the account whose limits it uses.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) limit_state: Arc<LimitState>,
    credential: Option<Arc<Credential>>,
}

impl Session {
    /// Returns a session that is never revoked and has the default limits.
    pub(crate) fn free(account: AccountName) -> Session {
        Session { limit_state: LimitState::new(account, Limits::default()), credential: None }
    }

    /// Returns the number of the session's token, if it has one.
    pub(crate) fn token_id(&self) -> Option<u64> {
        self.credential.as_ref().map(|credential| credential.id)
    }

    /// Waits until the credential is revoked.
    pub async fn revoked(self) {
        match self.credential {
            Some(credential) => {
                let _ = credential.live.subscribe().wait_for(|live| !live).await;
            }
            None => std::future::pending().await,
        }
    }
}

/// The address of a connection, with the limits of requests that have no valid token. All connections
/// from one address share it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Origin(Arc<LimitState>);

impl Origin {
    pub(crate) fn new(requests_per_second: u64) -> Origin {
        let limits = Limits { requests_per_second: Some(requests_per_second), ..Limits::default() };
        Origin(LimitState::new(AccountName::new(""), limits))
    }

    /// Returns true if requests from it were counted recently, or something from it is open.
    pub(crate) fn is_used(&self) -> bool {
        self.0.requests.is_used() || Arc::strong_count(&self.0) > 1
    }
}

/// The mark of a connection on which a request has had a valid token. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authenticated(watch::Sender<bool>);

impl Authenticated {
    pub(crate) fn mark(&self) {
        self.0.send_if_modified(|is_marked| !std::mem::replace(is_marked, true));
    }

    /// Waits until a request has had a valid token.
    pub(crate) async fn wait(&self) {
        let _ = self.0.subscribe().wait_for(|is_marked| *is_marked).await;
    }
}

impl Auth {
    /// Reads tokens and accounts from the store, and keeps reading them as long as a clone of this
    /// value exists.
    pub async fn start(rows: Rows, defaults: Defaults) -> Result<Auth, Fault> {
        let nobody = LimitState::new(AccountName::new(""), Limits::default());
        let (known, reading) = (ArcSwap::default(), Mutex::default());
        let auth = Auth(Arc::new(Inner { rows, defaults, known, nobody, reading }));
        auth.refresh().await?;
        tokio::spawn(keep_reading(Arc::downgrade(&auth.0)));
        Ok(auth)
    }

    /// Returns the caller with this token; `None` if it is unknown or revoked.
    pub(crate) fn bearer(&self, secret: &Secret) -> Option<Caller> {
        let known = self.0.known.load();
        let credential = known.tokens.get(&secret.sha256())?;
        let limit_state = credential.limit_state.clone();
        Some(Caller {
            account: limit_state.account.clone(),
            roles: credential.roles,
            deadline: None,
            session: Session { limit_state, credential: Some(credential.clone()) },
            slot: None,
        })
    }

    /// Returns a caller without a credential. It uses the limits of its address.
    pub(crate) fn nobody(&self, origin: Option<&Origin>) -> Caller {
        let limit_state = origin.map_or(&self.0.nobody, |origin| &origin.0).clone();
        Caller {
            account: limit_state.account.clone(),
            roles: Roles::default(),
            deadline: None,
            session: Session { limit_state, credential: None },
            slot: None,
        }
    }

    /// Returns a session that acts for an account within its limits, without a credential of it.
    pub(crate) fn session(&self, account: &AccountName) -> Session {
        match self.0.known.load().accounts.get(account) {
            Some(limit_state) => Session { limit_state: limit_state.clone(), credential: None },
            None => Session::free(account.clone()),
        }
    }

    /// Returns the limits of accounts that have none of their own.
    pub fn defaults(&self) -> &Defaults {
        &self.0.defaults
    }

    /// Reads what was changed in the store. Sessions whose token was revoked end here.
    pub async fn refresh(&self) -> Result<(), Fault> {
        let _reading = self.0.reading.lock().await;
        let before = self.0.known.load_full();
        let known = self.0.read(&before).await?;
        let known = Arc::new(known);
        self.0.known.store(known.clone());
        for (sha256, credential) in &before.credentials {
            if !known.tokens.contains_key(sha256) {
                credential.live.send_replace(false);
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Reads tokens and accounts from the store. Unchanged entries keep their identity.
    async fn read(&self, before: &Known) -> Result<Known, Fault> {
        let accounts = self.read_accounts(before).await?;
        let (mut tokens, mut credentials) = (HashMap::new(), Vec::new());
        let mut after = 0;
        loop {
            let page = self.rows.live_tokens(after, PAGE).await?;
            let Some((_, last)) = page.last() else { return Ok(Known { tokens, credentials, accounts }) };
            after = last.id;
            for (sha256, token) in page {
                let Some(limit_state) = accounts.get(&AccountName::new(&token.account)) else { continue };
                let known = before.tokens.get(&sha256).filter(|known| known.id == token.id);
                let credential = known.cloned().unwrap_or_else(|| {
                    Arc::new(Credential {
                        id: token.id,
                        limit_state: limit_state.clone(),
                        roles: token.roles.iter().copied().collect(),
                        live: watch::Sender::new(true),
                    })
                });
                tokens.insert(sha256, credential.clone());
                credentials.push((sha256, credential));
            }
        }
    }

    async fn read_accounts(&self, before: &Known) -> Result<HashMap<AccountName, Arc<LimitState>>, Fault> {
        let mut accounts = HashMap::new();
        let mut after = String::new();
        loop {
            let page = self.rows.accounts(&after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(accounts) };
            after.clone_from(&last.name);
            for account in page {
                let name = AccountName::new(&account.name);
                let limit_state = match before.accounts.get(&name) {
                    Some(limit_state) => {
                        limit_state.change_limits(account.limits);
                        limit_state.clone()
                    }
                    None => LimitState::new(name.clone(), account.limits),
                };
                accounts.insert(name, limit_state);
            }
        }
    }
}

async fn keep_reading(auth: Weak<Inner>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let Some(inner) = auth.upgrade() else { return };
        if let Err(fault) = Auth(inner).refresh().await {
            warn!(error = %fault, "tokens and accounts could not be read again");
        }
    }
}
