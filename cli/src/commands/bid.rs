//! `kubebid bid`

mod place;
mod regroup;
mod show;
mod wait;

use crate::args::{Key, Limit, NoPrice, Pair, Whose, its_number, map, states, word};
use crate::config::Context;
use crate::failure::{Exit, Failure};
use crate::output::plural;
use crate::suggestion;
use clap::{ArgGroup, Args, Subcommand};
use kubebid_client::v1::allocation::State as NodeState;
use kubebid_client::v1::bid::State;
use kubebid_client::v1::cancel_bid_request::Mode;
use kubebid_client::v1::{
    AmendBidRequest, Bid as BidDetail, CancelBidRequest, GetBidRequest, ListAllocationsRequest,
    ListBidsRequest, QuoteBidRequest,
};
use kubebid_client::{Client, Code, Dollars, Error};
use std::collections::BTreeSet;

#[derive(Subcommand)]
pub(crate) enum Bid {
    /// Bid for nodes
    Place(place::Place),
    /// Say what it takes to get nodes at once
    #[command(after_help = "\
Examples:
  kubebid bid quote h100-8x/eu-west --nodes 4
  kubebid bid quote --type h100-8x --nodes 2 --max 2.50")]
    Quote(Quote),
    /// List the bids that search or hold nodes, oldest first
    #[command(after_help = "\
Bids that are closed and hold no node are shown with --all, and with --state closed.

Examples:
  kubebid bid list
  kubebid bid list --all -o csv
  kubebid bid list -o name               the numbers alone, for scripts
  kubebid bid list --unmet --label team=vision
  kubebid --as admin bid list --all-accounts -o wide")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one bid
    #[command(visible_alias = "get")]
    Show {
        /// Its number
        #[arg(value_parser = its_number)]
        bid: u64,
    },
    /// Change the ceiling of a bid, how many nodes it wants, or both
    #[command(after_help = "\
A new ceiling and more nodes give the bid a new place among those of the same ceiling. A ceiling
cannot be lowered while a node of the bid is protected, nor for the market's minimum runtime after it was
raised while a node of the bid was under notice: `kubebid bid show` says until when.

Examples:
  kubebid bid amend 12 --max 2.90        stay, when a notice asks for it
  kubebid bid amend 12 --nodes 2         give up what it still searches for")]
    Amend(Amend),
    /// Give back all nodes of a bid that has a minimum, and let it wait for its minimum again
    #[command(after_help = "\
For a bid with --min-nodes above 1 that lost some of its nodes, and that is worth nothing with the rest.
It keeps its place among bids of the same ceiling. Its nodes and claims end at once, and are billed as
for `kubebid bid cancel --release`.

Examples:
  kubebid bid regroup 12")]
    Regroup(regroup::Regroup),
    /// End the search of a bid, and its nodes or not
    #[command(after_help = "\
One of --keep, --release and --regroup is needed. A bid whose search is over can still be cancelled with
--release.

A node that is given back without a notice is billed for at least the minimum charge of its market.
Each claim of the bid is given up in both cases, and is billed for the minimum charge:
see `kubebid market show MARKET`.

Examples:
  kubebid bid cancel 12 --keep           stop searching, keep what it holds until outbid
  kubebid bid cancel 12 --release        give back its nodes too, at once
  kubebid bid cancel 12 --regroup        give back its nodes, and search again: as kubebid bid regroup 12")]
    #[command(visible_alias = "rm")]
    Cancel(Cancel),
}

/// The markets to look in.
#[derive(Args)]
#[command(group = ArgGroup::new("where").required(true).args(["markets", "instance_type"]))]
pub(crate) struct Where {
    /// The markets to look in, as in h100-8x/eu-west
    #[arg(value_name = "MARKET")]
    markets: Vec<String>,
    /// Look in every market of this instance type, also those opened later
    #[arg(long = "type", value_name = "TYPE")]
    instance_type: Option<String>,
}

