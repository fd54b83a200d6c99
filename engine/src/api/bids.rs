//! Calls of tenants about bids: place one or a stream of them, amend one, cancel one.

use super::commands::{Done, done};
use super::{Api, Inner};
use crate::auth::caller::Caller;
use crate::auth::limits::{Reservation, Room};
use crate::runtime::intake::unstamped;
use crate::store::{Labels, NodeData, NodeDataKey, NodeDataKind};
use crate::wire::lists;
use crate::wire::status::{ApiError, Code};
use crate::wire::{access, command};
use kubebid_core::event::Scope;
use kubebid_core::units::{BidId, ClientKey};
use kubebid_core::views::BidView;
use kubebid_core::{Command, MarketState, StampedCommand};
use kubebid_proto::v1;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::mem;
use std::slice;
use std::sync::Arc;
use v1::place_bids_response::{Result as BidResult, result::Outcome};

/// The number of bytes beside the journal that count as one more command.
pub(super) const BYTES_PER_COMMAND: usize = 256;

impl Api {
    /// PlaceBid: places a bid. Answers when the bid is durable, and its labels and `node_config` are written.
    pub async fn place_bid(
        &self,
        caller: &Caller,
        mut request: v1::PlaceBidRequest,
    ) -> Result<v1::PlaceBidResponse, ApiError> {
        let placed = self.place_all(caller, slice::from_mut(&mut request)).await.pop();
        placed.expect("an answer for each bid").map(response).map_err(|refused| *refused)
    }

    /// Answers one frame of PlaceBids. All its bids are submitted in order before the first answer is
    /// awaited. The frame fails as a whole only if it is too large.
    pub async fn place_bid_frame(
        &self,
        caller: &Caller,
        request: v1::PlaceBidsRequest,
    ) -> Result<v1::PlaceBidsResponse, ApiError> {
        let mut bids = request.bids;
        let most = lists::maximum("PlaceBidsRequest.bids");
        if bids.len() > most {
            let what = format!("a frame of {} bids; {most} are allowed", bids.len());
            return Err(ApiError::new(Code::TooLarge).at("bids").saying(what));
        }
        let (counted, limit) = self.count_requests(caller, bids.len());
        let mut outcomes = self.place_all(caller, &mut bids[..counted]).await;
        outcomes.resize_with(bids.len(), || Err(Box::new(limit())));
        let results = bids.into_iter().zip(outcomes).map(|(bid, outcome)| {
            let outcome = match outcome {
                Ok(done) => Outcome::Placed(response(done)),
                Err(refused) => Outcome::Refused(refused.into_refusal()),
            };
            BidResult { client_key: bid.client_key, outcome: Some(outcome) }
        });
        Ok(v1::PlaceBidsResponse { results: results.collect() })
    }

    /// AmendBid: changes the ceiling of a bid or the number of its nodes (R2).
    pub async fn amend_bid(
        &self,
        caller: &Caller,
        request: v1::AmendBidRequest,
    ) -> Result<v1::AmendBidResponse, ApiError> {
        let keyed = command::amend_bid(&caller.account, &request)?;
        let ceiling = request.ceiling_micros.map(|ceiling| command::number("ceiling_micros", ceiling));
        let own = match (&ceiling, request.max_nodes) {
            (None | Some(Ok(_)), None) => None,
            (Some(Err(_)), _) | (_, Some(_)) => self.own_bid(caller, BidId(request.bid)).await?,
        };
        if let Some(Err(error)) = ceiling
            && own.as_ref().is_some_and(|bid| self.is_unbounded(bid))
        {
            return Err(error);
        }
        // The limits do not concern a bid that no longer searches: the market refuses it, or it
        // asks for no more nodes.
        let wanted = own.filter(|bid| bid.searching && request.max_nodes.is_some()).map(|bid| bid.max_nodes);
        let reservation = match self.room_to_amend(caller, &request, wanted) {
            Ok(reservation) => Some(reservation),
            Err(_) if self.repeats(caller, keyed.key.as_ref()).await? => None,
            Err(limit) => return Err(limit),
        };
        let settle = |mut reservation: Option<Reservation>, done: &Done| {
            if let (Some(reservation), false) = (&mut reservation, done.repeated) {
                reservation.taken(done.seq);
            }
        };
        let done = self.execute_settling(caller, keyed, 1, move |done| settle(reservation, done)).await?;
        Ok(v1::AmendBidResponse { seq: done.seq, repeated: done.repeated })
    }

