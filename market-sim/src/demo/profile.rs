//! The profile of the people who try it: the engine's address and their tokens.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::{fmt, fs, io};

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
pub struct Profile {
    /// The endpoint of the engine or, with commas, several.
    pub endpoint: String,
    /// The name of the token to use without `--as`.
    pub default: Option<String>,
    /// Secrets by the names of their bearers.
    #[serde(default)]
    pub tokens: BTreeMap<String, String>,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Profile {
    /// Reads the profile at `path`, if there is one. An error names no line: that may be a secret.
    pub fn read(path: &Path) -> io::Result<Option<Profile>> {
        match fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map(Some).map_err(|error| io::Error::other(error.message())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the profile, and makes its folder if that is missing.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        write_private(path, &text)
    }
}

/// Writes a file that only its owner can read. It is replaced as a whole or not at all.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    // A draft of an earlier run could be a link, or open to others.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&draft)?.write_all(text.as_bytes())?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::Profile;
    use std::fs;

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("profile.toml");
        assert!(Profile::read(&path).unwrap().is_none());
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
        let Err(error) = Profile::read(&path) else { panic!() };
        assert!(!error.to_string().contains("sesame"), "{error}");
    }
}
