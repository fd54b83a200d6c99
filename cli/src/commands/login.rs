//! `kubebid login`

use crate::config::{Connection, ProfileFile, overriding_variables};
use crate::failure::{Exit, Failure, note};
use crate::profile::Profile;
use clap::Args;
use console::Term;
use kubebid_client::v1::GetAccountRequest;
use std::io::{self, IsTerminal as _, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The longest text that is read as a token, in bytes.
const TOKEN_MAX: u64 = 4096;

/// Keep an engine and a token for it in the profile, and work with it from now on
#[derive(Args)]
#[command(after_help = "\
The token is asked for, or read from standard input, or from --token-file. The engine says whose it is
before anything is written. The context has the name that --context says, else that of the engine's
context, else the host's. Another login adds a token to the context, and is its default from then on:
choose another one with --as.

Examples:
  kubebid login --endpoint https://market.example
  kubebid login --endpoint https://market.example --context work < acme.token
  kubebid context list")]
pub(crate) struct Login {}

impl Login {
    pub(crate) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let ProfileFile { profile, path } = connection.profile_to_write()?;
        let mut profile = profile.unwrap_or_default();
        let named = connection.context_name().and_then(|name| profile.contexts.get(name));
        let endpoint = connection.endpoints().or_else(|| named.map(|context| context.endpoint.clone()));
        let Some(endpoint) = endpoint.map(|endpoint| without_slashes(&endpoint)) else {
            return Err(Failure::usage("login to which engine?")
                .next("name it: kubebid login --endpoint https://market.example"));
        };
        let name = match connection.context_name() {
            Some(name) => name.to_owned(),
            None => context_of(&profile, &endpoint).unwrap_or_else(|| host(&endpoint)),
        };
        let known = profile.contexts.get(&name);
        if let Some(context) = known.filter(|context| without_slashes(&context.endpoint) != endpoint) {
            return Err(Failure::usage(format!(
                "the context `{name}` is of another engine, {}",
                context.endpoint
            ))
            .next("name another one with --context, or remove it: kubebid context remove"));
        }
        let ca_file = connection.ca_file().or_else(|| known.and_then(|context| context.ca_file.clone()));
        let ca_file = ca_file.map(std::path::absolute).transpose()?;
        warn_of_readers(&endpoint);
        let secret = match connection.secret()? {
            Some(secret) => secret,
            None => ask(&endpoint)?,
        };
        let secret = secret.trim().to_owned();
        if secret.is_empty() {
            return Err(Failure::usage("no token was given"));
        }
        let mut builder = connection.patient(&endpoint).token(secret.clone());
        if let Some(file) = &ca_file {
            builder = builder.ca_file(file.clone());
        }
        let account = builder.build()?.get_account(GetAccountRequest::default()).await?;
        let context = profile.contexts.entry(name.clone()).or_default();
        context.endpoint.clone_from(&endpoint);
        context.ca_file = ca_file;
        context.default = Some(account.name.clone());
        context.tokens.insert(account.name.clone(), secret);
        let was = profile.current.replace(name.clone()).filter(|was| *was != name);
        write(&profile, &path)?;
        connection.output().answer(&account, |_| {
            let roles: Vec<_> = account.roles().map(|role| role.as_str_name().to_lowercase()).collect();
            let (account, roles) = (&account.name, roles.join(", "));
            let path = path.display();
            let now =
                was.map(|was| format!(", which replaces `{was}` as the current one")).unwrap_or_default();
            format!("you are {account} ({roles}) at {endpoint}: the context `{name}` of {path}{now}")
        })?;
        warn_of_variables();
        Ok(())
    }
}

/// Returns the name of a context of this endpoint: the current one, if it is of it.
fn context_of(profile: &Profile, endpoint: &str) -> Option<String> {
    let is_of = |name: &&String| {
        profile.contexts.get(*name).is_some_and(|context| without_slashes(&context.endpoint) == endpoint)
    };
    let host = host(endpoint);
    profile.current.iter().chain([&host]).chain(profile.contexts.keys()).find(is_of).cloned()
}

/// Says that a token goes to other machines without encryption.
fn warn_of_readers(endpoints: &str) {
    let is_plain = |endpoint: &&str| {
        endpoint
            .trim()
            .strip_prefix("http://")
            .is_some_and(|rest| !is_loopback(rest.split('/').next().unwrap_or_default()))
    };
    if let Some(endpoint) = endpoints.split(',').find(is_plain) {
        note(format_args!(
            "warning: {endpoint} is not encrypted: the token can be read on the way. Use https:// if the engine has it"
        ));
    }
}

/// Returns true for a host, with or without a port, that is this machine.
fn is_loopback(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.split(':').next().unwrap_or_default();
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    name == "localhost" || address.or_else(|_| name.parse()).is_ok_and(|address| address.is_loopback())
}

/// Says which variables count before the context that the profile names.
pub(super) fn warn_of_variables() {
    for name in overriding_variables() {
        note(format_args!(
            "note: {name} is set and counts before the profile; to work with this context: unset {name}"
        ));
    }
}

/// Writes the profile.
pub(super) fn write(profile: &Profile, path: &Path) -> Result<(), Failure> {
    let unwritten =
        |error| Failure::new(Exit::Fault, format!("cannot write the profile {}: {error}", path.display()));
    profile.write(path).map_err(unwritten)
}

/// Asks the person for the token, or reads it from what is not a terminal.
fn ask(endpoint: &str) -> Result<String, Failure> {
    if io::stdin().is_terminal() {
        let terminal = Term::stderr();
        terminal.write_str(&format!("Token for {endpoint} (it is not shown): "))?;
        return Ok(terminal.read_secure_line()?);
    }
    let mut secret = String::new();
    io::stdin().lock().take(TOKEN_MAX).read_to_string(&mut secret)?;
    Ok(secret)
}

/// Returns endpoints without slashes at their ends, so that one engine is written in one way.
fn without_slashes(endpoints: &str) -> String {
    endpoints.split(',').map(|endpoint| endpoint.trim().trim_end_matches('/')).collect::<Vec<_>>().join(",")
}

/// Returns the host of the first endpoint, with its port.
fn host(endpoint: &str) -> String {
    let first = endpoint.split(',').next().unwrap_or_default();
    let after = first.split_once("://").map_or(first, |(_, after)| after);
    after.split('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{host, is_loopback, without_slashes};

    #[test]
    fn this_machine_has_several_names() {
        for host in ["localhost", "localhost:7440", "127.0.0.1:7440", "127.1.2.3", "[::1]:7440", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["market.example:7440", "10.0.0.1", "[2001:db8::1]:7440", "localhost.example", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_context_has_the_name_of_the_host() {
        assert_eq!(host("https://market.example"), "market.example");
        assert_eq!(host("http://10.0.0.1:7440,http://10.0.0.2:7440"), "10.0.0.1:7440");
        assert_eq!(host("https://market.example/api"), "market.example");
        assert_eq!(without_slashes("https://a/, https://b"), "https://a,https://b");
    }
}
