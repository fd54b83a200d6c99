//! `kubebid bench price`

use super::http::{Http, Page};
use super::load::{self, Answer, Run, Tally};
use super::report::Shape;
use super::stage::Stage;
use super::{Load, Measured, Target, perform};
use crate::config::Connection;
use crate::failure::Failure;
use clap::Args;
use http::Uri;
use kubebid_client::v1::GetMarketPriceRequest;
use prost::Message as _;
use serde_json::Value;
use tokio::task::JoinSet;

/// The five numbers of a market, by gRPC or REST
#[derive(Args)]
#[command(after_help = "\
By REST each caller has a connection of its own, HTTP/1.1 and kept alive; --connections counts for
gRPC only.

Examples:
  kubebid bench price --callers 64
  kubebid bench price --callers 64 --rest
  kubebid bench price --endpoint http://engine:7440 --token-file tenant.token --market h100/eu")]
pub(crate) struct Price {
    #[command(flatten)]
    load: Load,
    /// Ask by REST in place of gRPC
    #[arg(long, help_heading = "Load")]
    rest: bool,
    #[command(flatten)]
    target: Target,
}

impl Price {
    pub(super) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let load = &match self.rest {
            true => Load { connections: self.load.callers, ..self.load.clone() },
            false => self.load.settled(),
        };
        let wire = if self.rest { "GetMarketPrice, REST" } else { "GetMarketPrice, gRPC" };
        let shape = Shape::new("price", wire);
        perform(connection, &self.target, load, shape, async |stage, run| {
            let tally =
                if self.rest { rest(stage, run, load).await? } else { grpc(stage, run, load).await? };
            Ok(Measured { tally, bids_per_call: None, watch: None })
        })
        .await
    }
}

async fn grpc(stage: &Stage, run: &Run, load: &Load) -> Result<Tally, Failure> {
    let rpc = "/kubebid.auction.v1.MarketService/GetMarketPrice";
    let connections = load::connections(&stage.callers(load.connections)?, rpc).await?;
    let request = GetMarketPriceRequest { market: stage.market.clone(), ..GetMarketPriceRequest::default() };
    let message = request.encode_to_vec();
    let mut callers = JoinSet::new();
    for (pace, connection) in load::paces(run, load).into_iter().zip(connections.iter().cycle()) {
        let message = message.clone();
        callers.spawn(load::caller(pace, run.clone(), connection.clone(), move || message.clone()));
    }
    Tally::of(callers).await
}

async fn rest(stage: &Stage, run: &Run, load: &Load) -> Result<Tally, Failure> {
    let path = format!("/v1/markets/{}/price", stage.market);
    let path: Uri = path.parse().map_err(|_| Failure::usage(format!("`{}` is no market", stage.market)))?;
    let mut callers = JoinSet::new();
    for mut pace in load::paces(run, load) {
        let mut http = Http::connect(&stage.endpoint, stage.secret.as_deref()).await?;
        let (run, path) = (run.clone(), path.clone());
        callers.spawn(async move {
            let mut tally = Tally::new();
            while let Some(since) = pace.next().await {
                let page = http.get(&path).await?;
                tally.take(&run, since, answer(&page));
            }
            Ok(tally)
        });
    }
    Tally::of(callers).await
}

fn answer(page: &Page) -> Answer {
    if page.status == 200 {
        return Answer::Done;
    }
    let problem: Value = serde_json::from_slice(&page.body).unwrap_or_default();
    Answer::Refused(problem["code"].as_str().map_or_else(|| page.status.to_string(), str::to_owned))
}
