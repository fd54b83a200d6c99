//! Computes what running nodes have cost so far, from the amounts noted at full hours and from the exchange.

use super::Api;
use crate::readmodel::rows::{Mark, RunningRow, Segment};
use crate::wire::billing::Accrued;
use crate::wire::status::ApiError;
use kubebid_core::money::{Bill, Price};
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
        let fee_bps = |row: &RunningRow| {
            markets.get(&MarketName::new(&row.market)).map_or(0, |view| view.rules.fee_bps)
        };
        let running = rows.into_iter().zip(marks).filter_map(|(row, marks)| {
            let marks: Vec<Mark> = marks?.into_iter().map(|(at, bill)| Mark { at, bill }).collect();
            let (last, segments) = segments(row.mark, &marks);
            let debit = last.bill.round();
            let accrued = Accrued { to: last.at, debit, fee: debit.fee(fee_bps(&row)), segments };
            Some((row, accrued))
        });
        Ok(running.collect())
    }
}

/// Returns the segments since the last mark in the tables, and the mark at their end.
fn segments(noted: Mark, marks: &[Mark]) -> (Mark, Vec<Segment>) {
    let (mut last, mut segments) = (noted, Vec::new());
    for mark in marks.iter().filter(|mark| mark.at > noted.at) {
        segments.push(Segment {
            from: last.at,
            to: mark.at,
            amount: kubebid_core::Amount(mark.bill.round().0 - last.bill.round().0),
            mean_price: mean(mark.bill - last.bill, mark.at.since(last.at)),
            min_charge: false,
        });
        last = *mark;
    }
    (last, segments)
}

/// Returns the mean price of a span, rounded down. It is for people to read; the bill itself is exact.
fn mean(bill: Bill, span: Micros) -> Price {
    Price(u64::try_from(bill.0 / u128::from(span.0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seconds: u64, price_seconds: u128) -> Mark {
        Mark { at: Micros::seconds(seconds), bill: Bill(price_seconds * 1_000_000) }
    }

    #[test]
    fn amounts_add_up_to_the_rounded_bill() {
        let (last, segments) = segments(mark(0, 0), &[mark(1, 1000), mark(2, 3000), mark(3, 5500)]);
        let amounts: u128 = segments.iter().map(|segment| segment.amount.0).sum();
        assert_eq!(amounts, last.bill.round().0);
        assert_eq!(segments[2].mean_price, Price(2500));
    }
}
