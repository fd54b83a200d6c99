//! Folds charges and their segments, cut at every full hour.

use super::Folded;
use crate::events::commit::Step;
use crate::events::message::EventMessage;
use crate::readmodel::rows::{ChargeRow, EventPlace, Mark, Segment};
use kubebid_core::event::{Event, Fact, Node};
use kubebid_core::money::{Amount, Bill, Price};
use kubebid_core::settlement_details::{ClosedNode, SettlementDetail};
use kubebid_core::units::{AllocationId, BidId, Micros, Names, Seq};
use kubebid_core::views::Accrual;
use std::collections::BTreeMap;
use tracing::error;

/// The bills of running nodes at the last full hour; no bill yet for a node that became ready after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    marks: BTreeMap<AllocationId, Mark>,
    /// A node that ended, until its charge comes.
    ended: Option<(ClosedNode, Option<Mark>)>,
}

/// A segment and what it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentRecord {
    pub(crate) allocation: AllocationId,
    /// The charge, if the segment belongs to a claim on the allocation; None if it belongs to the
    /// allocation itself.
    pub(crate) claim: Option<EventPlace>,
    pub(crate) segment: Segment,
    /// The bill up to the end of the segment, and its fee.
    pub(crate) total: Bill,
    pub(crate) total_fee: Amount,
}

/// The cost that an allocation which ended free of charge had accrued. The segments stay, because statements of periods
/// that are over have them; the correction takes their amounts back at the instant at which the node ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correction {
    pub(crate) allocation: AllocationId,
    pub(crate) at: Micros,
    pub(crate) amount: Amount,
    pub(crate) fee: Amount,
}

impl Running {
    pub(crate) fn new(marks: BTreeMap<AllocationId, Mark>) -> Running {
        Running { marks, ended: None }
    }

    pub(super) fn begin(&mut self, allocation: AllocationId, at: Micros) {
        self.marks.insert(allocation, Mark::start(at));
    }

    /// Notes a node that has ended. Its charge is the next event.
    pub(super) fn settle(&mut self, was: &ClosedNode) {
        let mark = self.marks.remove(&was.allocation);
        self.ended = Some((*was, mark));
    }
}

impl Mark {
    /// Returns the mark of a node that becomes ready.
    pub fn start(at: Micros) -> Mark {
        Mark { at, bill: Bill::default(), fee: Amount::ZERO }
    }

    /// Returns the segment from this mark to a later one, or None if no time has passed between them.
    pub fn segment_to(self, later: Mark) -> Option<Segment> {
        let span = later.at.since(self.at);
        (span.0 > 0).then(|| Segment {
            from: self.at,
            to: later.at,
            amount: Amount(later.bill.round().0 - self.bill.round().0),
            fee: later.fee.0 as i64 - self.fee.0 as i64,
            mean_price: mean(later.bill - self.bill, span),
            min_charge: false,
        })
    }
}

/// Returns the mean price of a span, rounded down. It is for people to read; the bill itself is exact.
fn mean(bill: Bill, span: Micros) -> Price {
    Price(u64::try_from(bill.0 / u128::from(span.0)).unwrap_or(u64::MAX))
}

