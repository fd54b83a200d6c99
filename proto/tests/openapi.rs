//! The schemas say what the JSON is.

use kubebid_proto::v1;
use serde_json::{Value, json};
use utoipa::{PartialSchema, ToSchema};

fn schema<T: PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).unwrap()
}

#[test]
fn money_is_given_as_a_string_and_taken_as_a_number_too() {
    let given = schema::<v1::Bid>();
    assert_eq!(given["properties"]["ceiling_micros"]["type"], "string");
    let taken = schema::<v1::PlaceBidRequest>();
    assert_eq!(taken["properties"]["ceiling_micros"]["type"], json!(["string", "integer"]));
    assert_eq!(taken["properties"]["ceiling_micros"]["maximum"], json!(u64::MAX));
}

#[test]
fn requests_say_what_is_too_much() {
    let bid = &schema::<v1::PlaceBidRequest>()["properties"];
    assert_eq!(bid["client_key"]["maxLength"], 128);
    assert_eq!(bid["max_nodes"]["maximum"], u32::MAX);
    assert_eq!(
        (&bid["labels"]["maxProperties"], &bid["labels"]["propertyNames"]["maxLength"]),
        (&json!(64), &json!(63))
    );
    assert_eq!(bid["markets"]["maxItems"], 100);
    assert_eq!(
        (&bid["node_config"]["format"], &bid["node_config"]["maxLength"]),
        (&json!("byte"), &json!(21848))
    );
    let access = &schema::<v1::NodeAccess>()["properties"];
    assert_eq!(
        (&access["addresses"]["maxItems"], &access["ports"]["maxProperties"]),
        (&json!(16), &json!(16))
    );
    assert_eq!(access["ports"]["additionalProperties"]["maximum"], 65_535);
    // More than 1000 counts as 1000.
    assert_eq!(schema::<v1::ListBidsRequest>()["properties"]["page_size"]["maximum"], u32::MAX);
    let name = &schema::<v1::OpenMarketRequest>()["properties"]["market"];
    assert!(name["pattern"].as_str().unwrap().contains("{1,63}/"), "{name}");
    assert_eq!(schema::<v1::Bid>()["properties"]["market"].get("maxLength"), None, "answers are not checked");
}

#[test]
fn what_is_not_optional_is_required_in_answers_and_what_the_comment_says_in_requests() {
    let required = schema::<v1::Bid>()["required"].clone();
    let required: Vec<&str> =
        required.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(required.contains(&"held") && !required.contains(&"unfilled_reason"), "{required:?}");
    assert_eq!(schema::<v1::PlaceBidRequest>()["required"], json!(["ceiling_micros", "max_nodes"]));
    assert_eq!(schema::<v1::QuoteBidRequest>().get("required"), None);
}

#[test]
fn comments_and_words_of_the_proto_are_in_the_schema() {
    let bid = schema::<v1::Bid>();
    assert_eq!(bid["properties"]["held"]["description"], "Live nodes: not under notice.");
    assert_eq!(bid["properties"]["state"]["$ref"], "#/components/schemas/Bid.State");
    assert_eq!(bid["properties"]["labels"]["additionalProperties"]["type"], "string");
    assert_eq!(bid["properties"]["allocations"]["items"]["type"], "string");
    assert_eq!(schema::<v1::bid::State>()["enum"], json!(["OPEN", "CLOSED"]));
}

#[test]
fn a_schema_brings_all_it_refers_to() {
    let mut schemas = Vec::new();
    v1::ListEventsResponse::schemas(&mut schemas);
    let names: Vec<&str> = schemas.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["Event", "Event.Claimed", "Event.Claimed.Cause", "PriceNumbers", "Charge.Reason"] {
        assert!(names.contains(&name), "{name} is missing from {names:?}");
    }
    assert_eq!(v1::event::Claimed::name(), "Event.Claimed");
}

#[test]
fn prices_names_and_instants_have_examples() {
    let bid = &schema::<v1::PlaceBidRequest>()["properties"];
    assert_eq!(bid["ceiling_micros"]["examples"], json!(["2500000"]));
    assert_eq!(bid["markets"]["items"]["examples"], json!(["h100-8x/eu-west"]));
    assert_eq!(schema::<v1::Notice>()["properties"]["deadline_us"]["examples"], json!(["1767225600000000"]));
}
