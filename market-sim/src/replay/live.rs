//! A running engine on the stepped clock, by the client: an administrator moves the time and hears of
//! everything, each tenant and provider acts with a token of its own.

use super::venue::{Act, Happening, Venue, VenueError};
use kubebid_client::v1::event::Kind;
use kubebid_client::v1::{self, cancel_bid_request::Mode};
use kubebid_client::{Client, Error, Watch};
use kubebid_core::units::{AllocationId, BidId, Micros};
use kubebid_core::{Amount, Price};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tokio::runtime::{Builder, Runtime};

pub struct Live {
    /// On this thread: each command waits for the one before it anyway.
    runtime: Runtime,
    endpoints: Vec<String>,
    admin: Client,
    accounts: BTreeMap<String, Client>,
    watch: Watch<v1::WatchEventsResponse>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl From<Error> for VenueError {
    fn from(error: Error) -> VenueError {
        VenueError(format!("the engine: {error}"))
    }
}

impl Live {
    /// With an administrator's token. A trace begins in an empty market: an engine that has obeyed
    /// commands is refused.
    pub fn connect(endpoints: Vec<String>, token: String) -> Result<Live, VenueError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|fault| VenueError(format!("starting the client: {fault}")))?;
        let (admin, watch) = runtime.block_on(async {
            let admin = client(&endpoints, &token)?;
            let mut watch = admin.watch_events(None, "");
            // The first frame comes at once and says where the watch begins.
            match next(&mut watch).await?.seq {
                0 => Ok((admin, watch)),
                seq => Err(VenueError(format!(
                    "the engine has obeyed {seq} commands already; a replay needs one on an empty store"
                ))),
            }
        })?;
        Ok(Live { runtime, endpoints, admin, accounts: BTreeMap::new(), watch })
    }

    fn account(&mut self, name: &str, role: v1::token::Role) -> Result<Client, VenueError> {
        match self.accounts.entry(name.to_owned()) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(vacant) => {
                let (admin, endpoints) = (&self.admin, &self.endpoints);
                let client = self.runtime.block_on(async {
                    let limits = v1::AccountLimits {
                        open_bids: Some(u32::MAX),
                        nodes_wanted: Some(u32::MAX),
                        ceiling_micros: None,
                        requests_per_second: Some(u32::MAX),
                    };
                    let account = v1::PutAccountRequest { name: name.to_owned(), limits: Some(limits) };
                    admin.put_account(account).await?;
                    let token = v1::CreateTokenRequest {
                        account: name.to_owned(),
                        roles: vec![role as i32],
                        description: "replay".to_owned(),
                    };
                    client(endpoints, &admin.create_token(token).await?.secret)
                })?;
                Ok(vacant.insert(client).clone())
            }
        }
    }

    /// All that happened up to and with a command.
    fn hear(&mut self, seq: u64) -> Result<Vec<Happening>, VenueError> {
        let watch = &mut self.watch;
        self.runtime.block_on(async {
            let mut happenings = Vec::new();
            loop {
                let frame = next(watch).await?;
                happenings.extend(frame.events.into_iter().filter_map(happening));
                if frame.seq >= seq {
                    return Ok(happenings);
                }
            }
        })
    }

    fn perform(&mut self, act: Act) -> Result<u64, VenueError> {
        use v1::token::Role;
        let (tenant, provider) = (Role::Tenant, Role::Provider);
        let seq = match act {
            Act::Open { market, min_runtime, notice } => {
                let rules = v1::MarketRules {
                    min_runtime_us: Some(min_runtime.0),
                    notice_us: Some(notice.0),
                    ..v1::MarketRules::default()
                };
                let request = v1::OpenMarketRequest { market, rules: Some(rules) };
                self.runtime.block_on(self.admin.open_market(request)).map(|answer| answer.seq)
            }
            Act::Offer { provider: name, market, capacity, reserve } => {
                let client = self.account(&name, provider)?;
                let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
                let request = v1::PutOfferRequest {
                    market,
                    capacity,
                    reserve_micros: reserve.0,
                    ..v1::PutOfferRequest::default()
                };
                self.runtime.block_on(client.put_offer(request)).map(|answer| answer.seq)
            }
            Act::Bid { tenant: name, market, ceiling, nodes } => {
                let client = self.account(&name, tenant)?;
                let request = v1::PlaceBidRequest {
                    markets: vec![market],
                    ceiling_micros: ceiling.0,
                    min_nodes: Some(nodes),
                    max_nodes: nodes,
                    ..v1::PlaceBidRequest::default()
                };
                self.runtime.block_on(client.place_bid(request)).map(|answer| answer.seq)
            }
            Act::Cancel { tenant: name, bid } => {
                let client = self.account(&name, tenant)?;
                let mode = Mode::Release as i32;
                let request = v1::CancelBidRequest { bid: bid.0, mode, ..v1::CancelBidRequest::default() };
                self.runtime.block_on(client.cancel_bid(request)).map(|answer| answer.seq)
            }
            Act::Ready { tenant: name, allocation } => {
                let client = self.account(&name, tenant)?;
                let request =
                    v1::ReportReadyRequest { allocation: allocation.0, ..v1::ReportReadyRequest::default() };
                self.runtime.block_on(client.report_ready(request)).map(|answer| answer.seq)
            }
        };
        match seq {
            Ok(seq) => Ok(seq),
            // A refusal is an answer too; it is heard of like any other.
            Err(error) => match error.refusal().and_then(|refusal| refusal.seq) {
                Some(seq) => Ok(seq),
                None => Err(error.into()),
            },
        }
    }
}

