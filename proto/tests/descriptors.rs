//! What reflection tells: every service, every method, and a comment on everything.

use kubebid_proto::FILE_DESCRIPTOR_SET;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use std::collections::{BTreeMap, BTreeSet};

const METHODS: &str = "
    AccountService: GetAccount
    AdminService: OpenMarket ChangeRules CloseMarket PutInstanceType AdvanceTime PutAccount ListAccounts FundAccount SetBudget SetRenewal CreateToken ListTokens RevokeToken
    AllocationService: GetAllocation ListAllocations ReportReady ReleaseAllocation
    BidService: PlaceBid PlaceBids QuoteBid GetBid ListBids AmendBid CancelBid
    BillingService: ListCharges GetStatement
    EventService: WatchEvents ListEvents Explain
    InjectService: InjectDemand EndDemand InjectLoss RestoreOffers PreemptAllocation SetClockRate
    MarketService: ListMarkets ListInstanceTypes GetMarketPrice GetDepth ListPriceHistory WatchPrices
    OfferService: PutOffer GetOffer ListOffers WithdrawUnit ReportUnitLost ResumeUnits
";

fn descriptors() -> FileDescriptorSet {
    prost::Message::decode(FILE_DESCRIPTOR_SET).expect("a FileDescriptorSet")
}

#[test]
fn the_descriptors_list_every_service_and_method() {
    let set = descriptors();
    let mut listed: Vec<String> = Vec::new();
    for service in set.file.iter().flat_map(|file| &file.service) {
        let methods: Vec<&str> = service.method.iter().map(|method| method.name()).collect();
        listed.push(format!("{}: {}", service.name(), methods.join(" ")));
    }
    listed.sort();
    let expected: Vec<&str> = METHODS.trim().lines().map(str::trim).collect();
    assert_eq!(listed, expected);
    assert!(set.file.iter().all(|file| file.package() == "kubebid.auction.v1"));
}

#[test]
fn everything_has_a_comment() {
    let mut bare = Vec::new();
    walk(&mut |thing| {
        if thing.comment.trim().is_empty() {
            bare.push(format!("{} in {}", thing.name, thing.file));
        }
    });
    assert!(bare.is_empty(), "without a comment: {bare:#?}");
}

#[test]
fn comments_do_not_speak_of_the_change() {
    let words = ["TODO", "FIXME", " no longer ", "for backwards compatibility"];
    walk(&mut |thing| {
        for word in words {
            assert!(!thing.comment.contains(word), "{} says {word:?}", thing.name);
        }
    });
}

#[test]
fn each_method_has_a_request_and_a_response_of_its_own() {
    for file in descriptors().file {
        for method in file.service.iter().flat_map(|service| &service.method) {
            let own = |suffix| format!(".kubebid.auction.v1.{}{suffix}", method.name());
            assert_eq!(method.input_type(), own("Request"));
            assert_eq!(method.output_type(), own("Response"));
        }
    }
}

#[test]
fn numbers_of_fields_are_dense_and_the_first_word_of_an_enum_is_unspecified() {
    each_message(&mut |name, message| {
        let numbers: BTreeSet<i32> = message.field.iter().map(|field| field.number()).collect();
        assert!(numbers.iter().copied().eq(1..=message.field.len() as i32), "{name}: {numbers:?}");
        message.enum_type.iter().for_each(|kind| first_is_unspecified(name, kind));
    });
}

fn first_is_unspecified(scope: &str, kind: &EnumDescriptorProto) {
    let zero = &kind.value[0];
    let expected = format!("{}_UNSPECIFIED", screaming(kind.name()));
    assert_eq!((zero.name(), zero.number()), (expected.as_str(), 0), "{scope}");
}

