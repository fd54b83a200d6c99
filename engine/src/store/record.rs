//! The unit of the journal: a batch of records, packed for one commit.
//!
//! ```text
//! offset  bytes
//!      0      4  magic "KBJL"
//!      4      2  format of this layout, 1
//!      6      2  zero
//!      8      8  seq of the first record
//!     16      4  number of records, at least 1
//!     20      4  length of all records together
//!     24     16  hash of the batch before, zeros for the first batch
//!     40      …  the records, each: time 8, edition of the rules 2, length 4, payload
//!      …     16  hash: XXH3-128 of everything above
//! ```
//!
//! All numbers are little-endian. The records of a batch follow each other without a gap, so only the
//! first one's seq is written. The hash is the checksum of the batch. Because it covers the hash of the
//! previous batch, it also identifies the whole history up to here: two journals that differ anywhere
//! differ in every later hash. It finds damage and mix-ups; it does not protect against forgery.

use std::fmt;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

const MAGIC: &[u8; 4] = b"KBJL";
const FORMAT: u16 = 1;
const HASH_BYTES: usize = 16;
const HEADER_BYTES: usize = 24 + HASH_BYTES;
const RECORD_HEADER_BYTES: usize = 14;

/// The hash of a batch and, through it, of every earlier batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchHash(pub [u8; HASH_BYTES]);

impl BatchHash {
    /// The hash before the first batch of a journal.
    pub const NONE: Self = Self([0; HASH_BYTES]);

    fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes).to_le_bytes())
    }
}

impl fmt::Display for BatchHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for BatchHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchHash({self})")
    }
}

/// A place between two batches, after the record `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The number of the last record; 0 is the beginning.
    pub seq: u64,
    /// The hash of the batch that ends there.
    pub hash: BatchHash,
}

impl Position {
    /// The position before the first record.
    pub const START: Self = Self { seq: 0, hash: BatchHash::NONE };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq {} ({})", self.seq, self.hash)
    }
}

/// One command of the journal. The store does not look into the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The number of the record: 1 for the first one of a journal, without gaps.
    pub seq: u64,
    /// The time at which the command was stamped, in microseconds since 1970.
    pub at_us: u64,
    /// The edition of the rules that it was written under.
    pub version: u16,
    /// The command, as `kubebid_core::codec` encodes it.
    pub payload: &'a [u8],
}

/// Packs records into one buffer. It does not allocate for a record, and not at all if the buffer is
/// large enough.
#[derive(Debug)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    after: Position,
    count: u32,
}

impl BatchBuilder {
    /// Returns an empty batch that will follow `after` in the journal.
    pub fn new(after: Position) -> Self {
        Self::with_capacity(after, 4096)
    }

    /// Works like [`BatchBuilder::new`], with room for `bytes`.
    pub fn with_capacity(after: Position, bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(bytes.max(HEADER_BYTES + HASH_BYTES));
        buffer.resize(HEADER_BYTES, 0);
        Self { bytes: buffer, after, count: 0 }
    }

    /// Adds a record and returns its seq.
    pub fn push(&mut self, at_us: u64, version: u16, payload: &[u8]) -> u64 {
        self.push_with(at_us, version, |bytes| bytes.extend_from_slice(payload))
    }

    /// Adds a record whose payload is what `write` appends to the buffer. Returns its seq.
    ///
    /// # Panics
    /// If `write` removes bytes, or appends 4 GiB or more.
    pub fn push_with(&mut self, at_us: u64, version: u16, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.bytes.extend_from_slice(&at_us.to_le_bytes());
        self.bytes.extend_from_slice(&version.to_le_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let start = self.bytes.len();
        write(&mut self.bytes);
        let length = self.bytes.len().checked_sub(start).expect("a payload is appended");
        let length = u32::try_from(length).expect("a payload is smaller than 4 GiB");
        self.bytes[length_at..start].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        self.after.seq + u64::from(self.count)
    }

    /// Returns the number of records so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the size of the batch so far, in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len() + HASH_BYTES
    }

    /// Seals the batch.
    ///
    /// # Panics
    /// If there is no record, or if all records together are 4 GiB or more.
    pub fn finish(self) -> Batch {
        let Self { mut bytes, after, count } = self;
        assert!(count > 0, "a batch has at least one record");
        let length = u32::try_from(bytes.len() - HEADER_BYTES).expect("a batch is smaller than 4 GiB");
        let first_seq = after.seq + 1;
        bytes[0..4].copy_from_slice(MAGIC);
        bytes[4..6].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[8..16].copy_from_slice(&first_seq.to_le_bytes());
        bytes[16..20].copy_from_slice(&count.to_le_bytes());
        bytes[20..24].copy_from_slice(&length.to_le_bytes());
        bytes[24..HEADER_BYTES].copy_from_slice(&after.hash.0);
        let hash = BatchHash::of(&bytes);
        bytes.extend_from_slice(&hash.0);
        Batch { bytes: bytes.into(), first_seq, count, before: after.hash, hash }
    }
}

/// A whole, verified batch. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    bytes: Bytes,
    first_seq: u64,
    count: u32,
    before: BatchHash,
    hash: BatchHash,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({}..={}, {})", self.first_seq, self.last_seq(), self.hash)
    }
}

