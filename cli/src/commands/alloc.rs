//! `kubebid alloc`

use crate::args::{Key, Limit, Pair, Quiet, Whose, its_number, map, states, word};
use crate::commands::node_data;
use crate::config::Context;
use crate::failure::{Exit, Failure};
use crate::output::{
    List, Mark, Sheet, View, dollars, money, number, or_dash, pairs, text, usd, write_bytes,
};
use clap::{Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::allocation::State;
use kubebid_client::v1::notice::Reason;
use kubebid_client::v1::{
    Allocation, GetAllocationRequest, ListAllocationsRequest, NodeAccess, Notice, ReleaseAllocationRequest,
    ReportReadyRequest,
};
use kubebid_report::text::is_hidden;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

/// The most bytes of a file with access data. The engine accepts 4 KiB, as it encodes them.
const ACCESS: usize = 16 * 1024;

#[derive(Subcommand)]
pub(crate) enum Alloc {
    /// List the nodes that are held, oldest first: those of one's bids and those on one's units
    #[command(after_help = "\
Nodes that have ended are shown with --all, and with --state ended. A node under notice or protected
has the state NOTICE or PROTECTED here, and UNTIL says when that ends; -o wide, csv and json have the
state of the API.

Examples:
  kubebid alloc list
  kubebid alloc list --bid 12 --all      also the nodes that bid 12 has lost
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
    #[command(after_help = "\
FILE is JSON with how the tenant reaches the node: host names or IP addresses, ports by service, a user,
notes. All are optional, together at most 4 KiB. A second report with --access replaces it.

Examples:
  kubebid alloc ready 5
  kubebid alloc ready 5 --access access.json
  echo '{\"addresses\": [\"10.0.0.7\"], \"ports\": {\"ssh\": 22}, \"user\": \"ubuntu\"}' |
      kubebid alloc ready 5 --access -")]
    Ready(Ready),
    /// Show how a node is reached: addresses, ports, user
    #[command(after_help = "\
Only the tenant of the node sees it, as its provider reported it.

Examples:
  kubebid alloc access 5
  kubebid alloc access 5 -o json | jq -r '.addresses[0]'")]
    Access {
        /// Its number
        #[arg(value_parser = its_number)]
        allocation: u64,
    },
    /// Print the data that a node is to be set up with, as its tenant gave it
    #[command(after_help = "\
Its tenant gave it with the bid (--node-config). The tenant and the provider of the node see it.

Examples:
  kubebid alloc node-config 5 > user-data")]
    NodeConfig {
        /// Its number
        #[arg(value_parser = its_number)]
        allocation: u64,
    },
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
    /// Also those that have ended
    #[arg(short, long, conflicts_with = "state")]
    all: bool,
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

#[derive(Args)]
pub(crate) struct Ready {
    #[command(flatten)]
    command: Command,
    /// A file with how the tenant reaches the node; - reads standard input
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
}

impl Alloc {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Alloc::List(args) => {
                let request = ListAllocationsRequest {
                    bid: args.bid,
                    market: args.market,
                    states: states(args.state, args.all, [State::Starting, State::Active]),
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
            Alloc::Ready(Ready { command: Command { allocation, key }, access }) => {
                let access = access.map(|path| read_access(&path)).transpose()?;
                let request = ReportReadyRequest { client_key: key.key, allocation, access };
                let answer = client.report_ready(request).await?;
                out.answer(&answer, |_| format!("allocation {allocation} is ready"))
            }
            Alloc::Access { allocation } => {
                let answer = client.get_allocation(GetAllocationRequest { allocation, min_seq: 0 }).await?;
                let access = answer.allocation.and_then(|found| found.access).ok_or_else(|| {
                    Failure::new(Exit::NotFound, format!("you see no access data of allocation {allocation}")).next(
                        "its provider gives it with kubebid alloc ready --access; only its tenant sees it",
                    )
                })?;
                if out.is_names() && ssh(&access).is_none() {
                    return Err(Failure::new(
                        Exit::NotFound,
                        format!("allocation {allocation} is not reached by ssh"),
                    )
                    .next(format!("its access data: kubebid alloc access {allocation}")));
                }
                out.answer(&access, |view| access_sheet(&access, view))
            }
            Alloc::NodeConfig { allocation } => {
                let answer = client.get_allocation(GetAllocationRequest { allocation, min_seq: 0 }).await?;
                let config = answer.allocation.and_then(|found| found.node_config).ok_or_else(|| {
                    Failure::new(Exit::NotFound, format!("allocation {allocation} has no node config"))
                        .next("its tenant gives it with kubebid bid place --node-config")
                })?;
                // A tenant's bytes could be commands for the terminal, or hide what they say.
                let is_plain = |letter: char| !is_hidden(letter) || ['\n', '\r', '\t'].contains(&letter);
                let is_text = str::from_utf8(&config).is_ok_and(|text| text.chars().all(is_plain));
                if io::stdout().is_terminal() && !is_text {
                    return Err(Failure::usage(
                        "the node config is no plain text, and is not shown on a terminal",
                    )
                    .next(format!("write it to a file: kubebid alloc node-config {allocation} > config")));
                }
                write_bytes(&config)
            }
            Alloc::Release(Command { allocation, key }) => {
                let request = ReleaseAllocationRequest { client_key: key.key, allocation };
                let answer = client.release_allocation(request).await?;
                out.answer(&answer, |_| format!("released allocation {allocation}"))
            }
        }
    }
}

fn list(allocations: &[Allocation], view: &View) -> String {
    let mut list = List::new(
        view,
        &[
            number("ALLOC").csv("allocation"),
            number("BID"),
            text("TENANT").wide(),
            text("UNIT"),
            text("STATE"),
            money("PRICE"),
            money("MAX"),
            text("UNTIL").narrow(),
            text("PROTECTED UNTIL").wide(),
            text("NOTICE").wide(),
            text("ENDS").wide(),
            money("TO STAY"),
            text("ALLOCATED").wide(),
            text("READY").wide(),
            text("ENDED").wide(),
            text("LABELS").wide(),
        ],
    );
    for allocation in allocations {
        let notice = allocation.notice.as_ref();
        let (state, until) = in_short(allocation, view);
        let mark = notice.map_or(Mark::None, |notice| view.mark(notice.deadline_us));
        list.marked(
            mark,
            [
                allocation.allocation.to_string(),
                or_dash(allocation.bid),
                or_dash(allocation.tenant.as_ref()),
                allocation.unit.clone(),
                state,
                Dollars(allocation.price_micros).to_string(),
                dollars(allocation.ceiling_micros),
                or_dash(until.map(|at| view.brief(at))),
                or_dash(is_protected(allocation, view).then(|| view.brief(allocation.protected_until_us))),
                or_dash(notice.map(|notice| notice.reason().as_str_name())),
                or_dash(notice.map(|notice| view.brief(notice.deadline_us))),
                dollars(notice.and_then(|notice| notice.price_to_stay_micros)),
                view.brief(allocation.allocated_at_us),
                or_dash(allocation.ready_at_us.map(|at| view.brief(at))),
                or_dash(allocation.ended_at_us.map(|at| view.brief(at))),
                pairs(&allocation.labels),
            ],
        );
    }
    list.or("no nodes; kubebid alloc list --all shows those that have ended")
}

fn state(allocation: &Allocation) -> String {
    match allocation.end_reason {
        Some(_) => format!("ENDED {}", allocation.end_reason().as_str_name()),
        None => allocation.state().as_str_name().to_owned(),
    }
}

fn is_protected(allocation: &Allocation, view: &View) -> bool {
    allocation.ended_at_us.is_none() && allocation.protected_until_us > view.now_us
}

/// Returns the state of a node in a narrow table, and the instant at which that state ends.
fn in_short(allocation: &Allocation, view: &View) -> (String, Option<u64>) {
    let is_active = allocation.state() == State::Active;
    match &allocation.notice {
        _ if view.is_wide() || allocation.ended_at_us.is_some() => (state(allocation), None),
        Some(notice) => (format!("NOTICE {}", notice.reason().as_str_name()), Some(notice.deadline_us)),
        None if is_active && is_protected(allocation, view) => {
            ("PROTECTED".to_owned(), Some(allocation.protected_until_us))
        }
        None => (state(allocation), allocation.start_by_us),
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
        .line("price", price(allocation))
        .some("max", allocation.ceiling_micros.map(|micros| usd(Some(micros))))
        .line("allocated", view.when(allocation.allocated_at_us))
        .some("to be ready by", when(allocation.start_by_us))
        .some("ready", when(allocation.ready_at_us))
        .line("protected until", view.when(allocation.protected_until_us))
        .some("ended", when(allocation.ended_at_us));
    if !allocation.labels.is_empty() {
        sheet.line("labels", pairs(&allocation.labels));
    }
    if let Some(config) = &allocation.node_config {
        let shown = format!("{} bytes: kubebid alloc node-config {}", config.len(), allocation.allocation);
        sheet.line("node config", shown);
    }
    if allocation.access.is_some() {
        sheet.line("access", format!("kubebid alloc access {}", allocation.allocation));
    }
    if let Some(notice) = &allocation.notice {
        let mark = view.mark(notice.deadline_us);
        let why = format!("{}, since {}", notice.reason().as_str_name(), view.when(notice.started_at_us));
        sheet.marked(mark, "notice", why).marked(mark, "ends", view.when(notice.deadline_us)).marked(
            mark,
            "to stay",
            to_stay(allocation, notice),
        );
    }
    sheet.text()
}

/// Returns the price of a node. Under notice it is frozen, or does not rise (R8).
fn price(allocation: &Allocation) -> String {
    let price = format!("{} per node-hour", usd(Some(allocation.price_micros)));
    let notice = allocation.notice.as_ref().filter(|_| allocation.ended_at_us.is_none());
    match notice.map(Notice::reason) {
        None => price,
        Some(Reason::Outbid | Reason::Funds) => format!("{price}, frozen until the notice ends"),
        Some(Reason::CapacityWithdrawn | Reason::ReserveRaised | Reason::Other | Reason::Unspecified) => {
            format!("{price}, which does not rise until the notice ends")
        }
    }
}

fn read_access(path: &Path) -> Result<NodeAccess, Failure> {
    serde_json::from_slice(&node_data::file(path, ACCESS)?).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display()))
            .next(r#"write {"addresses": ["10.0.0.7"], "ports": {"ssh": 22}, "user": "ubuntu"}"#)
    })
}

