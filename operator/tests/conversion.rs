//! Round trips of random BidNodes between v1 and v2beta1, with and without edits between, and what the operator reads.

use boon::{Compiler, SchemaIndex, Schemas};
use kubebid_operator::api::v2beta1::{self, MaxBid};
use kubebid_operator::api::{BidNode, micros, usd};
use kubebid_operator::conversion::{conversions, hub};
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_operator::plan::scope::Scope;
use kubebid_testkit::for_each_seed;
use serde_json::{Value, json};
use std::sync::LazyLock;

const V1: &str = "kubebid.io/v1";
const BETA: &str = "kubebid.io/v2beta1";
const DATA: &str = "kubebid.io/conversion-data";
const EMPTY_AFTER: &str = "kubebid.io/release-empty-after";
/// The number of seeds of a check.
const SEEDS: u64 = 2_000;

fn convert(object: &Value, version: &str) -> Value {
    let mut converted = conversions().convert(object.clone(), version).unwrap();
    converted.sort_all_objects();
    converted
}

fn one_of(random: &mut fastrand::Rng, values: &[Value]) -> Value {
    values[random.usize(..values.len())].clone()
}

/// Returns some of these names, in any order.
fn some_of(random: &mut fastrand::Rng, names: &[&str], least: usize) -> Vec<String> {
    let mut names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    random.shuffle(&mut names);
    names.truncate(random.usize(least..=names.len()));
    names
}

/// Returns a text that is almost a length of time, or is one: v1 has it in an annotation, which no schema checks.
fn almost_time(random: &mut fastrand::Rng) -> Value {
    const PARTS: [&str; 16] =
        ["1", "90", "999999", "1000000", "0", ".", ".5", ".1234", "ms", "s", "m", "h", "us", "ns", "-", " "];
    let parts = random.usize(..12);
    json!((0..parts).map(|_| PARTS[random.usize(..PARTS.len())]).collect::<String>())
}

fn time(random: &mut fastrand::Rng) -> Value {
    one_of(random, &["90s", "10m", "1h30m", "1.5h", "0s", "250ms"].map(|it| json!(it)))
}

/// Returns a value of a field that both versions have, by the name that it has in v1; as v1 and as v2beta1 write it.
fn value(random: &mut fastrand::Rng, field: &str) -> (Value, Value) {
    let same = |value: Value| (value.clone(), value);
    match field {
        "maxBid" | "maxHourlyCost" => {
            let bid = random.u64(10_000..=1_000_000_000_000);
            let whole = bid / 1_000_000 * 1_000_000;
            let bid = if random.bool() || whole == 0 { bid } else { whole };
            let number = if bid % 1_000_000 == 0 { json!(bid / 1_000_000) } else { json!(usd(bid)) };
            (number, json!(MaxBid::from_micros(bid)))
        }
        "minNodes" => same(json!(random.u32(..5))),
        "maxNodes" => same(json!(random.u32(5..1000))),
        "minRequestedGpus" => same(json!(random.u32(..9))),
        "weight" => same(json!(random.u32(1..=100))),
        "disruption" => same(one_of(random, &[json!({}), json!({"nodes": 3}), json!({"nodes": "15%"})])),
        "bidStrategy" => same(one_of(
            random,
            &["cost-optimized", "balanced", "availability-optimized"].map(|it| json!(it)),
        )),
        "nodeSelector" => same(json!({"pool": random.u8(..).to_string()})),
        "taints" => same(json!([{"key": "gpu", "value": random.u8(..).to_string(), "effect": "NoSchedule"}])),
        other => panic!("{other}"),
    }
}

const FIELDS: [(&str, &str); 10] = [
    ("maxBid", "/maxBid"),
    ("minNodes", "/nodes/min"),
    ("maxNodes", "/nodes/max"),
    ("minRequestedGpus", "/nodes/minRequestedGpus"),
    ("maxHourlyCost", "/maxHourlyCost"),
    ("weight", "/weight"),
    ("disruption", "/disruption"),
    ("bidStrategy", "/strategy"),
    ("nodeSelector", "/labels"),
    ("taints", "/taints"),
];

