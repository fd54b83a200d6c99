//! Tests of how bodies, paths, queries and keys are read.

use crate::world::{MARKET, SECOND, World};
use serde_json::{Value, json};

#[tokio::test]
async fn prices_are_strings_of_integers_and_numbers_are_read() {
    let world = World::new().await;
    let provider = world.client("p1");
    let offer = format!("/v1/markets/{MARKET}/offer");
    let put = provider.send("PUT", &offer, &[], r#"{"capacity": 1, "reserve_micros": 1000000}"#).await;
    assert_eq!((put.status, &put.json["repeated"]), (200, &json!(false)));
    let tenant = world.client("t1");
    let body = json!({ "markets": [MARKET], "ceiling_micros": "2000000", "max_nodes": 1 });
    let placed = tenant.post("/v1/bids", &body).await;
    assert_eq!(placed.status, 200);
    let seq = placed.json["seq"].as_str().unwrap();
    assert_eq!(placed.json["bid"], seq);

    let price = tenant.get(&format!("/v1/markets/{MARKET}/price?min_seq={seq}")).await;
    let price = &price.json["prices"][0];
    assert_eq!(price["numbers"]["market_price_micros"], "1000000");
    assert_eq!(price["numbers"]["floor_micros"], "1000000");
    assert_eq!(price["numbers"].get("entry_price_micros"), None);
    let supply = json!({ "total": 1, "free": 0, "allocated": 1, "notice": 0, "claimed": 0, "resting": 0 });
    assert_eq!(price["supply"], supply);

    let by_type = tenant.get("/v1/instance-types/h100-8x/price").await;
    assert_eq!(by_type.json["floor_micros"], "1000000");
    let depth = tenant.get(&format!("/v1/markets/{MARKET}/depth")).await;
    assert_eq!(
        depth.json["demand"],
        json!([{ "ceiling_micros": "2000000", "unmet": 0, "held": 1, "claimed": 0 }])
    );
    assert_eq!(
        depth.json["supply"],
        json!([{ "reserve_micros": "1000000", "free": 0, "allocated": 1, "notice": 0 }])
    );
}

#[tokio::test]
async fn no_cache_keeps_an_answer_and_no_browser_guesses_what_it_is() {
    let world = World::new().await;
    for path in ["/v1/markets", "/v1/bids", "/v1/nowhere"] {
        let answer = world.client("t1").get(path).await;
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
    }
    let document = world.client("t1").get("/openapi.json").await;
    assert_eq!(document.headers["cache-control"], "no-cache", "it has a tag to ask by");
}

#[tokio::test]
async fn the_limits_of_an_account_are_numbers_of_the_api() {
    let world = World::new().await;
    let account = world.client("t1").get("/v1/account").await;
    let limits = account.json["limits"].as_object().expect("all are present");
    for (name, limit) in limits {
        assert!(limit.as_str().is_none_or(|digits| digits.len() <= 19), "{name}: {limit}");
    }
}

#[tokio::test]
async fn no_text_of_a_query_has_control_characters() {
    let world = World::new().await;
    for (path, field) in [
        ("/v1/bids?account=%00", "account"),
        ("/v1/allocations?account=a%00", "account"),
        ("/v1/charges?account=%00", "account"),
        ("/v1/statement?account=%1b", "account"),
        ("/v1/events?filter.account=%00", "filter.account"),
        ("/v1/accounts?page_token=p%00", "page_token"),
        ("/v1/instance-types?page_token=p%00", "page_token"),
        ("/v1/statement?page_token=p%00", "page_token"),
    ] {
        let refused = world.client("admin").get(path).await;
        assert_eq!((refused.status, refused.code(), refused.field()), (400, "BAD_FIELD", field), "{path}");
    }
}

#[tokio::test]
async fn an_idempotency_key_is_the_client_key() {
    let world = World::new().await;
    let tenant = world.client("t1");
    let body = json!({ "markets": [MARKET], "ceiling_micros": "2000000", "max_nodes": 1 }).to_string();
    let key = [("idempotency-key", "k1")];
    let first = tenant.send("POST", "/v1/bids", &key, &body).await;
    let again = tenant.send("POST", "/v1/bids", &key, &body).await;
    assert_eq!(first.json["bid"], again.json["bid"]);
    assert_eq!((&first.json["repeated"], &again.json["repeated"]), (&json!(false), &json!(true)));
    let in_body = body.replace('{', r#"{"client_key": "k1","#);
    assert_eq!(tenant.send("POST", "/v1/bids", &key, &in_body).await.json["repeated"], true);
    let other = body.replace('{', r#"{"client_key": "k2","#);
    let refused = tenant.send("POST", "/v1/bids", &key, &other).await;
    assert_eq!((refused.status, refused.code(), refused.field()), (400, "BAD_FIELD", "client_key"));
    let conflict = tenant.send("POST", "/v1/bids", &key, &body.replace("2000000", "3000000")).await;
    assert_eq!((conflict.status, conflict.code()), (409, "KEY_CONFLICT"));
    assert!(conflict.json["seq"].is_string());
    let useless = world.client("admin").send("POST", "/v1/clock/advance", &key, r#"{"to_us": 1}"#).await;
    assert_eq!((useless.status, useless.code(), useless.field()), (400, "BAD_FIELD", "Idempotency-Key"));
}

#[tokio::test]
async fn a_node_is_reported_ready_and_released_by_its_path_alone() {
    let world = World::new().await;
    world.offer("p1", 1, SECOND).await;
    world.bid("t1", 1, 2 * SECOND).await;
    let tenant = world.client("t1");
    assert_eq!(tenant.send("POST", "/v1/allocations/1/ready", &[], "").await.status, 200);
    let again = tenant.send("POST", "/v1/allocations/1/ready", &[], "{}").await;
    assert_eq!((again.status, again.code(), again.field()), (409, "ALREADY_READY", "allocation"));
    let other = tenant.send("POST", "/v1/allocations/1/release", &[], r#"{"allocation": "2"}"#).await;
    assert_eq!((other.status, other.code(), other.field()), (400, "BAD_FIELD", "allocation"));
    let same = tenant.send("POST", "/v1/allocations/1/release", &[], r#"{"allocation": 1}"#).await;
    assert_eq!(same.status, 200);
}

#[tokio::test]
async fn a_unit_is_named_by_the_parts_of_its_path() {
    let world = World::new().await;
    world.offer("p1", 2, SECOND).await;
    let provider = world.client("p1");
    let withdrawn = provider.send("POST", &format!("/v1/units/{MARKET}/p1/1/withdraw"), &[], "").await;
    assert_eq!(withdrawn.status, 200, "{}", withdrawn.text);
    let gone = provider.send("POST", &format!("/v1/units/{MARKET}/p1/1/lost"), &[], "").await;
    assert_eq!((gone.status, gone.code()), (404, "UNKNOWN_UNIT"));
}

#[tokio::test]
async fn one_resting_unit_or_all_of_a_market_are_resumed_by_their_paths() {
    let world = World::new().await;
    world.offer("p1", 2, SECOND).await;
    let bid = world.bid("t1", 2, 2 * SECOND).await;
    world.at(900).await;
    let (provider, tenant) = (world.client("p1"), world.client("t1"));
    tenant.post(&format!("/v1/bids/{bid}/cancel"), &json!({ "mode": "RELEASE" })).await;
    let offer = format!("/v1/markets/{MARKET}/offer");
    let resting = async || provider.get(&offer).await.json["offer"]["resting"].clone();
    assert_eq!(resting().await, 2);
    let one = format!("/v1/units/{MARKET}/p1/1/resume");
    let both = provider.post(&one, &json!({ "market": MARKET })).await;
    assert_eq!((both.status, both.code()), (400, "BAD_FIELD"));
    assert_eq!(provider.send("POST", &one, &[], "").await.status, 200);
    let again = provider.send("POST", &one, &[], "").await;
    assert_eq!((again.status, again.code(), again.field()), (409, "NOT_RESTING", "unit"));
    assert_eq!(resting().await, 1);
    assert_eq!(provider.send("POST", &format!("{offer}/resume"), &[], "").await.status, 200);
    assert_eq!(resting().await, 0);
}

#[tokio::test]
async fn administration_has_its_paths() {
    let world = World::new().await;
    let admin = world.client("admin");
    let opened = admin.post("/v1/markets", &json!({ "market": "a/b", "rules": { "fee_bps": 100 } })).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    let rules =
        admin.send("PATCH", "/v1/markets/a/b/rules", &[], r#"{"rules": {"notice_us": "60000000"}}"#).await;
    assert_eq!(rules.status, 200, "{}", rules.text);
    let kind = json!({ "instance_type": { "allocatable": { "cpu": "4" }, "on_demand_price_micros": 5 } });
    let put = admin.send("PUT", "/v1/instance-types/a", &[], &kind.to_string()).await;
    assert_eq!((put.status, &put.json["instance_type"]["name"]), (200, &json!("a")));
    let account = admin.send("PUT", "/v1/accounts/new", &[], r#"{"limits": {"open_bids": 5}}"#).await;
    assert_eq!((account.status, &account.json["account"]["name"]), (200, &json!("new")), "{}", account.text);
    let token = admin.post("/v1/tokens", &json!({ "account": "new", "roles": ["TENANT"] })).await;
    let id = token.json["token"]["token_id"].as_str().unwrap();
    let revoked = admin.send("DELETE", &format!("/v1/tokens/{id}"), &[], "").await;
    assert!(revoked.json["token"]["revoked_at_us"].is_string(), "{}", revoked.text);

    let markets = admin.get("/v1/markets?instance_type=a").await;
    let market = &markets.json["markets"][0];
    assert_eq!((&market["market"], &market["rules"]["notice_us"]), (&json!("a/b"), &json!("60000000")));
    assert_eq!(market["rules"]["fee_bps"], 100);
    let types = admin.get("/v1/instance-types").await;
    let names: Vec<&Value> =
        types.json["entries"].as_array().unwrap().iter().map(|e| &e["instance_type"]["name"]).collect();
    assert_eq!(names, ["a", "h100-8x"]);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let world = World::new().await;
    let admin = world.client("admin");
    for region in ["a", "b", "c"] {
        admin.post("/v1/markets", &json!({ "market": format!("x/{region}") })).await;
    }
    let mut names = Vec::new();
    let mut token = String::new();
    loop {
        let page = admin.get(&format!("/v1/markets?page_size=2&page_token={token}")).await;
        names.extend(
            page.json["markets"].as_array().unwrap().iter().map(|m| m["market"].as_str().unwrap().to_owned()),
        );
        token = page.json["next_page_token"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, [MARKET, "x/a", "x/b", "x/c"]);
    let bad = admin.get("/v1/markets?page_token=nonsense").await;
    assert_eq!((bad.status, bad.code(), bad.field()), (400, "BAD_FIELD", "page_token"));
    let large = admin.get("/v1/markets?page_size=1001").await;
    assert_eq!((large.status, large.json["markets"].as_array().map(Vec::len)), (200, Some(4)));
}

#[tokio::test]
async fn a_node_config_is_base64_and_access_data_an_object() {
    let world = World::new().await;
    let (tenant, provider) = (world.client("t1"), world.client("p1"));
    let offer = format!("/v1/markets/{MARKET}/offer");
    provider.send("PUT", &offer, &[], r#"{"capacity": 1, "reserve_micros": 1000000}"#).await;
    let mut body = json!({ "markets": [MARKET], "ceiling_micros": "2000000", "max_nodes": 1 });
    body["node_config"] = json!("not base64!");
    let refused = tenant.post("/v1/bids", &body).await;
    assert_eq!((refused.status, refused.code(), refused.field()), (400, "BAD_FIELD", "node_config"));
    body["node_config"] = json!("c3NoLWVkMjU1MTk=");
    let bid = tenant.post("/v1/bids", &body).await.json["bid"].as_str().unwrap().to_owned();
    assert_eq!(tenant.get(&format!("/v1/bids/{bid}")).await.json["bid"]["node_config"], "c3NoLWVkMjU1MTk=");

    let node = "/v1/allocations/1";
    let seen = provider.get(&format!("{node}?min_seq={bid}")).await;
    assert_eq!(seen.json["allocation"]["node_config"], "c3NoLWVkMjU1MTk=");
    let access = json!({ "addresses": ["10.0.0.7"], "ports": { "ssh": 22 }, "user": "ubuntu", "notes": "" });
    let wrong = json!({ "access": { "addresses": ["-oProxyCommand=x"] } });
    let refused = provider.post(&format!("{node}/ready"), &wrong).await;
    assert_eq!((refused.status, refused.code(), refused.field()), (400, "BAD_FIELD", "access.addresses"));
    let ready = provider.post(&format!("{node}/ready"), &json!({ "access": access })).await;
    assert_eq!(ready.status, 200, "{}", ready.json);
    assert_eq!(tenant.get(node).await.json["allocation"]["access"], access);
    assert_eq!(provider.get(node).await.json["allocation"].get("access"), None);
}

#[tokio::test]
async fn a_market_is_closed_by_a_post_to_it() {
    let world = World::new().await;
    let (admin, tenant) = (world.client("admin"), world.client("t1"));
    let close = format!("/v1/markets/{MARKET}/close");
    let closed = admin.post(&close, &json!({})).await;
    assert_eq!(closed.status, 200, "{}", closed.text);
    let seq = closed.json["seq"].as_str().unwrap();
    let listed = tenant.get(&format!("/v1/markets?min_seq={seq}")).await;
    assert_eq!(listed.json["markets"].as_array().map_or(0, Vec::len), 0);
    let all = tenant.get("/v1/markets?include_ended=true").await;
    assert_eq!(all.json["markets"][0]["state"], "ENDED");
    let again = admin.post(&close, &json!({})).await;
    assert_eq!((again.status, again.code(), again.field()), (409, "MARKET_CLOSED", "market"));
    let bid = json!({ "markets": [MARKET], "ceiling_micros": "2000000", "max_nodes": 1 });
    let refused = tenant.post("/v1/bids", &bid).await;
    assert_eq!((refused.status, refused.code(), refused.field()), (409, "MARKET_CLOSED", "markets"));
    let reopened = admin.post("/v1/markets", &json!({ "market": MARKET })).await;
    assert_eq!(reopened.status, 200, "{}", reopened.text);
    assert_eq!(tenant.post("/v1/bids", &bid).await.status, 200);
}
