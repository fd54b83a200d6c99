//! `kubebid watch`

use crate::commands::event::{self, Filter};
use crate::commands::price::cells;
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, money, text, usd, while_read};
use clap::{Args, Subcommand};
use kubebid_client::v1::{PricePoint, WatchPricesRequest};
use kubebid_report::text::printable;

#[derive(Subcommand)]
pub(crate) enum Watch {
    /// Events that one may see, as they happen
    #[command(after_help = "\
With -o json each line is a frame with a cursor; --cursor goes on from there without a gap.

Examples:
  kubebid watch events
  kubebid watch events --kind notice_started --kind ended
  kubebid watch events --bid 12 --from-start
  kubebid watch events --alloc 5 --kind notice_started --from-start --count 1      wait for its notice
  kubebid watch events -o json | jq -r .cursor")]
    Events(Events),
    /// Prices: first the present ones, then as they change
    #[command(after_help = "\
Examples:
  kubebid watch prices
  kubebid watch prices h100-8x/eu-west
  kubebid watch prices --type h100-8x -o json")]
    Prices(Prices),
}

#[derive(Args)]
pub(crate) struct Events {
    /// Go on after this place
    #[arg(long, default_value = "", hide_default_value = true, conflicts_with = "from_start")]
    cursor: String,
    /// Begin at the beginning of the journal
    #[arg(long)]
    from_start: bool,
    #[command(flatten)]
    filter: Filter,
    /// End after so many events, with the frame that has the last of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

#[derive(Args)]
pub(crate) struct Prices {
    /// The markets, as in h100-8x/eu-west; all where absent
    #[arg(value_name = "MARKET", conflicts_with = "instance_type")]
    markets: Vec<String>,
    /// Every market of this instance type, also those opened later
    #[arg(long = "type", value_name = "TYPE", default_value = "", hide_default_value = true)]
    instance_type: String,
    /// Go on after this place
    #[arg(long, default_value = "", hide_default_value = true)]
    cursor: String,
}

impl Watch {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Watch::Events(events) => while_read(events.run(context)).await,
            Watch::Prices(prices) => while_read(prices.run(context)).await,
        }
    }
}

impl Events {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let filter = self.filter.of();
        let mut watch = match self.from_start {
            true => context.client.watch_events_from_start(Some(filter)),
            false => context.client.watch_events(Some(filter), self.cursor),
        };
        let mut seen = 0;
        while seen < self.count.unwrap_or(u64::MAX)
            && let Some(frame) = watch.next().await
        {
            let frame = frame?;
            context.out.frame(&frame, |view| event::lines(&frame.events, view))?;
            seen += frame.events.len() as u64;
        }
        Ok(())
    }
}

impl Prices {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = WatchPricesRequest {
            markets: self.markets,
            instance_type: self.instance_type,
            cursor: self.cursor,
        };
        let mut watch = context.client.watch_prices(request);
        while let Some(frame) = watch.next().await {
            let frame = frame?;
            context.out.frame(&frame, |view| points(&frame.points, view))?;
        }
        Ok(())
    }
}

fn points(points: &[PricePoint], view: &View) -> String {
    if view.is_for_people() {
        return points.iter().map(|at| point(at, view)).collect::<Vec<_>>().join("\n");
    }
    let numbers = ["PRICE", "ENTRY", "FLOOR", "ACCEPTED", "LOSING"].map(money);
    let columns: Vec<_> = ["MARKET", "TIME"].map(text).into_iter().chain(numbers).collect();
    let mut list = List::new(view, &columns);
    for point in points {
        let numbers = cells(&point.numbers.unwrap_or_default());
        let place = [point.market.clone(), view.moment(point.at_us)];
        list.row(place.into_iter().chain(numbers).collect::<Vec<_>>());
    }
    list.or("")
}

fn point(point: &PricePoint, view: &View) -> String {
    let numbers = point.numbers.unwrap_or_default();
    let mut line = format!(
        "{}  {}  price {}  entry {}  floor {}",
        view.moment(point.at_us),
        point.market,
        usd(Some(numbers.market_price_micros)),
        usd(numbers.entry_price_micros),
        usd(numbers.floor_micros),
    );
    if view.is_wide() {
        line.push_str(&format!(
            "  accepted {}  losing {}  command {}.{}",
            usd(numbers.lowest_accepted_micros),
            usd(Some(numbers.highest_losing_micros).filter(|micros| *micros > 0)),
            point.seq,
            point.index
        ));
    }
    printable(&line)
}
