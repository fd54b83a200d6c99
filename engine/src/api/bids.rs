//! PlaceBid, PlaceBids, GetBid, ListBids, AmendBid, CancelBid.

use super::Api;
use super::commands::{Done, done};
use crate::caller::Caller;
use crate::intake::Submission;
use crate::limits::{Reservation, Room};
use crate::store::Labels;
use crate::wire::command;
use crate::wire::status::{ApiError, Code};
use kubebid_core::Command;
use kubebid_core::command::PlaceBid;
use kubebid_core::event::Scope;
use kubebid_core::units::{BidId, ClientKey};
use kubebid_proto::v1;
use v1::place_bids_response::{Result as BidResult, result::Outcome};

/// Bids in one frame of PlaceBids.
const FRAME: usize = 1000;

impl Api {
    pub async fn place_bid(
        &self,
        caller: &Caller,
        request: v1::PlaceBidRequest,
    ) -> Result<v1::PlaceBidResponse, ApiError> {
        let placing = self.prepare(caller, request).await?;
        let placed = self.place_all(caller, vec![placing]).await.pop().expect("an answer for each bid");
        placed.map(response)
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
        let (mut placing, mut outcomes) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for bid in request.bids {
            let prepared = match self.count_request(caller) {
                Ok(()) => self.prepare(caller, bid).await,
                Err(limit) => Err(limit),
            };
            outcomes.push(prepared.map(|bid| placing.push(bid)));
        }
        let mut placed = self.place_all(caller, placing).await.into_iter();
        let outcomes = outcomes.into_iter().map(|prepared| {
            match prepared.and_then(|()| placed.next().expect("an answer for each bid")) {
                Ok(done) => Outcome::Placed(response(done)),
                Err(error) => Outcome::Refused(error.into_refusal()),
            }
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
        let wanted = match request.max_nodes {
            Some(_) => self.wanted_by(BidId(request.bid)).await?,
            None => None,
        };
        let reservation = match self.room_to_amend(caller, &request, wanted) {
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

    /// What a bid needs before it is handed over: fields that can be read, and room under the limits.
    async fn prepare(&self, caller: &Caller, request: v1::PlaceBidRequest) -> Result<Placing, ApiError> {
        let (key, bid, labels) = command::place_bid(&caller.account, request)?;
        let reservation = match self.room_to_place(caller, &bid) {
            Ok(reservation) => reservation,
            Err(limit) => self.room_to_repeat(caller, key.clone(), limit).await?,
        };
        let submission =
            Submission { deadline: caller.deadline, ..Submission::new(key, Command::PlaceBid(bid)) };
        Ok(Placing { submission, reservation, labels })
    }

    /// Hands bids over, one behind the other, and waits for what becomes of each.
    async fn place_all(&self, caller: &Caller, bids: Vec<Placing>) -> Vec<Result<Done, ApiError>> {
        if bids.is_empty() {
            return Vec::new();
        }
        let labels: Vec<Labels> = bids.iter().map(|bid| bid.labels.clone()).collect();
        let (mut commands, mut rest) = (Vec::with_capacity(bids.len()), Vec::with_capacity(bids.len()));
        for Placing { submission, reservation, labels } in bids {
            commands.push(submission);
            rest.push((reservation, labels));
        }
        let (unwritten, mut rest) = (self.0.unwritten.clone(), rest.into_iter());
        let placed = self.0.engine.submit_all(commands, move |exchange, step| {
            let (reservation, labels) = rest.next().expect("one for each command");
            let done = done(exchange, step)?;
            if !done.repeated {
                // Before its commit is counted, or the bid would count twice for a moment.
                reservation.taken(done.seq);
                if !labels.is_empty() {
                    unwritten.note(done.seq, labels);
                }
            }
            Ok::<_, ApiError>(done)
        });
        let placed = match placed.await {
            Ok(placed) => placed,
            Err(not_done) => return labels.iter().map(|_| Err(ApiError::from(not_done))).collect(),
        };
        let mut settled = Vec::with_capacity(placed.len());
        for (placed, labels) in placed.into_iter().zip(labels) {
            settled.push(match placed {
                Ok(done) => self.settle_labels(caller, done, &labels).await.map(|()| done),
                Err(error) => Err(error),
            });
        }
        settled
    }

    /// A bid is answered when its labels are rows; who repeats one has to repeat them too.
    async fn settle_labels(&self, caller: &Caller, done: Done, labels: &Labels) -> Result<(), ApiError> {
        match (done.repeated, labels.is_empty()) {
            (true, _) => self.compare_labels(caller, done.seq, labels).await,
            (false, false) => self.labels_kept(caller, done.seq).await,
            (false, true) => Ok(()),
        }
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

    /// `wanted` are the nodes that it wants so far.
    fn room_to_amend(
        &self,
        caller: &Caller,
        request: &v1::AmendBidRequest,
        wanted: Option<u32>,
    ) -> Result<Reservation, ApiError> {
        let limits = self.limits_of(caller);
        check_ceiling(request.ceiling_micros.unwrap_or(0), limits.ceiling_micros)?;
        let most = Room { bids: limits.open_bids, nodes: limits.nodes_wanted };
        let more = request.max_nodes.zip(wanted).map_or(0, |(nodes, wanted)| nodes.saturating_sub(wanted));
        let room = Room { bids: 0, nodes: u64::from(more) };
        self.0.usage.reserve(&caller.account, room, most).map_err(|has| exceeded(has, room, most))
    }

    /// How many nodes a bid wants; one that does not search is refused more, or wants nothing more.
    async fn wanted_by(&self, bid: BidId) -> Result<Option<u32>, ApiError> {
        let view = self.0.engine.ask(move |exchange| exchange.view_bid(bid)).await?;
        Ok(view.filter(|bid| bid.searching).map(|bid| bid.max_nodes))
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

/// A bid that may be handed over.
struct Placing {
    submission: Submission,
    reservation: Reservation,
    labels: Labels,
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
