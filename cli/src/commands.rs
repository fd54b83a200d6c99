//! The commands, one file for each group. A group is an enum or struct of its flags with a `run`. Only commands that
//! need an engine open a connection.

mod account;
mod admin;
mod alloc;
mod backup;
mod bench;
mod bid;
mod charges;
mod completions;
mod context;
mod depth;
mod event;
mod explain;
mod inject;
mod instance_type;
mod journal;
mod local;
mod login;
mod man;
mod market;
mod node_data;
mod offer;
mod price;
mod projections;
mod restore;
mod serve;
mod store;
mod token;
mod up;
mod watch;
mod whoami;

use crate::config::Connection;
use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a small living market on this machine, to try things
    Up(up::Up),
    /// Run the auction engine
    Serve(Box<serve::Serve>),
    /// Markets: list them, open one, change its rules
    #[command(subcommand)]
    Market(market::Market),
    /// The five numbers of markets: what nodes cost
    Price(price::Price),
    /// Demand and supply of a market by price level
    Depth(depth::Depth),
    /// Bids: place, change and end them
    #[command(subcommand)]
    Bid(bid::Bid),
    /// Allocations: the nodes that are held
    #[command(subcommand)]
    Alloc(alloc::Alloc),
    /// Offers: sell nodes
    #[command(subcommand)]
    Offer(offer::Offer),
    /// Why a bid did not fill, or why a node was taken away
    #[command(subcommand)]
    Explain(explain::Explain),
    /// Events and prices as they happen
    #[command(subcommand)]
    Watch(watch::Watch),
    /// The account of the token: its roles, and what counts against its limits
    Whoami(whoami::Whoami),
    /// Keep an engine and a token for it in the profile
    Login(login::Login),
    /// The contexts of the profile: the engines that one works with
    #[command(subcommand)]
    Context(context::Contexts),
    /// Events of the past
    #[command(subcommand, visible_alias = "events")]
    Event(event::Events),
    /// Charges: what nodes cost, and who pays whom
    #[command(subcommand)]
    Charges(charges::Charges),
    /// Instance types: what a node is
    #[command(subcommand)]
    Type(instance_type::InstanceTypes),
    /// Accounts and their limits
    #[command(subcommand)]
    Account(account::Accounts),
    /// Tokens: who may do what
    #[command(subcommand)]
    Token(token::Tokens),
    /// The stepped clock
    #[command(subcommand)]
    Admin(admin::Admin),
    /// Drills: demand spikes, supply losses, outages, pre-emptions
    #[command(subcommand)]
    Inject(inject::Inject),
    /// The journal of commands: check it, replay it, export it
    #[command(subcommand)]
    Journal(journal::Journal),
    /// Copy an embedded store, also while an engine runs on it
    Backup(backup::Backup),
    /// Make an embedded store of a backup
    Restore(restore::Restore),
    /// The store of an engine: who may read its tables
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// The readable tables beside the journal
    #[command(subcommand)]
    Projections(projections::Projections),
    /// Load an engine and say how it did
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Print completions for a shell
    Completions(completions::Completions),
    /// Write the manual pages
    Man(man::Man),
}

impl Command {
    pub(crate) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        match self {
            Command::Up(command) => command.run().await,
            Command::Serve(command) => command.run().await,
            Command::Market(command) => command.run(&connection.open()?).await,
            Command::Price(command) => command.run(&connection.open()?).await,
            Command::Depth(command) => command.run(&connection.open()?).await,
            Command::Bid(command) => command.run(&connection.open()?).await,
            Command::Alloc(command) => command.run(&connection.open()?).await,
            Command::Offer(command) => command.run(&connection.open()?).await,
            Command::Explain(command) => command.run(&connection.open()?).await,
            Command::Watch(command) => command.run(&connection.open()?).await,
            Command::Whoami(command) => command.run(&connection.open()?).await,
            Command::Login(command) => command.run(connection).await,
            Command::Context(command) => command.run(connection),
            Command::Event(command) => command.run(&connection.open()?).await,
            Command::Charges(command) => command.run(&connection.open()?).await,
            Command::Type(command) => command.run(&connection.open()?).await,
            Command::Account(command) => command.run(&connection.open()?).await,
            Command::Token(command) => command.run(&connection.open()?).await,
            Command::Admin(command) => command.run(&connection.open()?).await,
            Command::Inject(command) => command.run(&connection.open()?, &connection.tool()).await,
            Command::Journal(command) => command.run().await,
            Command::Backup(command) => command.run().await,
            Command::Restore(command) => command.run().await,
            Command::Store(command) => command.run().await,
            Command::Projections(command) => command.run().await,
            Command::Bench(command) => command.run(connection).await,
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        }
    }
}