/// Returns a random BidNode of a version, with everything that its schema fills in.
fn bidnode(random: &mut fastrand::Rng, version: &str) -> Value {
    let mut spec = json!({});
    if version == BETA {
        spec["instanceTypes"] = json!(some_of(random, &["h100-8x", "a100-8x", "a100-4x", "l40s-4x"], 1));
        let regions = some_of(random, &["eu-west", "us-east", "ap-south"], 0);
        // Nobody fills in an empty list, and a client may write one.
        if !regions.is_empty() || random.bool() {
            spec["regions"] = json!(regions);
        }
        spec["nodes"] = json!({});
    } else {
        spec["instanceType"] = one_of(random, &["h100-8x", "a100-8x"].map(|it| json!(it)));
        if random.bool() {
            spec["region"] = json!("eu-west");
        }
    }
    spec["gang"] = json!(false);
    for (field, pointer) in FIELDS {
        let is_optional =
            ["nodeSelector", "taints", "maxHourlyCost", "weight", "disruption"].contains(&field);
        if is_optional && random.bool() {
            continue;
        }
        let (older, newer) = value(random, field);
        if version == V1 {
            spec[field] = older;
        } else {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap()[key] = newer;
        }
    }
    if random.u8(..4) == 0 {
        let (min, max, gpus) = if version == BETA {
            ("/nodes/min", "/nodes/max", "/nodes/minRequestedGpus")
        } else {
            ("/minNodes", "/maxNodes", "/minRequestedGpus")
        };
        let nodes = random.u32(2..=1000);
        for (pointer, value) in
            [("/gang", json!(true)), (min, json!(nodes)), (max, json!(nodes)), (gpus, json!(0))]
        {
            *spec.pointer_mut(pointer).unwrap() = value;
        }
    }
    if random.u8(..4) == 0 {
        // Zeros that say nothing, and digits that a micro-dollar does not have.
        spec["maxBid"] = if version == BETA {
            one_of(random, &["2.50", "002.5", "3.000000", "0.01"].map(|it| json!(it)))
        } else {
            one_of(random, &[json!(2.123_456_789), json!(0.010_000_4), json!(999_999.999_999_9)])
        };
    }
    let mut metadata = json!({"name": "gpu", "namespace": "n", "uid": "u", "generation": random.u8(..)});
    let mut annotations = json!({});
    if random.bool() {
        metadata["labels"] = json!({"a": random.u8(..).to_string()});
        annotations["b"] = json!("1");
    }
    for name in [EMPTY_AFTER, "kubebid.io/replace-not-ready-after", "kubebid.io/drain-within"] {
        match random.u8(..4) {
            0 => annotations[name] = time(random),
            1 => {
                annotations[name] = one_of(random, &["soon", "1000000s", "100us", "-5m"].map(|it| json!(it)))
            }
            2 => annotations[name] = almost_time(random),
            _ => {}
        }
    }
    if version == BETA {
        let mut drain = json!({});
        for field in ["within", "emptyAfter", "notReadyAfter"] {
            if random.bool() {
                drain[field] = time(random);
            }
        }
        if random.bool() {
            spec["drain"] = drain;
        }
    }
    if annotations != json!({}) {
        metadata["annotations"] = annotations;
    }
    let mut object = json!({"apiVersion": version, "kind": "BidNode", "metadata": metadata, "spec": spec});
    if random.bool() {
        let price = one_of(random, &[json!(2), json!(2.25), json!(0)]);
        object["status"] = json!({
            "phase": "Running", "activeNodes": 1, "pendingBids": 0, "averagePrice": price, "cost": 12, "currency": "USD",
            "nodes": [{"name": "gpu-0", "region": "eu-west", "price": price, "state": "Ready"}],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "NodesReady", "message": "",
                "lastTransitionTime": "2026-11-23T00:00:00Z", "observedGeneration": 1,
            }],
            "observedGeneration": 1, "selector": "kubebid.io/uid=u",
        });
    }
    object.sort_all_objects();
    object
}

#[test]
fn a_bidnode_is_the_same_after_it_was_converted_there_and_back() {
    for_each_seed(SEEDS, |random| {
        for (own, other) in [(V1, BETA), (BETA, V1)] {
            let object = bidnode(random, own);
            let there = convert(&object, other);
            assert_eq!(convert(&there, own).to_string(), object.to_string(), "by way of {there:#}");
        }
    });
}

