//! Bids as they were at the end of each run of commands that touched them, those of a tenant in one message.

use super::fields::Fields;
use super::fold::{BidRecord, Placed};
use super::rows::{BidRow, BidState, Tif};
use kubebid_core::event::CloseReason;
use kubebid_core::money::Price;
use kubebid_core::units::{BidId, Micros, Seq};
use prost::Message;

/// The bids that a tenant placed in a run, in order.
#[derive(Clone, PartialEq, Message)]
pub struct PlacedBids {
    #[prost(message, repeated, tag = "1")]
    bids: Vec<PlacedBid>,
}

#[derive(Clone, PartialEq, Message)]
struct PlacedBid {
    #[prost(uint64, tag = "1")]
    bid: u64,
    /// Markets in the tenant's order; none for an instance type.
    #[prost(string, repeated, tag = "2")]
    markets: Vec<String>,
    #[prost(string, optional, tag = "3")]
    instance_type: Option<String>,
    #[prost(uint32, tag = "4")]
    min_nodes: u32,
    #[prost(enumeration = "TimeInForce", tag = "5")]
    time_in_force: i32,
    #[prost(uint64, optional, tag = "6")]
    expire_at_us: Option<u64>,
    #[prost(bool, tag = "7")]
    closes_on_preemption: bool,
    #[prost(string, optional, tag = "8")]
    client_key: Option<String>,
    #[prost(uint64, tag = "9")]
    placed_at_us: u64,
    #[prost(message, required, tag = "10")]
    state: Touched,
}

/// The changing part of a bid, as it was after a run that touched it.
#[derive(Clone, PartialEq, Message)]
pub struct Touched {
    #[prost(uint64, tag = "1")]
    ceiling: u64,
    #[prost(uint32, tag = "2")]
    max_nodes: u32,
    #[prost(uint64, tag = "3")]
    bid_seq: u64,
    #[prost(bool, tag = "4")]
    searching: bool,
    /// The word of the reason, where it closed in this run.
    #[prost(string, optional, tag = "5")]
    close_reason: Option<String>,
    #[prost(uint64, optional, tag = "6")]
    closed_at_us: Option<u64>,
    #[prost(uint32, tag = "7")]
    held: u32,
    #[prost(uint32, tag = "8")]
    under_notice: u32,
    #[prost(uint32, tag = "9")]
    claimed: u32,
    #[prost(uint32, tag = "10")]
    unmet: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum TimeInForce {
    Gtc = 0,
    Gtt = 1,
    Ioc = 2,
}

impl PlacedBids {
    /// Adds a bid to the bytes of the message, which they are then too.
    pub(crate) fn add(bytes: &mut Vec<u8>, bid: BidId, placed: &Placed<'_>, record: &BidRecord<'_>) {
        let view = record.view;
        Fields(bytes).message(1, |fields| {
            fields.number(1, bid.0);
            placed.scope.markets().for_each(|market| fields.some_text(2, Some(market)));
            fields.some_text(3, placed.scope.instance_type());
            fields.number(4, view.min_nodes.into());
            fields.number(5, TimeInForce::of(placed.time_in_force) as u64);
            fields.some_number(6, view.expire_at.map(|at| at.0));
            fields.number(7, view.closes_on_preemption.into());
            fields.some_text(8, placed.client_key.map(|key| key.as_str()));
            fields.number(9, placed.at.0);
            fields.message(10, |state| Touched::fill(state, record));
        });
    }

    /// Returns those of the message, in order.
    ///
    /// # Errors
    /// It is none: what is wrong.
    pub fn read(tenant: &str, body: &[u8]) -> Result<Vec<BidRow>, String> {
        let PlacedBids { bids } = PlacedBids::decode(body).map_err(|error| error.to_string())?;
        bids.into_iter().map(|bid| bid.row(tenant)).collect()
    }
}

impl PlacedBid {
    fn row(self, tenant: &str) -> Result<BidRow, String> {
        let time_in_force = match TimeInForce::try_from(self.time_in_force) {
            Ok(TimeInForce::Gtc) => Tif::Gtc,
            Ok(TimeInForce::Gtt) => Tif::Gtt,
            Ok(TimeInForce::Ioc) => Tif::Ioc,
            Err(error) => return Err(error.to_string()),
        };
        let mut row = BidRow {
            bid: BidId(self.bid),
            tenant: tenant.to_owned(),
            markets: self.markets,
            instance_type: self.instance_type,
            ceiling: Price::default(),
            min_nodes: self.min_nodes,
            max_nodes: 0,
            time_in_force,
            expire_at: self.expire_at_us.map(Micros),
            closes_on_preemption: self.closes_on_preemption,
            client_key: self.client_key,
            bid_seq: Seq(0),
            placed_at: Micros(self.placed_at_us),
            state: BidState::Open,
            close_reason: None,
            closed_at: None,
            held: 0,
            under_notice: 0,
            claimed: 0,
            unmet: 0,
        };
        self.state.tell(&mut row)?;
        Ok(row)
    }
}

impl TimeInForce {
    fn of(tif: Tif) -> TimeInForce {
        match tif {
            Tif::Gtc => TimeInForce::Gtc,
            Tif::Gtt => TimeInForce::Gtt,
            Tif::Ioc => TimeInForce::Ioc,
        }
    }
}

impl Touched {
    /// Adds the message's fields.
    pub(crate) fn fill(fields: &mut Fields<'_>, record: &BidRecord<'_>) {
        let view = record.view;
        fields.number(1, view.ceiling.0);
        fields.number(2, view.max_nodes.into());
        fields.number(3, view.bid_seq.0);
        fields.number(4, view.searching.into());
        if let Some((at, reason)) = record.closed {
            fields.some_text(5, Some(reason.word()));
            fields.some_number(6, Some(at.0));
        }
        fields.number(7, view.live.len() as u64);
        fields.number(8, view.under_notice.len() as u64);
        fields.number(9, view.claims.len() as u64);
        fields.number(10, view.unmet.into());
    }

    /// Brings a bid to how it was behind a later run.
    ///
    /// # Errors
    /// The message is none: what is wrong.
    pub fn change(row: &mut BidRow, body: &[u8]) -> Result<(), String> {
        Touched::decode(body).map_err(|error| error.to_string())?.tell(row)
    }

    fn tell(self, row: &mut BidRow) -> Result<(), String> {
        row.ceiling = Price(self.ceiling);
        row.max_nodes = self.max_nodes;
        row.bid_seq = Seq(self.bid_seq);
        row.state = if self.searching { BidState::Open } else { BidState::Closed };
        if let Some(word) = self.close_reason {
            let found = CloseReason::ALL.iter().copied().find(|reason| reason.word() == word);
            row.close_reason = Some(found.ok_or_else(|| format!("{word:?}"))?);
            row.closed_at = self.closed_at_us.map(Micros);
        }
        row.held = self.held;
        row.under_notice = self.under_notice;
        row.claimed = self.claimed;
        row.unmet = self.unmet;
        Ok(())
    }
}
