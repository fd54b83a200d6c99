//! The permitted calls to an external resource: the annotation `GROUP/access-permissions`.

/// The calls that may change an external resource. Reading is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// A resource that is missing may be created.
    pub create: bool,
    /// A resource that differs may be updated.
    pub update: bool,
    /// A resource may be deleted, with its object or to be created anew.
    pub delete: bool,
}

/// A text that names no permissions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not name permissions: write the letters c (create), u (update) and d (delete), or none")]
pub struct InvalidPermissions(String);

impl Permissions {
    /// Everything.
    pub const ALL: Permissions = Permissions { create: true, update: true, delete: true };
    /// Nothing but reading.
    pub const NONE: Permissions = Permissions { create: false, update: false, delete: false };

    /// Parses the value of the annotation: letters in any order and case, or `none`. Without it, and if it is empty,
    /// `default` is allowed.
    ///
    /// # Errors
    /// Any other text. Allow [`Permissions::NONE`] then: a wrong word must not permit a deletion.
    pub fn parse(text: Option<&str>, default: Permissions) -> Result<Permissions, InvalidPermissions> {
        let trimmed = text.unwrap_or_default().trim().to_ascii_lowercase();
        match trimmed.as_str() {
            "" => return Ok(default),
            "none" => return Ok(Permissions::NONE),
            _ => {}
        }
        let has = |letter| trimmed.matches(letter).count();
        if trimmed.chars().all(|letter| "cud".contains(letter)) && "cud".chars().all(|letter| has(letter) < 2)
        {
            return Ok(Permissions { create: has('c') == 1, update: has('u') == 1, delete: has('d') == 1 });
        }
        Err(InvalidPermissions(text.unwrap_or_default().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_strictly() {
        let all = Permissions::ALL;
        let of = |text| Permissions::parse(Some(text), all).ok();
        let (create, update) = (Permissions { create: true, ..Permissions::NONE }, true);
        for all in ["", "  ", "cud", "DUC", "uCd"] {
            assert_eq!(of(all), Some(Permissions::ALL), "{all:?}");
        }
        assert_eq!(Permissions::parse(None, all), Ok(Permissions::ALL));
        assert_eq!(of("none"), Some(Permissions::NONE));
        assert_eq!(of("c"), Some(create));
        assert_eq!(of("UC"), Some(Permissions { update, ..create }));
        for wrong in ["readonly", "CX", "cc", "c,u", "all", "r", "nothing"] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
        let error = Permissions::parse(Some("readonly"), all).unwrap_err().to_string();
        assert!(error.starts_with("\"readonly\" does not name permissions"), "{error}");
    }
}
