//! Examples of request bodies, for the OpenAPI document.

use serde_json::{Value, json};

/// Returns the body of an example request; None if the operation has no body, or needs nothing in it.
pub(super) fn body(operation: &str) -> Option<Value> {
    let market = "h100-8x/eu-west";
    let body = match operation {
        "PlaceBid" => json!({
            "client_key": "train-7",
            "markets": [market],
            "ceiling_micros": "2500000",
            "max_nodes": 2,
            "labels": { "job": "train-7" },
        }),
        "QuoteBid" => json!({ "markets": [market], "nodes": 2, "ceiling_micros": "2500000" }),
        "AmendBid" => json!({ "client_key": "raise-1", "ceiling_micros": "3000000" }),
        "CancelBid" => json!({ "client_key": "done-7", "mode": "RELEASE" }),
        "PutOffer" => json!({ "client_key": "rack-3", "capacity": 8, "reserve_micros": "2000000" }),
        "OpenMarket" => json!({ "market": market, "rules": { "notice_us": "120000000" } }),
        "ChangeRules" => json!({ "rules": { "notice_us": "300000000" } }),
        "PutInstanceType" => json!({
            "instance_type": { "allocatable": { "cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "8" } },
        }),
        "AdvanceTime" => json!({ "to_us": "1767225600000000" }),
        "PutAccount" => json!({ "limits": { "nodes_wanted": 64 } }),
        "FundAccount" => json!({ "client_key": "grant-2027-01", "add_micros": "5000000000" }),
        "SetBudget" => json!({ "client_key": "budget-1", "monthly_micros": "5000000000" }),
        "SetRenewal" => json!({ "renewal_us": "60000000" }),
        "CreateToken" => json!({ "account": "vision", "roles": ["TENANT"], "description": "training jobs" }),
        "InjectDemand" => json!({
            "market": market,
            "nodes": 2,
            "ceiling_micros": "9000000",
            "duration_us": "1800000000",
        }),
        "EndDemand" => json!({ "bid": "12" }),
        "InjectLoss" => json!({ "market": market, "units": 1, "with_notice": true }),
        "RestoreOffers" => json!({ "market": market }),
        "SetClockRate" => json!({ "rate": 60 }),
        _ => return None,
    };
    Some(body)
}