#[test]
fn a_client_of_the_other_version_changes_what_it_edits_and_nothing_else() {
    for_each_seed(SEEDS, |random| {
        for (own, other) in [(V1, BETA), (BETA, V1)] {
            let object = bidnode(random, own);
            let mut edited = convert(&object, other);
            let (field, pointer) = FIELDS[random.usize(..FIELDS.len())];
            let is_of_number = ["minNodes", "maxNodes", "minRequestedGpus"].contains(&field);
            if is_of_number && object["spec"]["gang"] == json!(true) {
                // The API server refuses that.
                continue;
            }
            let (older, newer) = value(random, field);
            let pointers = [format!("/spec/{field}"), format!("/spec{pointer}")];
            let set = |object: &mut Value, version: &str| {
                let (pointer, new) =
                    if version == V1 { (&pointers[0], &older) } else { (&pointers[1], &newer) };
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                let same = object.pointer(pointer) == Some(new);
                object.pointer_mut(parent).unwrap()[key] = new.clone();
                object["metadata"]["labels"]["team"] = json!("b");
                same
            };
            let mut wanted = object.clone();
            if set(&mut edited, other) {
                // It has changed nothing.
                continue;
            }
            set(&mut wanted, own);
            wanted.sort_all_objects();
            let back = convert(&edited, own);
            assert_eq!(back.to_string(), wanted.to_string(), "{field} of {edited:#}");
        }
    });
}

#[test]
fn the_hub_of_a_stored_bidnode_is_what_a_client_of_v2beta1_wrote() {
    for_each_seed(SEEDS, |random| {
        let object = bidnode(random, BETA);
        let stored: BidNode = serde_json::from_value(convert(&object, V1)).unwrap();
        let wanted: v2beta1::BidNode = serde_json::from_value(object).unwrap();
        let read = hub(&stored);
        assert_eq!(read.spec, wanted.spec);
        assert_eq!(read.status, wanted.status);
    });
}

/// The schema of the specification of a BidNode in v2beta1.
struct BetaSchema {
    schemas: Schemas,
    spec: SchemaIndex,
}

impl BetaSchema {
    fn new() -> BetaSchema {
        let [definition, ..] = crds::all(&CrdOptions::default()).unwrap();
        let version = definition.spec.versions.iter().find(|it| it.name == "v2beta1").unwrap();
        let root = json!(version.schema.as_ref().unwrap().open_api_v3_schema);
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("https://kubebid.io/spec.json", root["properties"]["spec"].clone()).unwrap();
        let spec = compiler.compile("https://kubebid.io/spec.json", &mut schemas).unwrap();
        BetaSchema { schemas, spec }
    }

    fn check(&self, object: &Value) {
        if let Err(error) = self.schemas.validate(&object["spec"], self.spec) {
            panic!("{object:#}: {error}");
        }
    }
}

#[test]
fn the_schema_of_v2beta1_accepts_what_every_v1_becomes() {
    for_each_seed(SEEDS, |random| {
        BETA_SCHEMA.check(&convert(&bidnode(random, V1), BETA));
    });
}

#[test]
fn the_schema_of_v2beta1_accepts_what_a_v1_with_a_hostile_annotation_becomes() {
    for_each_seed(SEEDS, |random| {
        let mut object = bidnode(random, V1);
        let plain = convert(&object, BETA);
        let long = "a".repeat(64);
        let (pointer, values): (&str, &[Value]) = match random.u8(..6) {
            0 => (
                "/spec/instanceTypes",
                &[json!(["h100-8x", "a b"]), json!(["h100-8x", long]), json!(["a/b"])],
            ),
            1 => ("/spec/regions", &[json!(["-"]), json!(["eu-west", ""]), json!(["eu-west", "a/b"])]),
            2 => ("/spec/maxBid", &[json!("0"), json!("2000000"), json!("$2"), json!("00000000002")]),
            3 => ("/spec/nodes/max", &[json!(0), json!(1_001), json!(-1)]),
            4 => ("/spec/nodes/minRequestedGpus", &[json!(1_001), json!("1")]),
            _ => ("/spec/drain", &[json!({"within": "100us"}), json!({"emptyAfter": "1000000s"})]),
        };
        let there = plain.pointer(pointer).cloned().unwrap_or_default();
        let kept = json!({"value": one_of(random, values), "while": {pointer: there}});
        object["metadata"]["annotations"][DATA] = json!(json!({"v2beta1": {pointer: kept}}).to_string());
        BETA_SCHEMA.check(&convert(&object, BETA));
    });
}

static BETA_SCHEMA: LazyLock<BetaSchema> = LazyLock::new(BetaSchema::new);

