//! InjectDemand and EndDemand, and the task that releases the nodes of a demand spike.
//!
//! The market itself ends a spike, because its bids expire. The task only follows what the market says of
//! the account's bids, so after a restart it continues where it was.

use super::log;
use crate::api::Api;
use crate::auth::caller::Caller;
use crate::lifecycle::engine::Engine;
use crate::runtime::clock;
use crate::runtime::intake::Submission;
use crate::runtime::intake::SubmitError;
use crate::store::{Account, Limits, Role};
use crate::wire::command;
use crate::wire::status::{ApiError, Code};
use futures_util::future::join_all;
use kubebid_core::command::CancelMode;
use kubebid_core::units::{AccountName, AllocationId, BidId};
use kubebid_core::views::{AllocationView, BidView};
use kubebid_core::{Command, Reject};
use kubebid_proto::v1;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tracing::warn;
use v1::place_bid_request::TimeInForce;

/// The account whose bids are demand spikes.
const INJECT: &str = "kubebid.inject";
/// The time to wait before an engine that was busy is asked again.
const RETRY: Duration = Duration::from_millis(500);

impl Api {
    /// InjectDemand: places bids of the account `kubebid.inject`, which expire by themselves.
    pub async fn inject_demand(
        &self,
        caller: &Caller,
        request: v1::InjectDemandRequest,
    ) -> Result<v1::InjectDemandResponse, ApiError> {
        self.drills()?;
        let duration = command::number("duration_us", request.duration_us)?;
        let inject = self.inject_account(caller).await?;
        let now = self.market_now().await?;
        let expire_at_us = now.0.saturating_add(duration);
        let bid = v1::PlaceBidRequest {
            markets: vec![request.market.clone()],
            ceiling_micros: request.ceiling_micros,
            max_nodes: request.nodes,
            time_in_force: TimeInForce::Gtt.into(),
            expire_at_us: Some(expire_at_us),
            ..v1::PlaceBidRequest::default()
        };
        let placed = self.place_bid(&inject, bid).await?;
        log(
            caller,
            format_args!("{} nodes of demand in {}, bid {}", request.nodes, request.market, placed.bid),
        );
        let bid = BidId(placed.bid);
        let seen = self.0.engine.ask(move |exchange| exchange.view_bid(bid)).await?;
        let count = |nodes: fn(&BidView) -> usize| seen.as_ref().map_or(0, nodes) as u32;
        Ok(v1::InjectDemandResponse {
            seq: placed.seq,
            bid: placed.bid,
            expire_at_us,
            held: count(|bid| bid.live.len()),
            claimed: count(|bid| bid.claims.len()),
        })
    }

    /// EndDemand: cancels the demand spikes at once and releases their nodes.
    pub async fn end_demand(
        &self,
        caller: &Caller,
        request: v1::EndDemandRequest,
    ) -> Result<v1::EndDemandResponse, ApiError> {
        self.drills()?;
        let views = spikes(&self.0.engine).await?;
        let named = |view: &BidView| request.bid.is_none_or(|bid| view.bid.0 == bid);
        let views: Vec<BidView> = views.into_iter().filter(named).collect();
        if let (Some(bid), []) = (request.bid, &views[..]) {
            let what = format!("no demand spike with bid {bid} is under way");
            return Err(ApiError::new(Code::Market(Reject::UnknownBid)).saying(what));
        }
        let mut answer = v1::EndDemandResponse { seq: self.0.engine.applied(), ..Default::default() };
        for view in views {
            match self.submit(Submission::new(None, cancelled(view.bid))).await {
                Ok(done) => answer.seq = done.seq,
                // It ended by itself at this moment.
                Err(error) if error.seq.is_some() => continue,
                Err(error) => return Err(error),
            }
            answer.bids.push(view.bid.0);
            answer.released += nodes(&view).count() as u32;
            log(caller, format_args!("the end of demand, bid {}", view.bid.0));
        }
        Ok(answer)
    }

    /// Returns the account of the drills, and creates it if it is missing. It is listed, billed and
    /// limited like any other.
    async fn inject_account(&self, caller: &Caller) -> Result<Caller, ApiError> {
        if self.rows().account(INJECT).await?.is_none() {
            let created_at_us = clock::wall().0;
            let account = Account { name: INJECT.to_owned(), limits: Limits::default(), created_at_us };
            self.rows().put_account(&account).await?;
            self.0.auth.refresh().await?;
        }
        let session = self.0.auth.session(&AccountName::new(INJECT));
        Ok(Caller { deadline: caller.deadline, session, ..Caller::new(INJECT, [Role::Tenant]) })
    }
}

/// Returns the demand spikes that search or hold nodes.
async fn spikes(engine: &Engine) -> Result<Vec<BidView>, SubmitError> {
    engine.ask(|exchange| exchange.open_bids_of(&AccountName::new(INJECT))).await
}

fn nodes(bid: &BidView) -> impl Iterator<Item = AllocationId> {
    bid.live.iter().chain(&bid.under_notice).copied()
}

fn cancelled(bid: BidId) -> Command {
    Command::CancelBid { tenant: AccountName::new(INJECT), bid, mode: CancelMode::Release }
}

/// Reports nodes of spikes ready, because the market would otherwise treat them as lost, and releases the
/// nodes of bids that have ended their search.
pub(super) async fn tend(engine: Engine) {
    let mut feed = engine.subscribe();
    loop {
        match tend_once(&engine).await {
            Ok(()) => {}
            Err(SubmitError::Stopping) => return,
            Err(
                busy @ (SubmitError::Full
                | SubmitError::TooLate
                | SubmitError::TooFar
                | SubmitError::StoreRefused
                | SubmitError::Unknown),
            ) => {
                warn!(error = %busy, "the nodes of a demand spike could not be looked after");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        }
        loop {
            match feed.recv().await {
                Ok(commit) => {
                    let is_ours = |bid: &BidView| commit.names.account(bid.tenant).as_str() == INJECT;
                    if commit.bids.iter().any(is_ours) {
                        break;
                    }
                }
                Err(RecvError::Lagged(_)) => break,
                Err(RecvError::Closed) => return,
            }
        }
    }
}

async fn tend_once(engine: &Engine) -> Result<(), SubmitError> {
    let commands = due(engine).await?;
    // A command that the market refuses is no longer needed.
    let done = commands.into_iter().map(|command| engine.submit(Submission::new(None, command), |_| ()));
    join_all(done).await.into_iter().collect()
}

/// Returns the commands that the spikes need: the release of ended ones, and ready reports of starting nodes.
async fn due(engine: &Engine) -> Result<Vec<Command>, SubmitError> {
    let (searching, ended): (Vec<_>, Vec<_>) =
        spikes(engine).await?.into_iter().partition(|bid| bid.searching);
    let held = searching.iter().flat_map(nodes).collect();
    let held = engine.ask_each(held, |exchange, node| exchange.view_allocation(node)).await?;
    let starting = held.into_iter().flatten().filter(|allocation| allocation.ready_at.is_none());
    let ready = starting.map(|AllocationView { allocation, .. }| Command::ReportReady {
        allocation,
        by: Some(AccountName::new(INJECT)),
    });
    Ok(ended.iter().map(|bid| cancelled(bid.bid)).chain(ready).collect())
}
