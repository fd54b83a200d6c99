//! The connection to an engine: flags, then the environment, then the context in use of the profile. The only place that reads the
//! environment.

use crate::advice;
use crate::failure::{Failure, note};
use crate::output::{Format, Output};
use crate::profile::{self, Profile, ProfileContext};
use crate::time::Span;
use clap::Args;
use kubebid_client::{Builder, Client, Error, Options};
use std::env;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The tries before it is said that no engine answers.
const TRIES: u32 = 5;

#[derive(Args, Clone)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Endpoint of the engine; several with commas [env: KUBEBID_ENDPOINTS] [default: the context's, else
    /// http://127.0.0.1:7440]
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
    /// The secret of a token [env: KUBEBID_TOKEN]
    #[arg(long, global = true, value_name = "SECRET", conflicts_with_all = ["token_file", "bearer"])]
    token: Option<String>,
    /// A file with the secret [env: KUBEBID_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "bearer")]
    token_file: Option<PathBuf>,
    /// The token of this name in the context: admin, tenant-a, … [env: KUBEBID_AS]
    #[arg(long = "as", global = true, value_name = "NAME")]
    bearer: Option<String>,
    /// The context of the profile to use [env: KUBEBID_CONTEXT] [default: see kubebid context list]
    #[arg(long = "context", global = true, value_name = "NAME")]
    context: Option<String>,
    /// The profile, which `kubebid login` and `kubebid up` write [env: KUBEBID_PROFILE] [default: ~/.config/kubebid/profile.toml]
    #[arg(long, global = true, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Authorities to trust for https, besides the system's [env: KUBEBID_CA_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Longest time of a call. Commands that are safe to repeat are tried again for this long while no engine answers
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

