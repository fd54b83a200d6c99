//! `kubebid event`, and the filter of events.

use crate::args::{Limit, Pair, Period, its_number, map};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, dollars, text, usd};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use kubebid_client::v1::{Event, EventFilter, ListEventsRequest};
use kubebid_core::EventKind;
use kubebid_report::text::printable;
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
        let (from_us, to_us) = args.period.bounds()?;
        let filter = Some(args.filter.of());
        let newest_first = args.newest_first;
        let request = ListEventsRequest { from_us, to_us, filter, newest_first, ..Default::default() };
        let answer = context.client.first(request, args.limit.count()).await?;
        context.out.answer(&answer, |view| match answer.events.as_slice() {
            [] if view.is_for_people() => "no events".to_owned(),
            events => lines(events, view),
        })?;
        args.limit.note(answer.events.len(), &answer.next_page_token);
        Ok(())
    }
}

/// Returns a line for each event; a row in CSV.
pub(crate) fn lines(events: &[Event], view: &View) -> String {
    if view.is_for_people() {
        return events.iter().map(|event| line(event, view)).collect::<Vec<_>>().join("\n");
    }
    let columns = ["EVENT", "TIME", "KIND", "MARKET", "BID", "ALLOCATION", "UNIT", "OTHER FIELDS"].map(text);
    let mut list = List::new(view, &columns);
    for event in events {
        let (kind, mut fields) = parts(event, view);
        let mut take = |name: &str| {
            let at = fields.iter().position(|(known, _)| known == name);
            at.map_or_else(String::new, |at| fields.remove(at).1)
        };
        let [market, bid, allocation, unit] = ["market", "bid", "allocation", "unit"].map(&mut take);
        let others: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let place = format!("{}.{}", event.seq, event.index);
        let time = view.moment(event.at_us);
        list.row([place, time, kind, market, bid, allocation, unit, others.join(" ")]);
    }
    list.or("")
}

/// One line: when, which, what, and its fields.
fn line(event: &Event, view: &View) -> String {
    let (kind, fields) = parts(event, view);
    let mut line = format!("{}  {}.{}  {kind}", view.moment(event.at_us), event.seq, event.index);
    for (name, value) in fields {
        line.push_str(&format!("  {name}={value}"));
    }
    printable(&line)
}

/// Returns the kind of an event, and its fields as the JSON has them, in dollars and UTC.
fn parts(event: &Event, view: &View) -> (String, Vec<(String, String)>) {
    let Ok(Value::Object(fields)) = serde_json::to_value(event) else { return Default::default() };
    let kind = fields.into_iter().find(|(_, value)| value.is_object());
    let Some((kind, Value::Object(fields))) = kind else { return Default::default() };
    let mut texts = Vec::new();
    for (name, value) in &fields {
        match value.as_object() {
            Some(fields) => {
                texts.extend(fields.iter().filter_map(|(name, value)| field(name, value, view)));
            }
            None => texts.extend(field(name, value, view)),
        }
    }
    (kind, texts)
}

fn field(name: &str, value: &Value, view: &View) -> Option<(String, String)> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => return None,
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
        // No bid loses (R9).
        (Some("highest_losing"), _, Some(0)) => ("highest_losing", usd(None)),
        (Some(name), _, Some(micros)) if view.is_for_people() => (name, usd(Some(micros))),
        (Some(name), _, Some(micros)) => (name, dollars(Some(micros))),
        (None, Some(name), Some(at_us)) => (name, view.moment(at_us)),
        _ => (name, text),
    };
    Some((name.to_owned(), text))
}

#[cfg(test)]
mod tests {
    use super::{line as event_line, lines};
    use crate::output::{Format, View};
    use expect_test::expect;
    use kubebid_client::v1::event::{BidPlaced, Kind, NoticeStarted, PriceChanged, Ready};
    use kubebid_client::v1::{Event, PriceNumbers};

    fn line(kind: Kind) -> String {
        event_line(&event(kind), &View::of(Format::Table, 0))
    }

    fn event(kind: Kind) -> Event {
        Event { seq: 12, index: 3, at_us: 1_795_201_200_250_007, kind: Some(kind) }
    }

    #[test]
    fn programs_read_rows_and_names() {
        let ready = Ready { allocation: 5, ..Default::default() };
        let events = [event(Kind::Ready(ready))];
        expect![[r#"
            event,time,kind,market,bid,allocation,unit,other_fields
            12.3,2026-11-20T19:00:00.250007Z,ready,,,5,,"#]]
        .assert_eq(&lines(&events, &View::of(Format::Csv, 0)));
        assert_eq!(lines(&events, &View::of(Format::Name, 0)), "12.3");
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
        expect!["2026-11-20T19:00:00.250Z  12.3  bid_placed  bid=12  ceiling=$2.50  markets=a/b,c/d  max_nodes=4  min_nodes=1  tenant=acme"].assert_eq(&line(Kind::BidPlaced(placed)));
        let numbers = PriceNumbers { market_price_micros: 1_500_000, ..Default::default() };
        let changed = PriceChanged { market: "a/b".into(), numbers: Some(numbers) };
        expect![
            "2026-11-20T19:00:00.250Z  12.3  price_changed  market=a/b  highest_losing=-  market_price=$1.50"
        ]
        .assert_eq(&line(Kind::PriceChanged(changed)));
    }
}
