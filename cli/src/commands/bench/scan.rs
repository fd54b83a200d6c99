//! Messages read no further than a bench needs: who takes part in a market reads all of them, a bench would measure
//! its own reading.

use kubebid_client::v1::Refusal;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message as _};

/// The field of a frame that holds the events, the points or the answers to bids.
const THINGS: u32 = 1;
/// The fields of an answer to a bid, of which it has one.
const PLACED: u32 = 2;
const REFUSED: u32 = 3;

/// What a field holds.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The time of each thing in a frame, which is in this field of the thing; 0 where it is absent.
pub(super) fn times(frame: &[u8], at_us: u32, mut each: impl FnMut(u64)) -> Result<(), DecodeError> {
    each_thing(frame, |mut thing| {
        while !thing.is_empty() {
            if let (field, Value::Number(number)) = next(&mut thing)?
                && field == at_us
            {
                each(number);
                return Ok(());
            }
        }
        each(0);
        Ok(())
    })
}

/// What became of each bid of a frame, from its answer.
pub(super) fn outcomes(
    answer: &[u8],
    mut each: impl FnMut(Option<Refusal>),
) -> Result<(), DecodeError> {
    each_thing(answer, |mut result| {
        let mut outcome = None;
        while !result.is_empty() {
            match next(&mut result)? {
                (PLACED, Value::Bytes(_)) => outcome = Some(None),
                (REFUSED, Value::Bytes(refusal)) => outcome = Some(Some(Refusal::decode(refusal)?)),
                (_, Value::Number(_) | Value::Bytes(_) | Value::Other) => {}
            }
        }
        each(outcome.unwrap_or_else(|| Some(Refusal::default())));
        Ok(())
    })
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

/// The next field of a message, and what it holds.
fn next<'a>(message: &mut &'a [u8]) -> Result<(u32, Value<'a>), DecodeError> {
    let (field, wire) = decode_key(message)?;
    let value = match wire {
        WireType::Varint => Value::Number(decode_varint(message)?),
        WireType::LengthDelimited => {
            let mut behind = *message;
            skip_field(wire, field, &mut behind, DecodeContext::default())?;
            decode_varint(message)?;
            let bytes = &message[..message.len() - behind.len()];
            *message = behind;
            Value::Bytes(bytes)
        }
        WireType::SixtyFourBit | WireType::ThirtyTwoBit | WireType::StartGroup | WireType::EndGroup => {
            skip_field(wire, field, message, DecodeContext::default())?;
            Value::Other
        }
    };
    Ok((field, value))
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
    fn of_a_frame_the_times_are_read() {
        let read = |frame: Vec<u8>, at_us| {
            let mut all = Vec::new();
            times(&frame, at_us, |at_us| all.push(at_us)).map(|()| all)
        };
        let event = |at_us| Event { seq: 7, at_us, ..Event::default() };
        let events = WatchEventsResponse { events: vec![event(3), event(0)], cursor: "x".into(), seq: 9 };
        assert_eq!(read(events.encode_to_vec(), 3), Ok(vec![3, 0]));
        let point = PricePoint { market: "h100/eu".into(), at_us: 5, ..PricePoint::default() };
        let points = WatchPricesResponse { points: vec![point], ..WatchPricesResponse::default() };
        assert_eq!(read(points.encode_to_vec(), 4), Ok(vec![5]));
        let mut cut = events.encode_to_vec();
        cut.truncate(2);
        assert!(read(cut, 3).is_err());
    }

    #[test]
    fn of_an_answer_it_is_read_what_became_of_each_bid() {
        let refusal = Refusal { reason: "BUSY".into(), ..Refusal::default() };
        let placed = Outcome::Placed(PlaceBidResponse { seq: 7, bid: 7, repeated: false });
        let outcomes_of = [Some(placed), Some(Outcome::Refused(refusal.clone())), None];
        let results = outcomes_of.map(|outcome| BidResult { client_key: "k".into(), outcome });
        let answer = PlaceBidsResponse { results: results.to_vec() }.encode_to_vec();
        let mut all = Vec::new();
        outcomes(&answer, |outcome| all.push(outcome)).unwrap();
        assert_eq!(all, [None, Some(refusal), Some(Refusal::default())]);
        assert!(outcomes(&answer[..answer.len() - 1], |_| {}).is_err());
    }
}
