//! A running engine on the stepped clock, through the client. An administrator moves the time and watches everything;
//! each tenant and provider uses a token of its own.

mod requests;
mod translation;

use super::{Venue, VenueError};
use kubebid_client::v1;
use kubebid_client::{Client, Error, Options, Watch};
use kubebid_core::answer::Outcome;
use kubebid_core::numbers::Supply;
use kubebid_core::units::{AllocationId, MarketId, Micros, Names, Seq};
use kubebid_core::{Answer, Command, Event, Fact, Price, StampedCommand};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use translation::Translation;

/// The timeout of a call. A stepped clock waits, so a machine that slept for minutes does not end a run of an hour.
const PATIENCE: Duration = Duration::from_mins(10);

/// A running engine on the stepped clock, over a connection.
pub struct Remote {
    /// A runtime on this thread: each command waits for the one before it anyway.
    runtime: Runtime,
    endpoints: Vec<String>,
    admin: Client,
    accounts: BTreeMap<String, Client>,
    watch: Watch<v1::WatchEventsResponse>,
    translation: Translation,
    now: Micros,
    seq: u64,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl From<Error> for VenueError {
    fn from(error: Error) -> VenueError {
        VenueError(format!("the engine: {error}"))
    }
}

impl Remote {
    /// Connects with an administrator's token. A world begins in an empty market: an engine that has executed
    /// commands is refused.
    pub fn connect(endpoints: Vec<String>, token: String) -> Result<Remote, VenueError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|fault| VenueError(format!("starting the client: {fault}")))?;
        let (admin, watch) = runtime.block_on(async {
            let admin = client(&endpoints, &token)?;
            let mut watch = admin.watch_events(None, "");
            // The first frame comes at once and has the number at which the watch begins.
            match next(&mut watch).await?.seq {
                0 => Ok((admin, watch)),
                seq => Err(VenueError(format!(
                    "the engine has executed {seq} commands already; a replay needs one on an empty store"
                ))),
            }
        })?;
        Ok(Remote {
            runtime,
            endpoints,
            admin,
            accounts: BTreeMap::new(),
            watch,
            translation: Translation::default(),
            now: Micros(0),
            seq: 0,
        })
    }

    /// Returns the client of a command's account, or the administrator's.
    fn caller(&mut self, command: &Command) -> Result<Client, VenueError> {
        let Some(name) = command.account() else { return Ok(self.admin.clone()) };
        match self.accounts.entry(name.to_string()) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(vacant) => {
                let (admin, endpoints) = (&self.admin, &self.endpoints);
                let client = self.runtime.block_on(async {
                    let limits = v1::AccountLimits {
                        open_bids: Some(u32::MAX),
                        nodes_wanted: Some(u32::MAX),
                        ceiling_micros: None,
                        requests_per_second: Some(u32::MAX),
                        units_offered: Some(u32::MAX),
                        units_per_command: Some(u32::MAX),
                        refusals_per_second: Some(u32::MAX),
                        commands_per_day: Some(u32::MAX),
                    };
                    let account = v1::PutAccountRequest { name: name.to_string(), limits: Some(limits) };
                    admin.put_account(account).await?;
                    let token = v1::CreateTokenRequest {
                        account: name.to_string(),
                        roles: vec![v1::token::Role::Tenant as i32, v1::token::Role::Provider as i32],
                        description: "simulation".to_owned(),
                    };
                    client(endpoints, &admin.create_token(token).await?.secret)
                })?;
                Ok(vacant.insert(client).clone())
            }
        }
    }

    /// Reads the events up to and with a command.
    fn read_events_up_to(&mut self, seq: u64, events: &mut Vec<Event>) -> Result<(), VenueError> {
        while self.seq < seq {
            let frame = self.runtime.block_on(next(&mut self.watch))?;
            for event in frame.events {
                events.extend(self.translation.event(event)?);
            }
            self.seq = frame.seq;
        }
        Ok(())
    }
}

impl Venue for Remote {
    fn apply(&mut self, command: &StampedCommand) -> Result<Answer, VenueError> {
        let mut events = Vec::new();
        if command.at > self.now {
            self.now = command.at;
            let request = v1::AdvanceTimeRequest { to_us: command.at.0 };
            let seq = self.runtime.block_on(self.admin.advance_time(request))?.seq;
            self.read_events_up_to(seq, &mut events)?;
        }
        if command.command != Command::AdvanceTime {
            let client = self.caller(&command.command)?;
            let seq = match self.runtime.block_on(requests::send(&client, &command.command)) {
                Ok(seq) => seq,
                // A refusal is an answer too, with a number and an event.
                Err(error) => error.refusal().and_then(|refusal| refusal.seq).ok_or(error)?,
            };
            self.read_events_up_to(seq, &mut events)?;
        }
        let outcome = match events.last() {
            Some(Event { fact: Fact::Rejected { reason }, .. }) => Outcome::Rejected(*reason),
            Some(_) | None => Outcome::Accepted,
        };
        Ok(Answer { seq: Seq(self.seq), at: self.now, outcome, events })
    }

    fn names(&self) -> &Names {
        self.translation.names()
    }

    fn price_to_stay(&mut self, node: AllocationId) -> Result<Option<Price>, VenueError> {
        let request = v1::GetAllocationRequest { allocation: node.0, min_seq: self.seq };
        let found = self.runtime.block_on(self.admin.get_allocation(request))?.allocation;
        Ok(found.and_then(|node| node.notice).and_then(|notice| notice.price_to_stay_micros).map(Price))
    }

    fn supply(&mut self, market: MarketId) -> Result<Supply, VenueError> {
        let market = self.names().market(market).to_string();
        let request =
            v1::GetMarketPriceRequest { market, min_seq: self.seq, ..v1::GetMarketPriceRequest::default() };
        let price = self.runtime.block_on(self.admin.get_market_price(request))?.prices.pop();
        let supply = price.and_then(|price| price.supply);
        let supply = supply.ok_or_else(|| VenueError("a market price without supply".to_owned()))?;
        Ok(Supply {
            total: supply.total.into(),
            free: supply.free.into(),
            allocated: supply.allocated.into(),
            notice: supply.notice.into(),
            claimed: supply.claimed.into(),
            resting: supply.resting.into(),
        })
    }

    fn name(&self) -> String {
        format!("engine at {}", self.endpoints.join(", "))
    }
}

async fn next(watch: &mut Watch<v1::WatchEventsResponse>) -> Result<v1::WatchEventsResponse, VenueError> {
    Ok(watch.next().await.ok_or_else(|| VenueError("the watch ended".to_owned()))??)
}

fn client(endpoints: &[String], token: &str) -> Result<Client, Error> {
    let options = Options { timeout: PATIENCE, deadline: PATIENCE, ..Options::default() };
    Client::builder().endpoints(endpoints.iter().cloned()).token(token).options(options).build()
}
