//! Permissions of callers, from the table of methods, and how much an open request counts. A method without a row is
//! refused.

use super::methods::{methods, path_of};
use crate::auth::caller::Roles;
use crate::store::Role;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The permission that a method needs. An administrator has every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Any credential. None is needed if market data is public.
    Markets,
    /// Any credential. The answer has only what concerns the caller.
    Credential,
    /// The role of a tenant.
    Tenant,
    /// The role of a provider.
    Provider,
    /// The role of a tenant or of a provider. The method concerns only what is the caller's own.
    Party,
    /// The role of an administrator.
    Admin,
}

macro_rules! needs {
    ($($service:ident $method:ident $need:ident $kind:ident $functions:tt [$($verbs:tt)*])*) => {
        /// The permission that each method needs, by its gRPC path.
        pub const POLICY: &[(&str, Need)] = &[$((path_of!($service $method), Need::$need),)*];
    };
}

methods!(needs);

/// Returns the permission that a method needs, by its gRPC path. None if the table does not have the
/// method.
pub fn need(method: &str) -> Option<Need> {
    static NEEDS: LazyLock<HashMap<&str, Need>> = LazyLock::new(|| POLICY.iter().copied().collect());
    NEEDS.get(method).copied()
}

/// The way in which an open request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCost {
    /// The request counts as this many open requests.
    Requests(u64),
    /// The request counts as a watch until its caller ends it.
    Watch,
}

/// The number of requests that a stream of bids counts as, because its frames are much larger.
const STREAM_OF_BIDS: u64 = 16;

/// Returns how a method, by its gRPC path, counts while it is open.
pub fn open_cost(method: &str) -> OpenCost {
    match method.rsplit('/').next() {
        Some("PlaceBids") => OpenCost::Requests(STREAM_OF_BIDS),
        Some(name) if name.starts_with("Watch") => OpenCost::Watch,
        Some(_) | None => OpenCost::Requests(1),
    }
}

impl Need {
    /// Returns the roles that have the permission. An administrator has it too.
    pub fn roles(self) -> &'static str {
        match self {
            Need::Markets | Need::Credential => "any role",
            Need::Tenant => "tenant",
            Need::Provider => "provider",
            Need::Party => "tenant or provider",
            Need::Admin => "admin",
        }
    }

    /// Returns true if a credential with these roles has the permission.
    pub fn allows(self, roles: Roles) -> bool {
        roles.has(Role::Admin)
            || match self {
                Need::Markets | Need::Credential => !roles.is_empty(),
                Need::Tenant => roles.has(Role::Tenant),
                Need::Provider => roles.has(Role::Provider),
                Need::Party => roles.has(Role::Tenant) || roles.has(Role::Provider),
                Need::Admin => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use prost_types::FileDescriptorSet;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_one_row_and_no_row_is_of_something_else() {
        let files = FileDescriptorSet::decode(kubebid_proto::FILE_DESCRIPTOR_SET).unwrap();
        let methods: BTreeSet<String> = files
            .file
            .iter()
            .flat_map(|file| file.service.iter().map(move |service| (file.package(), service)))
            .flat_map(|(package, service)| {
                let of = format!("/{package}.{}/", service.name());
                service.method.iter().map(move |method| format!("{of}{}", method.name()))
            })
            .collect();
        let lines: BTreeSet<String> = POLICY.iter().map(|(method, _)| (*method).to_owned()).collect();
        assert_eq!(lines, methods);
        assert_eq!(POLICY.len(), methods.len());
    }

    #[test]
    fn a_viewer_sees_markets_and_changes_nothing() {
        let viewer: Roles = [Role::Viewer].into_iter().collect();
        for (method, need) in POLICY {
            let reads = method.contains("MarketService") || method.contains("/WatchEvents");
            let reads =
                reads || ["/ListEvents", "/QuoteBid", "/GetAccount"].iter().any(|it| method.contains(it));
            assert_eq!(need.allows(viewer), reads, "{method}");
        }
    }
}
