//! Commands as bytes: encoded commands can be decoded, and nothing else can.

use kubebid_core::answer::Outcome;
use kubebid_core::codec::DecodeError;
use kubebid_core::command::{
    CancelMode, FundChange, OnPreemption, PlaceBid, RuleChange, RuleValue, TimeInForce,
};
use kubebid_core::units::{
    AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName, Micros, UnitName,
};
use kubebid_core::{Auction, Command, Exchange, Price, StampedCommand};

/// Every variant of every part of a command, with the least and the greatest numbers.
fn samples() -> Vec<StampedCommand> {
    let market = || MarketName::new("h100-8x/eu-west");
    let account = || AccountName::new("tenant with a näme");
    let unit = || UnitName { market: market(), provider: AccountName::new("p1"), number: u64::MAX };
    let bid = PlaceBid {
        tenant: account(),
        markets: Some(vec![market(), MarketName::new("")]),
        instance_type: None,
        ceiling: Price(2_857_200),
        min_nodes: 1,
        max_nodes: u32::MAX,
        time_in_force: TimeInForce::Gtc,
        expire_at: None,
        on_preemption: OnPreemption::Requeue,
    };
    let rules = vec![
        RuleChange { name: "tick".into(), value: RuleValue::Number(0) },
        RuleChange { name: "pricing".into(), value: RuleValue::Word("LowestAccepted".into()) },
    ];
    let cancel = |mode| Command::CancelBid { tenant: account(), bid: BidId(9), mode };
    let fund = |change| Command::Fund { account: account(), change };
    let amend =
        |ceiling, max_nodes| Command::AmendBid { tenant: account(), bid: BidId(9), ceiling, max_nodes };
    let commands = vec![
        Command::OpenMarket { market: market(), rules: Vec::new() },
        Command::OpenMarket { market: market(), rules: rules.clone() },
        Command::ChangeRules { market: market(), rules },
        Command::PutOffer {
            provider: account(),
            market: market(),
            capacity: u64::MAX,
            reserve: Price(u64::MAX),
        },
        Command::WithdrawUnit { provider: account(), unit: unit() },
        Command::ReportUnitLost { provider: account(), unit: unit() },
        Command::PlaceBid(bid.clone()),
        Command::PlaceBid(PlaceBid {
            markets: None,
            instance_type: Some(InstanceType::new("h100-8x")),
            time_in_force: TimeInForce::Gtt,
            expire_at: Some(Micros(u64::MAX)),
            on_preemption: OnPreemption::Close,
            ..bid.clone()
        }),
        Command::PlaceBid(PlaceBid { markets: None, time_in_force: TimeInForce::Ioc, ..bid.clone() }),
        Command::PlaceBid(PlaceBid {
            markets: Some(Vec::new()),
            time_in_force: TimeInForce::Unknown("FOK".into()),
            on_preemption: OnPreemption::Unknown("".into()),
            ..bid
        }),
        amend(None, None),
        amend(Some(Price(1)), Some(0)),
        cancel(CancelMode::Keep),
        cancel(CancelMode::Release),
        cancel(CancelMode::Unknown("DROP".into())),
        Command::ReleaseAllocation { tenant: account(), allocation: AllocationId(128) },
        Command::ReportReady { allocation: AllocationId(127), by: None },
        Command::ReportReady { allocation: AllocationId(0), by: Some(account()) },
        Command::AdvanceTime,
        Command::CloseMarket { market: market() },
        fund(FundChange::Add(-1)),
        fund(FundChange::Add(i64::MIN)),
        fund(FundChange::Set(i64::MAX)),
        fund(FundChange::Unlimited),
        Command::SetBudget { account: account(), monthly: None, roll_over: false },
        Command::SetBudget { account: account(), monthly: Some(5), roll_over: true },
        Command::SetRenewal { renewal: Micros::seconds(300) },
    ];
    let stamps = [(Micros(0), None), (Micros(u64::MAX), Some(ClientKey::new("key")))];
    let stamped = commands.into_iter().flat_map(|command| {
        stamps.clone().map(|(at, key)| StampedCommand { at, key, command: command.clone() })
    });
    stamped.collect()
}

