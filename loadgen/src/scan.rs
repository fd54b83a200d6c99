//! Reads only those parts of encoded messages that count and time them.

use kubebid_client::v1::Refusal;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
use prost::{DecodeError, Message as _};

/// The field of a frame that holds the events, the points or the answers to bids.
const THINGS: u32 = 1;
/// The field of an answer to a bid that was placed.
const PLACED: u32 = 2;
/// The field of an answer to a bid that was refused.
const REFUSED: u32 = 3;
/// The field of an event with its time.
const EVENT_AT_US: u32 = 3;
/// The field of a point with its time.
const POINT_AT_US: u32 = 4;

/// The value of a field.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// Times in microseconds since the epoch, each with the number of consecutive events or points that have it.
pub type Times = Vec<(u64, u64)>;

/// Returns the times of the events of an encoded `WatchEventsResponse`.
///
/// # Errors
///
/// Returns why the bytes are no such message.
pub fn event_times(frame: &[u8]) -> Result<Times, DecodeError> {
    times(frame, EVENT_AT_US)
}

/// Returns the times of the points of an encoded `WatchPricesResponse`.
///
/// # Errors
///
/// Returns why the bytes are no such message.
pub fn point_times(frame: &[u8]) -> Result<Times, DecodeError> {
    times(frame, POINT_AT_US)
}

/// Returns the refusal of each bid of an encoded `PlaceBidsResponse`, and None for a bid that was placed.
///
/// # Errors
///
/// Returns why the bytes are no such message.
pub fn outcomes(answer: &[u8]) -> Result<Vec<Option<Refusal>>, DecodeError> {
    let mut all = Vec::new();
    each_thing(answer, |mut result| {
        let mut outcome = Some(Refusal::default());
        while !result.is_empty() {
            match next(&mut result)? {
                (PLACED, Value::Bytes(_)) => outcome = None,
                (REFUSED, Value::Bytes(refusal)) => outcome = Some(Refusal::decode(refusal)?),
                (_, Value::Number(_) | Value::Bytes(_) | Value::Other) => {}
            }
        }
        all.push(outcome);
        Ok(())
    })?;
    Ok(all)
}

/// Returns the times in field `at_us` of the events or points of a frame; 0 if it is absent.
fn times(frame: &[u8], at_us: u32) -> Result<Times, DecodeError> {
    let mut times = Times::new();
    each_thing(frame, |mut thing| {
        let mut time = 0;
        while !thing.is_empty() {
            if let (field, Value::Number(number)) = next(&mut thing)?
                && field == at_us
            {
                time = number;
                break;
            }
        }
        match times.last_mut() {
            Some((last, count)) if *last == time => *count += 1,
            Some(_) | None => times.push((time, 1)),
        }
        Ok(())
    })?;
    Ok(times)
}

fn each_thing<'a>(
    mut frame: &'a [u8],
    mut each: impl FnMut(&'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while !frame.is_empty() {
        if let (THINGS, Value::Bytes(thing)) = next(&mut frame)? {
            each(thing)?;
        }
    }
    Ok(())
}

/// Takes the next field of a message, and returns its number and its value.
#[inline]
fn next<'a>(message: &mut &'a [u8]) -> Result<(u32, Value<'a>), DecodeError> {
    let begin = *message;
    // Fields up to 15, as nearly all are, have a key of one byte.
    let (field, wire) = match begin.split_first() {
        Some((key @ 8..0x80, rest)) if key & 7 == WireType::Varint as u8 => {
            *message = rest;
            (u32::from(key >> 3), WireType::Varint)
        }
        Some((key @ 8..0x80, rest)) if key & 7 == WireType::LengthDelimited as u8 => {
            *message = rest;
            (u32::from(key >> 3), WireType::LengthDelimited)
        }
        Some(_) | None => decode_key(message)?,
    };
    let value = match wire {
        WireType::Varint => Value::Number(number(message)?),
        WireType::LengthDelimited => {
            let mut rest = *message;
            let length = usize::try_from(number(&mut rest)?).ok();
            match length.and_then(|length| rest.split_at_checked(length)) {
                Some((bytes, rest)) => {
                    *message = rest;
                    Value::Bytes(bytes)
                }
                // The error says what is wrong.
                None => {
                    skip_field(wire, field, message, DecodeContext::default())?;
                    Value::Other
                }
            }
        }
        WireType::SixtyFourBit | WireType::ThirtyTwoBit | WireType::StartGroup | WireType::EndGroup => {
            skip_field(wire, field, message, DecodeContext::default())?;
            Value::Other
        }
    };
    Ok((field, value))
}

#[inline]
fn number(message: &mut &[u8]) -> Result<u64, DecodeError> {
    match message.split_first() {
        Some((byte @ 0..0x80, rest)) => {
            *message = rest;
            Ok(u64::from(*byte))
        }
        Some(_) | None => prost::encoding::decode_varint(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubebid_client::v1::place_bids_response::Result as BidResult;
    use kubebid_client::v1::place_bids_response::result::Outcome;
    use kubebid_client::v1::{
        Event, PlaceBidResponse, PlaceBidsResponse, PricePoint, WatchEventsResponse, WatchPricesResponse,
    };

    #[test]
    fn the_times_of_a_frame_are_read() {
        let event = |at_us| Event { seq: 700, at_us, ..Event::default() };
        let events = vec![event(3), event(1 << 50), event(1 << 50), event(0)];
        let events = WatchEventsResponse { events, cursor: "x".repeat(300), seq: 9 }.encode_to_vec();
        assert_eq!(event_times(&events), Ok(vec![(3, 1), (1 << 50, 2), (0, 1)]));
        let point = PricePoint { market: "h100/eu".into(), at_us: 5, ..PricePoint::default() };
        let points = WatchPricesResponse { points: vec![point], ..WatchPricesResponse::default() };
        assert_eq!(point_times(&points.encode_to_vec()), Ok(vec![(5, 1)]));
        for cut in [2, events.len() - 5] {
            assert!(event_times(&events[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn the_refusal_of_each_bid_is_read() {
        let refusal = Refusal { reason: "BUSY".into(), ..Refusal::default() };
        let placed = Outcome::Placed(PlaceBidResponse { seq: 7, bid: 7, repeated: false });
        let outcomes_of = [Some(placed), Some(Outcome::Refused(refusal.clone())), None];
        let results = outcomes_of.map(|outcome| BidResult { client_key: "k".into(), outcome });
        let answer = PlaceBidsResponse { results: results.to_vec() }.encode_to_vec();
        assert_eq!(outcomes(&answer), Ok(vec![None, Some(refusal), Some(Refusal::default())]));
        assert!(outcomes(&answer[..answer.len() - 1]).is_err());
    }
}
