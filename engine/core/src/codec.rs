//! Commands as bytes: the journal holds them, and idempotency keys compare them. Integers are LEB128; a text is its
//! length and UTF-8; a variant is one byte that is never used for another variant.

use crate::command::{
    CancelMode, Command, FundChange, OnPreemption, PlaceBid, RestingUnits, RuleChange, RuleValue,
    StampedCommand, TimeInForce,
};
use crate::types::money::Price;
use crate::types::units::{
    AccountName, AllocationId, BidId, ClientKey, InstanceType, MarketName, Micros, UnitName,
};
use std::fmt;

/// Encodes values in the format of this module, one after another.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

/// A fingerprint of all fields of a command except its time and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(pub(crate) u128);

impl Content {
    pub(crate) fn of(command: &Command) -> Content {
        let mut writer = Writer::with_capacity(256);
        writer.command(command);
        Content::of_written(writer.bytes())
    }

    /// Returns the fingerprint of an encoded command.
    pub(crate) fn of_written(command: &[u8]) -> Content {
        Content(xxhash_rust::xxh3::xxh3_128(command))
    }
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end within a value.
    Truncated,
    /// A number does not fit the type of its field.
    NumberTooLarge,
    /// A text is not valid UTF-8.
    NotUtf8,
    /// A variant, a format version or a word is not known; this is its byte, or the first byte of the word.
    UnknownVariant(u8),
    /// Bytes are left after the last value.
    TrailingBytes,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("the record ends too early"),
            DecodeError::NumberTooLarge => f.write_str("a number is too large"),
            DecodeError::NotUtf8 => f.write_str("a text is not UTF-8"),
            DecodeError::UnknownVariant(byte) => write!(f, "unknown variant {byte}"),
            DecodeError::TrailingBytes => f.write_str("bytes after the end of the record"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl StampedCommand {
    /// Appends the bytes of this command, with its time and key.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        self.write(bytes);
    }

    /// Encodes like [`StampedCommand::encode`], and returns the fingerprint of the command if it has a key.
    pub fn encode_keyed(&self, bytes: &mut Vec<u8>) -> Option<Content> {
        let command = self.write(bytes);
        self.key.is_some().then(|| Content::of_written(&bytes[command..]))
    }

    /// Writes everything, and returns the position of the command's bytes.
    fn write(&self, bytes: &mut Vec<u8>) -> usize {
        let mut writer = Writer(std::mem::take(bytes));
        writer.number(self.at.0);
        writer.option(self.key.as_ref(), |w, key| w.text(key.as_str()));
        let begin = writer.0.len();
        writer.command(&self.command);
        *bytes = writer.0;
        begin
    }

    /// Decodes a command, which must take up all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<StampedCommand, DecodeError> {
        let mut reader = Reader(bytes);
        let stamped = StampedCommand {
            at: Micros(reader.number()?),
            key: reader.option(|r| Ok(ClientKey::new(r.text()?)))?,
            command: reader.command()?,
        };
        reader.end()?;
        Ok(stamped)
    }
}

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Writer {
        Writer(Vec::with_capacity(bytes))
    }

    /// Returns the bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes written, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    pub(crate) fn number(&mut self, n: impl Into<u128>) {
        let mut n: u128 = n.into();
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// Writes a signed number as the unsigned one of ZigZag: 0, −1, 1, −2 are 0, 1, 2, 3.
    pub(crate) fn signed(&mut self, n: i64) {
        self.number(((n << 1) ^ (n >> 63)) as u64);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Writer, T),
    ) {
        self.number(items.len() as u64);
        for item in items {
            write(self, item);
        }
    }

    pub(crate) fn command(&mut self, command: &Command) {
        match command {
            Command::OpenMarket { market, rules } => self.rules(1, market, rules),
            Command::ChangeRules { market, rules } => self.rules(2, market, rules),
            Command::PutOffer { provider, market, capacity, reserve } => {
                self.byte(3);
                self.text(provider.as_str());
                self.text(market.as_str());
                self.number(*capacity);
                self.number(reserve.0);
            }
            Command::WithdrawUnit { provider, unit } => self.unit(4, provider, unit),
            Command::ReportUnitLost { provider, unit } => self.unit(5, provider, unit),
            Command::PlaceBid(bid) => self.place_bid(bid),
            Command::AmendBid { tenant, bid, ceiling, max_nodes } => {
                self.byte(7);
                self.text(tenant.as_str());
                self.number(bid.0);
                self.option(*ceiling, |w, ceiling| w.number(ceiling.0));
                self.option(*max_nodes, Writer::number);
            }
            Command::CancelBid { tenant, bid, mode } => {
                self.byte(8);
                self.text(tenant.as_str());
                self.number(bid.0);
                match mode {
                    CancelMode::Keep => self.byte(0),
                    CancelMode::Release => self.byte(1),
                    CancelMode::Regroup => self.byte(2),
                    CancelMode::Unknown(word) => self.unknown(word),
                }
            }
            Command::ReleaseAllocation { tenant, allocation } => {
                self.byte(9);
                self.text(tenant.as_str());
                self.number(allocation.0);
            }
            Command::ReportReady { allocation, by } => {
                self.byte(10);
                self.number(allocation.0);
                self.option(by.as_ref(), |w, by| w.text(by.as_str()));
            }
            Command::AdvanceTime => self.byte(11),
            Command::CloseMarket { market } => {
                self.byte(12);
                self.text(market.as_str());
            }
            Command::ResumeUnits { provider, units: RestingUnits::One(unit) } => {
                self.unit(13, provider, unit)
            }
            Command::ResumeUnits { provider, units: RestingUnits::AllIn(market) } => {
                self.byte(14);
                self.text(provider.as_str());
                self.text(market.as_str());
            }
            Command::Fund { account, change } => {
                self.byte(15);
                self.text(account.as_str());
                match change {
                    FundChange::Add(amount) => {
                        self.byte(0);
                        self.signed(*amount);
                    }
                    FundChange::Set(amount) => {
                        self.byte(1);
                        self.signed(*amount);
                    }
                    FundChange::Unlimited => self.byte(2),
                }
            }
            Command::SetBudget { account, monthly, roll_over } => {
                self.byte(16);
                self.text(account.as_str());
                self.option(*monthly, Writer::signed);
                self.flag(*roll_over);
            }
            Command::SetRenewal { renewal } => {
                self.byte(17);
                self.number(renewal.0);
            }
        }
    }

    fn rules(&mut self, variant: u8, market: &MarketName, rules: &[RuleChange]) {
        self.byte(variant);
        self.text(market.as_str());
        self.list(rules.iter(), |w, rule| {
            w.text(&rule.name);
            match &rule.value {
                RuleValue::Number(n) => {
                    w.byte(0);
                    w.number(*n);
                }
                RuleValue::Word(word) => {
                    w.byte(1);
                    w.text(word);
                }
            }
        });
    }

    fn unit(&mut self, variant: u8, provider: &AccountName, unit: &UnitName) {
        self.byte(variant);
        self.text(provider.as_str());
        self.text(unit.market.as_str());
        self.text(unit.provider.as_str());
        self.number(unit.number);
    }

    fn place_bid(&mut self, bid: &PlaceBid) {
        self.byte(6);
        self.text(bid.tenant.as_str());
        self.option(bid.markets.as_ref(), |w, markets| w.list(markets.iter(), |w, m| w.text(m.as_str())));
        self.option(bid.instance_type.as_ref(), |w, kind| w.text(kind.as_str()));
        self.number(bid.ceiling.0);
        self.number(bid.min_nodes);
        self.number(bid.max_nodes);
        match &bid.time_in_force {
            TimeInForce::Gtc => self.byte(0),
            TimeInForce::Gtt => self.byte(1),
            TimeInForce::Ioc => self.byte(2),
            TimeInForce::Unknown(word) => self.unknown(word),
        }
        self.option(bid.expire_at, |w, at| w.number(at.0));
        match &bid.on_preemption {
            OnPreemption::Requeue => self.byte(0),
            OnPreemption::Close => self.byte(1),
            OnPreemption::Unknown(word) => self.unknown(word),
        }
    }

    fn unknown(&mut self, word: &str) {
        self.byte(u8::MAX);
        self.text(word);
    }
}

