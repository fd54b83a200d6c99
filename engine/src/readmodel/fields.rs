//! Writes fields of a protobuf message straight into bytes, without an intermediate message.

use prost::encoding::{WireType, encode_key, encode_varint};

/// The end of some bytes, to which fields of a message are added.
pub(crate) struct Fields<'a>(pub(crate) &'a mut Vec<u8>);

impl Fields<'_> {
    /// Left out where it is 0, as readers take it then.
    pub(crate) fn number(&mut self, tag: u32, number: u64) {
        self.some_number(tag, (number != 0).then_some(number));
    }

    /// A number that may be absent, or is one of several.
    pub(crate) fn some_number(&mut self, tag: u32, number: Option<u64>) {
        if let Some(number) = number {
            encode_key(tag, WireType::Varint, self.0);
            encode_varint(number, self.0);
        }
    }

    /// A text that may be absent, or is one of several.
    pub(crate) fn some_text(&mut self, tag: u32, text: Option<&str>) {
        if let Some(text) = text {
            self.bytes(tag, text.as_bytes());
        }
    }

    pub(crate) fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        encode_key(tag, WireType::LengthDelimited, self.0);
        encode_varint(bytes.len() as u64, self.0);
        self.0.extend_from_slice(bytes);
    }

    /// A message, or other bytes, that `fill` adds.
    pub(crate) fn message(&mut self, tag: u32, fill: impl FnOnce(&mut Fields<'_>)) {
        encode_key(tag, WireType::LengthDelimited, self.0);
        // Most are shorter than 128 bytes, so that their length is one.
        self.0.push(0);
        let begin = self.0.len();
        fill(&mut Fields(self.0));
        let len = self.0.len() - begin;
        match u8::try_from(len) {
            Ok(len @ ..0x80) => self.0[begin - 1] = len,
            _ => self.make_room(begin, len),
        }
    }

    /// Writes a longer length before what begins at `begin`.
    fn make_room(&mut self, begin: usize, len: usize) {
        encode_varint(len as u64, self.0);
        let more = self.0.len() - begin - len - 1;
        let mut length = [0; 10];
        length[..=more].copy_from_slice(&self.0[begin + len..]);
        self.0.truncate(begin + len + more);
        self.0.copy_within(begin..begin + len, begin + more);
        self.0[begin - 1..begin + more].copy_from_slice(&length[..=more]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    struct Outer {
        #[prost(uint64, tag = "1")]
        number: u64,
        #[prost(uint64, optional, tag = "2")]
        some: Option<u64>,
        #[prost(string, repeated, tag = "3")]
        texts: Vec<String>,
        #[prost(message, optional, boxed, tag = "15")]
        inner: Option<Box<Outer>>,
    }

    fn write(message: &Outer, fields: &mut Fields<'_>) {
        fields.number(1, message.number);
        fields.some_number(2, message.some);
        message.texts.iter().for_each(|text| fields.some_text(3, Some(text)));
        if let Some(inner) = &message.inner {
            fields.message(15, |fields| write(inner, fields));
        }
    }

    #[test]
    fn bytes_are_those_of_the_message() {
        for length in [0, 1, 120, 123, 124, 125, 126, 127, 128, 16_370, 16_380, 16_384, 3_000_000] {
            let inner = Outer { texts: vec!["x".repeat(length)], ..Outer::default() };
            let outer = Outer {
                number: length as u64,
                some: Some(length as u64),
                texts: vec![String::new(), "ä".to_owned()],
                inner: Some(Box::new(Outer {
                    some: Some(u64::MAX),
                    inner: Some(Box::new(inner)),
                    ..Outer::default()
                })),
            };
            let mut bytes = b"before".to_vec();
            write(&outer, &mut Fields(&mut bytes));
            assert_eq!(bytes[6..], outer.encode_to_vec(), "{length}");
        }
    }
}
