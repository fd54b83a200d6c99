//! `kubebid alloc`

use crate::args::{Key, Limit, Pair, Quiet, Whose, its_number, map, word};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, Sheet, View, dollars, number, or_dash, pairs, text};
use clap::{Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::allocation::State;
use kubebid_client::v1::{
    Allocation, GetAllocationRequest, ListAllocationsRequest, Notice, ReleaseAllocationRequest,
    ReportReadyRequest,
};

#[derive(Subcommand)]
pub(crate) enum Alloc {
    /// List allocations, oldest first: those of one's bids and those on one's units
    #[command(after_help = "\
Examples:
  kubebid alloc list --state active
  kubebid alloc list --notice            nodes to be given up, by when, and what would keep them
  kubebid alloc list --bid 12 -o wide
  kubebid alloc list --bid 12 -q         their numbers, for scripts")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one allocation
    #[command(visible_alias = "get")]
    Show {
        /// Its number
        #[arg(value_parser = its_number)]
        allocation: u64,
    },
    /// Report that a node runs: billing begins
    Ready(Command),
    /// Give a node back at once
    #[command(after_help = "\
Not under notice, this lowers by one what the bid wants, and is billed for the market's minimum
charge at least.

Examples:
  kubebid alloc release 5")]
    Release(Command),
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only those of this bid
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = its_number)]
    bid: u64,
    /// Only those of this market
    #[arg(long, default_value = "", hide_default_value = true)]
    market: String,
    /// Only those on this unit
    #[arg(long, default_value = "", hide_default_value = true)]
    unit: String,
    /// Only those in one of these states
    #[arg(long, value_parser = word(&["starting", "active", "ended"], State::from_str_name))]
    state: Vec<State>,
    /// Only those under notice
    #[arg(long)]
    notice: bool,
    /// Only those whose bid has this label
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<Pair>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args)]
pub(crate) struct Command {
    /// Its number
    #[arg(value_parser = its_number)]
    allocation: u64,
    #[command(flatten)]
    key: Key,
}

impl Alloc {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Alloc::List(args) => {
                let request = ListAllocationsRequest {
                    bid: args.bid,
                    market: args.market,
                    states: args.state.into_iter().map(i32::from).collect(),
                    under_notice_only: args.notice,
                    labels: map(args.label),
                    unit: args.unit,
                    account: args.whose.account(),
                    ..Default::default()
                };
                let answer = client.first(request, args.limit.count()).await?;
                if args.quiet.quiet {
                    out.numbers(answer.allocations.iter().map(|allocation| allocation.allocation))?;
                } else {
                    out.answer(&answer, |view| list(&answer.allocations, view))?;
                }
                args.limit.note(answer.allocations.len(), &answer.next_page_token);
                Ok(())
            }
            Alloc::Show { allocation } => {
                let answer = client.get_allocation(GetAllocationRequest { allocation, min_seq: 0 }).await?;
                out.answer(&answer, |view| sheet(&answer.allocation.clone().unwrap_or_default(), view))
            }
            Alloc::Ready(Command { allocation, key }) => {
                let request = ReportReadyRequest { client_key: key.key, allocation };
                let answer = client.report_ready(request).await?;
                out.answer(&answer, |_| format!("allocation {allocation} is ready (command {})", answer.seq))
            }
            Alloc::Release(Command { allocation, key }) => {
                let request = ReleaseAllocationRequest { client_key: key.key, allocation };
                let answer = client.release_allocation(request).await?;
                out.answer(&answer, |_| format!("released allocation {allocation} (command {})", answer.seq))
            }
        }
    }
}

fn list(allocations: &[Allocation], view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            number("ALLOCATION"),
            number("BID"),
            text("TENANT").wide(),
            text("UNIT"),
            text("STATE"),
            number("PRICE"),
            number("MAX"),
            text("PROTECTED UNTIL"),
            text("NOTICE"),
            text("ENDS"),
            number("TO STAY"),
            text("ALLOCATED").wide(),
            text("READY").wide(),
            text("ENDED").wide(),
            text("LABELS").wide(),
        ],
    );
    for allocation in allocations {
        let ended = allocation.ended_at_us.is_some();
        let notice = allocation.notice.as_ref();
        let protected = (!ended && allocation.protected_until_us > view.now_us)
            .then(|| view.brief(allocation.protected_until_us));
        list.row([
            allocation.allocation.to_string(),
            or_dash(allocation.bid),
            or_dash(allocation.tenant.as_ref()),
            allocation.unit.clone(),
            state(allocation),
            Dollars(allocation.price_micros).to_string(),
            dollars(allocation.ceiling_micros),
            or_dash(protected),
            or_dash(notice.map(|notice| notice.reason().as_str_name())),
            or_dash(notice.map(|notice| view.brief(notice.deadline_us))),
            dollars(notice.and_then(|notice| notice.price_to_stay_micros)),
            view.brief(allocation.allocated_at_us),
            or_dash(allocation.ready_at_us.map(|at| view.brief(at))),
            or_dash(allocation.ended_at_us.map(|at| view.brief(at))),
            pairs(&allocation.labels),
        ]);
    }
    list.or("no allocations")
}

