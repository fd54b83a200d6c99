//! `kubebid price history`

use crate::args::{Limit, Period};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, money, number, text};
use crate::time::{Span, rfc3339};
use clap::Args;
use kubebid_client::Dollars;
use kubebid_client::v1::{ListPriceHistoryRequest, PriceBar, PricePoint};

/// List the prices of the past
#[derive(Args)]
#[command(after_help = "\
Without --bar each change of one of the five numbers is a line; with it, each span of time is one.

Examples:
  kubebid price history h100-8x/eu-west --from -1h
  kubebid price history h100-8x/eu-west --from -7d --bar 1h -o csv")]
pub(crate) struct History {
    /// The market, as in h100-8x/eu-west
    market: String,
    #[command(flatten)]
    period: Period,
    /// Length of a bar, from 1s to 1d
    #[arg(long, value_name = "SPAN")]
    bar: Option<Span>,
    #[command(flatten)]
    limit: Limit,
}

impl History {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let (from_us, to_us) = self.period.bounds()?;
        let bar_us = self.bar.map_or(0, |Span(span)| span);
        let request =
            ListPriceHistoryRequest { market: self.market, from_us, to_us, bar_us, ..Default::default() };
        let answer = context.client.first(request, self.limit.count()).await?;
        context.out.answer(&answer, |view| match bar_us {
            0 => points(&answer.points, view),
            _ => bars(&answer.bars, view),
        })?;
        self.limit.note(answer.points.len() + answer.bars.len(), &answer.next_page_token);
        Ok(())
    }
}

fn points(points: &[PricePoint], view: &View) -> String {
    let numbers = ["PRICE", "ENTRY", "FLOOR", "ACCEPTED", "LOSING"].map(money);
    let columns: Vec<_> = [text("TIME")].into_iter().chain(numbers).collect();
    let mut list = List::new(view, &columns);
    for point in points {
        let cells =
            [view.moment(point.at_us)].into_iter().chain(super::cells(&point.numbers.unwrap_or_default()));
        list.row(cells.collect::<Vec<_>>());
    }
    list.or("no price changed then")
}

fn bars(bars: &[PriceBar], view: &View) -> String {
    let numbers = ["OPEN", "HIGH", "LOW", "CLOSE", "MEAN"].map(money);
    let columns: Vec<_> = [text("START")].into_iter().chain(numbers).chain([number("CHANGES")]).collect();
    let mut list = List::new(view, &columns);
    for bar in bars {
        let prices = [bar.open_micros, bar.high_micros, bar.low_micros, bar.close_micros, bar.mean_micros];
        let prices = prices.into_iter().map(|micros| Dollars(micros).to_string());
        let cells = [rfc3339(bar.start_us)].into_iter().chain(prices).chain([bar.changes.to_string()]);
        list.row(cells.collect::<Vec<_>>());
    }
    list.or("the market was not open then")
}
