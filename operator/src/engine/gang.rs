//! Calls about the bid of a gang, and about one of its nodes.

use super::Engine;
use crate::api::BidSlot;
use crate::clock;
use crate::plan::gang::GangBid;
use kubebid_client::v1::cancel_bid_request::Mode;
use kubebid_client::{Code, Error, v1};

impl Engine {
    /// Returns what the bid of a gang has, as of the last command that the engine has applied; `None` if it does not know the bid.
    pub async fn gang_bid(&self, bid: u64) -> Result<Option<GangBid>, Error> {
        let request = v1::GetBidRequest { bid, min_seq: self.seq().await? };
        let found = match self.answered(self.client.get_bid(request).await) {
            Ok(found) => found.bid.unwrap_or_default(),
            Err(Error::Refused(refusal)) if refusal.code == Code::UnknownBid => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(GangBid {
            open: found.state() == v1::bid::State::Open,
            max_nodes: found.max_nodes,
            held: found.held,
            under_notice: found.under_notice,
            claimed: found.claimed,
        }))
    }

    /// Lets the bid of a gang want as many nodes as the gang has. A node that was given back has lowered the number.
    pub async fn enlarge(&self, slot: &BidSlot, bid: u64, nodes: u32) -> Result<(), Error> {
        // The number is raised again after the next node that is given back.
        let client_key = self.key(slot, &format!("enlarge/{}", clock::now().as_second()));
        let request = v1::AmendBidRequest { client_key, bid, ceiling_micros: None, max_nodes: Some(nodes) };
        match self.answered(self.client.amend_bid(request).await) {
            Ok(_) => Ok(()),
            Err(Error::Refused(refusal)) if refusal.code == Code::Closed => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends all nodes and claims of a gang at once, so that its bid waits for all of them again. `regroups` is the number of this
    /// regrouping.
    pub async fn regroup(&self, slot: &BidSlot, bid: u64, regroups: u32) -> Result<(), Error> {
        self.cancel_in_mode(self.key(slot, &format!("regroup/{regroups}")), bid, Mode::Regroup).await
    }

    /// Ends the search of the bid of a gang, and drops its claims. Its nodes stay until they are given back.
    pub async fn end_search(&self, slot: &BidSlot, bid: u64) -> Result<(), Error> {
        self.cancel_in_mode(self.key(slot, "end-search"), bid, Mode::Keep).await
    }

    /// Cancels a bid in a mode, and reads what is left of it. A bid that is closed is cancelled.
    async fn cancel_in_mode(&self, client_key: String, bid: u64, mode: Mode) -> Result<(), Error> {
        let request = v1::CancelBidRequest { client_key, bid, mode: mode.into() };
        let seq = match self.answered(self.client.cancel_bid(request).await) {
            Ok(cancelled) => cancelled.seq,
            Err(Error::Refused(refusal)) if refusal.code == Code::Closed => self.seq().await?,
            Err(error) => return Err(error),
        };
        self.read(bid, seq).await
    }

    /// Gives the node of a member back.
    pub async fn give_back(&self, slot: &BidSlot, allocation: u64) -> Result<(), Error> {
        let client_key = self.key(slot, "give-back");
        let request = v1::ReleaseAllocationRequest { client_key, allocation };
        match self.answered(self.client.release_allocation(request).await) {
            Ok(_) => Ok(()),
            Err(Error::Refused(refusal)) if matches!(refusal.code, Code::Ended | Code::UnknownAllocation) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
