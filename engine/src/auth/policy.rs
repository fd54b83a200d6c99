//! Who may call what: one line for each method. A method without a line is refused.

use crate::caller::Roles;
use crate::store::Role;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What a caller needs to be. An administrator is everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Any credential; none at all where market data is public.
    Markets,
    /// Any credential: what is shown is what concerns the caller.
    Credential,
    Tenant,
    Provider,
    /// A tenant or a provider: what is shown and touched is the caller's own.
    Party,
    Admin,
}

#[rustfmt::skip]
pub const POLICY: &[(&str, Need)] = &[
    ("/kubebid.auction.v1.BidService/PlaceBid", Need::Tenant),
    ("/kubebid.auction.v1.BidService/PlaceBids", Need::Tenant),
    ("/kubebid.auction.v1.BidService/QuoteBid", Need::Markets),
    ("/kubebid.auction.v1.BidService/GetBid", Need::Tenant),
    ("/kubebid.auction.v1.BidService/ListBids", Need::Tenant),
    ("/kubebid.auction.v1.BidService/AmendBid", Need::Tenant),
    ("/kubebid.auction.v1.BidService/CancelBid", Need::Tenant),
    ("/kubebid.auction.v1.AllocationService/GetAllocation", Need::Party),
    ("/kubebid.auction.v1.AllocationService/ListAllocations", Need::Party),
    ("/kubebid.auction.v1.AllocationService/ReportReady", Need::Party),
    ("/kubebid.auction.v1.AllocationService/ReleaseAllocation", Need::Tenant),
    ("/kubebid.auction.v1.OfferService/PutOffer", Need::Provider),
    ("/kubebid.auction.v1.OfferService/GetOffer", Need::Provider),
    ("/kubebid.auction.v1.OfferService/ListOffers", Need::Provider),
    ("/kubebid.auction.v1.OfferService/WithdrawUnit", Need::Provider),
    ("/kubebid.auction.v1.OfferService/ReportUnitLost", Need::Provider),
    ("/kubebid.auction.v1.MarketService/ListMarkets", Need::Markets),
    ("/kubebid.auction.v1.MarketService/ListInstanceTypes", Need::Markets),
    ("/kubebid.auction.v1.MarketService/GetMarketPrice", Need::Markets),
    ("/kubebid.auction.v1.MarketService/GetDepth", Need::Markets),
    ("/kubebid.auction.v1.MarketService/ListPriceHistory", Need::Markets),
    ("/kubebid.auction.v1.MarketService/WatchPrices", Need::Markets),
    ("/kubebid.auction.v1.EventService/WatchEvents", Need::Credential),
    ("/kubebid.auction.v1.EventService/ListEvents", Need::Credential),
    ("/kubebid.auction.v1.EventService/Explain", Need::Party),
    ("/kubebid.auction.v1.BillingService/ListCharges", Need::Party),
    ("/kubebid.auction.v1.BillingService/GetStatement", Need::Party),
    ("/kubebid.auction.v1.AdminService/OpenMarket", Need::Admin),
    ("/kubebid.auction.v1.AdminService/ChangeRules", Need::Admin),
    ("/kubebid.auction.v1.AdminService/PutInstanceType", Need::Admin),
    ("/kubebid.auction.v1.AdminService/AdvanceTime", Need::Admin),
    ("/kubebid.auction.v1.AdminService/PutAccount", Need::Admin),
    ("/kubebid.auction.v1.AdminService/ListAccounts", Need::Admin),
    ("/kubebid.auction.v1.AdminService/CreateToken", Need::Admin),
    ("/kubebid.auction.v1.AdminService/ListTokens", Need::Admin),
    ("/kubebid.auction.v1.AdminService/RevokeToken", Need::Admin),
    ("/kubebid.auction.v1.InjectService/InjectDemand", Need::Admin),
    ("/kubebid.auction.v1.InjectService/EndDemand", Need::Admin),
    ("/kubebid.auction.v1.InjectService/InjectLoss", Need::Admin),
    ("/kubebid.auction.v1.InjectService/RestoreOffers", Need::Admin),
    ("/kubebid.auction.v1.InjectService/PreemptAllocation", Need::Admin),
    ("/kubebid.auction.v1.InjectService/SetClockRate", Need::Admin),
];

/// What the method, by its gRPC path, needs.
pub fn need(method: &str) -> Option<Need> {
    static NEEDS: LazyLock<HashMap<&str, Need>> = LazyLock::new(|| POLICY.iter().copied().collect());
    NEEDS.get(method).copied()
}

/// How an open request of a method counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    /// As so many requests.
    Requests(u64),
    /// As a watch, which goes on until its caller goes.
    Watch,
}

/// A stream of bids counts as so many requests: a frame of it is so much larger.
const STREAM_OF_BIDS: u64 = 16;

/// Returns what a method, by its gRPC path, counts as while it is open.
pub fn opens(method: &str) -> Opens {
    match method.rsplit('/').next() {
        Some("PlaceBids") => Opens::Requests(STREAM_OF_BIDS),
        Some(name) if name.starts_with("Watch") => Opens::Watch,
        Some(_) | None => Opens::Requests(1),
    }
}

impl Need {
    /// Whether somebody with a credential for these roles may.
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
    fn every_method_has_one_line_and_no_line_is_of_something_else() {
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
            let reads = reads || method.contains("/ListEvents") || method.contains("/QuoteBid");
            assert_eq!(need.allows(viewer), reads, "{method}");
        }
    }
}