#[test]
fn money_and_time_are_unsigned_integers_with_their_unit_in_the_name() {
    use prost_types::field_descriptor_proto::Type;
    each_message(&mut |name, message| {
        for field in &message.field {
            let full = format!("{name}.{}", field.name());
            let has_unit = field.name().ends_with("_micros") || field.name().ends_with("_us");
            // What an account has may be negative after a cut (R19).
            let signed = ["add", "set", "monthly", "funds", "reserved", "available", "cost_so_far"];
            let is_signed = signed.iter().any(|amount| field.name() == format!("{amount}_micros"));
            let kind = if is_signed { Type::Int64 } else { Type::Uint64 };
            assert!(!has_unit || field.r#type() == kind, "{full} is no {kind:?}");
            let is_money = ["price", "ceiling", "reserve", "debit", "credit", "fee", "amount", "floor"]
                .iter()
                .any(|word| field.name().split('_').any(|part| part == *word));
            let is_number = field.r#type() == Type::Uint64;
            // A time until which a ceiling is locked is no money.
            let is_time = field.name().ends_with("_until_us");
            let names_unit = field.name().ends_with("_micros") || is_time;
            assert!(!(is_money && is_number) || names_unit, "{full} names no unit");
        }
    });
}

#[test]
fn no_request_names_who_asks() {
    each_message(&mut |name, message| {
        for field in message.field.iter().filter(|_| name.ends_with("Request")) {
            assert!(!["tenant", "provider"].contains(&field.name()), "{name}.{}", field.name());
        }
    });
}

#[test]
fn every_command_of_an_account_takes_a_key_and_every_answer_to_a_command_has_its_number() {
    let fields: BTreeMap<String, BTreeSet<String>> = {
        let mut fields = BTreeMap::new();
        each_message(&mut |name, message| {
            fields
                .insert(name.to_owned(), message.field.iter().map(|field| field.name().to_owned()).collect());
        });
        fields
    };
    let commands = "PlaceBid AmendBid CancelBid ReportReady ReleaseAllocation PutOffer WithdrawUnit ReportUnitLost ResumeUnits";
    for command in commands.split(' ') {
        assert!(fields[&format!("{command}Request")].contains("client_key"), "{command}");
        assert!(fields[&format!("{command}Response")].contains("seq"), "{command}");
    }
    for (name, fields) in fields.iter().filter(|(_, fields)| fields.contains("min_seq")) {
        assert!(name.ends_with("Request"), "{name}: {fields:?}");
    }
}

struct Thing<'a> {
    file: &'a str,
    name: String,
    comment: &'a str,
}

/// Visits every service, method, message, field, oneof, enum and word with its comment.
fn walk(visit: &mut dyn FnMut(Thing<'_>)) {
    for file in &descriptors().file {
        let comments: BTreeMap<&[i32], &str> = file
            .source_code_info
            .iter()
            .flat_map(|info| &info.location)
            .map(|place| (&place.path[..], place.leading_comments()))
            .collect();
        for (path, name) in things(file) {
            let comment = comments.get(&path[..]).copied().unwrap_or_default();
            visit(Thing { file: file.name(), name, comment });
        }
    }
}

/// All that is declared in a file: its path in the descriptor, and its name.
fn things(file: &FileDescriptorProto) -> Vec<(Vec<i32>, String)> {
    let mut things = Vec::new();
    for (at, service) in numbered(&file.service) {
        things.push((vec![6, at], service.name().to_owned()));
        for (of, method) in numbered(&service.method) {
            things.push((vec![6, at, 2, of], format!("{}.{}", service.name(), method.name())));
        }
    }
    for (at, message) in numbered(&file.message_type) {
        things_of_message(&mut things, "", &[4, at], message);
    }
    for (at, kind) in numbered(&file.enum_type) {
        things_of_enum(&mut things, "", &[5, at], kind);
    }
    things
}

fn things_of_message(
    things: &mut Vec<(Vec<i32>, String)>,
    scope: &str,
    path: &[i32],
    message: &DescriptorProto,
) {
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return;
    }
    let name = format!("{scope}{}", message.name());
    things.push((path.to_vec(), name.clone()));
    for (at, field) in numbered(&message.field) {
        things.push(([path, &[2, at]].concat(), format!("{name}.{}", field.name())));
    }
    // The oneofs that `optional` makes begin with a "_" and are declared nowhere.
    for (at, oneof) in numbered(&message.oneof_decl).filter(|(_, oneof)| !oneof.name().starts_with('_')) {
        things.push(([path, &[8, at]].concat(), format!("{name}.{}", oneof.name())));
    }
    for (at, inner) in numbered(&message.nested_type) {
        things_of_message(things, &format!("{name}."), &[path, &[3, at]].concat(), inner);
    }
    for (at, kind) in numbered(&message.enum_type) {
        things_of_enum(things, &format!("{name}."), &[path, &[4, at]].concat(), kind);
    }
}

fn things_of_enum(
    things: &mut Vec<(Vec<i32>, String)>,
    scope: &str,
    path: &[i32],
    kind: &EnumDescriptorProto,
) {
    let name = format!("{scope}{}", kind.name());
    things.push((path.to_vec(), name.clone()));
    for (at, value) in numbered(&kind.value) {
        things.push(([path, &[2, at]].concat(), format!("{name}.{}", value.name())));
    }
}

fn numbered<T>(things: &[T]) -> impl Iterator<Item = (i32, &T)> {
    (0..).zip(things)
}

fn each_message(visit: &mut dyn FnMut(&str, &DescriptorProto)) {
    fn inner(scope: &str, message: &DescriptorProto, visit: &mut dyn FnMut(&str, &DescriptorProto)) {
        let name = format!("{scope}{}", message.name());
        visit(&name, message);
        for nested in &message.nested_type {
            inner(&format!("{name}."), nested, visit);
        }
    }
    for message in descriptors().file.iter().flat_map(|file| &file.message_type) {
        inner("", message, visit);
    }
}

/// `OnPreemption` as `ON_PREEMPTION`.
fn screaming(name: &str) -> String {
    let mut screaming = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !screaming.is_empty() {
            screaming.push('_');
        }
        screaming.extend(letter.to_uppercase());
    }
    screaming
}
