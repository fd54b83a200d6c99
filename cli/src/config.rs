//! The connection to an engine: flags, then the environment, then the profile. The only place that reads the
//! environment.

use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::profile::{self, Profile};
use crate::time::Span;
use clap::Args;
use kubebid_client::{Builder, Client, Options};
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Clone)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Endpoint of the engine; several with commas [env: KUBEBID_ENDPOINTS] [default: the profile's, else
    /// http://127.0.0.1:7440]
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
    /// The secret of a token [env: KUBEBID_TOKEN]
    #[arg(long, global = true, value_name = "SECRET", conflicts_with_all = ["token_file", "bearer"])]
    token: Option<String>,
    /// A file with the secret [env: KUBEBID_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "bearer")]
    token_file: Option<PathBuf>,
    /// The token of this name in the profile: admin, tenant-a, … [env: KUBEBID_AS]
    #[arg(long = "as", global = true, value_name = "NAME")]
    bearer: Option<String>,
    /// The profile that `kubebid up` wrote [env: KUBEBID_PROFILE] [default: ~/.config/kubebid/profile.toml]
    #[arg(long, global = true, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Authorities to trust for https, besides the system's [env: KUBEBID_CA_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Longest time of a call, retries included
    #[arg(long, global = true, value_name = "SPAN", default_value = "30s")]
    timeout: Span,
    /// Format of the output
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        help_heading = "Output"
    )]
    output: Format,
}

/// A token, or the file that has it.
enum Credential {
    Secret(String),
    File(PathBuf),
}

/// The client and the output of a command.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) out: Output,
}

impl Connection {
    pub(crate) fn open(&self) -> Result<Context, Failure> {
        Ok(Context { client: self.builder()?.build()?, out: self.output() })
    }

    /// Returns the begin of a command that the same caller is to give next.
    pub(crate) fn tool(&self) -> String {
        match &self.bearer {
            Some(name) => format!("kubebid --as {name}"),
            None => "kubebid".to_owned(),
        }
    }

    pub(crate) fn output(&self) -> Output {
        Output::new(self.output)
    }

    /// Returns the endpoint of the flag. The environment and the profile name the engine that one works with.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Returns true if a flag says who calls.
    pub(crate) fn names_a_caller(&self) -> bool {
        self.token.is_some() || self.token_file.is_some() || self.bearer.is_some()
    }

    /// Returns the client to build. A person waits for the command, so an engine that is away is reported within a
    /// second or two.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let (profile, path) = self.profile()?;
        let deadline = Duration::from_micros(self.timeout.0);
        let options = Options {
            deadline,
            timeout: deadline.min(Options::default().timeout),
            tries: 5,
            ..Options::default()
        };
        let mut builder = Client::builder().options(options);

        let profiles = profile.as_ref().map(|profile| profile.endpoint.clone());
        if let Some(endpoints) = self.endpoints().or(profiles) {
            builder = builder.endpoints(endpoints.split(','));
        }
        if let Some(path) = self.ca_file.clone().or_else(|| variable("KUBEBID_CA_FILE").map(PathBuf::from)) {
            builder = builder.ca_file(path);
        }
        match self.credential(profile.as_ref(), &path)? {
            Some(Credential::Secret(secret)) => builder = builder.token(secret),
            Some(Credential::File(file)) => builder = builder.token_file(file),
            None => {}
        }
        Ok(builder)
    }

    /// Returns what to do next after a command that failed because it had no token, if the profile has one: it was not
    /// sent, because the endpoint is not the profile's.
    pub(crate) fn withheld_token(&self) -> Option<String> {
        let (profile, path) = self.profile().ok()?;
        let default = profile.as_ref()?.default.as_ref()?;
        let is_withheld =
            self.endpoints().is_some() && matches!(self.credential(profile.as_ref(), &path), Ok(None));
        is_withheld.then(|| {
            format!("the token `{default}` of the profile was not sent, because another endpoint is named: send it with --as {default}")
        })
    }

    /// Returns the endpoints of the flag or of the environment.
    fn endpoints(&self) -> Option<String> {
        self.endpoint.clone().or_else(|| variable("KUBEBID_ENDPOINTS"))
    }

    fn credential(&self, profile: Option<&Profile>, path: &Path) -> Result<Option<Credential>, Failure> {
        if let Some(secret) = &self.token {
            return Ok(Some(Credential::Secret(secret.clone())));
        }
        if let Some(file) = &self.token_file {
            return Ok(Some(Credential::File(file.clone())));
        }
        if let Some(name) = &self.bearer {
            return named(profile, name, path).map(Some);
        }
        if let Some(secret) = variable("KUBEBID_TOKEN") {
            return Ok(Some(Credential::Secret(secret)));
        }
        if let Some(file) = variable("KUBEBID_TOKEN_FILE") {
            return Ok(Some(Credential::File(file.into())));
        }
        if let Some(name) = variable("KUBEBID_AS") {
            return named(profile, &name, path).map(Some);
        }
        // A token of the profile goes to another engine only where it is asked for.
        if self.endpoints().is_none()
            && let Some(profile) = profile
            && let Some(name) = &profile.default
        {
            return Ok(Some(Credential::Secret(profile::token(profile, name, path)?.to_owned())));
        }
        Ok(None)
    }

    /// Returns the profile and its path. A profile that is named must exist.
    fn profile(&self) -> Result<(Option<Profile>, PathBuf), Failure> {
        if let Some(path) = self.profile.clone().or_else(|| variable("KUBEBID_PROFILE").map(PathBuf::from)) {
            let Some(profile) = profile::read(&path)? else {
                return Err(Failure::usage(format!("there is no profile {}", path.display()))
                    .next("`kubebid up` writes one"));
            };
            return Ok((Some(profile), path));
        }
        let Some(path) = profile::default_path() else { return Ok((None, PathBuf::new())) };
        Ok((profile::read(&path)?, path))
    }
}

/// Returns the token of this name in the profile.
fn named(profile: Option<&Profile>, name: &str, path: &Path) -> Result<Credential, Failure> {
    let Some(profile) = profile else {
        return Err(Failure::usage(format!("there is no profile with a token for `{name}`"))
            .next("start a market with `kubebid up`, or name its profile with --profile"));
    };
    Ok(Credential::Secret(profile::token(profile, name, path)?.to_owned()))
}

#[expect(clippy::disallowed_methods, reason = "this is the config.rs of the command line")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}