#[derive(Args)]
pub(crate) struct Quote {
    #[command(flatten)]
    place: Where,
    /// Number of nodes to get at once, in one market
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// Say how many nodes this ceiling would get, or why none, in dollars per node-hour
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    max: Option<Dollars>,
    #[command(flatten)]
    _price: NoPrice,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only those that look in this market
    #[arg(long, default_value = "", hide_default_value = true)]
    market: String,
    /// Only those that search, or only those that do not
    #[arg(long, value_parser = word(&["open", "closed"], State::from_str_name))]
    state: Vec<State>,
    /// Also those that are closed and hold no node
    #[arg(short, long, conflicts_with = "state")]
    all: bool,
    /// Only those with this label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Pair>,
    /// Only those that do not have all they want
    #[arg(long)]
    unmet: bool,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true).args(["max", "nodes"]))]
pub(crate) struct Amend {
    /// Its number
    #[arg(value_parser = its_number)]
    bid: u64,
    /// The most to pay per node-hour, in dollars
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    max: Option<Dollars>,
    /// Number of nodes in all
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    #[command(flatten)]
    _price: NoPrice,
    #[command(flatten)]
    key: Key,
}

#[derive(Args)]
pub(crate) struct Cancel {
    /// Its number
    #[arg(value_parser = its_number)]
    bid: u64,
    /// Its nodes stay, and are billed, until outbid or released
    #[arg(long, conflicts_with_all = ["release", "regroup"])]
    keep: bool,
    /// Its nodes end at once
    #[arg(long, conflicts_with = "regroup")]
    release: bool,
    /// Its nodes end at once, and it waits for its minimum again
    #[arg(long)]
    regroup: bool,
    #[command(flatten)]
    key: Key,
}

impl Bid {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Bid::Place(place) => place.run(context).await,
            Bid::Quote(quote) => quote.run(context).await,
            Bid::List(list) => list.run(context).await,
            Bid::Show { bid } => {
                let answer = context.client.get_bid(GetBidRequest { bid, min_seq: 0 }).await?;
                context.out.answer(&answer, |view| show::sheet(&answer.bid.clone().unwrap_or_default(), view))
            }
            Bid::Amend(amend) => amend.run(context).await,
            Bid::Regroup(regroup) => regroup.run(context).await,
            Bid::Cancel(cancel) => cancel.run(context).await,
        }
    }
}

impl Quote {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = QuoteBidRequest {
            markets: self.place.markets.clone(),
            instance_type: self.place.instance_type.clone().unwrap_or_default(),
            nodes: Some(self.nodes),
            ceiling_micros: self.max.map(|Dollars(micros)| micros),
            min_seq: 0,
        };
        match context.client.quote_bid(request).await {
            Ok(answer) => {
                if answer.quotes.is_empty()
                    && let Some(instance_type) = &self.place.instance_type
                {
                    suggestion::note_unknown_type(context, instance_type).await;
                }
                context.out.answer(&answer, |view| show::quotes(&answer, self.nodes, self.max, view))
            }
            Err(error) => Err(place::off_tick(context, error, &self.place, self.max).await),
        }
    }
}

impl ListArgs {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let also_holding = self.state.is_empty() && !self.all && !self.unmet;
        let request = ListBidsRequest {
            market: self.market.clone(),
            states: states(self.state, self.all, [State::Open]),
            labels: map(self.label),
            unmet_only: self.unmet,
            account: self.whose.account(),
            ..Default::default()
        };
        let mut answer = context.client.first(request.clone(), self.limit.count()).await?;
        // A list that is cut goes on with bids that search.
        if also_holding && answer.next_page_token.is_empty() {
            let known: BTreeSet<_> = answer.bids.iter().map(|bid| bid.bid).collect();
            let closed = closed_with_nodes(&context.client, &request, &known).await?;
            answer.bids.extend(closed.into_iter().filter(|bid| looks_in(bid, &self.market)));
            answer.bids.sort_by_key(|bid| bid.bid);
            answer.bids.truncate(self.limit.count());
        }
        context.out.answer(&answer, |view| show::list(&answer.bids, view))?;
        self.limit.note(answer.bids.len(), &answer.next_page_token);
        Ok(())
    }
}

