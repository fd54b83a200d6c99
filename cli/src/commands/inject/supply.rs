//! Units that are taken away, and brought back.

use super::{price, seen_from};
use crate::args::its_number;
use crate::commands::local::{progress_bar, stop_signal};
use crate::config::Context;
use crate::failure::{Failure, note};
use crate::output::{List, Sheet, View, number, text};
use crate::time::{Span, rfc3339};
use clap::{ArgGroup, Args};
use kubebid_client::Dollars;
use kubebid_client::v1::{
    InjectLossRequest, InjectLossResponse, OfferBefore, PreemptAllocationRequest, PreemptAllocationResponse,
    RestoreOffersRequest, RestoreOffersResponse,
};
use std::time::Duration;

#[derive(Args)]
pub(crate) struct SupplyLoss {
    /// The market, as in h100-8x/eu-west
    market: String,
    /// Number of units
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    units: u32,
    /// Provider whose units they are; any where absent
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Withdraw them, so that holders get the market's notice
    #[arg(long)]
    with_notice: bool,
    #[command(flatten)]
    back: Back,
}

#[derive(Args)]
pub(crate) struct Outage {
    /// The account whose units are gone
    provider: String,
    /// Only in this market
    #[arg(long, value_name = "MARKET")]
    market: Option<String>,
    #[command(flatten)]
    back: Back,
}

/// The time after which to undo it.
#[derive(Args)]
struct Back {
    /// Wait this long by the wall clock, then restore the offers; Ctrl-C restores them at once. Without,
    /// they stay short until `inject restore`
    #[arg(long = "for", value_name = "SPAN", allow_hyphen_values = true)]
    duration: Option<Span>,
}

#[derive(Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["market", "provider"]))]
pub(crate) struct Restore {
    /// Offers in this market, as in h100-8x/eu-west; in any where absent
    market: Option<String>,
    /// Offers of this provider; of any where absent
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Most units in each offer; where absent, as many as its provider last put
    #[arg(long, value_name = "N")]
    capacity: Option<u32>,
}

#[derive(Args)]
pub(crate) struct Preempt {
    /// Its number
    #[arg(value_parser = its_number)]
    allocation: u64,
    /// Without a notice: report the unit lost
    #[arg(long)]
    at_once: bool,
}

impl SupplyLoss {
    pub(super) async fn run(self, context: &Context, tool: &str) -> Result<(), Failure> {
        let SupplyLoss { market, units, provider, with_notice, back } = self;
        let account = provider.unwrap_or_default();
        let request = InjectLossRequest { market, account, units: Some(units), with_notice };
        lose(context, request, back, tool).await
    }
}

impl Outage {
    pub(super) async fn run(self, context: &Context, tool: &str) -> Result<(), Failure> {
        let Outage { provider, market, back } = self;
        let market = market.unwrap_or_default();
        let request = InjectLossRequest { market, account: provider, ..Default::default() };
        lose(context, request, back, tool).await
    }
}

impl Restore {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let (market, account) = (self.market.unwrap_or_default(), self.provider.unwrap_or_default());
        restore(context, RestoreOffersRequest { market, account, capacity: self.capacity }).await
    }
}

impl Preempt {
    pub(super) async fn run(self, context: &Context, tool: &str) -> Result<(), Failure> {
        let Preempt { allocation, at_once } = self;
        let answer =
            context.client.preempt_allocation(PreemptAllocationRequest { allocation, at_once }).await?;
        context.out.answer(&answer, |view| preempted(&answer, at_once, tool, view))
    }
}

async fn lose(context: &Context, request: InjectLossRequest, back: Back, tool: &str) -> Result<(), Failure> {
    let Context { client, out } = context;
    let market = request.market.clone();
    // Whoever wants to stop from here on wants what is taken to come back.
    let back_in = back.duration.map(|duration| (duration, stop_signal()));
    let before = if market.is_empty() { None } else { Some(price(client, &market, 0).await?) };
    let answer = client.inject_loss(request).await?;
    let prices = match before {
        Some(before) => Some((Dollars(before), Dollars(price(client, &market, answer.seq).await?))),
        None => None,
    };
    let undo: Vec<RestoreOffersRequest> = answer.before.iter().map(undo).collect();
    let by_hand = undo.iter().map(|undo| by_hand(tool, undo)).collect::<Vec<_>>().join(" && ");
    out.answer(&answer, |view| {
        let mut text = taken(&answer, view);
        if let Some((before, after)) = prices {
            text.push_str(&format!("\nprice: ${before} before, ${after} now"));
        }
        if back_in.is_none() {
            text.push_str(&format!("\nput it back: {by_hand}"));
        }
        text
    })?;
    let Some((duration, stopped)) = back_in else { return Ok(()) };
    note(format_args!(
        "putting it back in {duration}; Ctrl-C does so now. Should this command be killed: {by_hand}"
    ));
    wait(duration, stopped).await;
    for undo in undo {
        let still_gone = |failure: Failure| failure.next(format!("units are still gone: {by_hand}"));
        restore(context, undo).await.map_err(still_gone)?;
    }
    Ok(())
}

/// Returns the request that puts an offer back as it was.
fn undo(before: &OfferBefore) -> RestoreOffersRequest {
    let OfferBefore { provider, market, capacity } = before.clone();
    RestoreOffersRequest { market, account: provider, capacity: Some(capacity) }
}

