//! User and password for a control connection: from a file or the environment, and never into a log.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The environment variable that may hold the password.
pub const PASSWORD_VARIABLE: &str = "ATROPOS_PASSWORD";

/// A password file is one line; more than this is not a password file.
const PASSWORD_FILE_BYTES: u64 = 4096;

/// A password. Neither `Debug` nor any error shows it, and it has no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself, for the one place that hands it to the server.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// No password was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a password could not be had.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be opened or read.
    #[error(
        "cannot read the password file {path}: {source}; give --password-file a file that this user may read, or set {PASSWORD_VARIABLE}"
    )]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody else could read or change it.
    #[error(
        "will not use the password file {path}: {why}; run `chown root {path} && chmod 600 {path}` as root, or chmod it as its owner"
    )]
    Unsafe {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It does not hold a password.
    #[error("the password file {path} {why}; it must hold the password alone, on one line")]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Who logs in.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// User name at the target.
    pub user: String,
    /// Its password, empty if none.
    pub secret: Secret,
}

impl Credentials {
    /// Password from `file` if given, else from `variable` (the value of [`PASSWORD_VARIABLE`]), else none.
    pub fn load(
        user: impl Into<String>,
        file: Option<&Path>,
        variable: Option<String>,
    ) -> Result<Self, CredentialsError> {
        let secret = match (file, variable) {
            (Some(path), _) => read_password_file(path)?,
            (None, Some(text)) => Secret::new(text),
            (None, None) => Secret::default(),
        };
        Ok(Self {
            user: user.into(),
            secret,
        })
    }
}

/// Reads the password from the first line of `path`. The checks are made on the opened file, so that it cannot be
/// exchanged in between.
fn read_password_file(path: &Path) -> Result<Secret, CredentialsError> {
    let read_error = |source| CredentialsError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(read_error)?;
    let meta = file.metadata().map_err(read_error)?;
    let unsafe_because = |why: String| CredentialsError::Unsafe {
        path: path.to_owned(),
        why,
    };
    let me = nix::unistd::geteuid().as_raw();
    if !meta.is_file() {
        return Err(unsafe_because("it is not a regular file".to_owned()));
    }
    if meta.uid() != 0 && meta.uid() != me {
        return Err(unsafe_because(format!(
            "it belongs to user id {}, not to root or user id {me}",
            meta.uid()
        )));
    }
    // A group may read it (root:atropos 0640 is a common set-up), nobody else, and only the owner may write.
    if meta.mode() & 0o027 != 0 {
        return Err(unsafe_because(format!(
            "its mode {:04o} lets others read it or change it",
            meta.mode() & 0o7777
        )));
    }
    let mut text = String::new();
    file.by_ref()
        .take(PASSWORD_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(read_error)?;
    let content = |why| CredentialsError::Content {
        path: path.to_owned(),
        why,
    };
    let mut lines = text.lines();
    let password = lines.next().unwrap_or_default();
    if password.is_empty() {
        return Err(content("is empty"));
    }
    if lines.any(|line| !line.trim().is_empty()) {
        return Err(content("has more than one line"));
    }
    Ok(Secret::new(password))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_password_is_the_first_line_without_its_newline() {
        let file = file("s3 cret\n", 0o600);
        let credentials =
            Credentials::load("ops", Some(file.path()), Some("other".into())).unwrap();
        assert_eq!(credentials.secret.expose(), "s3 cret");
    }

    #[test]
    fn a_file_that_others_can_read_or_change_is_refused_without_showing_what_it_holds() {
        for mode in [0o604, 0o620, 0o644, 0o666] {
            let file = file("s3cret\n", mode);
            let error = Credentials::load("ops", Some(file.path()), None).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains("chmod 600"), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_file_with_more_than_a_password_is_refused() {
        assert!(Credentials::load("ops", Some(file("a\nb\n", 0o600).path()), None).is_err());
        assert!(Credentials::load("ops", Some(file("", 0o600).path()), None).is_err());
    }

    #[test]
    fn debug_output_never_shows_the_password() {
        let credentials = Credentials::load("ops", None, Some("s3cret".into())).unwrap();
        assert!(!format!("{credentials:?}").contains("s3cret"));
    }
}