impl Batch {
    /// Reads a batch back and verifies all of it.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let have = bytes.len();
        if have < HEADER_BYTES {
            return Err(DecodeError::Truncated { needed: HEADER_BYTES + HASH_BYTES, have });
        }
        if &bytes[0..4] != MAGIC {
            return Err(DecodeError::NotABatch);
        }
        let format = u16::from_le_bytes(array(&bytes[4..6]));
        if format != FORMAT {
            return Err(DecodeError::Format(format));
        }
        let length = u32::from_le_bytes(array(&bytes[20..24])) as usize;
        let records_end = HEADER_BYTES + length;
        let needed = records_end + HASH_BYTES;
        if have < needed {
            return Err(DecodeError::Truncated { needed, have });
        }
        if have > needed {
            return Err(DecodeError::TooLong { needed, have });
        }
        let hash = BatchHash(array(&bytes[records_end..]));
        let computed = BatchHash::of(&bytes[..records_end]);
        if hash != computed {
            return Err(DecodeError::Checksum { written: hash, computed });
        }
        let first_seq = u64::from_le_bytes(array(&bytes[8..16]));
        let count = u32::from_le_bytes(array(&bytes[16..20]));
        if count == 0 || first_seq == 0 || first_seq.checked_add(u64::from(count)).is_none() {
            return Err(DecodeError::Sequence { first_seq, count });
        }
        let mut rest = &bytes[HEADER_BYTES..records_end];
        for n in 0..u64::from(count) {
            rest = split_record(rest).ok_or(DecodeError::Record { seq: first_seq + n })?.rest;
        }
        if !rest.is_empty() {
            return Err(DecodeError::LeftOver { bytes: rest.len() });
        }
        let before = BatchHash(array(&bytes[24..HEADER_BYTES]));
        Ok(Self { bytes, first_seq, count, before, hash })
    }

    /// Returns the packed form, which [`Batch::decode`] reads.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the number of the first record.
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Returns the number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count) - 1
    }

    /// Returns the number of records, which is at least 1.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the place in the journal that this batch follows.
    pub fn before(&self) -> Position {
        Position { seq: self.first_seq - 1, hash: self.before }
    }

    /// Returns the place in the journal at which this batch ends.
    pub fn end(&self) -> Position {
        Position { seq: self.last_seq(), hash: self.hash }
    }

    /// Returns the records in order.
    pub fn records(&self) -> Records<'_> {
        Records { rest: &self.bytes[HEADER_BYTES..self.bytes.len() - HASH_BYTES], next_seq: self.first_seq }
    }
}

/// The records of a batch in order.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    next_seq: u64,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let SplitRecord { at_us, version, payload, rest } = split_record(self.rest)?;
        let seq = self.next_seq;
        self.next_seq += 1;
        self.rest = rest;
        Some(Record { seq, at_us, version, payload })
    }
}

struct SplitRecord<'a> {
    at_us: u64,
    version: u16,
    payload: &'a [u8],
    rest: &'a [u8],
}

/// Splits the first record off. Returns `None` if the bytes end before the record does.
fn split_record(bytes: &[u8]) -> Option<SplitRecord<'_>> {
    let (header, rest) = bytes.split_at_checked(RECORD_HEADER_BYTES)?;
    let length = u32::from_le_bytes(array(&header[10..14])) as usize;
    let (payload, rest) = rest.split_at_checked(length)?;
    Some(SplitRecord {
        at_us: u64::from_le_bytes(array(&header[0..8])),
        version: u16::from_le_bytes(array(&header[8..10])),
        payload,
        rest,
    })
}

/// Converts a slice whose length the caller has just set.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice is cut to the size of the array")
}

/// Why bytes are not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the batch does.
    #[error("it ends too early: {have} bytes of at least {needed}")]
    Truncated {
        /// The least number of bytes.
        needed: usize,
        /// The number of bytes.
        have: usize,
    },
    /// The bytes do not end with the batch.
    #[error("it is too long: {have} bytes instead of {needed}")]
    TooLong {
        /// The length of the batch.
        needed: usize,
        /// The number of bytes.
        have: usize,
    },
    /// The bytes do not begin with the magic of a batch.
    #[error("it does not begin like a batch of records")]
    NotABatch,
    /// A newer version of this program wrote the batch in another format.
    #[error("it has format {0}, this program knows format {FORMAT}; a newer version wrote it")]
    Format(u16),
    /// The checksum is wrong: the batch is damaged.
    #[error("its checksum is wrong: written {written}, computed {computed}")]
    Checksum {
        /// The hash in the batch.
        written: BatchHash,
        /// The hash of its bytes.
        computed: BatchHash,
    },
    /// The numbers of the records are impossible.
    #[error("it says {count} records from seq {first_seq} on, which cannot be")]
    Sequence {
        /// The number of the first record.
        first_seq: u64,
        /// The number of records.
        count: u32,
    },
    /// A record is longer than the rest of the batch.
    #[error("the record with seq {seq} is longer than the batch")]
    Record {
        /// The number of the record.
        seq: u64,
    },
    /// Bytes follow the last record.
    #[error("{bytes} bytes follow the last record")]
    LeftOver {
        /// The number of these bytes.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests;