/// The profile, and where it is.
pub(crate) struct ProfileFile {
    /// None while there is no file.
    pub(crate) profile: Option<Profile>,
    pub(crate) path: PathBuf,
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
        let context = self.context.iter().map(|name| format!(" --context {name}"));
        let bearer = self.bearer.iter().map(|name| format!(" --as {name}"));
        context.chain(bearer).fold("kubebid".to_owned(), |tool, flag| tool + &flag)
    }

    pub(crate) fn output(&self) -> Output {
        Output::new(self.output)
    }

    /// Returns the endpoint of the flag. The environment and the profile name the engine that one works with.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Returns the name of the context that a flag names.
    pub(crate) fn context_name(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// Returns the secret that a flag names.
    pub(crate) fn secret(&self) -> Result<Option<String>, Failure> {
        match (&self.token, &self.token_file) {
            (Some(secret), _) => Ok(Some(secret.clone())),
            (None, Some(file)) => {
                let read = std::fs::read_to_string(file);
                let unread =
                    |error| Failure::usage(format!("cannot read the token file {}: {error}", file.display()));
                read.map(Some).map_err(unread)
            }
            (None, None) => Ok(None),
        }
    }

    /// Returns true if a flag says who calls.
    pub(crate) fn names_a_caller(&self) -> bool {
        self.token.is_some() || self.token_file.is_some() || self.bearer.is_some() || self.context.is_some()
    }

    /// Returns a builder of a client of these endpoints that tries again until `--timeout` while no engine answers, and
    /// says so once on standard error.
    pub(crate) fn patient(&self, endpoints: &str) -> Builder {
        let (span, said) = (self.timeout, AtomicBool::new(false));
        let count = endpoints.split(',').count();
        let builder = Client::builder().options(self.options(u32::MAX)).endpoints(endpoints.split(','));
        builder.on_retry(move |error, left| {
            let Error::Unavailable(end) = error else { return true };
            if advice::hopeless(error).is_some() {
                // Another endpoint may do better.
                return (end.tries as usize) < count;
            }
            if end.tries >= TRIES && !said.swap(true, Ordering::Relaxed) {
                let how_long = left.map_or_else(|| "until one does".to_owned(), |_| format!("for {span}"));
                note(format_args!(
                    "note: no engine answers at {} yet; trying again {how_long}",
                    end.endpoint
                ));
            }
            true
        })
    }

    fn options(&self, tries: u32) -> Options {
        let deadline = Duration::from_micros(self.timeout.0);
        let timeout = deadline.min(Options::default().timeout);
        Options { deadline, timeout, tries, ..Options::default() }
    }

    /// Returns the client to build.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let file = self.profile()?;
        let context = self.in_use(&file)?;
        let own = context.map(|context| context.endpoint.clone());
        let mut builder = match self.endpoints().or(own) {
            Some(endpoints) => self.patient(&endpoints),
            // A newcomer has no engine that could come back.
            None => Client::builder().options(self.options(TRIES)),
        };
        if let Some(path) = self.ca_file().or_else(|| context.and_then(|context| context.ca_file.clone())) {
            builder = builder.ca_file(path);
        }
        match self.credential(context, &file.path)? {
            Some(Credential::Secret(secret)) => builder = builder.token(secret),
            Some(Credential::File(file)) => builder = builder.token_file(file),
            None => {}
        }
        Ok(builder)
    }

    /// Returns what to do next after a command that failed because it had no token, if the profile has one: it was not
    /// sent, because the endpoint is not the profile's.
    pub(crate) fn withheld_token(&self) -> Option<String> {
        let file = self.profile().ok()?;
        let context = self.in_use(&file).ok()?;
        let default = context?.default.as_ref()?;
        let is_withheld =
            self.endpoints().is_some() && matches!(self.credential(context, &file.path), Ok(None));
        is_withheld.then(|| {
            format!("the token `{default}` of the profile was not sent, because another endpoint is named: send it with --as {default}")
        })
    }

    /// Returns the endpoints of the flag or of the environment.
    pub(crate) fn endpoints(&self) -> Option<String> {
        self.endpoint.clone().or_else(|| self.variable("KUBEBID_ENDPOINTS"))
    }

    /// Returns the authorities of the flag or of the environment.
    pub(crate) fn ca_file(&self) -> Option<PathBuf> {
        self.ca_file.clone().or_else(|| self.variable("KUBEBID_CA_FILE").map(PathBuf::from))
    }

    /// Returns a variable that names an engine or a token. A context that is named has its own.
    fn variable(&self, name: &str) -> Option<String> {
        if self.context.is_some() || variable("KUBEBID_CONTEXT").is_some() { None } else { variable(name) }
    }

    /// Returns whether the flag or the environment names an engine that is not the context's.
    fn is_of_another_engine(&self, context: &ProfileContext) -> bool {
        self.endpoints().is_some_and(|endpoints| endpoints != context.endpoint)
    }

    fn credential(
        &self,
        context: Option<&ProfileContext>,
        path: &Path,
    ) -> Result<Option<Credential>, Failure> {
        if let Some(secret) = &self.token {
            return Ok(Some(Credential::Secret(secret.clone())));
        }
        if let Some(file) = &self.token_file {
            warn_of_readers(file);
            return Ok(Some(Credential::File(file.clone())));
        }
        if let Some(name) = &self.bearer {
            return named(context, name, path).map(Some);
        }
        if let Some(secret) = self.variable("KUBEBID_TOKEN") {
            return Ok(Some(Credential::Secret(secret)));
        }
        if let Some(file) = self.variable("KUBEBID_TOKEN_FILE") {
            warn_of_readers(Path::new(&file));
            return Ok(Some(Credential::File(file.into())));
        }
        // A token of the profile goes to another engine only if --as names it.
        if context.is_some_and(|context| self.is_of_another_engine(context)) {
            return Ok(None);
        }
        let default = || context.and_then(|context| context.default.clone());
        variable("KUBEBID_AS").or_else(default).map(|name| named(context, &name, path)).transpose()
    }

    /// Returns the context in use: that of the flag or of the environment, else the current one.
    fn in_use<'a>(&self, file: &'a ProfileFile) -> Result<Option<&'a ProfileContext>, Failure> {
        let named = self.context.clone().or_else(|| variable("KUBEBID_CONTEXT"));
        match (&file.profile, named) {
            (Some(profile), Some(name)) => profile.context(&name, &file.path).map(Some),
            (Some(profile), None) => profile.in_use(&file.path),
            (None, Some(name)) => Err(Failure::usage(format!("there is no profile with a context `{name}`"))
                .next("kubebid login makes one")),
            (None, None) => Ok(None),
        }
    }

    /// Returns the profile. One that is named must exist.
    fn profile(&self) -> Result<ProfileFile, Failure> {
        let file = self.profile_to_write()?;
        let is_named = self.profile.is_some() || variable("KUBEBID_PROFILE").is_some();
        if is_named && file.profile.is_none() {
            return Err(Failure::usage(format!("there is no profile {}", file.path.display()))
                .next("`kubebid login` and `kubebid up` write one"));
        }
        Ok(file)
    }

    /// Returns the profile that a command changes, or is to write.
    pub(crate) fn profile_to_write(&self) -> Result<ProfileFile, Failure> {
        let named = self.profile.clone().or_else(|| variable("KUBEBID_PROFILE").map(PathBuf::from));
        let path = named.or_else(profile::default_path).unwrap_or_default();
        let profile = if path.as_os_str().is_empty() { None } else { profile::read(&path)? };
        Ok(ProfileFile { profile, path })
    }
}

/// Returns the token of this name in a context.
fn named(context: Option<&ProfileContext>, name: &str, path: &Path) -> Result<Credential, Failure> {
    let Some(context) = context else {
        return Err(Failure::usage(format!("there is no profile with a token for `{name}`"))
            .next("start a market with `kubebid up`, or name its profile with --profile"));
    };
    Ok(Credential::Secret(profile::token(context, name, path)?.to_owned()))
}

/// Says that other people of this machine may read a token file, if it is the caller's own to change.
fn warn_of_readers(file: &Path) {
    let mode = std::fs::metadata(file).map(|found| (found.permissions().mode(), found.uid()));
    if mode.is_ok_and(|(mode, owner)| mode & 0o077 != 0 && owner == rustix::process::geteuid().as_raw()) {
        note(format_args!("warning: others may read the token file {0}: chmod 600 {0}", file.display()));
    }
}

/// Returns the variables that are set and count before the context that the profile names.
pub(crate) fn overriding_variables() -> Vec<&'static str> {
    let all = ["KUBEBID_CONTEXT", "KUBEBID_ENDPOINTS", "KUBEBID_TOKEN", "KUBEBID_TOKEN_FILE", "KUBEBID_AS"];
    all.into_iter().filter(|name| variable(name).is_some()).collect()
}

#[expect(clippy::disallowed_methods, reason = "this is the config.rs of the command line")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}
