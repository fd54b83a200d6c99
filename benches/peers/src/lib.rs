//! Books of other people behind the operations of the plain stream, and a book that many share.

pub mod shared;

use benches::plain::Book;
use lobster::{OrderEvent, OrderType};
use orderbook_rs::{Id, OrderBook, Side, TimeInForce};

/// `orderbook-rs`: a concurrent book, used by one thread. An order is for one unit.
pub struct OrderBookRs {
    book: OrderBook<()>,
    takers: u64,
}

impl std::fmt::Debug for OrderBookRs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderBookRs").field("takers", &self.takers).finish_non_exhaustive()
    }
}

impl Default for OrderBookRs {
    fn default() -> OrderBookRs {
        OrderBookRs { book: OrderBook::new("plain"), takers: TAKERS }
    }
}

/// Those who take are orders too, with numbers that no order of the stream has.
const TAKERS: u64 = 1 << 40;

impl Book for OrderBookRs {
    fn place(&mut self, id: u64, price: u64) {
        let (id, price) = (Id::Sequential(id), u128::from(price));
        self.book.add_limit_order(id, price, 1, Side::Buy, TimeInForce::Gtc, None).expect("an order rests");
    }

    fn cancel(&mut self, id: u64) {
        self.book.cancel_order(Id::Sequential(id)).expect("an order can be cancelled");
    }

    fn take(&mut self) -> Option<u64> {
        self.takers += 1;
        let filled = self.book.match_market_order(Id::Sequential(self.takers), 1, Side::Sell).ok()?;
        match filled.trades().as_vec().first()?.maker_order_id() {
            Id::Sequential(id) => Some(id),
            Id::Uuid(_) | Id::Ulid(_) => None,
        }
    }
}

/// `lobster`: a book for one thread. An order is for one unit.
#[derive(Debug)]
pub struct Lobster {
    book: lobster::OrderBook,
    takers: u128,
}

impl Default for Lobster {
    fn default() -> Lobster {
        Lobster { book: lobster::OrderBook::default(), takers: u128::from(TAKERS) }
    }
}

impl Book for Lobster {
    fn place(&mut self, id: u64, price: u64) {
        let id = u128::from(id);
        self.book.execute(OrderType::Limit { id, side: lobster::Side::Bid, qty: 1, price });
    }

    fn cancel(&mut self, id: u64) {
        self.book.execute(OrderType::Cancel { id: u128::from(id) });
    }

    fn take(&mut self) -> Option<u64> {
        self.takers += 1;
        let taker = OrderType::Market { id: self.takers, side: lobster::Side::Ask, qty: 1 };
        match self.book.execute(taker) {
            OrderEvent::Filled { fills, .. } => fills.first().map(|fill| fill.order_2 as u64),
            OrderEvent::Unfilled { .. }
            | OrderEvent::PartiallyFilled { .. }
            | OrderEvent::Placed { .. }
            | OrderEvent::Canceled { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benches::plain::{NumberedLadder, Plain};
    
    fn takes_what_the_ladder_takes<B: Book>() {
        let stream = Plain::new(3, 500, 30_000);
        let (mut ladders, mut others) = (stream.books::<NumberedLadder>(), stream.books::<B>());
        let mut taken = 0;
        for op in &stream.ops {
            let market = op.market() as usize;
            let expected = op.play(&mut ladders[market]);
            assert_eq!(op.play(&mut others[market]), expected, "{op:?}");
            taken += usize::from(expected.is_some());
        }
        assert!(taken > 2000);
    }

    #[test]
    fn orderbook_rs_takes_the_same_orders_as_the_ladder() {
        takes_what_the_ladder_takes::<OrderBookRs>();
    }

    #[test]
    fn lobster_takes_the_same_orders_as_the_ladder() {
        takes_what_the_ladder_takes::<Lobster>();
    }
}
