//! `kubebid whoami`

use super::account::sheet;
use crate::config::Context;
use crate::failure::Failure;
use clap::Args;
use kubebid_client::v1::GetAccountRequest;

/// Show the account of the token, its roles, what counts against its limits, and what it can spend
#[derive(Args)]
#[command(after_help = "\
Examples:
  kubebid whoami
  kubebid --as provider whoami -o json")]
pub(crate) struct Whoami {}

impl Whoami {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let answer = context.client.get_account(GetAccountRequest::default()).await?;
        context.out.answer(&answer, |view| sheet(&answer, view))
    }
}