/// Reads the closed bids that hold nodes. The engine finds bids by state alone, and a tenant may have closed many, so
/// they are found by their nodes.
async fn closed_with_nodes(
    client: &Client,
    of: &ListBidsRequest,
    known: &BTreeSet<u64>,
) -> Result<Vec<BidDetail>, Error> {
    let request = ListAllocationsRequest {
        states: vec![NodeState::Starting.into(), NodeState::Active.into()],
        labels: of.labels.clone(),
        account: of.account.clone(),
        ..Default::default()
    };
    let nodes = client.all(request).await?.allocations;
    let bids: BTreeSet<_> = nodes.iter().filter_map(|node| node.bid).collect();
    let mut closed = Vec::new();
    for bid in bids.difference(known) {
        let found = client.get_bid(GetBidRequest { bid: *bid, min_seq: 0 }).await?.bid;
        closed.extend(found.filter(|bid| bid.state() == State::Closed));
    }
    Ok(closed)
}

/// Returns whether a bid looks in a market; any market for the empty text.
fn looks_in(bid: &BidDetail, market: &str) -> bool {
    let instance_type = market.split_once('/').map_or(market, |(name, _)| name);
    market.is_empty()
        || bid.markets.iter().any(|named| named == market)
        || bid.instance_type.as_deref() == Some(instance_type)
}

impl Amend {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let bid = self.bid;
        let request = AmendBidRequest {
            client_key: self.key.key,
            bid,
            ceiling_micros: self.max.map(|Dollars(micros)| micros),
            max_nodes: self.nodes,
        };
        match context.client.amend_bid(request).await {
            Ok(answer) => {
                let bid = place::outcome(context, bid, answer.seq).await;
                context
                    .out
                    .answer(&answer, |_| show::done("amended", self.bid, answer.repeated, bid.as_ref()))?;
                place::note_own_nodes(context, bid.as_ref(), answer.seq).await;
                Ok(())
            }
            Err(error) => {
                let known = context.client.get_bid(GetBidRequest { bid, min_seq: 0 }).await;
                let known = known.ok().and_then(|answer| answer.bid).unwrap_or_default();
                let place = Where { markets: known.markets, instance_type: known.instance_type };
                Err(place::off_tick(context, error, &place, self.max).await)
            }
        }
    }
}

impl Cancel {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let bid = self.bid;
        let mode = match (self.keep, self.release, self.regroup) {
            (true, ..) => Mode::Keep,
            (false, true, _) => Mode::Release,
            (false, false, true) => return regroup::Regroup { bid, key: self.key }.run(context).await,
            (false, false, false) => return Err(keep_or_release(context, bid).await?),
        };
        let request = CancelBidRequest { client_key: self.key.key, bid, mode: mode.into() };
        let answer = match context.client.cancel_bid(request).await {
            Ok(answer) => answer,
            Err(error) if error.code() == Some(&Code::Closed) => {
                let known = context.client.get_bid(GetBidRequest { bid, min_seq: 0 }).await?.bid;
                return Err(Failure::from(error).next(after_close(&known.unwrap_or_default())));
            }
            Err(error) => return Err(error.into()),
        };
        let bid = place::outcome(context, self.bid, answer.seq).await;
        context.out.answer(&answer, |_| show::done("cancelled", self.bid, answer.repeated, bid.as_ref()))
    }
}

/// Returns what is left to do with a bid whose search is over.
fn after_close(bid: &BidDetail) -> String {
    match (bid.held + bid.under_notice, bid.claimed) {
        (0, 0) => "nothing is left to do: it searches no more, and holds no node".to_owned(),
        (0, _) => format!("give up its claims: kubebid bid cancel {} --release", bid.bid),
        _ => format!("give back its nodes: kubebid bid cancel {} --release", bid.bid),
    }
}

/// Returns the failure of a cancellation that does not say what becomes of the nodes.
async fn keep_or_release(context: &Context, number: u64) -> Result<Failure, Error> {
    let answer = context.client.get_bid(GetBidRequest { bid: number, min_seq: 0 }).await?;
    let bid = answer.bid.unwrap_or_default();
    if bid.state() == State::Closed && bid.held + bid.under_notice + bid.claimed == 0 {
        return Ok(
            Failure::new(Exit::Refused, format!("CLOSED: bid {number} is closed")).next(after_close(&bid))
        );
    }
    let nodes = match bid.held + bid.under_notice {
        0 => "no node yet".to_owned(),
        nodes => plural(nodes, "node"),
    };
    Ok(Failure::usage(format!("bid {number} holds {nodes}: say --keep, --release or --regroup"))
        .next("--keep ends its search alone: its nodes stay, and are billed, until outbid; --release gives them back at once; --regroup does too, and searches again"))
}