fn bytes_of(command: &StampedCommand) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    bytes
}

#[test]
fn what_is_written_is_read_again() {
    for command in samples() {
        assert_eq!(StampedCommand::decode(&bytes_of(&command)).as_ref(), Ok(&command));
    }
}

#[test]
fn different_commands_have_different_bytes() {
    let mut all: Vec<Vec<u8>> = samples().iter().map(bytes_of).collect();
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn encoding_appends() {
    let command = &samples()[0];
    let mut bytes = b"before".to_vec();
    command.encode(&mut bytes);
    assert_eq!(bytes.strip_prefix(b"before"), Some(&*bytes_of(command)));
}

#[test]
fn a_command_is_known_again_by_its_key_whether_it_was_written_or_not() {
    for command in samples().into_iter().map(|command| StampedCommand { at: Micros(5), ..command }) {
        let mut bytes = Vec::new();
        let content = command.encode_keyed(&mut bytes);
        assert_eq!(bytes, bytes_of(&command));
        assert_eq!(content.is_some(), command.key.is_some());
        let mut exchange = Exchange::new();
        exchange.apply_keyed(&command, content);
        let again = exchange.apply(&command).outcome;
        let keyed = command.key.is_some() && command.command.account().is_some();
        assert_eq!(matches!(again, Outcome::Repeated { .. }), keyed, "{command:?}: {again:?}");
    }
}

#[test]
fn a_record_cut_short_anywhere_is_an_error() {
    for command in samples() {
        let bytes = bytes_of(&command);
        for length in 0..bytes.len() {
            let error = StampedCommand::decode(&bytes[..length]).expect_err("cut short");
            assert_eq!(error, DecodeError::Truncated, "{command:?} cut to {length}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    for command in samples() {
        let mut bytes = bytes_of(&command);
        bytes.push(0);
        assert_eq!(StampedCommand::decode(&bytes), Err(DecodeError::TrailingBytes), "{command:?}");
    }
}

#[test]
fn a_number_too_large_for_its_field_is_an_error() {
    let advance = |time: &[u8]| StampedCommand::decode(&[time, &[0, 11]].concat());
    let mut most = [0xff; 10];
    most[9] = 1;
    assert_eq!(advance(&most).map(|command| command.at), Ok(Micros(u64::MAX)));
    most[9] = 2;
    assert_eq!(advance(&most), Err(DecodeError::NumberTooLarge));
    assert_eq!(advance(&[0xff; 30]), Err(DecodeError::NumberTooLarge));
}

#[test]
fn a_text_that_is_not_utf8_is_an_error() {
    let key = [0, 1, 2, b'k', 0xff, 11];
    assert_eq!(StampedCommand::decode(&key), Err(DecodeError::NotUtf8));
}

#[test]
fn an_unknown_variant_is_an_error() {
    assert_eq!(StampedCommand::decode(&[0, 0, 200]), Err(DecodeError::UnknownVariant(200)));
    assert_eq!(
        StampedCommand::decode(&[0, 2, 11]),
        Err(DecodeError::UnknownVariant(2)),
        "neither a key nor none"
    );
}

/// A flipped byte may give another command, but never a panic, and never bytes with two meanings:
/// whatever can be decoded is encoded as bytes that decode to the same.
#[test]
fn damaged_records_never_panic() {
    for command in samples() {
        let bytes = bytes_of(&command);
        for at in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                reads_or_refuses(&damaged);
            }
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 1u64;
    let mut random = move || {
        // Knuth's linear congruential generator; its low bits are poor.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    for _ in 0..100_000 {
        let length = random() % 60;
        // Small bytes are valid variants and lengths, so decoding gets further.
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| if random() % 4 == 0 { random() as u8 } else { (random() % 12) as u8 })
            .collect();
        bytes.splice(0..0, [0, 0]);
        reads_or_refuses(&bytes);
    }
}

fn reads_or_refuses(bytes: &[u8]) {
    if let Ok(command) = StampedCommand::decode(bytes) {
        assert_eq!(StampedCommand::decode(&bytes_of(&command)), Ok(command));
    }
}
