//! Refusals are RFC 9457 problems that name the field.

use crate::world::{MARKET, World};
use kubebid_engine::wire::status::Code;
use serde_json::json;
use std::path::Path;

#[tokio::test]
async fn a_refusal_of_the_market_is_a_problem_with_its_code_field_and_number() {
    let world = World::new().await;
    let tenant = world.client("t1");
    let refused =
        tenant.post("/v1/bids", &json!({ "markets": [MARKET], "ceiling_micros": 150, "max_nodes": 1 })).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    let problem = &refused.json;
    assert_eq!(problem["type"], "https://kubebid.io/problems.html#not_a_tick");
    assert_eq!(problem["title"], "Not a tick");
    assert_eq!(problem["status"], 400);
    assert_eq!((refused.code(), refused.field()), ("NOT_A_TICK", "ceiling_micros"));
    assert!(problem["detail"].is_string());
    assert_eq!(problem["seq"], "2");
    let unknown =
        tenant.post("/v1/bids", &json!({ "markets": ["a/b"], "ceiling_micros": 100, "max_nodes": 1 })).await;
    assert_eq!((unknown.status, unknown.code()), (404, "UNKNOWN_MARKET"));
}

#[tokio::test]
async fn a_value_that_a_field_cannot_have_is_refused_with_its_place() {
    let world = World::new().await;
    let tenant = world.client("t1");
    let cases = [
        ("{\n  \"ceiling_micros\": -1\n}", "ceiling_micros", "at line"),
        ("{\"ceiling_micros\": 1.5}", "ceiling_micros", "line 1"),
        ("{\"ceiling_micros\": NaN}", "body", "line 1"),
        ("{\"ceiling_micros\": 99999999999999999999}", "ceiling_micros", "line 1"),
        ("{\"max_nodes\": \"many\"}", "max_nodes", "line 1"),
        ("{\"ceiling\": 1}", "ceiling", "unknown field"),
        ("{\"markets\": [\"a/b\", 7]}", "markets[1]", "line 1"),
        ("{\"labels\": {\"team\": 7}}", "labels.team", "line 1"),
        ("{\"time_in_force\": \"FOK\"}", "time_in_force", "FOK"),
        ("{\"markets\": [", "body", "line 1"),
        ("{} {}", "body", "line 1"),
        ("[]", "body", "line 1"),
    ];
    for (body, field, said) in cases {
        let refused = tenant.send("POST", "/v1/bids", &[], body).await;
        assert_eq!(
            (refused.status, refused.code(), refused.field()),
            (400, "BAD_FIELD", field),
            "{body}: {}",
            refused.text
        );
        assert!(refused.json["detail"].as_str().unwrap().contains(said), "{body}: {}", refused.text);
        assert_eq!(refused.json.get("seq"), None);
    }
}

#[tokio::test]
async fn a_value_that_a_query_cannot_have_is_refused_too() {
    let world = World::new().await;
    let tenant = world.client("t1");
    let cases = [
        ("/v1/events?nonsense=1", "nonsense"),
        ("/v1/events?page_size=many", "page_size"),
        ("/v1/events?page_size=1&page_size=2", "page_size"),
        ("/v1/events?label=team", "label"),
        ("/v1/events?newest_first=perhaps", "newest_first"),
        ("/v1/events?kind=%ff", "kind"),
        ("/v1/events?kind=nothing", "kind"),
        ("/v1/events?cursor=nonsense", "cursor"),
        ("/v1/events?market=%00", "filter"),
        ("/v1/charges?label=team=%00", "label"),
        ("/v1/explain/bids/seven", "bid"),
        ("/v1/explain/bids/-7", "bid"),
    ];
    for (path, field) in cases {
        let refused = tenant.get(path).await;
        assert_eq!(
            (refused.status, refused.code(), refused.field()),
            (400, "BAD_FIELD", field),
            "{path}: {}",
            refused.text
        );
    }
    let far = tenant.get("/v1/explain/bids/18446744073709551615").await;
    assert_eq!((far.status, far.code()), (404, "UNKNOWN_BID"));
    let none = tenant.get("/v1/events?bid=18446744073709551615&from_us=18446744073709551615").await;
    assert_eq!((none.status, &none.json["events"]), (200, &json!([])), "{}", none.text);
}