    /// CancelBid: ends the search of a bid, and with RELEASE its nodes as well (R14).
    pub async fn cancel_bid(
        &self,
        caller: &Caller,
        request: v1::CancelBidRequest,
    ) -> Result<v1::CancelBidResponse, ApiError> {
        let done = self.execute(caller, command::cancel_bid(&caller.account, &request)?).await?;
        Ok(v1::CancelBidResponse { seq: done.seq, repeated: done.repeated })
    }

    /// Submits bids one after the other, and waits for the outcome of each.
    async fn place_all(
        &self,
        caller: &Caller,
        requests: &mut [v1::PlaceBidRequest],
    ) -> Vec<Result<Done, Box<ApiError>>> {
        let (placing, refused) = self.prepare(caller, requests).await;
        let placed =
            if placing.commands.is_empty() { Vec::new() } else { self.submit_bids(caller, placing).await };
        let mut placed = placed.into_iter();
        let outcome = |refused: Option<Box<ApiError>>| match refused {
            Some(refused) => Err(refused),
            None => placed.next().expect("an answer for each bid"),
        };
        refused.into_iter().map(outcome).collect()
    }

    /// Checks bids before they are submitted: fields that can be read, and room under the limits. Returns the bids
    /// to submit, and the refusal of each other bid.
    async fn prepare(
        &self,
        caller: &Caller,
        requests: &mut [v1::PlaceBidRequest],
    ) -> (Placing, Vec<Option<Box<ApiError>>>) {
        let limits = self.limits_of(caller);
        let most = Room { bids: limits.open_bids, nodes: limits.nodes_wanted };
        let (bids, mut refused) = (requests.len(), Vec::with_capacity(requests.len()));
        let (mut commands, mut rooms) = (Vec::with_capacity(bids), Vec::with_capacity(bids));
        let (mut beside, mut over) = (Vec::with_capacity(bids), Vec::new());
        let mut market = None;
        for request in requests {
            let read = access::node_config(request).and_then(|node_config| {
                let (key, bid, labels) = command::place_bid(&caller.account, request, &mut market)?;
                Ok((key, bid, Beside { labels, node_config }))
            });
            let read = read.map(|(key, bid, of_bid)| {
                rooms.push(match check_ceiling(bid.ceiling.0, limits.ceiling_micros) {
                    Ok(()) => Room { bids: 1, nodes: u64::from(bid.max_nodes) },
                    Err(limit) => {
                        over.push((commands.len(), limit));
                        Room::default()
                    }
                });
                commands.push(unstamped(key, Command::PlaceBid(bid)));
                beside.push(of_bid);
            });
            refused.push(read.err().map(Box::new));
        }
        let (mut reservation, without_room) = self.0.usage.reserve_each(&caller.account, &rooms, most);
        for (at, has) in without_room {
            let room = mem::take(&mut rooms[at]);
            // A bid that the market refuses anyway gets the market's refusal.
            if !self.is_too_large(&commands[at].command) {
                over.push((at, exceeded(has, room, most)));
            }
        }
        over.sort_unstable_by_key(|(at, _)| Reverse(*at));
        for (at, limit) in over {
            let limit = match self.repeats(caller, commands[at].key.as_ref()).await {
                Ok(true) => continue,
                Ok(false) => limit,
                Err(error) => error,
            };
            // The bids before this one keep their places.
            drop((commands.remove(at), rooms.remove(at), beside.remove(at)));
            let mut handed_over = refused.iter_mut().filter(|refused| refused.is_none());
            *handed_over.nth(at).expect("there is one for each command") = Some(Box::new(limit));
        }
        if let (counted, Some(limit)) = self.count_commands(caller, beside.iter().map(Beside::cost)) {
            rooms.drain(counted..).for_each(|room| reservation.give_back(room));
            commands.truncate(counted);
            beside.truncate(counted);
            let handed_over = refused.iter_mut().filter(|refused| refused.is_none());
            handed_over.skip(counted).for_each(|refused| *refused = Some(Box::new(limit.clone())));
        }
        (Placing { commands, rooms, reservation, beside: beside.into() }, refused)
    }

