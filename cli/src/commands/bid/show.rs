//! Prints bids and quotes.

use crate::output::{List, Mark, Sheet, View, dollars, money, number, or_dash, pairs, plural, text, usd};
use kubebid_client::Dollars;
use kubebid_client::v1::place_bid_request::OnPreemption;
use kubebid_client::v1::quote_bid_response::Quote;
use kubebid_client::v1::{Bid, QuoteBidResponse};

pub(super) fn list(bids: &[Bid], view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            number("BID"),
            text("TENANT").wide(),
            text("WHERE"),
            money("MAX"),
            text("STATE"),
            number("HELD"),
            number("NOTICE"),
            number("CLAIMED").wide(),
            number("UNMET"),
            text("WHY"),
            text("PLACED"),
            text("LABELS").wide(),
            text("KEY").wide(),
        ],
    );
    for bid in bids {
        let mark = if bid.under_notice > 0 { Mark::Notice } else { Mark::None };
        let markets = if view.is_wide() { place(bid) } else { place_in_short(bid) };
        let cells = [
            bid.bid.to_string(),
            bid.tenant.clone(),
            markets,
            Dollars(bid.ceiling_micros).to_string(),
            bid.state().as_str_name().to_owned(),
            bid.held.to_string(),
            bid.under_notice.to_string(),
            bid.claimed.to_string(),
            bid.unmet.to_string(),
            or_dash(why(bid)),
            view.brief(bid.placed_at_us),
            pairs(&bid.labels),
            or_dash(bid.client_key.as_ref()),
        ];
        list.marked(mark, cells);
    }
    list.or("no bids search or hold nodes; place one: kubebid bid place MARKET --max DOLLARS --nodes N")
}

pub(super) fn sheet(bid: &Bid, view: &View) -> String {
    let mut sheet = Sheet::new(view);
    let nodes = match bid.min_nodes {
        0 | 1 => bid.max_nodes.to_string(),
        least => format!("{} (at entry {least} at least)", bid.max_nodes),
    };
    let requeues = bid.on_preemption() != OnPreemption::Close;
    sheet
        .line("bid", bid.bid)
        .line("tenant", &bid.tenant)
        .line("where", place(bid))
        .line("max", format!("{} per node-hour", usd(Some(bid.ceiling_micros))))
        .some("not lowered before", bid.ceiling_locked_until_us.map(|until| view.when(until)))
        .line("nodes wanted", nodes)
        .line("state", bid.state().as_str_name())
        .some("closed because", bid.close_reason.map(|_| bid.close_reason().as_str_name()))
        .line("held", bid.held)
        .line("under notice", bid.under_notice)
        .line("claimed", bid.claimed)
        .line("unmet", bid.unmet)
        .some("unfilled because", bid.unfilled_reason.map(|_| bid.unfilled_reason().as_str_name()))
        .line("allocations", numbers(&bid.allocations))
        .line("searches", bid.time_in_force().as_str_name())
        .some("expires", bid.expire_at_us.map(|at| view.when(at)))
        .line("when preempted", if requeues { "searches again" } else { "wants one fewer" })
        .line("labels", pairs(&bid.labels))
        .some("key", bid.client_key.as_ref())
        .some("node config", bid.node_config.as_ref().map(|config| format!("{} bytes", config.len())))
        .line("placed", view.when(bid.placed_at_us))
        .some("closed", bid.closed_at_us.map(|at| view.when(at)));
    sheet.text()
}

pub(super) fn quotes(answer: &QuoteBidResponse, nodes: u32, ceiling: Option<Dollars>, view: &View) -> String {
    let mut list =
        List::new(view, &[text("MARKET"), money("ENTRY"), money("PRICE"), money("FLOOR"), text("WHY NOT")]);
    for quote in &answer.quotes {
        list.row([
            quote.market.clone(),
            dollars(quote.entry_price_micros),
            dollars(Some(quote.market_price_micros)),
            dollars(quote.floor_micros),
            or_dash(quote.unfilled_reason.map(|_| quote.unfilled_reason().as_str_name())),
        ]);
    }
    let wanted = plural(nodes, "node");
    let best = answer.quotes.iter().find_map(|quote| Some((&quote.market, quote.entry_price_micros?)));
    let best = match best {
        Some((market, price)) => format!("{wanted} at once: --max {} in {market}", Dollars(price)),
        None => format!("{wanted} at once: nowhere, at no price"),
    };
    let asked = ceiling.into_iter().flat_map(|ceiling| {
        let some = answer.quotes.iter().filter(|quote| quote.nodes() > 0);
        some.map(move |quote| format!("\n--max {ceiling} in {}: {}", quote.market, filled_of(quote, nodes)))
    });
    let asked: String = asked.collect();
    view.around(list.or("no market is open there"), |list| format!("{list}\n\n{best}{asked}"))
}

/// Returns how many of `nodes` the asked ceiling gets, and how many of them are claims.
fn filled_of(quote: &Quote, nodes: u32) -> String {
    let later = match quote.claimed() {
        0 => String::new(),
        1 => " (1 of them when a notice ends)".to_owned(),
        claimed => format!(" ({claimed} of them when notices end)"),
    };
    match nodes.saturating_sub(quote.nodes()) {
        0 => format!("gets {}{later}", quote.nodes()),
        waiting => format!("gets {}{later}, and {waiting} wait", quote.nodes()),
    }
}