/// Waits until the time is over, or until it is stopped.
async fn wait(duration: Span, stopped: impl Future<Output = ()>) {
    let seconds = duration.0.div_ceil(1_000_000);
    let bar = progress_bar("seconds of the drill");
    bar.set_length(seconds);
    let over = tokio::time::sleep(Duration::from_micros(duration.0));
    let ticking = async {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.tick().await;
        loop {
            second.tick().await;
            bar.inc(1);
        }
    };
    tokio::select! {
        () = over => {}
        () = ticking => {}
        () = stopped => {}
    }
    bar.finish_and_clear();
}

async fn restore(context: &Context, request: RestoreOffersRequest) -> Result<(), Failure> {
    let answer = context.client.restore_offers(request).await?;
    context.out.answer(&answer, |_| restored(&answer))
}

/// The command that undoes it.
fn by_hand(tool: &str, undo: &RestoreOffersRequest) -> String {
    let mut command = format!("{tool} inject restore");
    if !undo.market.is_empty() {
        command.push_str(&format!(" {}", undo.market));
    }
    if !undo.account.is_empty() {
        command.push_str(&format!(" --provider {}", undo.account));
    }
    if let Some(capacity) = undo.capacity {
        command.push_str(&format!(" --capacity {capacity}"));
    }
    command
}

fn taken(answer: &InjectLossResponse, view: &View) -> String {
    let held = answer.taken.len();
    let head = format!(
        "{} units are taken: {} free, {held} held (command {})",
        held + answer.free as usize,
        answer.free,
        answer.seq
    );
    let mut list = List::new(
        view,
        &[
            number("ALLOCATION"),
            text("TENANT"),
            number("BID"),
            text("UNIT"),
            text("ENDS"),
            text("PROTECTED UNTIL").wide(),
        ],
    );
    for node in &answer.taken {
        list.row([
            node.allocation.to_string(),
            node.tenant.clone(),
            node.bid.to_string(),
            node.unit.clone(),
            seen_from(node.ends_at_us, answer.at_us),
            node.protected_until_us.map_or_else(|| "-".to_owned(), rfc3339),
        ]);
    }
    format!("{head}\n{}", list.or("nobody held any of them"))
}

fn preempted(answer: &PreemptAllocationResponse, at_once: bool, tool: &str, view: &View) -> String {
    let node = answer.taken.clone().unwrap_or_default();
    let ends = seen_from(node.ends_at_us, answer.at_us);
    let why = match node.protected_until_us {
        Some(_) if at_once => ", protected or not",
        Some(until) if until == node.ends_at_us => ", when its protection is over",
        Some(_) | None if at_once => "",
        Some(_) | None => ", when its notice is over",
    };
    let before = answer.before.clone().unwrap_or_default();
    let mut sheet = Sheet::new(view);
    sheet
        .line("node", format!("{} of {}, for bid {}", node.allocation, node.tenant, node.bid))
        .line("unit", &node.unit)
        .line("ends", format!("{ends}{why}"));
    let back = by_hand(tool, &undo(&before));
    format!("{}\n{} offers one unit less; put it back: {back}", sheet.text(), before.provider)
}

fn restored(answer: &RestoreOffersResponse) -> String {
    if answer.restored.is_empty() {
        return "nothing is missing: all of these offers are as they were last put".to_owned();
    }
    let line = |offer: &kubebid_client::v1::RestoredOffer| {
        format!(
            "{} offers {} units in {} again: {} are back",
            offer.provider, offer.capacity, offer.market, offer.added
        )
    };
    answer.restored.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{OfferBefore, RestoreOffersRequest, by_hand, preempted};
    use crate::output::{Format, View};
    use expect_test::expect;
    use kubebid_client::v1::{PreemptAllocationResponse, TakenUnit};

    #[test]
    fn the_way_back_names_what_is_known() {
        let undo = |market: &str, account: &str, capacity| RestoreOffersRequest {
            market: market.to_owned(),
            account: account.to_owned(),
            capacity,
        };
        assert_eq!(by_hand("kubebid", &undo("a/b", "", Some(4))), "kubebid inject restore a/b --capacity 4");
        assert_eq!(
            by_hand("kubebid --as admin", &undo("", "p", None)),
            "kubebid --as admin inject restore --provider p"
        );
    }

    #[test]
    fn a_preemption_says_when_and_why_then() {
        let mut answer = PreemptAllocationResponse {
            seq: 9,
            at_us: 1_795_201_200_000_000,
            taken: Some(TakenUnit {
                unit: "h100-8x/eu-west:moon#4".into(),
                allocation: 12,
                bid: 7,
                tenant: "tenant-a".into(),
                ends_at_us: 1_795_201_500_000_000,
                protected_until_us: None,
            }),
            before: Some(OfferBefore {
                provider: "moon".into(),
                market: "h100-8x/eu-west".into(),
                capacity: 8,
            }),
        };
        let view = View::of(Format::Table, 0);
        expect![[r#"
            node:  12 of tenant-a, for bid 7
            unit:  h100-8x/eu-west:moon#4
            ends:  2026-11-20T19:05:00Z (in 5m), when its notice is over
            moon offers one unit less; put it back: kubebid inject restore h100-8x/eu-west --provider moon --capacity 8"#]]
        .assert_eq(&preempted(&answer, false, "kubebid", &view));
        let node = answer.taken.as_mut().unwrap();
        node.protected_until_us = Some(node.ends_at_us);
        assert!(preempted(&answer, false, "kubebid", &view).contains("(in 5m), when its protection is over"));
        answer.at_us = 1_795_201_500_000_000;
        assert!(preempted(&answer, true, "kubebid", &view).contains("ends:  at once, protected or not"));
    }
}