    /// Submits bids and settles what was reserved for them. Returns the outcome of each.
    async fn submit_bids(&self, caller: &Caller, placing: Placing) -> Vec<Result<Done, Box<ApiError>>> {
        let Placing { commands, rooms, mut reservation, beside } = placing;
        let (pending_labels, pending_data) =
            (self.0.pending_labels.clone(), self.0.pending_node_data.clone());
        let (noting, bids) = (beside.clone(), rooms.len());
        let (mut rooms, mut last) = (rooms.into_iter().enumerate(), None);
        let refusals = self.refusals_of(caller);
        let placed = self.0.engine.submit_all(commands, caller.deadline, move |step| {
            let (at, room) = rooms.next().expect("one for each command");
            let placed = refusals.count(done(step)).map_err(Box::new);
            match &placed {
                Ok(done) if !done.repeated => {
                    last = Some(done.seq);
                    let Beside { labels, node_config } = &noting[at];
                    if !labels.is_empty() {
                        pending_labels.note(done.seq, labels.clone());
                    }
                    if let Some(config) = node_config {
                        pending_data.note(NodeDataKey::config(done.seq), config.brought_by(done.seq));
                    }
                }
                Ok(_) | Err(_) => reservation.give_back(room),
            }
            // This happens before their commit is counted; otherwise the bids would count
            // twice for a moment.
            if let (0, Some(last)) = (rooms.len(), last) {
                reservation.taken(last);
            }
            placed
        });
        let mut placed = match placed.await {
            Ok(placed) => placed,
            Err(not_done) => return (0..bids).map(|_| Err(Box::new(not_done.into()))).collect(),
        };
        let repeated = placed.iter().zip(&*beside).filter_map(|(placed, beside)| match placed {
            Ok(done) if done.repeated => Some((done.seq, beside)),
            Ok(_) | Err(_) => None,
        });
        let same = self.same_beside(repeated.collect()).await;
        for (placed, beside) in placed.iter_mut().zip(&*beside) {
            if let Ok(done) = *placed
                && !(done.repeated && same.contains(&done.seq))
                && let Err(error) = self.settle_beside(caller, done, beside).await
            {
                *placed = Err(Box::new(error));
            }
        }
        placed
    }