#[test]
fn texts_that_are_no_length_of_time_for_v2beta1_stay_annotations() {
    for text in ["1000000s", "100us", "1h1h1h1h1h", "1.1234s", "1.s", "5", "", "-5m", "10 m"] {
        let metadata = json!({"name": "gpu", "annotations": {EMPTY_AFTER: text}});
        let spec = json!({
            "instanceType": "h100-8x", "maxBid": 2, "minNodes": 1, "maxNodes": 10, "minRequestedGpus": 0, "gang": false,
            "bidStrategy": "balanced",
        });
        let older = json!({"apiVersion": V1, "kind": "BidNode", "metadata": metadata, "spec": spec});
        let newer = convert(&older, BETA);
        assert_eq!((&newer["metadata"], newer["spec"].get("drain")), (&older["metadata"], None), "{text}");
        assert_eq!(convert(&newer, V1)["metadata"], older["metadata"], "{text}");
    }
    for text in ["999999s", "100ms", "1h2m3s4ms", "1.123h", "0s"] {
        assert!(v2beta1::TimeSpan::try_from(text.to_owned()).is_ok(), "{text}");
    }
}

#[test]
fn types_that_the_definition_does_not_allow_are_left_out_but_the_first() {
    let stored: BidNode = serde_json::from_value(convert(&full(), V1)).unwrap();
    let types = |allowed: Option<&[&str]>| {
        let allowed = allowed.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        Scope::of_bidnode(&stored, allowed.as_ref()).instance_types
    };
    assert_eq!(types(None), ["h100-8x", "a100-8x"]);
    assert_eq!(types(Some(&["a100-8x"])), ["h100-8x", "a100-8x"]);
    assert_eq!(types(Some(&["h100-8x", "l40s-4x"])), ["h100-8x"]);
}

#[test]
fn every_shape_of_micro_dollars_is_exact_both_ways() {
    let (least, most) = (10_000_u64, 1_000_000_000_000_u64);
    let mut random = fastrand::Rng::with_seed(20);
    let powers = (0..13).map(|power| 10_u64.pow(power));
    let near_powers = powers.clone().flat_map(|it| {
        (1..=9).flat_map(move |digit| {
            (0..50).flat_map(move |by| [it * digit + by, (it * digit).saturating_sub(by)])
        })
    });
    let near_binary =
        (13..40).flat_map(|power| (0..50).flat_map(move |by| [(1_u64 << power) + by, (1 << power) - by]));
    let dense = (least..200_000).chain(most - 50_000..=most);
    let strides = (least..=most).step_by(9_999_991);
    let drawn = std::iter::repeat_with(|| random.u64(least..=most)).take(200_000);
    let all = near_powers.chain(near_binary).chain(dense).chain(strides).chain(drawn);
    for amount in all.filter(|amount| (least..=most).contains(amount)) {
        let number = usd(amount);
        assert_eq!(micros(number), amount);
        let text = serde_json::to_string(&number).unwrap();
        assert_eq!(micros(serde_json::from_str(&text).unwrap()), amount, "{text}");
        let max_bid = MaxBid::from_micros(amount);
        let text = String::from(max_bid.clone());
        assert_eq!(MaxBid::try_from(text.clone()).as_ref(), Ok(&max_bid));
        // The nearest number to the text is that of v1.
        assert_eq!(text.parse::<f64>().unwrap().to_bits(), number.to_bits(), "{text}");
    }
}

fn newer(spec: Value) -> Value {
    json!({"apiVersion": BETA, "kind": "BidNode", "metadata": {"name": "gpu"}, "spec": spec})
}

fn full() -> Value {
    let drain = json!({"within": "20m", "emptyAfter": "1h"});
    newer(json!({
        "instanceTypes": ["h100-8x", "a100-8x"], "regions": ["eu-west", "us-east"], "maxBid": "2.50",
        "nodes": {"min": 2, "max": 5, "minRequestedGpus": 4}, "gang": false, "strategy": "balanced", "drain": drain,
    }))
}

#[test]
fn v1_shows_the_first_of_each_set_and_keeps_the_rest() {
    let older = convert(&full(), V1);
    let shown = json!({
        "bidStrategy": "balanced", "gang": false, "instanceType": "h100-8x", "maxBid": 2.5, "maxNodes": 5,
        "minNodes": 2, "minRequestedGpus": 4, "region": "eu-west",
    });
    assert_eq!(older["spec"], shown);
    let annotations = &older["metadata"]["annotations"];
    assert_eq!(
        (&annotations[EMPTY_AFTER], &annotations["kubebid.io/drain-within"]),
        (&json!("1h"), &json!("20m"))
    );
    let kept: Value = serde_json::from_str(annotations[DATA].as_str().unwrap()).unwrap();
    let fields: Vec<_> = kept["v2beta1"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["/spec/instanceTypes", "/spec/maxBid", "/spec/regions"]);
}

