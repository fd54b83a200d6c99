//! Prices and amounts in whole micro-dollars. Nothing here is a float; each rounding says who gains.

use crate::types::units::Micros;
use std::fmt;

/// A price in micro-dollars per node-hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(pub u64);

impl Price {
    /// No micro-dollars per node-hour.
    pub const ZERO: Price = Price(0);

    /// Returns true if the price is a whole number of ticks.
    pub fn is_multiple_of(self, tick: u64) -> bool {
        self.0.is_multiple_of(tick)
    }

    /// Returns the lowest multiple of `tick` that is at least this price. None if it is too large for
    /// the type.
    pub fn round_up(self, tick: u64) -> Option<Price> {
        self.0.checked_next_multiple_of(tick).map(Price)
    }

    /// Returns the cost of `span` at this price, before any rounding.
    pub fn over(self, span: Micros) -> Bill {
        Bill(u128::from(self.0) * u128::from(span.0))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An amount in micro-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub u128);

impl Amount {
    /// No micro-dollars.
    pub const ZERO: Amount = Amount(0);

    /// Returns the marketplace's share of a debit, rounded down, so the provider gains (R15).
    #[must_use]
    pub fn fee(self, fee_bps: u64) -> Amount {
        Amount(self.0 * u128::from(fee_bps) / 10_000)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The funds of an account, in whole micro-dollars; negative after a cut (R19). No sequence of commands exceeds the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Funds(pub i128);

impl fmt::Display for Funds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An exact sum of price × time, in micro-dollars per hour × microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bill(pub u128);

impl Bill {
    /// Returns the amount, rounded down once per charge, so the tenant gains (R15).
    pub fn round(self) -> Amount {
        Amount(self.0 / u128::from(Micros::HOUR.0))
    }
}

impl std::ops::Add for Bill {
    type Output = Bill;
    fn add(self, other: Bill) -> Bill {
        Bill(self.0 + other.0)
    }
}

impl std::ops::Sub for Bill {
    type Output = Bill;
    fn sub(self, other: Bill) -> Bill {
        Bill(self.0 - other.0)
    }
}

impl std::ops::AddAssign for Bill {
    fn add_assign(&mut self, other: Bill) {
        self.0 += other.0;
    }
}

/// Running totals of all charges: `debits = credits + fees`, always (I5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The amount that tenants paid, in micro-dollars.
    pub debits: Amount,
    /// The amount that providers got, in micro-dollars.
    pub credits: Amount,
    /// The amount that the marketplace kept, in micro-dollars.
    pub fees: Amount,
}

impl Totals {
    /// Adds one charge. The provider gets `debit` − `fee`.
    pub fn charge(&mut self, debit: Amount, fee: Amount) {
        self.debits.0 += debit.0;
        self.credits.0 += debit.0 - fee.0;
        self.fees.0 += fee.0;
    }
}
