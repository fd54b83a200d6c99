//! `kubebid admin`

use crate::config::Context;
use crate::failure::Failure;
use crate::time::{Span, When, rfc3339};
use clap::{ArgGroup, Args, Subcommand};
use kubebid_client::v1::AdvanceTimeRequest;

#[derive(Subcommand)]
pub(crate) enum Admin {
    /// Move the stepped clock; all that comes due on the way is settled
    #[command(after_help = "\
Examples:
  kubebid --as admin admin advance-time --by 15m
  kubebid --as admin admin advance-time --to 2026-11-20T19:00:00Z")]
    AdvanceTime(AdvanceTime),
}

#[derive(Args)]
#[command(group = ArgGroup::new("where").required(true).args(["to", "by"]))]
pub(crate) struct AdvanceTime {
    /// Instant of market time to move to; one in the past counts as now
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<When>,
    /// Span to move by
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    by: Option<Span>,
}

impl Admin {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Admin::AdvanceTime(args) => args.run(context).await,
        }
    }
}

impl AdvanceTime {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        // What is not absolute is relative to the market's own clock, which a step into the past tells.
        let to_us = match (self.to, self.by) {
            (Some(When::At(at)), _) => at,
            (to, by) => {
                let when = to.or(by.map(When::In)).unwrap_or(When::In(Span(0)));
                let now = context.client.advance_time(AdvanceTimeRequest { to_us: 0 }).await?;
                when.at(now.at_us)
            }
        };
        let answer = context.client.advance_time(AdvanceTimeRequest { to_us }).await?;
        context.out.answer(&answer, |_| format!("it is {} (command {})", rfc3339(answer.at_us), answer.seq))
    }
}