#[tokio::test]
async fn a_number_too_large_for_the_store_is_not_found() {
    let world = World::new().await;
    let (tenant, admin) = (world.client("t1"), world.client("admin"));
    for beyond in ["9223372036854775808", "18446744073709551615"] {
        for (path, code) in [("bids", "UNKNOWN_BID"), ("allocations", "UNKNOWN_ALLOCATION")] {
            let far = tenant.get(&format!("/v1/{path}/{beyond}")).await;
            assert_eq!((far.status, far.code()), (404, code), "{}", far.text);
        }
        let far = tenant.get(&format!("/v1/explain/allocations/{beyond}")).await;
        assert_eq!((far.status, far.code()), (404, "UNKNOWN_ALLOCATION"), "{}", far.text);
        for path in ["charges?bid=", "charges?allocation=", "charges?from_us="] {
            let none = tenant.get(&format!("/v1/{path}{beyond}")).await;
            let list = path.split('?').next().unwrap();
            assert_eq!((none.status, &none.json[list]), (200, &json!([])), "{path}: {}", none.text);
        }
        let all = tenant.get(&format!("/v1/events?to_us={beyond}")).await;
        assert_eq!(all.json["events"].as_array().unwrap().len(), 2, "{}", all.text);
        let far = admin.send("DELETE", &format!("/v1/tokens/{beyond}"), &[], "").await;
        assert_eq!(far.status, 404, "{}", far.text);
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let world = World::new().await;
    let tenant = world.client("t1");
    let body = format!("{{\"client_key\": \"{}\"}}", "x".repeat(64 * 1024));
    let refused = tenant.send("POST", "/v1/bids", &[], &body).await;
    assert_eq!((refused.status, refused.code()), (413, "TOO_LARGE"));
}

#[tokio::test]
async fn without_a_token_there_is_nothing_to_see() {
    let world = World::new().await;
    let refused = world.stranger().get("/v1/markets").await;
    assert_eq!((refused.status, refused.code()), (401, "UNAUTHENTICATED"));
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    let forbidden = world.client("t1").post("/v1/markets", &json!({ "market": "a/b" })).await;
    assert_eq!((forbidden.status, forbidden.code()), (403, "FORBIDDEN"));
}

#[tokio::test]
async fn a_header_or_a_key_that_is_given_twice_is_refused() {
    let world = World::new().await;
    let tenant = world.client("t1");
    for (name, value) in [
        ("authorization", "Bearer x"),
        ("idempotency-key", "k"),
        ("request-timeout", "5"),
        ("last-event-id", "c"),
    ] {
        let mut headers = vec![(name, value), (name, value)];
        headers.truncate(if name == "authorization" { 1 } else { 2 });
        let (method, path) = match name {
            "last-event-id" => ("GET", "/v1/events/stream"),
            _ => ("POST", "/v1/bids"),
        };
        let refused = tenant.send(method, path, &headers, "").await;
        assert_eq!((refused.status, refused.code(), refused.field()), (400, "BAD_FIELD", name));
    }
    for body in [
        r#"{"max_nodes": 1, "max_nodes": 2}"#,
        r#"{"labels": {"team": "a", "team": "b"}}"#,
        r#"{"client_key": null, "client_key": "k"}"#,
    ] {
        let refused = tenant.send("POST", "/v1/bids", &[], body).await;
        assert_eq!((refused.status, refused.code(), refused.field()), (400, "BAD_FIELD", "body"), "{body}");
        assert!(refused.text.contains("twice"), "{}", refused.text);
    }
}

#[tokio::test]
async fn an_unknown_path_and_a_wrong_method_are_problems_too() {
    let world = World::new().await;
    let tenant = world.client("t1");
    let nowhere = tenant.get("/v1/nowhere").await;
    assert_eq!((nowhere.status, nowhere.code()), (404, "UNKNOWN_METHOD"));
    assert_eq!(nowhere.headers["content-type"], "application/problem+json");
    let wrong = tenant.send("DELETE", "/v1/bids", &[], "").await;
    assert_eq!((wrong.status, wrong.code()), (405, "UNKNOWN_METHOD"));
    assert!(wrong.headers["allow"].to_str().unwrap().contains("POST"));
}

#[tokio::test]
async fn a_read_that_waits_past_its_deadline_is_refused() {
    let world = World::new().await;
    let patience = [("request-timeout", "0")];
    let late = world.client("t1").send("GET", "/v1/markets?min_seq=1000", &patience, "").await;
    assert_eq!((late.status, late.code(), late.field()), (504, "NOT_YET", "min_seq"));
}

#[tokio::test]
async fn drills_are_refused_if_they_are_off() {
    let world = World::new().await;
    for path in ["demand", "demand/end", "loss", "restore", "allocations/1/preempt", "clock"] {
        let answer = world.client("admin").post(&format!("/v1/inject/{path}"), &json!({})).await;
        assert_eq!((answer.status, answer.code()), (409, "INJECT_DISABLED"), "{path}");
        let answer = world.client("t1").post(&format!("/v1/inject/{path}"), &json!({})).await;
        assert_eq!((answer.status, answer.code()), (403, "FORBIDDEN"), "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_refusal_repeats_at_most_200_bytes_of_what_was_sent() {
    let world = World::new().await;
    let tenant = world.client("t1");
    let long = "x".repeat(5_000);
    let paths = [
        format!("/v1/events?{long}=1"),
        format!("/v1/events?kind={long}"),
        format!("/v1/events?label={long}"),
        format!("/v1/events?label={long}=1&label={long}=2"),
        format!("/v1/events?page_size={long}"),
        format!("/v1/events?cursor={long}&page_token={long}"),
        format!("/v1/bids/{long}"),
        format!("/v1/markets/a/b/depth?levels={long}"),
        format!("/v1/{long}"),
    ];
    for path in paths {
        let refused = tenant.get(&path).await;
        assert!(refused.status >= 400 && refused.text.len() < 1_000, "{path}: {}", refused.text);
    }
    let bodies = [
        format!("{{\"{long}\": 1}}"),
        format!("{{\"{long}`, expected \": 1}}"),
        format!("{{\"max_nodes\": \"{long}\"}}"),
        format!("{{\"time_in_force\": \"{long}\"}}"),
        format!("{{\"labels\": {{\"{long}\": 7}}}}"),
        format!("{{\"labels\": {{\"{long}\": \"\"}}}}"),
        format!("{{\"markets\": [\"{long}\"]}}"),
        format!("{{}} {long}"),
        long.clone(),
    ];
    for body in bodies {
        let refused = tenant.send("POST", "/v1/bids", &[], &body).await;
        let shown: String = body.chars().take(60).collect();
        assert!(refused.status >= 400 && refused.text.len() < 1_500, "{shown}: {}", refused.text);
    }
    world.stop().await;
}

#[test]
fn the_type_of_a_problem_leads_to_its_section_of_the_book() {
    let document: serde_json::Value = serde_json::from_str(&kubebid_engine::rest::openapi()).unwrap();
    let examples = document["components"]["examples"].as_object().unwrap();
    assert!(examples.len() > 30, "{}", examples.len());
    for (code, example) in examples {
        let anchor = code.to_lowercase();
        assert_eq!(example["value"]["type"], format!("https://kubebid.io/problems.html#{anchor}"));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/problems.md");
    let page = std::fs::read_to_string(page).unwrap();
    for code in Code::all() {
        // The anchor of a section is its title in small letters.
        let section = format!("\n### {}\n\nHTTP {}, gRPC `{:?}`. ", code.word(), code.http(), code.grpc());
        assert!(page.contains(&section), "docs/problems.md lacks: {section}");
    }
}
