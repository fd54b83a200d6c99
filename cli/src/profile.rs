//! The profile: where the engine is and who one may be. `kubebid up` writes it, the other commands read it.

use crate::failure::Failure;
use etcetera::BaseStrategy as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// ```toml
/// endpoint = "http://127.0.0.1:7440"
/// default = "tenant-a"
///
/// [tokens]
/// admin = "…"
/// tenant-a = "…"
/// ```
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// One or, with commas, several.
    pub(crate) endpoint: String,
    /// The name of the token to use without `--as`.
    pub(crate) default: Option<String>,
    /// Secrets by the names of their bearers.
    #[serde(default)]
    pub(crate) tokens: BTreeMap<String, String>,
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

impl Profile {
    /// The profile at `path`, if there is one.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(path, &error)),
        };
        // The message alone: the whole error shows the line, and that may be a secret.
        toml::from_str(&text).map(Some).map_err(|error| unusable(path, &error.message()))
    }

    /// Writes it so that only its owner can read it, all of it or nothing.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let draft = path.with_extension("toml.draft");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&draft)?.write_all(text.as_bytes())?;
        fs::rename(&draft, path)
    }

    /// The secret of a bearer.
    pub(crate) fn token(&self, name: &str, path: &Path) -> Result<&str, Failure> {
        self.tokens.get(name).map(String::as_str).ok_or_else(|| {
            let names: Vec<_> = self.tokens.keys().map(String::as_str).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Failure::usage(format!("the profile {} has no token for `{name}`", path.display()))
                .next(format!("it has: {known}"))
        })
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("cannot use the profile {}: {error}", path.display()))
        .next("mend or remove the file; `kubebid up` writes another")
}

#[cfg(test)]
mod tests {
    use super::Profile;
    use std::fs;

    #[test]
    fn a_profile_names_its_bearers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        assert!(Profile::read(&path).unwrap().is_none());
        fs::write(&path, "endpoint = 'http://[::1]:7440'\n[tokens]\nadmin = 'a'\ntenant-a = 't'\n").unwrap();
        let profile = Profile::read(&path).unwrap().unwrap();
        assert_eq!(profile.token("tenant-a", &path).unwrap(), "t");
        let failure = profile.token("tenant-b", &path).unwrap_err();
        assert!(failure.to_string().contains("it has: admin, tenant-a"), "{failure}");
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("profile.toml");
        let tokens = [("admin".to_owned(), "sesame".to_owned())].into();
        let profile = Profile { endpoint: "http://[::1]:7440".into(), default: Some("admin".into()), tokens };
        profile.write(&path).unwrap();
        assert!(Profile::read(&path).unwrap().unwrap() == profile);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_broken_profile_does_not_show_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        fs::write(&path, "endpoint = 'http://[::1]:7440'\n[tokens]\nadmin = 'sesame\n").unwrap();
        let Err(failure) = Profile::read(&path) else { panic!() };
        assert!(!failure.to_string().contains("sesame"), "{failure}");
    }
}
