//! Names, ids, times and counts.

use std::fmt;
use std::sync::Arc;

/// An instant, or a span of time, in microseconds; instants count from the epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// The span of one second.
    pub const SECOND: Micros = Micros(1_000_000);
    /// The span of one hour.
    pub const HOUR: Micros = Micros(3_600_000_000);
    /// The span of 24 hours.
    pub const DAY: Micros = Micros(24 * Self::HOUR.0);

    /// Returns a span of this many seconds.
    pub const fn seconds(seconds: u64) -> Micros {
        Micros(seconds * Self::SECOND.0)
    }

    /// Returns the instant `span` later. If that is too large for the type, returns the largest
    /// instant.
    #[must_use]
    pub const fn after(self, span: Micros) -> Micros {
        Micros(self.0.saturating_add(span.0))
    }

    /// Returns the span since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Copies a text, which is not checked here.
            pub fn new(text: &str) -> Self {
                Self(Arc::from(text))
            }

            /// Returns the text as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// The name of an account: a tenant, a provider, or both.
    AccountName
);
name!(
    /// The name of a market: `type/region`, as in `h100-8x/eu-west`.
    MarketName
);
name!(
    /// The type of a node, as in `h100-8x`: the part of a market's name before the `/`.
    InstanceType
);
name!(
    /// A client's idempotency key (R16). The edge limits it to 128 bytes.
    ClientKey
);

impl MarketName {
    /// Returns the instance type and the region. Without a `/` the region is empty.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or((&self.0, ""))
    }
}

/// A unit as people write it: `market:provider#number`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitName {
    /// The market in which the unit is sold.
    pub market: MarketName,
    /// The account that sells it.
    pub provider: AccountName,
    /// The number of the unit, from 1 in each offer. No number is used twice.
    pub number: u64,
}

impl UnitName {
    /// Parses a name. A text of another form gives a name that no unit has (number 0).
    pub fn parse(text: &str) -> UnitName {
        let parsed = text.split_once(':').and_then(|(market, rest)| {
            let (provider, number) = rest.rsplit_once('#')?;
            Some((market, provider, number.parse().ok()?))
        });
        let (market, provider, number) = parsed.unwrap_or((text, "", 0));
        UnitName { market: MarketName::new(market), provider: AccountName::new(provider), number }
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", self.market, self.provider, self.number)
    }
}

/// The place of a command in the journal, from 1; refused commands have one too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// The id of a bid: the sequence number of the command that placed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BidId(pub u64);

/// The id of an allocation. Allocations are numbered from 1 in the order in which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocationId(pub u64);

/// The id of a market. Markets are numbered from 0 in the order in which they were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarketId(pub u32);

/// The id of an account. Accounts are numbered from 0 in the order in which commands first name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub u32);

/// The id of a unit, which is one sellable node. There is at most one offer per market and provider, so
/// these three fields identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// The market in which the unit is sold.
    pub market: MarketId,
    /// The account that sells it.
    pub provider: AccountId,
    /// The number of the unit, from 1 in each offer. No number is used twice.
    pub number: u64,
}

macro_rules! number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

number!(Micros, Seq, BidId, AllocationId);

/// The names of markets and accounts by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names of markets, by [`MarketId`].
    pub markets: Vec<MarketName>,
    /// The names of accounts, by [`AccountId`].
    pub accounts: Vec<AccountName>,
}

impl Names {
    /// Returns the name of a market. Panics if no market has this number.
    pub fn market(&self, id: MarketId) -> &MarketName {
        &self.markets[id.0 as usize]
    }

    /// Returns the name of an account. Panics if no account has this number.
    pub fn account(&self, id: AccountId) -> &AccountName {
        &self.accounts[id.0 as usize]
    }

    /// Returns the name of a unit. Panics if no market or account has its number.
    pub fn unit(&self, id: UnitId) -> UnitName {
        UnitName {
            market: self.market(id.market).clone(),
            provider: self.account(id.provider).clone(),
            number: id.number,
        }
    }
}