/// Decodes values in the format of this module, one after another.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns a reader at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::UnknownVariant(other)),
        }
    }

    pub(crate) fn number<T: TryFrom<u128>>(&mut self) -> Result<T, DecodeError> {
        let mut n = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            if shift == 126 && byte > 0b11 {
                break;
            }
            n |= u128::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return T::try_from(n).map_err(|_| DecodeError::NumberTooLarge);
            }
        }
        Err(DecodeError::NumberTooLarge)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, DecodeError> {
        let n: u64 = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length: usize = self.number()?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| DecodeError::NotUtf8)
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        self.flag()?.then(|| read(self)).transpose()
    }

    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let length: usize = self.number()?;
        // Each item has at least one byte, so a wrong length cannot reserve more memory than the
        // bytes take.
        let mut items = Vec::with_capacity(length.min(self.0.len()));
        for _ in 0..length {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn account_name(&mut self) -> Result<AccountName, DecodeError> {
        self.text().map(AccountName::new)
    }

    fn market_name(&mut self) -> Result<MarketName, DecodeError> {
        self.text().map(MarketName::new)
    }

    fn unit(&mut self) -> Result<UnitName, DecodeError> {
        Ok(UnitName { market: self.market_name()?, provider: self.account_name()?, number: self.number()? })
    }

    fn rules(&mut self) -> Result<Vec<RuleChange>, DecodeError> {
        self.list(|r| {
            let name = r.text()?.into();
            let value = match r.byte()? {
                0 => RuleValue::Number(r.number()?),
                1 => RuleValue::Word(r.text()?.into()),
                other => return Err(DecodeError::UnknownVariant(other)),
            };
            Ok(RuleChange { name, value })
        })
    }

    pub(crate) fn command(&mut self) -> Result<Command, DecodeError> {
        Ok(match self.byte()? {
            1 => Command::OpenMarket { market: self.market_name()?, rules: self.rules()? },
            2 => Command::ChangeRules { market: self.market_name()?, rules: self.rules()? },
            3 => Command::PutOffer {
                provider: self.account_name()?,
                market: self.market_name()?,
                capacity: self.number()?,
                reserve: Price(self.number()?),
            },
            4 => Command::WithdrawUnit { provider: self.account_name()?, unit: self.unit()? },
            5 => Command::ReportUnitLost { provider: self.account_name()?, unit: self.unit()? },
            6 => Command::PlaceBid(self.place_bid()?),
            7 => Command::AmendBid {
                tenant: self.account_name()?,
                bid: BidId(self.number()?),
                ceiling: self.option(|r| r.number().map(Price))?,
                max_nodes: self.option(Reader::number)?,
            },
            8 => Command::CancelBid {
                tenant: self.account_name()?,
                bid: BidId(self.number()?),
                mode: match self.byte()? {
                    0 => CancelMode::Keep,
                    1 => CancelMode::Release,
                    2 => CancelMode::Regroup,
                    u8::MAX => CancelMode::Unknown(self.text()?.into()),
                    other => return Err(DecodeError::UnknownVariant(other)),
                },
            },
            9 => Command::ReleaseAllocation {
                tenant: self.account_name()?,
                allocation: AllocationId(self.number()?),
            },
            10 => Command::ReportReady {
                allocation: AllocationId(self.number()?),
                by: self.option(Reader::account_name)?,
            },
            11 => Command::AdvanceTime,
            12 => Command::CloseMarket { market: self.market_name()? },
            13 => Command::ResumeUnits {
                provider: self.account_name()?,
                units: RestingUnits::One(self.unit()?),
            },
            14 => Command::ResumeUnits {
                provider: self.account_name()?,
                units: RestingUnits::AllIn(self.market_name()?),
            },
            15 => Command::Fund {
                account: self.account_name()?,
                change: match self.byte()? {
                    0 => FundChange::Add(self.signed()?),
                    1 => FundChange::Set(self.signed()?),
                    2 => FundChange::Unlimited,
                    other => return Err(DecodeError::UnknownVariant(other)),
                },
            },
            16 => Command::SetBudget {
                account: self.account_name()?,
                monthly: self.option(Reader::signed)?,
                roll_over: self.flag()?,
            },
            17 => Command::SetRenewal { renewal: Micros(self.number()?) },
            other => return Err(DecodeError::UnknownVariant(other)),
        })
    }

    fn place_bid(&mut self) -> Result<PlaceBid, DecodeError> {
        Ok(PlaceBid {
            tenant: self.account_name()?,
            markets: self.option(|r| r.list(Reader::market_name))?,
            instance_type: self.option(|r| r.text().map(InstanceType::new))?,
            ceiling: Price(self.number()?),
            min_nodes: self.number()?,
            max_nodes: self.number()?,
            time_in_force: match self.byte()? {
                0 => TimeInForce::Gtc,
                1 => TimeInForce::Gtt,
                2 => TimeInForce::Ioc,
                u8::MAX => TimeInForce::Unknown(self.text()?.into()),
                other => return Err(DecodeError::UnknownVariant(other)),
            },
            expire_at: self.option(|r| r.number().map(Micros))?,
            on_preemption: match self.byte()? {
                0 => OnPreemption::Requeue,
                1 => OnPreemption::Close,
                u8::MAX => OnPreemption::Unknown(self.text()?.into()),
                other => return Err(DecodeError::UnknownVariant(other)),
            },
        })
    }
}
