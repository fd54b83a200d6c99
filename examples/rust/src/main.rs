//! Runs a job on nodes of a market: quote, place, wait until ready, raise or checkpoint on notice, bill.

use clap::Parser;
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fmt::Display;
use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use v1::allocation_service_client::AllocationServiceClient;
use v1::bid_service_client::BidServiceClient;
use v1::billing_service_client::BillingServiceClient;
use v1::event::Kind;
use v1::event_service_client::EventServiceClient;

#[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unreachable_pub)]
mod v1 {
    tonic::include_proto!("kubebid.auction.v1");
}

/// Runs a job on nodes of a market, until the nodes are gone or the work is done.
#[derive(Parser)]
struct Job {
    market: String,
    nodes: u32,
    /// The most to pay, in dollars per node-hour.
    most: f64,
    /// Seconds from the bid to its end.
    seconds: f64,
    #[arg(long, env = "KUBEBID_ENDPOINT", default_value = "http://127.0.0.1:7440")]
    endpoint: String,
    #[arg(long, env = "KUBEBID_TOKEN", hide_env_values = true)]
    token: String,
    /// A file with the authority of an https endpoint, as PEM. The system's authorities are trusted if absent.
    #[arg(long, env = "KUBEBID_CA_FILE")]
    ca_file: Option<PathBuf>,
}

/// Returns true if the engine is away. A status of the engine has no source, one for a lost connection has.
fn is_away(status: &Status) -> bool {
    status.code() == Code::Unavailable || status.source().is_some()
}

/// Calls a method, and waits while the engine is away. A command has a key, so a repeated one is done once.
macro_rules! call {
    ($client:ident.$method:ident($request:expr)) => {{
        let request = $request;
        loop {
            match $client.$method(request.clone()).await {
                Ok(answer) => break answer.into_inner(),
                Err(status) if is_away(&status) => sleep(Duration::from_millis(200)).await,
                Err(status) => return Err(status.into()),
            }
        }
    }};
}

/// Says how far the job is. It goes on if nobody reads that: `println!` would end it and leave its nodes behind.
fn say(text: impl Display) {
    let _ = writeln!(stdout(), "{text}");
}

fn dollars(micros: u64) -> String {
    format!("${:.2}", micros as f64 / 1e6)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Job { market, nodes, most, seconds, endpoint, token, ca_file } = Job::parse();
    let most = (most * 1e6) as u64;
    let bearer: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
    let mut address = Endpoint::from_shared(endpoint)?;
    if address.uri().scheme_str() == Some("https") {
        address = address.tls_config(match ca_file {
            Some(file) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(file)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        })?;
    }
    let channel: Channel = address.connect_lazy();
    let with_token = move |mut request: Request<()>| {
        request.metadata_mut().insert("authorization", bearer.clone());
        Ok::<_, Status>(request)
    };
    let service = InterceptedService::new(channel, with_token);
    let mut bids = BidServiceClient::new(service.clone());
    let mut allocations = AllocationServiceClient::new(service.clone());
    let mut events = EventServiceClient::new(service.clone());
    let mut billing = BillingServiceClient::new(service);
    let job = format!("job-{}", uuid::Uuid::new_v4().simple());
    let labels = HashMap::from([("job".to_owned(), job.clone())]);

    let markets = vec![market];
    let request = v1::QuoteBidRequest { markets: markets.clone(), nodes: Some(nodes), ..Default::default() };
    let entry = call!(bids.quote_bid(request)).quotes.first().and_then(|quote| quote.entry_price_micros);
    let Some(mut ceiling) = entry.filter(|price| *price <= most) else {
        return Err(format!("there are no {nodes} nodes for {}", dollars(most)).into());
    };
    say(format_args!("quote: {nodes} nodes need {}", dollars(ceiling)));

    // The place from which nothing is missed that happens to the bid.
    let request = v1::ListAllocationsRequest { page_size: 1, ..Default::default() };
    let mut cursor = call!(allocations.list_allocations(request)).cursor;
    let v1::PlaceBidResponse { bid, mut seq, .. } = call!(bids.place_bid(v1::PlaceBidRequest {
        client_key: job.clone(),
        markets,
        ceiling_micros: ceiling,
        min_nodes: Some(nodes),
        max_nodes: nodes,
        on_preemption: v1::place_bid_request::OnPreemption::Close.into(),
        labels: labels.clone(),
        ..Default::default()
    }));
    say(format_args!("bid {bid} placed"));

    let finish = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut is_ready, mut ended) = (false, BTreeSet::new());
    while ended.len() < nodes as usize && Instant::now() < finish {
        let filter = v1::EventFilter { bids: vec![bid], ..Default::default() };
        let request =
            v1::WatchEventsRequest { cursor: cursor.clone(), filter: Some(filter), from_start: false };
        let mut watch = match events.watch_events(request).await {
            Ok(watch) => watch.into_inner(),
            Err(status) if is_away(&status) => {
                sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(status) => return Err(status.into()),
        };
        // After the end of a watch the next one goes on from the cursor, also after the engine was restarted.
        while let Ok(Ok(Some(frame))) = timeout_at(finish, watch.message()).await {
            for event in frame.events {
                match event.kind {
                    Some(Kind::Ready(ready)) => {
                        is_ready = true;
                        say(format_args!("node {} ready: work begins", ready.allocation));
                    }
                    Some(Kind::NoticeRescinded(notice)) => {
                        say(format_args!("node {} stays", notice.allocation))
                    }
                    Some(Kind::NoticeStarted(v1::event::NoticeStarted { allocation, .. })) => {
                        let request = v1::GetAllocationRequest { allocation, min_seq: event.seq };
                        let held = call!(allocations.get_allocation(request)).allocation;
                        let Some(notice) = held.and_then(|held| held.notice) else { continue };
                        let stay = notice.price_to_stay_micros.filter(|price| *price <= most);
                        if let Some(stay) = stay.filter(|_| notice.rescindable) {
                            ceiling = ceiling.max(stay);
                            say(format_args!("notice for node {allocation}: raise to {}", dollars(ceiling)));
                            let client_key = format!("{job}-{}-{allocation}", event.seq);
                            let ceiling_micros = Some(ceiling);
                            call!(bids.amend_bid(v1::AmendBidRequest {
                                client_key,
                                bid,
                                ceiling_micros,
                                max_nodes: None
                            }));
                        } else {
                            say(format_args!("notice for node {allocation}: checkpoint and release"));
                            let client_key = format!("{job}-{allocation}");
                            let request = v1::ReleaseAllocationRequest { client_key, allocation };
                            call!(allocations.release_allocation(request));
                        }
                    }
                    Some(Kind::Ended(over)) => {
                        ended.insert(over.allocation);
                        say(format_args!("node {} ended", over.allocation));
                    }
                    _ => {}
                }
            }
            (cursor, seq) = (frame.cursor, frame.seq);
            if ended.len() == nodes as usize {
                break;
            }
        }
    }

    if ended.len() < nodes as usize {
        let mode = v1::cancel_bid_request::Mode::Release.into();
        seq =
            call!(bids.cancel_bid(v1::CancelBidRequest { client_key: format!("{job}-done"), bid, mode })).seq;
    }
    let request = v1::GetStatementRequest { labels, min_seq: seq, ..Default::default() };
    let charged = call!(billing.get_statement(request)).charged.unwrap_or_default();
    writeln!(stdout(), "bill: ${:.6}", charged.debit_micros as f64 / 1e6)?;
    if is_ready { Ok(()) } else { Err("no node was ready in time".into()) }
}
