//! Converts charges and sums.

use crate::events::message::charge_reason;
use crate::readmodel::rows::{ChargeRow, RunningRow, Segment};
use crate::store::Labels;
use kubebid_core::Amount;
use kubebid_core::event::ChargeReason;
use kubebid_core::units::Micros;
use kubebid_proto::v1;
use v1::get_statement_response::Sums;

/// The side from which a viewer sees a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The viewer sees all accounts.
    All,
    Tenant,
    Provider,
}

/// The cost of a running node so far, in segments after those of its row.
#[derive(Clone, Debug)]
pub(crate) struct Accrued {
    pub(crate) to: Micros,
    pub(crate) debit: Amount,
    pub(crate) fee: Amount,
    pub(crate) segments: Vec<Segment>,
}

pub(crate) fn charge(row: ChargeRow, labels: Labels, side: Side) -> v1::Charge {
    let is_shown = row.own || side != Side::Tenant;
    v1::Charge {
        reason: Some(reason_for(row.reason, side).into()),
        allocation: is_shown.then_some(row.allocation.0),
        bid: Some(row.bid.0).filter(|_| side != Side::Provider),
        tenant: Some(row.tenant).filter(|_| side != Side::Provider),
        provider: row.provider,
        unit: row.unit,
        market: row.market,
        labels: shown(labels, side),
        from_us: row.from.0,
        to_us: row.to.0,
        debit_micros: micros(row.debit),
        fee_micros: micros(row.fee),
        credit_micros: micros(row.credit),
        segments: segments(row.segments.iter()),
        seq: Some(row.seq.0),
    }
}

/// Returns the reason of a charge. That its account lacks money is for the tenant alone (R19).
fn reason_for(reason: ChargeReason, side: Side) -> v1::charge::Reason {
    if reason == ChargeReason::Funds && side == Side::Provider {
        return v1::charge::Reason::Other;
    }
    charge_reason(reason)
}

pub(crate) fn running(row: RunningRow, accrued: Accrued, labels: Labels, side: Side) -> v1::Charge {
    let Accrued { to, debit, fee, segments } = accrued;
    v1::Charge {
        reason: None,
        allocation: Some(row.allocation.0),
        bid: Some(row.bid.0).filter(|_| side != Side::Provider),
        tenant: Some(row.tenant).filter(|_| side != Side::Provider),
        provider: row.provider,
        unit: row.unit,
        market: row.market,
        labels: shown(labels, side),
        from_us: row.ready_at.0,
        to_us: to.0,
        debit_micros: micros(debit),
        fee_micros: micros(fee),
        credit_micros: micros(Amount(debit.0 - fee.0)),
        segments: self::segments(row.segments.iter().chain(&segments)),
        seq: None,
    }
}

fn shown(labels: Labels, side: Side) -> Labels {
    if side == Side::Provider { Labels::new() } else { labels }
}

fn segments<'a>(segments: impl Iterator<Item = &'a Segment>) -> Vec<v1::PriceSegment> {
    let mut total_fee = 0;
    let message = |segment: &Segment| {
        total_fee += segment.fee;
        v1::PriceSegment {
            from_us: segment.from.0,
            to_us: segment.to.0,
            mean_price_micros: segment.mean_price.0,
            amount_micros: micros(segment.amount),
            min_charge: segment.min_charge,
            total_fee_micros: u64::try_from(total_fee).expect("fees add up to that of a bill"),
        }
    };
    segments.map(message).collect()
}

/// Sums that grow. A sum that a message cannot hold stays at the largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) debit: Amount,
    pub(crate) credit: Amount,
    pub(crate) fee: Amount,
    pub(crate) node_time_us: u128,
}

impl Sum {
    pub(crate) fn add(&mut self, other: &Sum) {
        self.debit.0 += other.debit.0;
        self.credit.0 += other.credit.0;
        self.fee.0 += other.fee.0;
        self.node_time_us += other.node_time_us;
    }

    /// Returns by how much this sum is above an earlier one, and by how much it is below it.
    pub(crate) fn changes_from(&self, earlier: &Sum) -> (Sum, Sum) {
        (self.minus(earlier), earlier.minus(self))
    }

    /// Returns the sum less another one, at least 0.
    pub(crate) fn minus(&self, other: &Sum) -> Sum {
        let amount = |a: Amount, b: Amount| Amount(a.0.saturating_sub(b.0));
        Sum {
            debit: amount(self.debit, other.debit),
            credit: amount(self.credit, other.credit),
            fee: amount(self.fee, other.fee),
            node_time_us: self.node_time_us.saturating_sub(other.node_time_us),
        }
    }

    pub(crate) fn message(&self) -> Sums {
        Sums {
            debit_micros: micros(self.debit),
            credit_micros: micros(self.credit),
            fee_micros: micros(self.fee),
            node_time_us: micros(Amount(self.node_time_us)),
        }
    }
}

fn micros(amount: Amount) -> u64 {
    u64::try_from(amount.0).unwrap_or(u64::MAX)
}
