//! `kubebid token`

use crate::args::{Limit, word};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, Sheet, View, or_dash, text};
use clap::{Args, Subcommand};
use kubebid_client::v1::token::Role;
use kubebid_client::v1::{CreateTokenRequest, ListTokensRequest, RevokeTokenRequest, Token};

#[derive(Subcommand)]
pub(crate) enum Tokens {
    /// Make a token for an account, as administrator; its secret is shown once
    #[command(after_help = "\
Roles: tenant bids, provider offers, viewer sees markets, admin does everything for every account.

Examples:
  kubebid --as admin token create acme --role tenant --description \"ci of acme\"
  kubebid --as admin token create acme --role tenant -o json | jq -r .secret > token")]
    Create(Create),
    /// List the tokens that are valid, oldest first, without their secrets, as administrator
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Make a token worthless at once, as administrator
    #[command(visible_alias = "rm")]
    Revoke {
        /// Its name, as `kubebid token list` shows it
        token_id: String,
    },
}

#[derive(Args)]
pub(crate) struct Create {
    /// The account it is to speak for
    account: String,
    /// Roles of its bearer: what it may do
    #[arg(long, required = true, value_parser = word(&["tenant", "provider", "viewer", "admin"], Role::from_str_name))]
    role: Vec<Role>,
    /// Purpose of the token
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Only those of this account
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    account: String,
    /// Also revoked ones
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    limit: Limit,
}

impl Tokens {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            Tokens::Create(create) => {
                let request = CreateTokenRequest {
                    account: create.account,
                    roles: create.role.into_iter().map(i32::from).collect(),
                    description: create.description,
                };
                let answer = client.create_token(request).await?;
                out.answer(&answer, |view| {
                    let token = answer.token.clone().unwrap_or_default();
                    let mut sheet = Sheet::new(view);
                    sheet
                        .line("token", &token.token_id)
                        .line("account", &token.account)
                        .line("roles", roles(&token))
                        .line("secret", &answer.secret);
                    view.around(sheet.text(), |sheet| format!("{sheet}\nThe secret is shown this once."))
                })
            }
            Tokens::List(args) => {
                let request = ListTokensRequest {
                    account: args.account,
                    include_revoked: args.all,
                    ..Default::default()
                };
                let answer = client.first(request, args.limit.count()).await?;
                out.answer(&answer, |view| list(&answer.tokens, view))?;
                args.limit.note(answer.tokens.len(), &answer.next_page_token);
                Ok(())
            }
            Tokens::Revoke { token_id } => {
                let answer = client.revoke_token(RevokeTokenRequest { token_id: token_id.clone() }).await?;
                out.answer(&answer, |_| format!("revoked the token {token_id}"))
            }
        }
    }
}

fn roles(token: &Token) -> String {
    token.roles().map(|role| role.as_str_name()).collect::<Vec<_>>().join(",")
}

fn list(tokens: &[Token], view: &View) -> String {
    let mut list = List::new(
        view,
        &[text("TOKEN"), text("ACCOUNT"), text("ROLES"), text("MADE"), text("REVOKED"), text("FOR")],
    );
    for token in tokens {
        list.row([
            token.token_id.clone(),
            token.account.clone(),
            roles(token),
            view.brief(token.created_at_us),
            or_dash(token.revoked_at_us.map(|at| view.brief(at))),
            token.description.clone(),
        ]);
    }
    list.or("no tokens")
}
