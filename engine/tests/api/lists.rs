//! Lists of requests have maxima, and errors repeat little of what they were sent.

use crate::fields::{self, Field, Value};
use crate::raw;
use crate::world::{Caller, World, refused};
use kubebid_engine::wire::lists::MAXIMA;
use kubebid_proto::v1;
use prost::Message;
use tonic::{Code, Status};
use v1::place_bids_response::result::Outcome;
use v1::token::Role;

/// Returns the field that a refusal names, and its message, if a request has this many entries of a list.
async fn blamed(caller: &Caller, list: &Field, entries: usize) -> Option<(String, String)> {
    // The fields that are checked before the list.
    let before = match &list.message[..] {
        "InstanceType" => v1::PutInstanceTypeRequest {
            instance_type: Some(v1::InstanceType { name: "a".to_owned(), ..Default::default() }),
        }
        .encode_to_vec(),
        "CreateTokenRequest" => {
            v1::CreateTokenRequest { account: "someone".to_owned(), ..Default::default() }.encode_to_vec()
        }
        _ => Vec::new(),
    };
    let message = [before, list.set(&list.values(entries))].concat();
    match raw::call(caller, list.method, message).await {
        Err(status) => {
            let refused = refused(&status);
            Some((refused.reason, refused.field.unwrap_or_default()))
        }
        // A bid of a frame is refused in the frame's results.
        Ok(Some(answer)) if list.method.ends_with("/PlaceBids") => {
            let answer = v1::PlaceBidsResponse::decode(answer).unwrap();
            match answer.results.into_iter().next()?.outcome? {
                Outcome::Refused(refusal) => {
                    Some((refusal.reason, format!("bids.{}", refusal.field.unwrap_or_default())))
                }
                Outcome::Placed(_) => None,
            }
        }
        Ok(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_repeated_field_of_a_request_has_a_maximum_and_is_refused_by_its_name() {
    let world = World::start().await;
    let caller = world.caller("someone", &[Role::Tenant, Role::Provider, Role::Admin]).await;
    let lists: Vec<Field> = fields::all().into_iter().filter(Field::is_repeated).collect();
    for list in &lists {
        let name = format!("{}.{}", list.message, list.name());
        let maximum = MAXIMA.iter().find(|(known, _)| *known == name);
        let (_, most) = maximum.unwrap_or_else(|| panic!("{name} has no maximum"));
        let code = if name == "PlaceBidsRequest.bids" { "TOO_LARGE" } else { "BAD_FIELD" };
        let refusal = Some((code.to_owned(), list.place()));
        assert_eq!(blamed(&caller, list, most + 1).await, refusal, "{} {}", list.method, most + 1);
        assert_ne!(blamed(&caller, list, *most).await, refusal, "{} {most}", list.method);
    }
    for (name, _) in MAXIMA {
        let is_there = lists.iter().any(|list| format!("{}.{}", list.message, list.name()) == name);
        assert!(is_there, "{name} is in no request");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_repeats_at_most_200_bytes_of_a_text() {
    let world = World::start().await;
    let caller = world.caller("someone", &[Role::Tenant, Role::Provider, Role::Admin]).await;
    let long = |status: &Status| status.message().len() > 500 || status.details().len() > 1500;
    let mut refusals = 0;
    for field in fields::all().iter().filter(|field| field.is_text()) {
        for letter in ["a", "\u{1}", "€"] {
            let text = letter.repeat(60_000 / letter.len());
            let message = field.set(&[Value::Text(text)]);
            if let Err(status) = raw::call(&caller, field.method, message).await {
                assert!(!long(&status), "{} {}: {status}", field.method, field.place());
                assert_ne!(status.code(), Code::Internal, "{status}");
                refusals += 1;
            }
        }
    }
    assert!(refusals > 50, "only {refusals} were refused");
    world.stop().await;
}
