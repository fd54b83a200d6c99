//! The caller of a request: its account, roles and session.

use crate::auth::Session;
use crate::auth::limits::Slot;
use crate::events::visibility::Viewer;
use crate::store::Role;
use crate::wire::status::{ApiError, Code};
use crate::wire::text;
use kubebid_core::units::AccountName;
use std::fmt;
use std::time::Instant;

/// A set of roles.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Returns true if the set has the role.
    pub fn has(self, role: Role) -> bool {
        self.0 & bit(role) != 0
    }

    /// Returns the roles, in the order of [`Role::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.has(*role))
    }

    /// Returns true if the set has no role.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

fn bit(role: Role) -> u8 {
    match role {
        Role::Tenant => 1,
        Role::Provider => 2,
        Role::Viewer => 4,
        Role::Admin => 8,
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Roles {
        Roles(roles.into_iter().map(bit).fold(0, |all, bit| all | bit))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A caller: the account of a request, its roles, and its deadline.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Empty for a caller without a credential, if market data is public.
    pub account: AccountName,
    /// The roles of its token.
    pub roles: Roles,
    /// The time at which its request ends, if it has set a deadline.
    pub deadline: Option<Instant>,
    /// The session: the credential while it is valid, and the limits it uses.
    pub(crate) session: Session,
    /// The slot of its open request. Absent for calls that do not come from the network.
    pub(crate) slot: Option<Slot>,
}

/// The accounts whose entries a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountFilter {
    /// The entries of one account.
    Of(AccountName),
    /// The entries of all accounts.
    Everybody,
}

impl Caller {
    /// Returns a caller without a token. It is never revoked and has the default limits.
    pub fn new(account: &str, roles: impl IntoIterator<Item = Role>) -> Caller {
        let account = AccountName::new(account);
        let session = Session::free(account.clone());
        Caller { account, roles: roles.into_iter().collect(), deadline: None, session, slot: None }
    }

    /// Returns true if the caller may see the entries of all accounts.
    pub fn sees_all(&self) -> bool {
        self.roles.has(Role::Admin)
    }

    /// Returns the viewer as which this caller sees events and allocations.
    pub fn viewer(&self) -> Viewer {
        if self.sees_all() { Viewer::All } else { Viewer::Account(self.account.clone()) }
    }

    /// Returns true if the caller may see what belongs to this account. Other entries look as if they
    /// did not exist.
    pub fn sees(&self, account: &AccountName) -> bool {
        self.sees_all() || self.account == *account
    }

    /// Returns the accounts that the field `account` of a list asks for: the caller's own if it is
    /// absent. Another account, or an empty text for all accounts, needs the right to see all.
    pub fn whose(&self, account: Option<&str>) -> Result<AccountFilter, ApiError> {
        match account {
            None => Ok(AccountFilter::Of(self.account.clone())),
            Some(name) if name == self.account.as_str() => Ok(AccountFilter::Of(self.account.clone())),
            Some(_) if !self.sees_all() => {
                Err(ApiError::new(Code::Forbidden).at("account").saying("account may only name your own"))
            }
            Some("") => Ok(AccountFilter::Everybody),
            Some(name) => Ok(AccountFilter::Of(text::account("account", name)?)),
        }
    }

    /// Works like [`Caller::whose`], for an answer about a single account.
    pub fn whose_one(&self, account: Option<&str>) -> Result<AccountName, ApiError> {
        match self.whose(account)? {
            AccountFilter::Of(account) => Ok(account),
            AccountFilter::Everybody => Err(ApiError::bad_field("account", "must name one")),
        }
    }
}
