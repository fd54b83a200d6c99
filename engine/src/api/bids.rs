//! PlaceBid, PlaceBids, GetBid, ListBids, AmendBid, CancelBid.

use super::Api;
use super::commands::{Done, done};
use crate::caller::Caller;
use crate::engine::Submission;
use crate::limits::{Reservation, Room};
use crate::wire::command;
use crate::wire::status::{ApiError, Code};
use futures_util::future::BoxFuture;
use kubebid_core::Command;
use kubebid_core::command::PlaceBid;
use kubebid_core::event::Scope;
use kubebid_core::units::{BidId, ClientKey};
use kubebid_proto::v1;
use std::task::Poll;
use v1::place_bids_response::{Result as BidResult, result::Outcome};

/// Bids in one frame of PlaceBids.
const FRAME: usize = 1000;

impl Api {
    pub async fn place_bid(
        &self,
        caller: &Caller,
        request: v1::PlaceBidRequest,
    ) -> Result<v1::PlaceBidResponse, ApiError> {
        self.place(caller, request).await.map(response)
    }

    /// A frame of PlaceBids: all are on their way, in their order, before the first is waited for. Fails as a
    /// whole only where the frame is too large.
    pub async fn place_bid_frame(
        &self,
        caller: &Caller,
        request: v1::PlaceBidsRequest,
    ) -> Result<v1::PlaceBidsResponse, ApiError> {
        if request.bids.len() > FRAME {
            let what = format!("a frame of {} bids; {FRAME} are allowed", request.bids.len());
            return Err(ApiError::new(Code::TooLarge).at("bids").saying(what));
        }
        let keys: Vec<String> = request.bids.iter().map(|bid| bid.client_key.clone()).collect();
        let placing = request.bids.into_iter().map(|bid| -> BoxFuture<'_, _> {
            Box::pin(async move {
                self.count_request(caller)?;
                self.place(caller, bid).await
            })
        });
        let outcomes = in_order(placing.collect()).await.into_iter().map(|placed| match placed {
            Ok(done) => Outcome::Placed(response(done)),
            Err(error) => Outcome::Refused(error.into_refusal()),
        });
        let results = keys.into_iter().zip(outcomes);
        let results = results.map(|(client_key, outcome)| BidResult { client_key, outcome: Some(outcome) });
        Ok(v1::PlaceBidsResponse { results: results.collect() })
    }

    pub async fn amend_bid(
        &self,
        caller: &Caller,
        request: v1::AmendBidRequest,
    ) -> Result<v1::AmendBidResponse, ApiError> {
        let keyed = command::amend_bid(&caller.account, &request)?;
        let ceiling = request.ceiling_micros.map(|ceiling| command::number("ceiling_micros", ceiling));
        if let Some(Err(error)) = ceiling
            && self.is_unbounded(BidId(request.bid)).await?
        {
            return Err(error);
        }
        let reservation = match self.room_to_amend(caller, &request) {
            Ok(reservation) => reservation,
            Err(limit) => self.room_to_repeat(caller, keyed.key.clone(), limit).await?,
        };
        let done = self.obey(caller, keyed).await?;
        if !done.repeated {
            reservation.taken(done.seq);
        }
        Ok(v1::AmendBidResponse { seq: done.seq, repeated: done.repeated })
    }

    pub async fn cancel_bid(
        &self,
        caller: &Caller,
        request: v1::CancelBidRequest,
    ) -> Result<v1::CancelBidResponse, ApiError> {
        let done = self.obey(caller, command::cancel_bid(&caller.account, &request)?).await?;
        Ok(v1::CancelBidResponse { seq: done.seq, repeated: done.repeated })
    }

    async fn place(&self, caller: &Caller, request: v1::PlaceBidRequest) -> Result<Done, ApiError> {
        let (key, bid, labels) = command::place_bid(&caller.account, request)?;
        let reservation = match self.room_to_place(caller, &bid) {
            Ok(reservation) => reservation,
            Err(limit) => self.room_to_repeat(caller, key.clone(), limit).await?,
        };
        let mut submission = Submission::new(key, Command::PlaceBid(bid));
        submission.deadline = caller.deadline;
        let (unwritten, to_note) = (self.0.unwritten.clone(), labels.clone());
        let done = self.0.engine.submit(submission, move |exchange, step| {
            let done = done(exchange, step)?;
            if !done.repeated {
                // Before its commit is counted, or the bid would count twice for a moment.
                reservation.taken(done.seq);
                if !to_note.is_empty() {
                    unwritten.note(done.seq, to_note);
                }
            }
            Ok::<_, ApiError>(done)
        });
        let done = done.await??;
        if done.repeated {
            self.compare_labels(caller, done.seq, &labels).await?;
            return Ok(done);
        }
        if !labels.is_empty() {
            self.labels_kept(caller, done.seq).await?;
        }
        Ok(done)
    }

    /// What the market would refuse anyway is for the market to say.
    fn room_to_place(&self, caller: &Caller, bid: &PlaceBid) -> Result<Reservation, ApiError> {
        let limits = self.limits_of(caller);
        check_ceiling(bid.ceiling.0, limits.ceiling_micros)?;
        let most = Room { bids: limits.open_bids, nodes: limits.nodes_wanted };
        let room = Room { bids: 1, nodes: u64::from(bid.max_nodes) };
        let usage = &self.0.usage;
        usage.reserve(&caller.account, room, most).or_else(|has| {
            if self.is_too_large(bid) {
                return usage
                    .reserve(&caller.account, Room::default(), most)
                    .map_err(|has| exceeded(has, room, most));
            }
            Err(exceeded(has, room, most))
        })
    }

    fn room_to_amend(&self, caller: &Caller, request: &v1::AmendBidRequest) -> Result<Reservation, ApiError> {
        let limits = self.limits_of(caller);
        check_ceiling(request.ceiling_micros.unwrap_or(0), limits.ceiling_micros)?;
        let most = Room { bids: limits.open_bids, nodes: limits.nodes_wanted };
        // A bid that is not known to search is refused, or wants nothing more.
        let wants = self.0.usage.wants(BidId(request.bid));
        let more =
            request.max_nodes.zip(wants).map_or(0, |(nodes, wants)| u64::from(nodes).saturating_sub(wants));
        let room = Room { bids: 0, nodes: more };
        self.0.usage.reserve(&caller.account, room, most).map_err(|has| exceeded(has, room, most))
    }

    /// Whoever repeats a command asks for nothing more, and hears what the first one was answered.
    async fn room_to_repeat(
        &self,
        caller: &Caller,
        key: Option<ClientKey>,
        limit: ApiError,
    ) -> Result<Reservation, ApiError> {
        let Some(key) = key else { return Err(limit) };
        let account = caller.account.clone();
        if !self.0.engine.ask(move |exchange| exchange.knows_key(&account, &key)).await? {
            return Err(limit);
        }
        let nothing = Room::default();
        self.0.usage.reserve(&caller.account, nothing, nothing).map_err(|_| limit)
    }

    /// Whether no market is open whose rules would bound the ceiling of this bid.
    async fn is_unbounded(&self, bid: BidId) -> Result<bool, ApiError> {
        let markets = self.0.engine.views().markets();
        let view = self.0.engine.ask(move |exchange| exchange.view_bid(bid)).await?;
        Ok(view.is_some_and(|bid| match bid.scope {
            Scope::InstanceType(kind) => markets.of_type(kind.as_str()).next().is_none(),
            Scope::Markets(_) => false,
        }))
    }

    /// Whether a market that it names does not take a bid for so many nodes.
    fn is_too_large(&self, bid: &PlaceBid) -> bool {
        let markets = self.0.engine.views().markets();
        let named = bid.markets.iter().flatten().filter_map(|market| markets.get(market));
        let of_type = bid.instance_type.iter().flat_map(|kind| markets.of_type(kind.as_str()));
        let mut all = named.chain(of_type);
        all.any(|market| u64::from(bid.max_nodes) > market.rules.bid_nodes_max)
    }
}