fn access_sheet(access: &NodeAccess, view: &View) -> String {
    let mut sheet = Sheet::new(view);
    sheet.some("ssh", ssh(access));
    for address in &access.addresses {
        sheet.line("address", address);
    }
    for (service, port) in &access.ports {
        sheet.line("port", format!("{port} ({service})"));
    }
    if !access.user.is_empty() {
        sheet.line("user", &access.user);
    }
    for line in access.notes.lines() {
        sheet.line("notes", line);
    }
    sheet.text()
}

/// Returns the command that logs in, if the node has an address and a port for SSH.
fn ssh(access: &NodeAccess) -> Option<String> {
    let (address, port) = (access.addresses.first()?, access.ports.get("ssh")?);
    let port = if *port == 22 { String::new() } else { format!("-p {port} ") };
    let user = if access.user.is_empty() { String::new() } else { format!("{}@", access.user) };
    Some(format!("ssh {port}{user}{address}"))
}

/// Returns what a holder can do about a notice.
fn to_stay(allocation: &Allocation, notice: &Notice) -> String {
    match (notice.price_to_stay_micros.map(Dollars), allocation.bid) {
        (Some(price), Some(bid)) if notice.rescindable => {
            format!("${price}: kubebid bid amend {bid} --max {price}")
        }
        (Some(price), _) => format!("${price}"),
        (None, _) => "no ceiling keeps it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{access_sheet, list, sheet};
    use crate::output::{Format, View};
    use expect_test::expect;
    use kubebid_client::v1::allocation::State;
    use kubebid_client::v1::notice::Reason;
    use kubebid_client::v1::{Allocation, NodeAccess, Notice};

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
        let view = View::of(Format::Table, NOW);
        expect![[r#"
            ALLOC  BID  UNIT                    STATE          PRICE    MAX  UNTIL     TO STAY
                5   12  h100-8x/eu-west:moon#4  NOTICE OUTBID  $2.00  $2.00  in 4m12s  $2.8572"#]]
        .assert_eq(&list(&[under_notice()], &view));
        expect![[r#"
            allocation:       5
            bid:              12
            tenant:           acme
            unit:             h100-8x/eu-west:moon#4
            provider:         moon
            state:            ACTIVE
            price:            $2.00 per node-hour, frozen until the notice ends
            max:              $2.00
            allocated:        2026-11-20T18:47:32Z (16m40s ago)
            ready:            2026-11-20T18:49:11Z (15m1s ago)
            protected until:  2026-11-20T19:04:11Z (1s ago)
            notice:           OUTBID, since 2026-11-20T19:03:24Z (48s ago)
            ends:             2026-11-20T19:08:24Z (in 4m12s)
            to stay:          $2.8572: kubebid bid amend 12 --max 2.8572"#]]
        .assert_eq(&sheet(&under_notice(), &view));
    }

    #[test]
    fn nodes_with_long_names_fit_a_terminal_of_100_columns() {
        let mut node = under_notice();
        node.allocation = 1_234_567;
        node.bid = Some(1_234_560);
        node.unit = "h100-80gb-sxm5-8x/eu-central-1:datacenter-frankfurt#128".into();
        node.price_micros = 116_392_500;
        node.ceiling_micros = Some(120_500_000);
        let view = View::of(Format::Table, NOW);
        assert!(
            list(&[node.clone()], &view.on_terminal(100)).lines().all(|line| line.chars().count() <= 100)
        );
        assert!(list(&[node], &view).contains("frankfurt#128"), "a pipe has all of it");
    }

    #[test]
    fn access_data_begins_with_the_command_that_logs_in() {
        let view = View::of(Format::Table, NOW);
        let access = NodeAccess {
            addresses: vec!["10.0.0.7".into(), "fd00::7".into()],
            ports: [("ssh".into(), 2222), ("web".into(), 443)].into(),
            user: "ubuntu".into(),
            notes: "host key SHA256:abc\nask for help".into(),
        };
        expect![[r#"
            ssh:      ssh -p 2222 ubuntu@10.0.0.7
            address:  10.0.0.7
            address:  fd00::7
            port:     2222 (ssh)
            port:     443 (web)
            user:     ubuntu
            notes:    host key SHA256:abc
            notes:    ask for help"#]]
        .assert_eq(&access_sheet(&access, &view));
    }
}
