//! The profile: a file with the engines that a person works with, and tokens for them. `kubebid login` and `kubebid up`
//! write it.

use crate::failure::Failure;
use etcetera::BaseStrategy as _;
use market_sim::demo::profile::write_private;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// The context that `kubebid up` writes, and that a profile of one engine is.
pub(crate) const LOCAL: &str = "local";

/// The contexts of a person.
///
/// ```toml
/// current = "local"
///
/// [contexts.local]
/// endpoint = "http://127.0.0.1:7440"
/// default = "tenant-a"
///
/// [contexts.local.tokens]
/// admin = "…"
/// tenant-a = "…"
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Profile {
    /// The context in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// Contexts by name.
    pub(crate) contexts: BTreeMap<String, ProfileContext>,
}

/// An engine, and tokens for it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileContext {
    /// The endpoint of the engine or, with commas, several.
    pub(crate) endpoint: String,
    /// The name of the token to use without `--as`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<String>,
    /// Authorities to trust for https, besides the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Secrets by the names of their bearers.
    #[serde(default)]
    pub(crate) tokens: BTreeMap<String, String>,
}

impl fmt::Debug for ProfileContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileContext").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A profile as it is read: its contexts, or those of one engine alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, ProfileContext>,
    endpoint: Option<String>,
    default: Option<String>,
    #[serde(default)]
    tokens: BTreeMap<String, String>,
}

impl Profile {
    /// Returns the profile in a text. An error names no line: that may be a secret.
    fn parse(text: &str) -> Result<Profile, String> {
        let text: Text = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let mut profile = Profile { current: text.current, contexts: text.contexts };
        if let Some(endpoint) = text.endpoint {
            let context =
                ProfileContext { endpoint, default: text.default, ca_file: None, tokens: text.tokens };
            profile.contexts.entry(LOCAL.to_owned()).or_insert(context);
            profile.current.get_or_insert_with(|| LOCAL.to_owned());
        }
        Ok(profile)
    }

    /// Reads the profile at `path`, if there is one.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Profile>> {
        match fs::read_to_string(path) {
            Ok(text) => Profile::parse(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the profile so that only its owner can read it, and makes its folder if that is missing.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        write_private(path, &text)
    }

    /// Returns the context of a name.
    pub(crate) fn context(&self, name: &str, path: &Path) -> Result<&ProfileContext, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<_> = self.contexts.keys().map(String::as_str).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Failure::usage(format!("the profile {} has no context `{name}`", path.display()))
                .next(format!("it has: {known}; kubebid login makes one"))
        })
    }

    /// Returns the context in use.
    pub(crate) fn in_use(&self, path: &Path) -> Result<Option<&ProfileContext>, Failure> {
        self.current.as_ref().map(|name| self.context(name, path)).transpose()
    }
}

/// `kubebid/profile.toml` in the folder for configuration.
pub(crate) fn default_path() -> Option<PathBuf> {
    let folders = etcetera::choose_base_strategy().ok()?;
    Some(folders.config_dir().join("kubebid").join("profile.toml"))
}

/// `kubebid/up` in the folder for data.
pub(crate) fn data_folder() -> Option<PathBuf> {
    let folders = etcetera::choose_base_strategy().ok()?;
    Some(folders.data_dir().join("kubebid").join("up"))
}

/// The profile at `path`, if there is one.
pub(crate) fn read(path: &Path) -> Result<Option<Profile>, Failure> {
    Profile::read(path).map_err(|error| {
        Failure::usage(format!("cannot use the profile {}: {error}", path.display()))
            .next("mend or remove the file; `kubebid login` and `kubebid up` write another")
    })
}

/// The secret of a bearer.
pub(crate) fn token<'a>(context: &'a ProfileContext, name: &str, path: &Path) -> Result<&'a str, Failure> {
    context.tokens.get(name).map(String::as_str).ok_or_else(|| {
        let names: Vec<_> = context.tokens.keys().map(String::as_str).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Failure::usage(format!("the profile {} has no token for `{name}`", path.display()))
            .next(format!("it has: {known}; other contexts: kubebid context list"))
    })
}

#[cfg(test)]
mod tests {
    use super::{LOCAL, Profile, ProfileContext, read, token};
    use std::fs;

    #[test]
    fn a_profile_of_one_engine_is_one_context() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        assert!(read(&path).unwrap().is_none());
        fs::write(&path, "endpoint = 'http://[::1]:7440'\n[tokens]\nadmin = 'a'\ntenant-a = 't'\n").unwrap();
        let profile = read(&path).unwrap().unwrap();
        let context = profile.in_use(&path).unwrap().unwrap();
        assert_eq!(token(context, "tenant-a", &path).unwrap(), "t");
        let failure = token(context, "tenant-b", &path).unwrap_err();
        assert!(failure.to_string().contains("it has: admin, tenant-a"), "{failure}");
        let failure = profile.context("work", &path).unwrap_err();
        assert!(failure.to_string().contains("it has: local"), "{failure}");
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("profile.toml");
        let context = |endpoint: &str| ProfileContext {
            endpoint: endpoint.into(),
            default: Some("acme".into()),
            ca_file: Some("ca.pem".into()),
            tokens: [("acme".to_owned(), "sesame".to_owned())].into(),
        };
        let contexts = [
            (LOCAL.to_owned(), context("http://127.0.0.1:7440")),
            ("market.example".to_owned(), context("https://market.example")),
        ];
        let profile = Profile { current: Some("market.example".into()), contexts: contexts.into() };
        profile.write(&path).unwrap();
        assert!(read(&path).unwrap().unwrap() == profile);
        assert_eq!(profile.in_use(&path).unwrap().unwrap().endpoint, "https://market.example");
        assert!(!format!("{profile:?}").contains("sesame"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_broken_profile_is_told_with_its_path_and_without_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        fs::write(&path, "[contexts.local]\nendpoint = 'x'\n[contexts.local.tokens]\nadmin = 'sesame\n")
            .unwrap();
        let Err(failure) = read(&path) else { panic!() };
        assert!(failure.to_string().contains("profile.toml"), "{failure}");
        assert!(!failure.to_string().contains("sesame"), "{failure}");
    }
}
