//! `kubebid bid regroup`, and `kubebid bid place --regroup`

use super::{place, show};
use crate::args::{Key, its_number};
use crate::commands::local;
use crate::config::Context;
use crate::failure::{Exit, Failure, note};
use crate::output::plural;
use clap::{Args, ValueEnum};
use kubebid_client::v1::allocation::EndReason;
use kubebid_client::v1::bid::State;
use kubebid_client::v1::cancel_bid_request::Mode;
use kubebid_client::v1::event::Kind;
use kubebid_client::v1::{Bid, CancelBidRequest, Event, EventFilter, GetBidRequest, ListBidsRequest};
use kubebid_client::{Code, Error};
use std::fmt;

#[derive(Args)]
pub(crate) struct Regroup {
    /// Its number
    #[arg(value_parser = its_number)]
    pub(super) bid: u64,
    #[command(flatten)]
    pub(super) key: Key,
}

/// The moment at which the program that placed a bid regroups it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum When {
    /// A node was taken away, and the bid has fewer nodes than its minimum
    AfterDeadline,
}

impl Regroup {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let bid = self.bid;
        let request = CancelBidRequest { client_key: self.key.key, bid, mode: Mode::Regroup.into() };
        let answer = context.client.cancel_bid(request).await?;
        let known = place::outcome(context, bid, answer.seq).await;
        context.out.answer(&answer, |_| show::done("regrouped", bid, answer.repeated, known.as_ref()))
    }
}

/// Refuses what cannot be regrouped, before the bid is placed.
pub(super) fn check(min_nodes: Option<u32>, nodes: u32) -> Result<(), Failure> {
    let least = min_nodes.unwrap_or(1).min(nodes);
    if least > 1 {
        return Ok(());
    }
    let what = format!(
        "--regroup is for a bid that waits for several nodes at once, and this one waits for {least}"
    );
    Err(Failure::usage(what).next("say --min-nodes N with N of 2 or more, or leave --regroup out"))
}

/// A bid that is regrouped whenever a node is taken away and too few are left.
pub(super) struct Watch<'a> {
    context: &'a Context,
    bid: u64,
    /// The place in the events from which the watch begins.
    cursor: String,
}

/// The end of a node that its tenant did not end.
struct Taken {
    allocation: u64,
    reason: EndReason,
}

impl<'a> Watch<'a> {
    /// Notes the present place in the events, so that none is missed that comes before [`run`](Watch::run).
    pub(super) async fn begin(context: &'a Context, bid: u64, seq: u64) -> Result<Watch<'a>, Failure> {
        let request = ListBidsRequest { page_size: 1, min_seq: seq, ..Default::default() };
        let cursor = context.client.list_bids(request).await?.cursor;
        Ok(Watch { context, bid, cursor })
    }

    /// Regroups the bid until its search ends. Ctrl-C ends the watch and leaves the bid.
    pub(super) async fn run(self) -> Result<(), Failure> {
        let bid = self.bid;
        note(format_args!("bid {bid}: this program stays, and regroups the bid when too few nodes are left"));
        tokio::select! {
            ended = self.follow() => ended,
            () = local::stop_signal() => {
                let what = format!("the watch over bid {bid} was interrupted: nothing regroups it from here on");
                Err(Failure::new(Exit::StillWaiting, what).next(format!("regroup it yourself: kubebid bid regroup {bid}")))
            }
        }
    }

    async fn follow(self) -> Result<(), Failure> {
        // A node may have been taken away while no program watched: the same key places the same bid again.
        let mut closed = self.look(0, None).await?;
        let filter = EventFilter {
            kinds: vec!["ended".to_owned(), "bid_closed".to_owned()],
            bids: vec![self.bid],
            ..Default::default()
        };
        let mut watch = self.context.client.watch_events(Some(filter), self.cursor.clone());
        while !closed && let Some(frame) = watch.next().await {
            for event in frame?.events {
                if let Some(taken) = taken(&event) {
                    closed |= self.look(event.seq, Some(&taken)).await?;
                }
                closed |= matches!(event.kind, Some(Kind::BidClosed(_)));
            }
        }
        note(format_args!("bid {}: its search is over, so that it is not regrouped any more", self.bid));
        Ok(())
    }

    /// Looks at the bid as it is after a command, and regroups it if too few nodes are left. Returns true if its search
    /// is over.
    async fn look(&self, min_seq: u64, taken: Option<&Taken>) -> Result<bool, Failure> {
        let bid = self.bid;
        let answer = self.context.client.get_bid(GetBidRequest { bid, min_seq }).await?;
        let known = answer.bid.unwrap_or_default();
        if known.state() == State::Closed {
            return Ok(true);
        }
        // What is under notice before the first event is waited for.
        let is_settled = taken.is_some() || known.under_notice == 0;
        if !is_settled || !is_broken(&known) {
            return Ok(false);
        }
        let request = CancelBidRequest { bid, mode: Mode::Regroup.into(), ..Default::default() };
        match self.context.client.cancel_bid(request).await {
            Ok(_) => note(Why { bid: &known, taken }),
            Err(error) if error.code() == Some(&Code::Closed) => return Ok(true),
            Err(error) => return Err(refused(bid, error)),
        }
        Ok(false)
    }
}

/// Returns the node that an event took from its bid. One that its tenant gave back is not.
fn taken(event: &Event) -> Option<Taken> {
    let Some(Kind::Ended(ended)) = &event.kind else { return None };
    match ended.reason() {
        EndReason::Released | EndReason::Regrouped => None,
        reason @ (EndReason::Outbid
        | EndReason::CapacityWithdrawn
        | EndReason::ReserveRaised
        | EndReason::UnitLost
        | EndReason::StartTimeout
        | EndReason::Funds
        | EndReason::Other
        | EndReason::Unspecified) => Some(Taken { allocation: ended.allocation, reason }),
    }
}

/// Returns true if a bid holds something, and less than the minimum that it waited for.
fn is_broken(bid: &Bid) -> bool {
    let has = bid.held + bid.claimed;
    has + bid.under_notice > 0 && has < least(bid)
}

/// Returns the number of nodes that the bid waits for at once (R12).
fn least(bid: &Bid) -> u32 {
    bid.min_nodes.min(bid.max_nodes)
}

fn refused(bid: u64, error: Error) -> Failure {
    let is_no_gang = error.code() == Some(&Code::NotAGang);
    let failure = Failure::from(error);
    if is_no_gang { failure.next(format!("it was amended: see kubebid bid show {bid}")) } else { failure }
}

/// One line that says why a bid is regrouped.
struct Why<'a> {
    bid: &'a Bid,
    taken: Option<&'a Taken>,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Why { bid, taken } = self;
        write!(f, "bid {}: regrouped, because ", bid.bid)?;
        if let Some(Taken { allocation, reason }) = taken {
            write!(f, "node {allocation} was taken away ({}) and ", reason.as_str_name())?;
        }
        let (held, claims) = (plural(bid.held, "live node"), plural(bid.claimed, "claim"));
        write!(f, "{held} and {claims} are fewer than its minimum of {}", least(bid))
    }
}

