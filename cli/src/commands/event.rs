//! `kubebid event`, and the filter of events.

use crate::args::{Limit, Pair, Period, its_number, map};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::clean;
use crate::time::rfc3339;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::{Event, EventFilter, ListEventsRequest};
use kubebid_core::EventKind;
use serde_json::Value;

#[derive(Subcommand)]
pub(crate) enum Events {
    /// List past events that one may see, oldest first
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  kubebid event list --bid 12
  kubebid event list --newest-first --limit 20
  kubebid event list --kind notice_started --from -24h -o json"
    )]
    List(ListArgs),
}

/// The events that are meant.
#[derive(Args)]
pub(crate) struct Filter {
    /// Events of this kind
    #[arg(long, value_parser = PossibleValuesParser::new(EventKind::ALL.iter().map(|kind| kind.word())), hide_possible_values = true)]
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
}

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    period: Period,
    /// List them backwards
    #[arg(long)]
    newest_first: bool,
    #[command(flatten)]
    limit: Limit,
}

impl Filter {
    /// Returns the filter as requests have it.
    pub(crate) fn of(self) -> EventFilter {
        EventFilter {
            kinds: self.kind,
            markets: self.market,
            bids: self.bid,
            allocations: self.alloc,
            labels: map(self.label),
            account: self.account,
        }
    }
}

impl Events {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Events::List(args) = self;
        let (from_us, to_us) = args.period.bounds();
        let filter = Some(args.filter.of());
        let newest_first = args.newest_first;
        let request = ListEventsRequest { from_us, to_us, filter, newest_first, ..Default::default() };
        let answer = context.client.first(request, args.limit.count()).await?;
        context.out.answer(&answer, |_| match answer.events.as_slice() {
            [] => "no events".to_owned(),
            events => lines(events),
        })?;
        args.limit.note(answer.events.len(), &answer.next_page_token);
        Ok(())
    }
}

/// Returns a line for each event.
pub(crate) fn lines(events: &[Event]) -> String {
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One line: when, which, what, and its fields as the JSON has them, in dollars and UTC.
fn line(event: &Event) -> String {
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
    use super::line as event_line;
    use expect_test::expect;
    use kubebid_client::v1::event::{BidPlaced, Kind, NoticeStarted, PriceChanged};
    use kubebid_client::v1::{Event, PriceNumbers};

    fn line(kind: Kind) -> String {
        event_line(&Event { seq: 12, index: 3, at_us: 1_795_201_200_250_000, kind: Some(kind) })
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
