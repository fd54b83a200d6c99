//! Folds charges and their segments, cut at every full hour.

use super::Folded;
use crate::events::commit::Step;
use crate::events::message::EventMessage;
use crate::readmodel::rows::{ChargeRow, EventPlace, Mark, Segment};
use kubebid_core::event::{Event, Fact, Node};
use kubebid_core::money::{Amount, Bill, Price};
use kubebid_core::settlement_details::{ClosedNode, SettlementDetail};
use kubebid_core::units::{AllocationId, BidId, Micros, Names, Seq};
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
    /// The bill up to the end of the segment.
    pub(crate) total: Bill,
}

impl Running {
    pub(crate) fn new(marks: BTreeMap<AllocationId, Mark>) -> Running {
        Running { marks, ended: None }
    }

    pub(super) fn begin(&mut self, allocation: AllocationId, at: Micros) {
        self.marks.insert(allocation, Mark { at, bill: Bill::default() });
    }

    /// Notes a node that has ended. Its charge is the next event.
    pub(super) fn settle(&mut self, was: &ClosedNode) {
        let mark = self.marks.remove(&was.allocation);
        self.ended = Some((*was, mark));
    }
}

impl Mark {
    /// Returns the segment from this mark to a later one, or None if no time has passed between them.
    pub fn segment_to(self, later: Mark) -> Option<Segment> {
        let span = later.at.since(self.at);
        (span.0 > 0).then(|| Segment {
            from: self.at,
            to: later.at,
            amount: Amount(later.bill.round().0 - self.bill.round().0),
            mean_price: mean(later.bill - self.bill, span),
            min_charge: false,
        })
    }
}

/// Returns the mean price of a span, rounded down.
fn mean(bill: Bill, span: Micros) -> Price {
    Price(u64::try_from(bill.0 / u128::from(span.0)).expect("a mean of prices is not above them"))
}

impl Folded<'_> {
    /// Cuts the segments of running nodes at the full hours that passed before the command. Every
    /// node in a mark was ready before this command, and ends after the mark.
    pub(super) fn pass_hours(&mut self, step: &Step, running: &mut Running) {
        for hour in &step.hours {
            for (allocation, bill) in &hour.bills {
                let mark = Mark { at: hour.at, bill: held_bill(*allocation, *bill) };
                let before = running.marks.insert(*allocation, mark).expect("who runs became ready");
                self.cut(*allocation, before, mark);
            }
        }
    }

    fn cut(&mut self, allocation: AllocationId, before: Mark, mark: Mark) {
        if let Some(segment) = before.segment_to(mark) {
            self.segments.push(SegmentRecord { allocation, claim: None, segment, total: mark.bill });
        }
    }

    /// Deletes what a node that ended without a charge had accrued.
    pub(super) fn free(&mut self, was: &ClosedNode, running: &mut Running) {
        if running.marks.remove(&was.allocation).is_some_and(|mark| was.ready_at != Some(mark.at)) {
            self.segments.retain(|record| record.claim.is_some() || record.allocation != was.allocation);
            self.free.push(was.allocation);
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
                self.claim_segment(allocation, place, event.at, to, debit, *price);
                (event.at, to)
            }
            Some(SettlementDetail::Node(_)) => {
                unreachable!("each charge for a claim has its closing, in order")
            }
            None => {
                let (was, mark) = running.ended.take().expect("a charge follows the end of its node");
                let to = self.last_segments(&was, mark, event.at, debit);
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
        from: Micros,
        to: Micros,
        debit: Amount,
        mean_price: Price,
    ) {
        self.segments.push(SegmentRecord {
            allocation,
            claim: Some(claim),
            segment: Segment { from, to, amount: debit, mean_price, min_charge: true },
            total: held_bill(allocation, mean_price.over(to.since(from))),
        });
    }

    /// Adds the segments from the last full hour to the end, and that of the minimum charge. Returns the end of the
    /// billed time.
    fn last_segments(&mut self, was: &ClosedNode, mark: Option<Mark>, at: Micros, debit: Amount) -> Micros {
        let allocation = was.allocation;
        let end = Mark { at, bill: held_bill(allocation, was.used) };
        if let Some(segment) = mark.and_then(|mark| mark.segment_to(end)) {
            self.segments.push(SegmentRecord { allocation, claim: None, segment, total: end.bill });
        }
        let to = at.after(was.missing);
        if was.missing.0 > 0 {
            let amount = Amount(debit.0 - end.bill.round().0);
            self.segments.push(SegmentRecord {
                allocation,
                claim: None,
                segment: Segment { from: at, to, amount, mean_price: was.price, min_charge: true },
                total: held_bill(allocation, was.used + was.price.over(was.missing)),
            });
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