fn state(allocation: &Allocation) -> String {
    match allocation.end_reason {
        Some(_) => format!("ENDED {}", allocation.end_reason().as_str_name()),
        None => allocation.state().as_str_name().to_owned(),
    }
}

fn sheet(allocation: &Allocation, view: &View) -> String {
    let when = |at: Option<u64>| at.map(|at| view.when(at));
    let mut sheet = Sheet::new(view);
    sheet
        .line("allocation", allocation.allocation)
        .some("bid", allocation.bid)
        .some("tenant", allocation.tenant.as_ref())
        .line("unit", &allocation.unit)
        .line("provider", &allocation.provider)
        .line("state", state(allocation))
        .line("price", format!("{} per node-hour", Dollars(allocation.price_micros)))
        .some("max", allocation.ceiling_micros.map(Dollars))
        .line("allocated", view.when(allocation.allocated_at_us))
        .some("to be ready by", when(allocation.start_by_us))
        .some("ready", when(allocation.ready_at_us))
        .line("protected until", view.when(allocation.protected_until_us))
        .some("ended", when(allocation.ended_at_us));
    if !allocation.labels.is_empty() {
        sheet.line("labels", pairs(&allocation.labels));
    }
    if let Some(notice) = &allocation.notice {
        sheet
            .line(
                "notice",
                format!("{}, since {}", notice.reason().as_str_name(), view.when(notice.started_at_us)),
            )
            .line("ends", view.when(notice.deadline_us))
            .line("to stay", to_stay(allocation, notice));
    }
    sheet.text()
}

/// Returns what a holder can do about a notice.
fn to_stay(allocation: &Allocation, notice: &Notice) -> String {
    match (notice.price_to_stay_micros.map(Dollars), allocation.bid) {
        (Some(price), Some(bid)) if notice.rescindable => {
            format!("{price}: kubebid bid amend {bid} --max {price}")
        }
        (Some(price), _) => price.to_string(),
        (None, _) => "no ceiling keeps it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{list, sheet};
    use crate::output::{Format, View};
    use expect_test::expect;
    use kubebid_client::v1::allocation::State;
    use kubebid_client::v1::notice::Reason;
    use kubebid_client::v1::{Allocation, Notice};

    const NOW: u64 = 1_795_201_452_000_000;

    fn under_notice() -> Allocation {
        Allocation {
            allocation: 5,
            bid: Some(12),
            tenant: Some("acme".into()),
            unit: "h100-8x/eu-west:moon#4".into(),
            market: "h100-8x/eu-west".into(),
            provider: "moon".into(),
            state: State::Active.into(),
            price_micros: 2_000_000,
            ceiling_micros: Some(2_000_000),
            protected_until_us: NOW - 1_000_000,
            notice: Some(Notice {
                reason: Reason::Outbid.into(),
                started_at_us: NOW - 48_000_000,
                deadline_us: NOW + 252_000_000,
                price_to_stay_micros: Some(2_857_200),
                rescindable: true,
            }),
            allocated_at_us: NOW - 1_000_000_000,
            ready_at_us: Some(NOW - 901_000_000),
            ..Default::default()
        }
    }

    #[test]
    fn a_notice_says_by_when_and_what_would_keep_the_node() {
        let view = View { format: Format::Table, now_us: NOW };
        expect![[r#"
            ALLOCATION  BID  UNIT                    STATE   PRICE   MAX  PROTECTED UNTIL  NOTICE  ENDS      TO STAY
                     5   12  h100-8x/eu-west:moon#4  ACTIVE   2.00  2.00  -                OUTBID  in 4m12s   2.8572"#]].assert_eq(&list(&[under_notice()], &view));
        expect![[r#"
            allocation:       5
            bid:              12
            tenant:           acme
            unit:             h100-8x/eu-west:moon#4
            provider:         moon
            state:            ACTIVE
            price:            2.00 per node-hour
            max:              2.00
            allocated:        2026-11-20T18:47:32Z (16m40s ago)
            ready:            2026-11-20T18:49:11Z (15m1s ago)
            protected until:  2026-11-20T19:04:11Z (1s ago)
            notice:           OUTBID, since 2026-11-20T19:03:24Z (48s ago)
            ends:             2026-11-20T19:08:24Z (in 4m12s)
            to stay:          2.8572: kubebid bid amend 12 --max 2.8572"#]]
        .assert_eq(&sheet(&under_notice(), &view));
    }
}
