//! `kubebid watch`

use crate::args::{Pair, its_number, map};
use crate::config::Context;
use crate::failure::Failure;
use crate::money::Dollars;
use crate::output::{View, clean, dollars};
use crate::time::rfc3339;
use clap::{Args, Subcommand};
use kubebid_client::v1::{Event, EventFilter, PricePoint, WatchPricesRequest};
use serde_json::Value;

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
    /// Events of this kind, as in notice_started
    #[arg(long)]
    kind: Vec<String>,
    /// Events of this market
    #[arg(long)]
    market: Vec<String>,
    /// Events of this bid and its nodes
    #[arg(long, value_name = "N", value_parser = its_number)]
    bid: Vec<u64>,
    /// Events of this allocation
    #[arg(long, value_name = "N", value_parser = its_number)]
    alloc: Vec<u64>,
    /// Events of bids that have this label, and of their nodes
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Pair>,
    /// Events of this account, as administrator
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
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
            Watch::Events(events) => events.run(context).await,
            Watch::Prices(prices) => prices.run(context).await,
        }
    }
}

impl Events {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let filter = EventFilter {
            kinds: self.kind,
            markets: self.market,
            bids: self.bid,
            allocations: self.alloc,
            labels: map(self.label),
            account: self.account,
        };
        let mut watch = match self.from_start {
            true => context.client.watch_events_from_start(Some(filter)),
            false => context.client.watch_events(Some(filter), self.cursor),
        };
        let mut seen = 0;
        while seen < self.count.unwrap_or(u64::MAX)
            && let Some(frame) = watch.next().await
        {
            let frame = frame?;
            context.out.frame(&frame, |_| lines(frame.events.iter().map(event)))?;
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
            context.out.frame(&frame, |view| lines(frame.points.iter().map(|at| point(at, view))))?;
        }
        Ok(())
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn point(point: &PricePoint, view: &View) -> String {
    let numbers = point.numbers.unwrap_or_default();
    let mut line = format!(
        "{}  {}  price {}  entry {}  floor {}",
        rfc3339(point.at_us),
        point.market,
        Dollars(numbers.market_price_micros),
        dollars(numbers.entry_price_micros),
        dollars(numbers.floor_micros),
    );
    if view.wide {
        line.push_str(&format!(
            "  accepted {}  losing {}  command {}.{}",
            dollars(numbers.lowest_accepted_micros),
            Dollars(numbers.highest_losing_micros),
            point.seq,
            point.index
        ));
    }
    clean(&line)
}

/// One line: when, which, what, and its fields as the JSON has them, in dollars and UTC.
fn event(event: &Event) -> String {
    let head = format!("{}  {}.{}", rfc3339(event.at_us), event.seq, event.index);
    let Ok(Value::Object(fields)) = serde_json::to_value(event) else { return head };
    let kind = fields.iter().find(|(_, value)| value.is_object());
    let Some((kind, Value::Object(fields))) = kind else { return head };
    let mut line = format!("{head}  {kind}");
    for (name, value) in fields {
        match value.as_object() {
            Some(fields) => fields.iter().for_each(|(name, value)| field(&mut line, name, value)),
            None => field(&mut line, name, value),
        }
    }
    clean(&line)
}

fn field(line: &mut String, name: &str, value: &Value) {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => return,
        Value::Array(values) => {
            let texts: Vec<_> = values
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .collect();
            texts.join(",")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    };
    let number = text.parse::<u64>().ok();
    let (name, text) = match (name.strip_suffix("_micros"), name.strip_suffix("_us"), number) {
        (Some(name), _, Some(micros)) => (name, Dollars(micros).to_string()),
        (None, Some(name), Some(at_us)) => (name, rfc3339(at_us)),
        _ => (name, text),
    };
    line.push_str(&format!("  {name}={text}"));
}

#[cfg(test)]
mod tests {
    use super::event;
    use expect_test::expect;
    use kubebid_client::v1::event::{BidPlaced, Kind, NoticeStarted, PriceChanged};
    use kubebid_client::v1::{Event, PriceNumbers};

    fn line(kind: Kind) -> String {
        event(&Event { seq: 12, index: 3, at_us: 1_795_201_200_250_000, kind: Some(kind) })
    }

    #[test]
    fn an_event_is_a_line() {
        let notice = NoticeStarted {
            allocation: 5,
            bid: Some(12),
            unit: "h100-8x/eu-west:moon#4".into(),
            deadline_us: 1_795_201_500_000_000,
            reason: kubebid_client::v1::notice::Reason::Outbid.into(),
            ..Default::default()
        };
        expect!["2026-11-20T19:00:00.250Z  12.3  notice_started  allocation=5  bid=12  deadline=2026-11-20T19:05:00Z  reason=OUTBID  unit=h100-8x/eu-west:moon#4"].assert_eq(&line(Kind::NoticeStarted(notice)));
        let placed = BidPlaced {
            bid: 12,
            tenant: "acme".into(),
            markets: vec!["a/b".into(), "c/d".into()],
            ceiling_micros: 2_500_000,
            min_nodes: 1,
            max_nodes: 4,
            ..Default::default()
        };
        expect!["2026-11-20T19:00:00.250Z  12.3  bid_placed  bid=12  ceiling=2.50  markets=a/b,c/d  max_nodes=4  min_nodes=1  tenant=acme"].assert_eq(&line(Kind::BidPlaced(placed)));
        let numbers = PriceNumbers { market_price_micros: 1_500_000, ..Default::default() };
        let changed = PriceChanged { market: "a/b".into(), numbers: Some(numbers) };
        expect!["2026-11-20T19:00:00.250Z  12.3  price_changed  market=a/b  highest_losing=0.00  market_price=1.50"].assert_eq(&line(Kind::PriceChanged(changed)));
    }
}
