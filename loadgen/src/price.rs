//! The workload of price reads: the five numbers of a market, by gRPC or REST.

use crate::error::BenchError;
use crate::http::{Http, Page};
use crate::load::{self, Answer, Run, Tally};
use crate::options::Load;
use crate::report::Measured;
use crate::stage::Stage;
use crate::unary::authorization;
use http::Uri;
use kubebid_client::v1::GetMarketPriceRequest;
use prost::Message as _;
use serde_json::Value;
use tokio::task::JoinSet;

/// Reads prices, and measures the calls.
pub(crate) async fn measure(
    stage: &Stage,
    run: &Run,
    load: &Load,
    by_rest: bool,
) -> Result<Measured, BenchError> {
    let tally = if by_rest { rest(stage, run, load).await? } else { grpc(stage, run, load).await? };
    Ok(Measured { tally, bids_per_call: None, watch: None })
}

async fn grpc(stage: &Stage, run: &Run, load: &Load) -> Result<Tally, BenchError> {
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

async fn rest(stage: &Stage, run: &Run, load: &Load) -> Result<Tally, BenchError> {
    let path = format!("/v1/markets/{}/price", stage.market);
    let path: Uri =
        path.parse().map_err(|_| BenchError::usage(format!("`{}` is no market", stage.market)))?;
    let authorization = stage.callers(1)?.first().and_then(authorization);
    let mut callers = JoinSet::new();
    for mut pace in load::paces(run, load) {
        let mut http = Http::connect(&stage.endpoint, authorization.clone()).await?;
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
