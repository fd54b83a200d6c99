//! The JSON of the messages, as REST speaks it.

use kubebid_proto::v1::{self, place_bid_request::TimeInForce};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What the message is after a way through JSON, or the field to blame.
fn read<T: DeserializeOwned>(text: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(text).map_err(|error| error.path().to_string())
}

fn ceiling(of: Value) -> Result<u64, String> {
    read::<v1::PlaceBidRequest>(&json!({ "ceiling_micros": of })).map(|bid| bid.ceiling_micros)
}

#[test]
fn money_is_written_as_a_string_of_an_integer() {
    for micros in [0, 1, 2_000_100, (1 << 53) + 1, u64::MAX] {
        let bid = v1::PlaceBidRequest { ceiling_micros: micros, ..Default::default() };
        let text = serde_json::to_value(&bid).unwrap();
        assert_eq!(text["ceiling_micros"], Value::String(micros.to_string()));
        assert_eq!(read::<v1::PlaceBidRequest>(&text), Ok(bid));
    }
}

#[test]
fn money_is_read_from_a_number_too() {
    assert_eq!(ceiling(json!("2000100")), Ok(2_000_100));
    assert_eq!(ceiling(json!(2_000_100)), Ok(2_000_100));
    assert_eq!(ceiling(json!(u64::MAX)), Ok(u64::MAX));
}

#[test]
fn what_is_no_amount_of_money_is_refused_by_the_name_of_its_field() {
    let bad = [
        json!(-1),
        json!("-1"),
        json!(1.5),
        json!("1.5"),
        json!("NaN"),
        json!("1e6"),
        json!(1e300),
        json!("18446744073709551616"),
        json!(""),
        json!(" 1"),
        json!(true),
        json!([]),
        json!({}),
    ];
    for value in bad {
        assert_eq!(ceiling(value.clone()), Err("ceiling_micros".into()), "{value}");
    }
}

#[test]
fn too_many_nodes_for_the_type_are_refused_by_the_name_of_their_field() {
    let read = |of: Value| read::<v1::PlaceBidRequest>(&json!({ "max_nodes": of })).map(|bid| bid.max_nodes);
    assert_eq!(read(json!(u32::MAX)), Ok(u32::MAX));
    assert_eq!(read(json!(1u64 << 32)), Err("max_nodes".into()));
    assert_eq!(read(json!(-1)), Err("max_nodes".into()));
}

#[test]
fn words_are_those_of_the_rule_book() {
    let read = |of: Value| {
        read::<v1::PlaceBidRequest>(&json!({ "time_in_force": of })).map(|bid| bid.time_in_force())
    };
    assert_eq!(read(json!("GTT")), Ok(TimeInForce::Gtt));
    assert_eq!(read(json!("FOK")), Err("time_in_force".into()));

    let notice = v1::Notice { reason: v1::notice::Reason::Outbid.into(), ..Default::default() };
    assert_eq!(serde_json::to_value(notice).unwrap()["reason"], "OUTBID");
    let bid = v1::Bid { state: v1::bid::State::Open.into(), ..bid() };
    assert_eq!(serde_json::to_value(bid).unwrap()["state"], "OPEN");
}

#[test]
fn a_field_that_nobody_knows_is_refused() {
    let bid = json!({ "ceiling": 2_000_000 });
    let error = serde_json::from_value::<v1::PlaceBidRequest>(bid).unwrap_err().to_string();
    assert!(error.contains("unknown field `ceiling`"), "{error}");
}

#[test]
fn both_spellings_of_a_field_are_read_and_that_of_the_proto_is_written() {
    let bid: v1::PlaceBidRequest = read(&json!({ "maxNodes": 2, "client_key": "k" })).unwrap();
    assert_eq!((bid.max_nodes, bid.client_key.as_str()), (2, "k"));
    assert_eq!(serde_json::to_value(bid).unwrap()["max_nodes"], 2);
}

#[test]
fn only_optional_fields_are_left_out() {
    let text = serde_json::to_value(bid()).unwrap();
    assert_eq!(text["held"], 0);
    assert_eq!(text["allocations"], json!([]));
    assert_eq!(text["labels"], json!({ "team": "vision" }));
    assert!(text.get("unfilled_reason").is_none());
    assert_eq!(read::<v1::Bid>(&text), Ok(bid()));
}

#[test]
fn an_event_names_its_kind() {
    let kind = v1::event::Kind::Allocated(v1::event::Allocated {
        allocation: 7,
        bid: None,
        tenant: None,
        unit: "h100-8x/eu-west:acme#4".into(),
    });
    let event = v1::Event { seq: 9, index: 1, at_us: 1_000_000, kind: Some(kind) };
    let text = serde_json::to_value(&event).unwrap();
    assert_eq!(
        text,
        json!({
            "seq": "9",
            "index": 1,
            "at_us": "1000000",
            "allocated": { "allocation": "7", "unit": "h100-8x/eu-west:acme#4" },
        })
    );
    assert_eq!(read::<v1::Event>(&text), Ok(event));
}

#[test]
fn bytes_are_base64_and_absent_ones_are_left_out() {
    let bid = v1::Bid { node_config: Some(b"\0ssh\xff".to_vec()), ..bid() };
    let text = serde_json::to_value(&bid).unwrap();
    assert_eq!(text["node_config"], "AHNzaP8=");
    assert_eq!(read::<v1::Bid>(&text), Ok(bid));
    assert_eq!(serde_json::to_value(self::bid()).unwrap().get("node_config"), None);
    let refused = read::<v1::PlaceBidRequest>(&json!({ "node_config": "no base64!" }));
    assert_eq!(refused, Err("node_config".into()));
}

fn bid() -> v1::Bid {
    v1::Bid {
        bid: 3,
        state: v1::bid::State::Open.into(),
        time_in_force: TimeInForce::Gtc.into(),
        labels: [("team".to_owned(), "vision".to_owned())].into(),
        ..Default::default()
    }
}
