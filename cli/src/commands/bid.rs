//! `kubebid bid`

mod place;
mod show;
mod wait;

use crate::args::{Key, Limit, Pair, Whose, its_number, map, word};
use crate::config::Context;
use crate::failure::Failure;
use clap::{ArgGroup, Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::bid::State;
use kubebid_client::v1::cancel_bid_request::Mode;
use kubebid_client::v1::{
    AmendBidRequest, CancelBidRequest, GetBidRequest, ListBidsRequest, QuoteBidRequest,
};

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
    /// List bids, oldest first
    #[command(after_help = "\
Examples:
  kubebid bid list --state open
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
cannot be lowered while a node of the bid is protected.

Examples:
  kubebid bid amend 12 --max 2.90        stay, when a notice asks for it
  kubebid bid amend 12 --nodes 2         give up what it still searches for")]
    Amend(Amend),
    /// End the search of a bid, and its nodes or not
    #[command(after_help = "\
Examples:
  kubebid bid cancel 12 --keep           stop searching, keep what it holds until outbid
  kubebid bid cancel 12 --release        give back its nodes too, at once")]
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
    /// Say why this ceiling would not do, in dollars per node-hour
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    max: Option<Dollars>,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only those that look in this market
    #[arg(long, default_value = "", hide_default_value = true)]
    market: String,
    /// Only those that search, or only those that do not
    #[arg(long, value_parser = word(&["open", "closed"], State::from_str_name))]
    state: Vec<State>,
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
    key: Key,
}

#[derive(Args)]
#[command(group = ArgGroup::new("mode").required(true).args(["keep", "release"]))]
pub(crate) struct Cancel {
    /// Its number
    #[arg(value_parser = its_number)]
    bid: u64,
    /// Its nodes stay until outbid or released
    #[arg(long)]
    keep: bool,
    /// Its nodes end at once
    #[arg(long)]
    release: bool,
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
            Ok(answer) => context.out.answer(&answer, |view| show::quotes(&answer, self.nodes, view)),
            Err(error) => Err(place::off_tick(context, error, &self.place, self.max).await),
        }
    }
}

impl ListArgs {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = ListBidsRequest {
            market: self.market,
            states: self.state.into_iter().map(i32::from).collect(),
            labels: map(self.label),
            unmet_only: self.unmet,
            account: self.whose.account(),
            ..Default::default()
        };
        let answer = context.client.first(request, self.limit.count()).await?;
        context.out.answer(&answer, |view| show::list(&answer.bids, view))?;
        self.limit.note(answer.bids.len(), &answer.next_page_token);
        Ok(())
    }
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
                context.out.answer(&answer, |_| {
                    show::done("amended", self.bid, answer.seq, answer.repeated, bid.as_ref())
                })
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
        let mode = if self.keep { Mode::Keep } else { Mode::Release };
        let request = CancelBidRequest { client_key: self.key.key, bid: self.bid, mode: mode.into() };
        let answer = context.client.cancel_bid(request).await?;
        let bid = place::outcome(context, self.bid, answer.seq).await;
        context
            .out
            .answer(&answer, |_| show::done("cancelled", self.bid, answer.seq, answer.repeated, bid.as_ref()))
    }
}
