//! Reservations: what is stored of a funded account, and what its nodes and claims reserve (R19).

use kubebid_core::Price;
use kubebid_core::money::Bill;
use kubebid_core::units::Micros;

/// A funded account.
#[derive(Clone, Debug)]
pub(crate) struct Funded {
    /// The funds in micro-dollars.
    pub(crate) funds: i128,
    pub(crate) budget: Option<Budget>,
    /// None if the account had neither a node nor a claim when it was last settled.
    pub(crate) renewal: Option<Renewal>,
}

/// The time between the renewals of an account, and the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    pub(crate) span: Micros,
    pub(crate) next: Micros,
}

/// A monthly budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) monthly: i64,
    pub(crate) roll_over: bool,
    pub(crate) next_month: Micros,
}

/// The time for which the ceiling is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The time until a renewal at the latest; 0 for a node that is unfunded.
    pub(crate) renewal: Micros,
    /// The time for a notice or a `min_charge` after that.
    pub(crate) tail: Micros,
}

impl Span {
    pub(crate) fn at(self, ceiling: Price) -> i128 {
        exact(ceiling.over(Micros(self.renewal.0 + self.tail.0)))
    }
}

/// The reservation of a node of a funded account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The cost so far when the reservation was made or renewed.
    pub(crate) base: Bill,
    pub(crate) span: Span,
    /// True from a renewal that was not covered until the node comes back.
    pub(crate) unfunded: bool,
}

/// Converts a bill, so that it may be subtracted.
pub(crate) fn exact(bill: Bill) -> i128 {
    i128::try_from(bill.0).expect("prices and times have bounds")
}
