//! Tests of batches: round trips, and damaged ones are rejected by name.

use super::*;

/// xorshift64*: the same numbers for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn payload(&mut self, longest: u64) -> Vec<u8> {
        let length = self.below(longest + 1);
        (0..length).map(|_| self.next().to_le_bytes()[3]).collect()
    }
}

type Content = Vec<(u64, u16, Vec<u8>)>;

fn random_content(numbers: &mut Numbers) -> Content {
    let count = 1 + numbers.below(20);
    (0..count).map(|_| (numbers.next(), numbers.below(3) as u16, numbers.payload(40))).collect()
}

fn pack(after: Position, content: &Content) -> Batch {
    let mut builder = BatchBuilder::new(after);
    for (n, (at_us, version, payload)) in content.iter().enumerate() {
        assert_eq!(builder.push(*at_us, *version, payload), after.seq + 1 + n as u64);
    }
    assert_eq!(builder.count() as usize, content.len());
    let size = builder.size();
    let batch = builder.finish();
    assert_eq!(batch.bytes().len(), size);
    batch
}

fn unpack(batch: &Batch) -> Content {
    let records: Vec<_> = batch.records().collect();
    for (n, record) in records.iter().enumerate() {
        assert_eq!(record.seq, batch.first_seq() + n as u64);
    }
    records.into_iter().map(|r| (r.at_us, r.version, r.payload.to_vec())).collect()
}

fn small_batch() -> Batch {
    pack(Position::START, &vec![(7, 1, b"one".to_vec()), (8, 1, vec![]), (9, 2, b"three".to_vec())])
}

#[test]
fn a_batch_comes_back_as_it_was_packed() {
    for seed in 1..=2_000 {
        let mut numbers = Numbers(seed);
        let content = random_content(&mut numbers);
        let after = Position {
            seq: numbers.below(1 << 40),
            hash: BatchHash(numbers.next().to_le_bytes().repeat(2).try_into().unwrap()),
        };
        let batch = pack(after, &content);
        let back = Batch::decode(batch.bytes().clone()).unwrap();
        assert_eq!(back, batch, "seed {seed}");
        assert_eq!(unpack(&back), content, "seed {seed}");
        assert_eq!(back.before(), after, "seed {seed}");
        assert_eq!(back.end().seq, after.seq + content.len() as u64, "seed {seed}");
    }
}

#[test]
fn a_batch_cut_at_any_byte_is_truncated() {
    for seed in 1..=50 {
        let batch = pack(Position::START, &random_content(&mut Numbers(seed)));
        for end in 0..batch.bytes().len() {
            let error = Batch::decode(batch.bytes().slice(..end)).unwrap_err();
            let DecodeError::Truncated { needed, have } = error else {
                panic!("seed {seed}, {end}: {error}")
            };
            assert!(have == end && needed > end, "seed {seed}, {end}: {error}");
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = small_batch();
    for at in 0..good.bytes().len() {
        for bit in 0..8 {
            let mut bytes = good.bytes().to_vec();
            bytes[at] ^= 1 << bit;
            assert!(Batch::decode(bytes.into()).is_err(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn random_bytes_are_refused_without_a_panic() {
    let mut numbers = Numbers(42);
    for _ in 0..20_000 {
        let mut bytes = numbers.payload(200);
        if numbers.below(2) == 0 && bytes.len() >= 8 {
            bytes[..4].copy_from_slice(MAGIC);
            bytes[4..8].copy_from_slice(&[1, 0, 0, 0]);
        }
        assert!(Batch::decode(bytes.into()).is_err());
    }
}

/// Changes the packed form, and corrects the checksum afterwards.
fn forge(change: impl FnOnce(&mut Vec<u8>)) -> Result<Batch, DecodeError> {
    let mut bytes = small_batch().bytes().to_vec();
    bytes.truncate(bytes.len() - HASH_BYTES);
    change(&mut bytes);
    let length = u32::try_from(bytes.len() - HEADER_BYTES).unwrap();
    bytes[20..24].copy_from_slice(&length.to_le_bytes());
    let hash = BatchHash::of(&bytes);
    bytes.extend_from_slice(&hash.0);
    Batch::decode(bytes.into())
}

#[test]
fn a_batch_that_contradicts_itself_is_refused_though_its_checksum_is_right() {
    assert!(forge(|_| ()).is_ok());
    assert_eq!(forge(|b| b[16] = 0), Err(DecodeError::Sequence { first_seq: 1, count: 0 }));
    assert_eq!(forge(|b| b[8] = 0), Err(DecodeError::Sequence { first_seq: 0, count: 3 }));
    assert_eq!(forge(|b| b[8..16].fill(0xff)), Err(DecodeError::Sequence { first_seq: u64::MAX, count: 3 }));
    assert_eq!(forge(|b| b[16] = 4), Err(DecodeError::Record { seq: 4 }));
    assert_eq!(forge(|b| b[16] = 2), Err(DecodeError::LeftOver { bytes: RECORD_HEADER_BYTES + 5 }));
    assert_eq!(forge(|b| b.push(0)), Err(DecodeError::LeftOver { bytes: 1 }));
    assert_eq!(forge(|b| b[HEADER_BYTES + 10] = 200), Err(DecodeError::Record { seq: 1 }));
    assert_eq!(forge(|b| b[4] = 2), Err(DecodeError::Format(2)));
    assert_eq!(forge(|b| b[0] = b'X'), Err(DecodeError::NotABatch));
}

#[test]
fn a_batch_with_bytes_after_its_end_is_too_long() {
    let mut bytes = small_batch().bytes().to_vec();
    bytes.push(0);
    assert_eq!(
        Batch::decode(bytes.into()),
        Err(DecodeError::TooLong {
            needed: small_batch().bytes().len(),
            have: small_batch().bytes().len() + 1
        })
    );
}

#[test]
fn the_same_records_after_another_history_have_another_hash() {
    let content = vec![(7, 1, b"same".to_vec())];
    let one = pack(Position { seq: 5, hash: BatchHash([1; 16]) }, &content);
    let two = pack(Position { seq: 5, hash: BatchHash([2; 16]) }, &content);
    assert_eq!(unpack(&one), unpack(&two));
    assert_ne!(one.end().hash, two.end().hash);
}

#[test]
#[should_panic(expected = "at least one record")]
fn an_empty_batch_is_a_bug() {
    BatchBuilder::new(Position::START).finish();
}

/// The bytes on disk are a promise: this test fails if a change breaks it for existing journals.
#[test]
fn the_layout_is_the_one_on_disk() {
    let batch = pack(Position::START, &vec![(0x0102, 3, b"ab".to_vec())]);
    let expected = [
        &b"KBJL"[..],
        &[1, 0, 0, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 0, 0],
        &[16, 0, 0, 0],
        &[0; 16],
        &[2, 1, 0, 0, 0, 0, 0, 0],
        &[3, 0],
        &[2, 0, 0, 0],
        b"ab",
    ]
    .concat();
    assert_eq!(batch.bytes()[..expected.len()], expected);
    assert_eq!(batch.bytes()[expected.len()..], batch.end().hash.0);
    assert_eq!(batch.end().hash.to_string(), "03a872de5af7a0c6eb0ebb042485ff23");
}
