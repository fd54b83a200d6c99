//! Converts enums to the words in the tables, and back.

use crate::readmodel::rows::{BidState, NodeState, StoredTimeInForce};
use crate::store::Fault;
use kubebid_core::event::{ChargeReason, CloseReason, EndReason, NoticeReason};

/// A value that a column holds as a word.
pub(super) trait Word: Copy + Sized + 'static {
    const ALL: &'static [Self];
    fn word(self) -> &'static str;

    fn read(table: &'static str, word: &str) -> Result<Self, Fault> {
        let found = Self::ALL.iter().copied().find(|value| value.word() == word);
        found.ok_or_else(|| Fault::Row { table, what: format!("{word:?}") })
    }
}

macro_rules! words {
    ($($name:ident { $($variant:ident = $word:literal)* })*) => {$(
        impl Word for $name {
            const ALL: &'static [$name] = &[$($name::$variant),*];
            fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    )*};
}

words! {
    StoredTimeInForce { Gtc = "GTC" Gtt = "GTT" Ioc = "IOC" }
    BidState { Open = "OPEN" Closed = "CLOSED" }
    NodeState { Starting = "STARTING" Active = "ACTIVE" Ended = "ENDED" }
}

macro_rules! of_the_core {
    ($($name:ident)*) => {$(
        impl Word for $name {
            const ALL: &'static [$name] = $name::ALL;
            fn word(self) -> &'static str {
                $name::word(self)
            }
        }
    )*};
}

of_the_core! { ChargeReason CloseReason EndReason NoticeReason }
