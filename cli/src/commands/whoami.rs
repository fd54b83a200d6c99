//! `kubebid whoami`

use crate::config::Context;
use crate::failure::Failure;
use crate::output::{Sheet, usd};
use clap::Args;
use kubebid_client::v1::GetAccountRequest;

/// Show the account of the token, its roles, and what counts against its limits
#[derive(Args)]
#[command(after_help = "\
Examples:
  kubebid whoami
  kubebid --as provider whoami -o json")]
pub(crate) struct Whoami {}

impl Whoami {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let answer = context.client.get_account(GetAccountRequest {}).await?;
        context.out.answer(&answer, |view| {
            let limits = answer.limits.unwrap_or_default();
            let of = |used: u64, most: Option<u32>| format!("{used} of {}", most.unwrap_or(u32::MAX));
            let roles: Vec<_> = answer.roles().map(|role| role.as_str_name().to_lowercase()).collect();
            let mut sheet = Sheet::new(view);
            sheet
                .line("account", &answer.name)
                .line("roles", roles.join(", "))
                .line("bids that search", of(answer.open_bids, limits.open_bids))
                .line("nodes wanted", of(answer.nodes_wanted, limits.nodes_wanted))
                .line("units offered", of(answer.units_offered, limits.units_offered))
                .some(
                    "highest ceiling",
                    limits.ceiling_micros.filter(|most| *most < u64::MAX).map(|most| usd(Some(most))),
                )
                .some("requests a second", limits.requests_per_second)
                .some("commands a day", limits.commands_per_day);
            sheet.text()
        })
    }
}