/// Returns what a command did, and how the bid stands after it.
pub(super) fn done(what: &str, number: u64, repeated: bool, bid: Option<&Bid>) -> String {
    let again = if repeated { ", as the first time: nothing happened" } else { "" };
    let done = format!("{what} bid {number}{again}");
    let Some(bid) = bid else { return done };
    let mut has = match bid.held {
        0 => "it holds no node".to_owned(),
        held => format!("it holds {}", plural(held, "node")),
    };
    if bid.under_notice > 0 {
        has.push_str(&format!(" and {} under notice", bid.under_notice));
    }
    match bid.allocations.len() {
        0 => {}
        1 => has.push_str(&format!(" (allocation {})", bid.allocations[0])),
        _ => has.push_str(&format!(" (allocations {})", numbers(&bid.allocations))),
    }
    if bid.claimed > 0 {
        has.push_str(&format!(", {} to come when their notices end", bid.claimed));
    }
    match why(bid) {
        Some(why) if bid.unmet > 0 => {
            format!("{done}\n{has}; {} still wanted: {why}\nwhy: kubebid explain bid {number}", bid.unmet)
        }
        Some(_) | None => format!("{done}\n{has}"),
    }
}

fn place(bid: &Bid) -> String {
    match &bid.instance_type {
        Some(instance_type) => format!("any {instance_type}"),
        None => bid.markets.join(","),
    }
}

/// Returns where a bid looks: of several markets the first, and how many more.
fn place_in_short(bid: &Bid) -> String {
    match bid.markets.as_slice() {
        [first, _, ..] if bid.instance_type.is_none() => format!("{first} +{}", bid.markets.len() - 1),
        _ => place(bid),
    }
}

/// Why it does not fill, or why it is closed.
fn why(bid: &Bid) -> Option<&'static str> {
    let unfilled = bid.unfilled_reason.map(|_| bid.unfilled_reason().as_str_name());
    unfilled.or_else(|| bid.close_reason.map(|_| bid.close_reason().as_str_name()))
}

fn numbers(numbers: &[u64]) -> String {
    const SHOWN: usize = 20;
    if numbers.is_empty() {
        return "-".to_owned();
    }
    let shown: Vec<_> = numbers.iter().take(SHOWN).map(u64::to_string).collect();
    match numbers.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", shown.join(", ")),
        None => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::{done, list, quotes, sheet};
    use crate::output::{Format, View};
    use expect_test::expect;
    use kubebid_client::Dollars;
    use kubebid_client::v1::bid::{State, UnfilledReason};
    use kubebid_client::v1::place_bid_request::TimeInForce;
    use kubebid_client::v1::quote_bid_response::Quote;
    use kubebid_client::v1::{Bid, QuoteBidResponse};

    fn bid() -> Bid {
        Bid {
            bid: 12,
            tenant: "acme".into(),
            markets: vec!["h100-8x/eu-west".into()],
            ceiling_micros: 2_500_000,
            min_nodes: 1,
            max_nodes: 4,
            state: State::Open.into(),
            time_in_force: TimeInForce::Gtc.into(),
            held: 2,
            under_notice: 1,
            unmet: 2,
            unfilled_reason: Some(UnfilledReason::BelowNeededCeiling.into()),
            allocations: vec![5, 6, 9],
            placed_at_us: 1_795_201_200_000_000,
            ..Default::default()
        }
    }

    fn view() -> View {
        View::of(Format::Table, 1_795_201_452_000_000)
    }

    #[test]
    fn a_bid_is_a_line() {
        expect![[r#"
            BID  WHERE              MAX  STATE  HELD  NOTICE  UNMET  WHY                   PLACED
             12  h100-8x/eu-west  $2.50  OPEN      2       1      2  BELOW_NEEDED_CEILING  4m12s ago"#]]
        .assert_eq(&list(&[bid()], &view()));
    }

    #[test]
    fn a_bid_is_a_sheet() {
        expect![[r#"
            bid:               12
            tenant:            acme
            where:             h100-8x/eu-west
            max:               $2.50 per node-hour
            nodes wanted:      4
            state:             OPEN
            held:              2
            under notice:      1
            claimed:           0
            unmet:             2
            unfilled because:  BELOW_NEEDED_CEILING
            allocations:       5, 6, 9
            searches:          GTC
            when preempted:    searches again
            labels:            -
            placed:            2026-11-20T19:00:00Z (4m12s ago)"#]]
        .assert_eq(&sheet(&bid(), &view()));
    }

    #[test]
    fn a_quote_says_how_many_nodes_a_ceiling_gets_at_once() {
        let quote = Quote {
            market: "h100-8x/eu-west".into(),
            entry_price_micros: Some(20_000_000),
            market_price_micros: 8_000_000,
            floor_micros: Some(8_000_000),
            unfilled_reason: Some(UnfilledReason::MinimumNotMet.into()),
            nodes: Some(2),
            claimed: Some(1),
        };
        let answer = QuoteBidResponse { seq: 1, quotes: vec![quote] };
        expect![[r#"
            MARKET            ENTRY  PRICE  FLOOR  WHY NOT
            h100-8x/eu-west  $20.00  $8.00  $8.00  MINIMUM_NOT_MET

            5 nodes at once: --max 20.00 in h100-8x/eu-west
            --max 9.00 in h100-8x/eu-west: gets 2 (1 of them when a notice ends), and 3 wait"#]]
        .assert_eq(&quotes(&answer, 5, Some(Dollars(9_000_000)), &view()));
    }

    #[test]
    fn a_command_says_how_the_bid_stands() {
        expect![[r#"
            placed bid 12
            it holds 2 nodes and 1 under notice (allocations 5, 6, 9); 2 still wanted: BELOW_NEEDED_CEILING
            why: kubebid explain bid 12"#]]
        .assert_eq(&done("placed", 12, false, Some(&bid())));
        assert_eq!(done("placed", 12, true, None), "placed bid 12, as the first time: nothing happened");
    }
}