#[cfg(test)]
mod tests {
    use super::{Taken, Why, check, is_broken, taken};
    use kubebid_client::v1::allocation::EndReason;
    use kubebid_client::v1::event::{Ended, Kind};
    use kubebid_client::v1::{Bid, Event};

    fn bid(held: u32, under_notice: u32, claimed: u32) -> Bid {
        Bid { bid: 12, min_nodes: 4, max_nodes: 6, held, under_notice, claimed, ..Default::default() }
    }

    #[test]
    fn a_bid_is_broken_if_it_has_something_and_less_than_its_minimum() {
        assert!(is_broken(&bid(3, 0, 0)));
        assert!(is_broken(&bid(0, 2, 0)));
        assert!(is_broken(&bid(0, 0, 1)));
        assert!(!is_broken(&bid(3, 0, 1)), "a claim counts");
        assert!(!is_broken(&bid(4, 2, 0)));
        assert!(!is_broken(&bid(0, 0, 0)), "it waits for its minimum by itself");
        assert!(!is_broken(&Bid { max_nodes: 3, ..bid(3, 0, 0) }), "it wants no more");
    }

    #[test]
    fn a_node_that_its_tenant_gave_back_was_not_taken_away() {
        let ended = |reason: EndReason| {
            let ended = Ended { allocation: 7, reason: reason.into(), ..Default::default() };
            taken(&Event { kind: Some(Kind::Ended(ended)), ..Default::default() }).is_some()
        };
        assert!(ended(EndReason::Outbid) && ended(EndReason::UnitLost));
        assert!(!ended(EndReason::Released) && !ended(EndReason::Regrouped));
    }

    #[test]
    fn the_line_says_why() {
        let taken = Taken { allocation: 7, reason: EndReason::Outbid };
        let why = Why { bid: &bid(2, 0, 1), taken: Some(&taken) };
        let text = "bid 12: regrouped, because node 7 was taken away (OUTBID) and 2 live nodes and 1 claim are fewer than its minimum of 4";
        assert_eq!(why.to_string(), text);
    }

    #[test]
    fn a_bid_without_a_minimum_is_refused_with_the_flag_to_give() {
        assert!(check(Some(2), 2).is_ok());
        for (min_nodes, nodes) in [(None, 4), (Some(1), 4)] {
            let refused = check(min_nodes, nodes).unwrap_err().to_string();
            assert!(refused.contains("waits for 1") && refused.contains("--min-nodes N"), "{refused}");
        }
    }
}
