//! Computes what running nodes have cost so far, from the amounts noted at full hours and from the exchange.

use super::Api;
use crate::readmodel::rows::{Mark, RunningRow, Segment};
use crate::wire::billing::Accrued;
use crate::wire::status::ApiError;
use kubebid_core::money::Bill;
use kubebid_core::units::{AllocationId, MarketName, Micros};

impl Api {
    /// Returns the market's time. On a real clock it goes on between two commands.
    pub(super) async fn market_now(&self) -> Result<Micros, ApiError> {
        let last = self.engine().ask(|exchange| exchange.now()).await?;
        Ok(self.engine().market_clock().now(last))
    }

    /// Returns what each of these nodes has cost so far. A node that has ended meanwhile is left out.
    pub(super) async fn accrue(&self, rows: Vec<RunningRow>) -> Result<Vec<(RunningRow, Accrued)>, ApiError> {
        let ids: Vec<AllocationId> = rows.iter().map(|row| row.allocation).collect();
        let until = self.market_now().await?;
        let asked = self.engine().ask_each(ids, move |exchange, id| exchange.bills_by_hour(id, until));
        let marks = asked.await?;
        let markets = self.engine().views().markets();
        let fee_bps =
            |market: &str| markets.get(&MarketName::new(market)).map_or(0, |view| view.rules.fee_bps);
        let running = rows.into_iter().zip(marks).filter_map(|(row, bills)| {
            let marks = marks_of(bills?, fee_bps(&row.market));
            let (last, segments) = segments(row.mark, &marks);
            let accrued = Accrued { to: last.at, debit: last.bill.round(), fee: last.fee, segments };
            Some((row, accrued))
        });
        Ok(running.collect())
    }
}

/// Returns bills as marks, with the fee that a charge would have at present.
pub(super) fn marks_of(bills: Vec<(Micros, Bill)>, fee_bps: u64) -> Vec<Mark> {
    let mark = |(at, bill): (Micros, Bill)| Mark { at, bill, fee: bill.round().fee(fee_bps) };
    bills.into_iter().map(mark).collect()
}

/// Returns the segments since the last mark in the tables, and the mark at their end.
fn segments(noted: Mark, marks: &[Mark]) -> (Mark, Vec<Segment>) {
    let (mut last, mut segments) = (noted, Vec::new());
    for mark in marks {
        segments.extend(last.segment_to(*mark));
        last = if mark.at > last.at { *mark } else { last };
    }
    (last, segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubebid_core::{Amount, Price};

    fn mark(seconds: u64, price_seconds: u128) -> Mark {
        Mark { at: Micros::seconds(seconds), bill: Bill(price_seconds * 1_000_000), fee: Amount::ZERO }
    }

    #[test]
    fn amounts_add_up_to_the_rounded_bill() {
        let (last, segments) = segments(mark(0, 0), &[mark(1, 1000), mark(2, 3000), mark(3, 5500)]);
        let amounts: u128 = segments.iter().map(|segment| segment.amount.0).sum();
        assert_eq!(amounts, last.bill.round().0);
        assert_eq!(segments[2].mean_price, Price(2500));
    }
}