    /// Returns the repeated bids beside which the store has just what is given, by a read of all of them at once. The
    /// others are examined one by one.
    async fn same_beside(&self, repeated: Vec<(u64, &Beside)>) -> BTreeSet<u64> {
        let Inner { pending_labels, pending_node_data, .. } = &*self.0;
        let is_pending = |bid: u64| {
            pending_labels.get(&bid).is_some() || pending_node_data.get(&NodeDataKey::config(bid)).is_some()
        };
        // What is not pending before the read is in the store.
        let written: Vec<_> = repeated.into_iter().filter(|(bid, _)| !is_pending(*bid)).collect();
        let bids: Vec<u64> = written.iter().map(|(bid, _)| *bid).collect();
        // One bid costs no more by itself, and a store that fails says so there.
        if bids.len() < 2 {
            return BTreeSet::new();
        }
        let (Ok(labels), Ok(configs)) =
            (self.rows().labels_of(&bids).await, self.rows().node_data_of(NodeDataKind::Config, &bids).await)
        else {
            return BTreeSet::new();
        };
        let none = Labels::new();
        let is_same = |(bid, given): &(u64, &Beside)| {
            let same_config = match (configs.get(bid), &given.node_config) {
                (Some(stored), Some(given)) => stored.seq == *bid && stored.sha256 == given.sha256,
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            same_config && *labels.get(bid).unwrap_or(&none) == given.labels
        };
        // A key that comes twice, with different labels, is examined each time.
        let (same, other): (Vec<_>, Vec<_>) = written.into_iter().partition(is_same);
        let other: BTreeSet<u64> = other.into_iter().map(|(bid, _)| bid).collect();
        same.into_iter().map(|(bid, _)| bid).filter(|bid| !other.contains(bid)).collect()
    }

    /// Waits until the rows of a placed bid are written. For a repeated request, checks that what belongs to
    /// them is that of the first one.
    async fn settle_beside(&self, caller: &Caller, done: Done, beside: &Beside) -> Result<(), ApiError> {
        let Beside { labels, node_config } = beside;
        let key = NodeDataKey::config(done.seq);
        if done.repeated {
            self.compare_labels(caller, done.seq, labels).await?;
            return self.compare_node_data(caller, key, done.seq, node_config.as_ref(), false).await;
        }
        if !labels.is_empty() {
            self.0.pending_labels.kept(caller, &done.seq).await?;
        }
        if node_config.is_some() {
            self.0.pending_node_data.kept(caller, &key).await?;
        }
        Ok(())
    }

    /// Reserves the room that an amendment needs. `wanted` is the number of nodes that the bid wants
    /// so far.
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

    /// Reads a bid of the caller. The bid of another account is answered as one that does not exist, so that nothing
    /// about it shows before the exchange refuses the command.
    async fn own_bid(&self, caller: &Caller, bid: BidId) -> Result<Option<BidView>, ApiError> {
        let account = caller.account.clone();
        Ok(self.0.engine.ask(move |exchange| exchange.own_bid(&account, bid)).await?)
    }

    /// Returns true if the account has used this key: its command is a repeat, which asks for nothing more.
    pub(super) async fn repeats(&self, caller: &Caller, key: Option<&ClientKey>) -> Result<bool, ApiError> {
        let Some(key) = key.cloned() else { return Ok(false) };
        let account = caller.account.clone();
        Ok(self.0.engine.ask(move |exchange| exchange.knows_key(&account, &key)).await?)
    }

    /// Returns true if the bid searches in no market whose rules would limit its ceiling.
    fn is_unbounded(&self, bid: &BidView) -> bool {
        match &bid.scope {
            Scope::InstanceType(kind) => {
                let markets = self.0.engine.views().markets();
                !markets.of_type(kind.as_str()).any(|market| market.state.admits(bid.bid))
            }
            Scope::Markets(_) => false,
        }
    }

    /// Returns true if a market that a new bid names does not accept a bid for this many nodes.
    fn is_too_large(&self, command: &Command) -> bool {
        let Command::PlaceBid(bid) = command else { return false };
        let markets = self.0.engine.views().markets();
        let named = bid.markets.iter().flatten().filter_map(|market| markets.get(market));
        let of_type = bid.instance_type.iter().flat_map(|kind| markets.of_type(kind.as_str()));
        let mut all = named.chain(of_type).filter(|market| market.state == MarketState::Open);
        all.any(|market| u64::from(bid.max_nodes) > market.rules.bid_nodes_max)
    }
}

/// Bids that may be submitted: the command, the reserved room and the rows of each.
struct Placing {
    commands: Vec<StampedCommand>,
    rooms: Vec<Room>,
    beside: Arc<[Beside]>,
    /// The reservation of all the rooms together.
    reservation: Reservation,
}

/// The part of a bid that is kept beside the journal.
struct Beside {
    labels: Labels,
    node_config: Option<NodeData>,
}

impl Beside {
    /// Returns how many commands a bid with these counts as.
    fn cost(&self) -> u64 {
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let config = self.node_config.iter().filter_map(|config| config.content.as_ref());
        let bytes = labels + config.map(|content| content.len()).sum::<usize>();
        1 + (bytes / BYTES_PER_COMMAND) as u64
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
        "{} nodes are wanted or held, and {} more are asked for; the account's limit is {}",
        has.nodes, room.nodes, most.nodes
    );
    ApiError::limit("nodes_wanted", what).at("max_nodes")
}