impl Venue for Live {
    fn advance(&mut self, to: Micros) -> Result<Vec<Happening>, VenueError> {
        let request = v1::AdvanceTimeRequest { to_us: to.0 };
        let seq = self.runtime.block_on(self.admin.advance_time(request))?.seq;
        self.hear(seq)
    }

    fn act(&mut self, act: Act) -> Result<(u64, Vec<Happening>), VenueError> {
        let seq = self.perform(act)?;
        Ok((seq, self.hear(seq)?))
    }

    fn name(&self) -> String {
        format!("engine at {}", self.endpoints.join(", "))
    }
}

async fn next(watch: &mut Watch<v1::WatchEventsResponse>) -> Result<v1::WatchEventsResponse, VenueError> {
    Ok(watch.next().await.ok_or_else(|| VenueError("the watch ended".to_owned()))??)
}

fn client(endpoints: &[String], token: &str) -> Result<Client, Error> {
    Client::builder().endpoints(endpoints.iter().cloned()).token(token).build()
}

fn happening(event: v1::Event) -> Option<Happening> {
    let at = Micros(event.at_us);
    Some(match event.kind? {
        Kind::Allocated(e) => {
            Happening::Allocated { at, allocation: AllocationId(e.allocation), bid: BidId(e.bid?) }
        }
        Kind::NoticeStarted(e) => Happening::NoticeStarted {
            at,
            allocation: AllocationId(e.allocation),
            deadline: Micros(e.deadline_us),
        },
        Kind::NoticeRescinded(e) => Happening::NoticeRescinded { at, allocation: AllocationId(e.allocation) },
        Kind::Ended(e) => Happening::Ended { at, allocation: AllocationId(e.allocation), bid: BidId(e.bid?) },
        Kind::Charged(e) => {
            Happening::Charged { debit: Amount(e.debit_micros.into()), fee: Amount(e.fee_micros.into()) }
        }
        Kind::PriceChanged(e) => {
            let numbers = e.numbers?;
            Happening::Price {
                at,
                market: e.market,
                price: Price(numbers.market_price_micros),
                supplied: numbers.floor_micros.is_some(),
            }
        }
        Kind::Rejected(e) => Happening::Refused { reason: e.reason },
        Kind::MarketOpened(_)
        | Kind::RulesChanged(_)
        | Kind::OfferPut(_)
        | Kind::UnitAdded(_)
        | Kind::UnitLeaving(_)
        | Kind::UnitBack(_)
        | Kind::UnitRemoved(_)
        | Kind::BidPlaced(_)
        | Kind::BidAmended(_)
        | Kind::BidClosed(_)
        | Kind::Ready(_)
        | Kind::Claimed(_)
        | Kind::ClaimDropped(_)
        | Kind::Repeated(_) => return None,
    })
}
