//! The profile: where it is, and what the commands use of it. `kubebid up` writes it.

use crate::failure::Failure;
use etcetera::BaseStrategy as _;
pub(crate) use market_sim::demo::profile::Profile;
use std::path::{Path, PathBuf};

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
            .next("mend or remove the file; `kubebid up` writes another")
    })
}

/// The secret of a bearer.
pub(crate) fn token<'a>(profile: &'a Profile, name: &str, path: &Path) -> Result<&'a str, Failure> {
    profile.tokens.get(name).map(String::as_str).ok_or_else(|| {
        let names: Vec<_> = profile.tokens.keys().map(String::as_str).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Failure::usage(format!("the profile {} has no token for `{name}`", path.display()))
            .next(format!("it has: {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{read, token};
    use std::fs;

    #[test]
    fn a_profile_names_its_bearers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        assert!(read(&path).unwrap().is_none());
        fs::write(&path, "endpoint = 'http://[::1]:7440'\n[tokens]\nadmin = 'a'\ntenant-a = 't'\n").unwrap();
        let profile = read(&path).unwrap().unwrap();
        assert_eq!(token(&profile, "tenant-a", &path).unwrap(), "t");
        let failure = token(&profile, "tenant-b", &path).unwrap_err();
        assert!(failure.to_string().contains("it has: admin, tenant-a"), "{failure}");
    }

    #[test]
    fn a_broken_profile_is_told_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        fs::write(&path, "endpoint = ").unwrap();
        let Err(failure) = read(&path) else { panic!() };
        assert!(failure.to_string().contains("profile.toml"), "{failure}");
    }
}