#[test]
fn there_is_nothing_to_keep_if_v1_can_say_it() {
    let mut simple = full();
    simple["spec"]["instanceTypes"] = json!(["h100-8x"]);
    simple["spec"]["regions"] = json!(["eu-west"]);
    // The API server writes a whole number without a point.
    for (text, number) in [("2.5", "2.5"), ("3", "3"), ("1000000", "1000000")] {
        simple["spec"]["maxBid"] = json!(text);
        let older = convert(&simple, V1);
        assert_eq!(older["spec"]["maxBid"].to_string(), number);
        assert_eq!(older["metadata"]["annotations"].get(DATA), None, "{older:#}");
    }
    let older = json!({"apiVersion": V1, "kind": "BidNode", "metadata": {"name": "gpu"}, "spec": {
        "instanceType": "h100-8x", "maxBid": 3, "minNodes": 1, "maxNodes": 10, "minRequestedGpus": 0, "gang": false,
        "bidStrategy": "balanced",
    }, "status": {"phase": "Idle", "activeNodes": 0, "pendingBids": 0, "cost": 7}});
    assert_eq!(convert(&older, BETA)["metadata"], json!({"name": "gpu"}));
}

#[test]
fn a_client_that_drops_the_annotation_narrows_to_what_it_shows() {
    let mut older = convert(&full(), V1);
    older["metadata"]["annotations"].as_object_mut().unwrap().remove(DATA);
    let stored: BidNode = serde_json::from_value(older).unwrap();
    let spec = hub(&stored).spec;
    assert_eq!((spec.instance_types, spec.regions), (vec!["h100-8x".to_owned()], vec!["eu-west".to_owned()]));
    assert_eq!(spec.max_bid.micros(), 2_500_000);
    assert!(spec.drain.unwrap().within.is_some(), "that is an annotation of its own");
}

#[test]
fn a_hostile_annotation_raises_no_bid_and_breaks_no_list() {
    let older = convert(&full(), V1);
    let spoiled = |fields: Value| {
        let mut older = older.clone();
        older["metadata"]["annotations"][DATA] = json!(json!({"v2beta1": fields}).to_string());
        assert_eq!(convert(&older, BETA)["kind"], "BidNode", "it is converted");
        hub(&serde_json::from_value(older).unwrap()).spec
    };
    let kept = |pointer: &str, value: Value, belongs: Value| json!({pointer: {"value": value, "while": {pointer: belongs}}});
    let raised = spoiled(kept("/spec/maxBid", json!("1000"), json!("2.5")));
    assert_eq!(raised.max_bid.micros(), 2_500_000);
    let many: Vec<String> = (0..9).map(|it| format!("h100-{it}x")).collect();
    for types in [json!([]), json!(many), json!(["h100-8x", "h100-8x"]), json!(["a100-8x"]), json!("h100-8x")]
    {
        let spec = spoiled(kept("/spec/instanceTypes", types.clone(), json!(["h100-8x"])));
        assert_eq!(spec.instance_types, ["h100-8x"], "{types}");
    }
}

#[test]
fn a_client_of_v2beta1_stores_nothing_that_v2beta1_does_not_show() {
    let shown = newer(json!({
        "instanceTypes": ["h100-8x"], "regions": ["eu-west"], "maxBid": "2.5", "nodes": {"min": 0, "max": 5},
        "labels": {"team": "a"},
    }));
    let hostile = [
        ("/spec/maxBid", json!(999_999), json!(2.5)),
        ("/spec/instanceType", json!("b300-8x"), json!("h100-8x")),
        ("/spec/region", json!("us-east"), json!("eu-west")),
        ("/spec/maxNodes", json!(5000), json!(5)),
        ("/spec/nodeSelector", json!({"kubernetes.io/hostname": "a"}), json!({"team": "a"})),
        ("/spec/nodeSelector/kubernetes.io~1hostname", json!("a"), Value::Null),
        ("/metadata/annotations/kubebid.io~1paused", json!("true"), Value::Null),
        ("/metadata/annotations/a..b~1c", json!("1"), Value::Null),
        ("/status", json!({"phase": "Idle", "activeNodes": 7, "pendingBids": 0}), Value::Null),
    ];
    let plain = convert(&shown, V1);
    for (pointer, value, belongs) in hostile {
        let kept = json!({"v1": {pointer: {"value": value, "while": {pointer: belongs}}}});
        let mut spoiled = shown.clone();
        spoiled["metadata"]["annotations"] = json!({DATA: kept.to_string()});
        assert_eq!(convert(&spoiled, V1), plain, "{pointer}");
    }
}