fn response(done: Done) -> v1::PlaceBidResponse {
    v1::PlaceBidResponse { seq: done.seq, bid: done.seq, repeated: done.repeated }
}

fn check_ceiling(ceiling: u64, most: u64) -> Result<(), ApiError> {
    if ceiling > most {
        let what = format!("ceiling_micros {ceiling} is above the account's limit of {most}");
        return Err(ApiError::limit("ceiling_micros", what).at("ceiling_micros"));
    }
    Ok(())
}

fn exceeded(has: Room, room: Room, most: Room) -> ApiError {
    if has.bids.saturating_add(room.bids) > most.bids && room.bids > 0 {
        let what = format!("{} bids are open; the account's limit is {}", has.bids, most.bids);
        return ApiError::limit("open_bids", what);
    }
    let what = format!(
        "{} nodes are wanted and {} more; the account's limit is {}",
        has.nodes, room.nodes, most.nodes
    );
    ApiError::limit("nodes_wanted", what).at("max_nodes")
}

/// Begins all of them in their order, then waits for each.
pub(super) async fn in_order<T>(mut all: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = Vec::with_capacity(all.len());
    for one in &mut all {
        done.push(match futures_util::poll!(one.as_mut()) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        });
    }
    let mut values = Vec::with_capacity(all.len());
    for (one, done) in all.into_iter().zip(done) {
        values.push(match done {
            Some(value) => value,
            None => one.await,
        });
    }
    values
}
