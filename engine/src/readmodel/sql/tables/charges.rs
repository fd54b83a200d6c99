//! Rows of charges and their segments.

use crate::readmodel::fold::{Correction, SegmentRecord};
use crate::readmodel::rows::ChargeRow;
use crate::readmodel::sql::schema::{CHARGE_SEGMENTS, CHARGES};
use crate::store::bulk::{Bulk, Change, How};
use kubebid_core::money::Amount;
use kubebid_core::units::Micros;

pub(super) fn charges(charges: &[ChargeRow]) -> Change {
    let mut rows = Bulk::new(&[CHARGES], charges.len());
    for charge in charges {
        let mut row = rows.row();
        row.number(charge.seq.0).number(charge.index.into()).time(charge.at);
        row.number(charge.allocation.0).number(charge.bid.0).text(&charge.tenant).text(&charge.provider);
        row.text(&charge.unit).text(&charge.market).flag(charge.own).text(charge.reason.word());
        row.time(charge.from).time(charge.to);
        row.number(amount(charge.debit)).number(amount(charge.fee)).number(amount(charge.credit));
    }
    Change { how: How::Append("charges"), rows }
}

pub(super) fn segments(segments: &[SegmentRecord]) -> Change {
    let mut rows = Bulk::new(&[CHARGE_SEGMENTS], segments.len());
    for SegmentRecord { allocation, claim, segment, total, total_fee } in segments {
        let (seq, index) = claim.unwrap_or_default();
        let rest = total.0 % u128::from(Micros::HOUR.0);
        let mut row = rows.row();
        row.number(allocation.0).number(seq).number(index.into());
        row.time(segment.from).time(segment.to).number(amount(segment.amount)).signed(segment.fee);
        row.number(segment.mean_price.0).flag(segment.min_charge);
        row.number(amount(total.round())).number(amount(*total_fee)).number(rest as u64);
    }
    Change { how: How::Append("charge_segments"), rows }
}

/// Writes corrections as segments without a length, whose amounts are below 0.
pub(super) fn corrections(corrections: &[Correction]) -> Change {
    let mut rows = Bulk::new(&[CHARGE_SEGMENTS], corrections.len());
    for correction in corrections {
        let mut row = rows.row();
        row.number(correction.allocation.0).number(0).number(0);
        row.time(correction.at).time(correction.at);
        row.signed(-(amount(correction.amount) as i64)).signed(-(amount(correction.fee) as i64));
        row.number(0).flag(false);
        row.number(0).number(0).number(0);
    }
    Change { how: How::Append("charge_segments"), rows }
}

/// Returns an amount as the tables hold it. The fold has made sure that it fits.
fn amount(amount: Amount) -> u64 {
    u64::try_from(amount.0).expect("an amount below 2^63")
}
