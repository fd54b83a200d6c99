//! `kubebid bid place --wait`

use crate::commands::local;
use crate::config::Context;
use crate::failure::{Exit, Failure, note};
use crate::time::Span;
use clap::{Args, ValueEnum};
use kubebid_client::v1::allocation::State as AllocationState;
use kubebid_client::v1::bid::State;
use kubebid_client::v1::{Bid, GetBidRequest, ListAllocationsRequest, PlaceBidResponse};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time between two looks at a bid.
const POLL: Duration = Duration::from_millis(500);

/// The end of a wait for nodes.
#[derive(Args)]
pub(crate) struct Wait {
    /// Wait until the bid has all its nodes, or until they run
    #[arg(
        long,
        value_enum,
        value_name = "UNTIL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "allocated"
    )]
    wait: Option<Until>,
    /// Longest time to wait; the bid stays after it
    #[arg(long, value_name = "SPAN", default_value = "10m", requires = "wait")]
    wait_timeout: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Until {
    /// All nodes are held
    Allocated,
    /// All nodes are held and were reported ready
    Ready,
}

impl Wait {
    /// Waits, and says on standard error how many nodes there are. Ctrl-C ends the wait and leaves the bid.
    pub(super) async fn run(
        &self,
        context: &Context,
        placed: &PlaceBidResponse,
        wanted: u32,
    ) -> Result<(), Failure> {
        let Some(until) = self.wait else { return Ok(()) };
        let bid = placed.bid;
        tokio::select! {
            waited = self.poll(context, placed, wanted, until) => waited,
            () = local::stop_signal() => {
                Err(Failure::new(Exit::StillWaiting, format!("the wait for the nodes of bid {bid} was interrupted"))
                    .next(format!("it goes on searching; to end that: kubebid bid cancel {bid} --keep, or --release to give back its nodes too")))
            }
        }
    }

    async fn poll(
        &self,
        context: &Context,
        placed: &PlaceBidResponse,
        wanted: u32,
        until: Until,
    ) -> Result<(), Failure> {
        let PlaceBidResponse { bid, seq, .. } = *placed;
        let deadline = Instant::now() + Duration::from_micros(self.wait_timeout.0);
        let mut said = None;
        loop {
            let answer = context.client.get_bid(GetBidRequest { bid, min_seq: seq }).await?;
            let known = answer.bid.unwrap_or_default();
            let nodes = nodes(context, &known, until).await?;
            if nodes >= wanted {
                return Ok(());
            }
            let word = if until == Until::Ready { "ready" } else { "allocated" };
            if known.state() == State::Closed && known.held + known.claimed < wanted {
                let why = known.close_reason().as_str_name();
                return Err(Failure::new(
                    Exit::Refused,
                    format!("bid {bid} stopped searching ({why}) with {nodes} of {wanted} nodes {word}"),
                )
                .next(format!("see why: kubebid explain bid {bid}")));
            }
            if Instant::now() >= deadline {
                let what =
                    format!("bid {bid} has {nodes} of {wanted} nodes {word} after {}", self.wait_timeout);
                return Err(Failure::new(Exit::StillWaiting, what)
                    .next(format!("it goes on searching; see why: kubebid explain bid {bid}")));
            }
            if said != Some(nodes) {
                note(format_args!("bid {bid}: {nodes} of {wanted} nodes {word}"));
                said = Some(nodes);
            }
            sleep(POLL).await;
        }
    }
}

/// Returns the number of nodes that are as they are waited for.
async fn nodes(context: &Context, bid: &Bid, until: Until) -> Result<u32, Failure> {
    if until == Until::Allocated || bid.held == 0 {
        return Ok(bid.held);
    }
    let states = vec![AllocationState::Active.into()];
    let request = ListAllocationsRequest { bid: bid.bid, states, ..Default::default() };
    let all = context.client.all(request).await?.allocations;
    // A node under notice is not held.
    let running = all.iter().filter(|node| node.notice.is_none()).count();
    Ok(u32::try_from(running).unwrap_or(u32::MAX))
}