impl Folded<'_> {
    /// Cuts the segments of running nodes at the full hours that passed before the command. Every
    /// node in a mark was ready before this command, and ends after the mark.
    pub(super) fn pass_hours(&mut self, step: &Step, running: &mut Running) {
        for hour in &step.hours {
            for Accrual { allocation, bill, fee_bps } in &hour.bills {
                let bill = held_bill(*allocation, *bill);
                let mark = Mark { at: hour.at, bill, fee: bill.round().fee(*fee_bps) };
                let before = running.marks.insert(*allocation, mark).expect("who runs became ready");
                self.cut(*allocation, before, mark);
            }
        }
    }

    fn cut(&mut self, allocation: AllocationId, before: Mark, mark: Mark) {
        if let Some(segment) = before.segment_to(mark) {
            self.segment(allocation, segment, mark);
        }
    }

    fn segment(&mut self, allocation: AllocationId, segment: Segment, end: Mark) {
        let Mark { bill: total, fee: total_fee, .. } = end;
        self.segments.push(SegmentRecord { allocation, claim: None, segment, total, total_fee });
    }

    /// Takes back what a node that ended without a charge had accrued at the full hours.
    pub(super) fn free(&mut self, was: &ClosedNode, at: Micros, running: &mut Running) {
        let Some(mark) = running.marks.remove(&was.allocation) else { return };
        let (amount, fee) = (mark.bill.round(), mark.fee);
        if amount > Amount::ZERO {
            self.corrections.push(Correction { allocation: was.allocation, at, amount, fee });
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all that a charge is made of")]
    pub(super) fn charge(
        &mut self,
        seq: Seq,
        message: &EventMessage,
        event: &Event,
        node: Node,
        claim: Option<&SettlementDetail>,
        running: &mut Running,
        names: &Names,
    ) {
        let Fact::Charged { tenant, debit, fee, reason, .. } = event.fact else {
            unreachable!("called with a charge")
        };
        let allocation = node.allocation;
        // A debit is a credit plus a fee, also if the tables hold less of it.
        let (debit, fee) = (held(allocation, debit), held(allocation, fee));
        let place = (seq.0, message.event.index);
        let (from, to) = match claim {
            Some(SettlementDetail::Claim { price, span, .. }) => {
                let to = event.at.after(*span);
                self.claim_segment(allocation, place, (event.at, to), debit, fee, *price);
                (event.at, to)
            }
            Some(SettlementDetail::Node(_)) => {
                unreachable!("each charge for a claim has its closing, in order")
            }
            None => {
                let (was, mark) = running.ended.take().expect("a charge follows the end of its node");
                let to = self.last_segments(&was, mark, event.at, debit, fee);
                (was.ready_at.unwrap_or(event.at), to)
            }
        };
        let bid = message.parties.claimant.as_ref().map_or(node.bid, |claimant| claimant.bid);
        self.charges.push(ChargeRow {
            seq,
            index: message.event.index,
            at: event.at,
            allocation,
            bid: BidId(bid.0),
            tenant: names.account(tenant).to_string(),
            provider: names.account(node.unit.provider).to_string(),
            unit: names.unit(node.unit).to_string(),
            market: names.market(node.unit.market).to_string(),
            own: tenant == node.tenant,
            reason,
            from,
            to,
            debit,
            fee,
            credit: Amount(debit.0 - fee.0),
            segments: Vec::new(),
        });
    }

    fn claim_segment(
        &mut self,
        allocation: AllocationId,
        claim: EventPlace,
        (from, to): (Micros, Micros),
        debit: Amount,
        fee: Amount,
        mean_price: Price,
    ) {
        self.segments.push(SegmentRecord {
            allocation,
            claim: Some(claim),
            segment: Segment { from, to, amount: debit, fee: fee.0 as i64, mean_price, min_charge: true },
            total: held_bill(allocation, mean_price.over(to.since(from))),
            total_fee: fee,
        });
    }

    /// Adds the segments from the last full hour to the end, and that of the minimum charge. Returns the end of the
    /// billed time.
    fn last_segments(
        &mut self,
        was: &ClosedNode,
        mark: Option<Mark>,
        at: Micros,
        debit: Amount,
        fee: Amount,
    ) -> Micros {
        let (allocation, to) = (was.allocation, at.after(was.missing));
        let before = mark.unwrap_or(Mark::start(at));
        let used = held_bill(allocation, was.used);
        // The fee is rounded down once for the whole charge. The time that was used has its part of it by the
        // amounts, rounded down; the minimum charge has the rest.
        let used_fee = Amount(fee.0 * used.round().0 / debit.0);
        let mut end = Mark { at, bill: used, fee: used_fee };
        match before.segment_to(end) {
            Some(segment) => self.segment(allocation, segment, end),
            None => end = before,
        }
        let bill = held_bill(allocation, was.used + was.price.over(was.missing));
        // The fee may have changed since the last full hour even if no time has passed.
        if was.missing.0 > 0 || end.fee != fee {
            let segment = Segment {
                from: at,
                to,
                amount: Amount(debit.0 - used.round().0),
                fee: fee.0 as i64 - end.fee.0 as i64,
                mean_price: was.price,
                min_charge: was.missing.0 > 0,
            };
            self.segment(allocation, segment, Mark { at: to, bill, fee });
        }
        to
    }
}

/// The largest amount that the tables hold, in micro-dollars.
const AMOUNT_MAX: Amount = Amount(i64::MAX as u128);

/// Returns an amount as the tables hold it, which is at most [`AMOUNT_MAX`]. Only market rules that the
/// edge refuses lead to a larger one. It is cut, so that the tables of all accounts continue.
fn held(allocation: AllocationId, amount: Amount) -> Amount {
    if amount > AMOUNT_MAX {
        error!(%allocation, %amount, "an amount is larger than the tables hold: they show {AMOUNT_MAX}");
    }
    amount.min(AMOUNT_MAX)
}

/// Returns a bill as the tables hold it, in the same way.
fn held_bill(allocation: AllocationId, bill: Bill) -> Bill {
    if bill.round() <= AMOUNT_MAX {
        return bill;
    }
    Bill(held(allocation, bill.round()).0 * u128::from(Micros::HOUR.0))
}
