//! `kubebid context`

use super::login::{warn_of_variables, write};
use crate::config::{Connection, ProfileFile};
use crate::failure::Failure;
use crate::output::{List, or_dash, text, write_line};
use crate::profile::Profile;
use clap::Subcommand;
use serde::Serialize;

#[derive(Subcommand)]
pub(crate) enum Contexts {
    /// List the contexts of the profile
    #[command(visible_alias = "ls")]
    List,
    /// Work with another context from now on
    #[command(after_help = "\
For one command alone: kubebid --context NAME …

Examples:
  kubebid context use market.example")]
    Use {
        /// Its name, as `kubebid context list` shows it
        name: String,
    },
    /// Remove a context from the profile, with its tokens. They stay valid at the engine
    #[command(visible_alias = "rm")]
    Remove {
        /// Its name, as `kubebid context list` shows it
        name: String,
    },
}

/// A context without its secrets.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    current: bool,
    endpoint: &'a str,
    default: Option<&'a str>,
    tokens: Vec<&'a str>,
}

impl Contexts {
    pub(crate) fn run(self, connection: &Connection) -> Result<(), Failure> {
        let ProfileFile { profile, path } = connection.profile_to_write()?;
        let mut profile = profile.unwrap_or_default();
        match self {
            Contexts::List => list(&profile, connection),
            Contexts::Use { name } => {
                let endpoint = profile.context(&name, &path)?.endpoint.clone();
                profile.current = Some(name.clone());
                write(&profile, &path)?;
                write_line(&format!("the context is `{name}`: {endpoint}"))?;
                warn_of_variables();
                Ok(())
            }
            Contexts::Remove { name } => {
                profile.context(&name, &path)?;
                profile.contexts.remove(&name);
                if profile.current.as_ref() == Some(&name) {
                    profile.current = None;
                }
                write(&profile, &path)?;
                write_line(&format!("the context `{name}` is removed"))
            }
        }
    }
}

fn list(profile: &Profile, connection: &Connection) -> Result<(), Failure> {
    let shown: Vec<_> = profile
        .contexts
        .iter()
        .map(|(name, context)| Shown {
            name,
            current: profile.current.as_ref() == Some(name),
            endpoint: &context.endpoint,
            default: context.default.as_deref(),
            tokens: context.tokens.keys().map(String::as_str).collect(),
        })
        .collect();
    connection.output().answer(&shown, |view| {
        let columns = [text("NAME"), text("CURRENT"), text("ENDPOINT"), text("AS"), text("TOKENS")];
        let mut list = List::new(view, &columns);
        for context in &shown {
            list.row([
                context.name.to_owned(),
                if context.current { "*".to_owned() } else { String::new() },
                context.endpoint.to_owned(),
                or_dash(context.default),
                context.tokens.join(","),
            ]);
        }
        list.or("no contexts; make one: kubebid login --endpoint URL, or kubebid up")
    })
}
