//! Authorises clients by a token, which the first line of a secret file holds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lsl_core::secure::files::{self, Content};
use lsl_core::secure::{self, OsRandom, Random};
use lsl_platform::directories;
use lsl_platform::files::{Who, create_directory};

/// Clients that may give commands.
#[derive(Clone)]
pub enum Gate {
    /// Every client on this machine, as with LabRecorder.
    Open,
    /// Every client that knows the token of a file.
    Token {
        /// Token that clients must name.
        token: String,
        /// File that holds the token.
        file: PathBuf,
        /// Whether the file was named for this.
        is_chosen: bool,
    },
}

/// Reason why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There is no home directory for its file.
    #[error("there is no home directory for the file of the token")]
    NoHome,
    /// The token in a file can be guessed.
    #[error(
        "{}: its first line is the token, and must have at least {SHORTEST} letters; `openssl rand -hex 16` \
         makes one",
        .0.display()
    )]
    TooShort(PathBuf),
    /// A folder for the file cannot be made.
    #[error("{}: {source}", folder.display())]
    Folder {
        /// Folder that was to hold the file.
        folder: PathBuf,
        /// Error that the system returned.
        source: io::Error,
    },
    /// The file of this user cannot be made.
    #[error(transparent)]
    NotMade(secure::Error),
    /// The file cannot be read, or others may read it.
    #[error(transparent)]
    NotRead(secure::Error),
}

type Result<T = (), E = TokenError> = std::result::Result<T, E>;

/// Shows the file, never the token.
impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open => f.write_str("Open"),
            Self::Token { file, .. } => write!(f, "Token({})", file.display()),
        }
    }
}

impl Gate {
    /// Returns the gate of a file that the user named.
    ///
    /// # Errors
    /// For a file that others may read, or a token that can be guessed.
    pub fn chosen(file: &Path) -> Result<Self> {
        Ok(Self::Token {
            token: read(file)?,
            file: file.to_owned(),
            is_chosen: true,
        })
    }

    /// Returns the gate of this user's own file, which is made the first time.
    ///
    /// # Errors
    /// Where a file cannot be kept from others, or there is no home directory.
    pub fn own() -> Result<Self> {
        let home = directories::home().filter(|home| home.is_absolute());
        Self::in_home(&home.ok_or(TokenError::NoHome)?)
    }

    fn in_home(home: &Path) -> Result<Self> {
        let folder = home.join(FOLDER);
        let file = folder.join(NAME);
        if fs::symlink_metadata(&file).is_err() {
            make_folders(&folder)?;
            make(&file).map_err(TokenError::NotMade)?;
        }
        Ok(Self::Token {
            token: read(&file)?,
            file,
            is_chosen: false,
        })
    }

    /// Whether a text is the token. Takes as long for a wrong one as for the right one.
    pub(crate) fn opens_for(&self, given: &str) -> bool {
        match self {
            Self::Open => true,
            Self::Token { token, .. } => is_equal(given, token),
        }
    }
}

fn make_folders(folder: &Path) -> Result {
    let parents = folder.ancestors().skip(1).take(1);
    for folder in parents.chain([folder]) {
        match create_directory(folder, Who::Owner) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                let folder = folder.to_owned();
                return Err(TokenError::Folder { folder, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes the file, unless another recorder is as quick. It appears with its token in it: it is
/// never empty.
fn make(file: &Path) -> secure::Result<()> {
    let random = || -> secure::Result<u128> {
        let mut bytes = [0; 16];
        OsRandom.fill(&mut bytes)?;
        Ok(u128::from_ne_bytes(bytes))
    };
    let text = format!("{:032x}\n", random()?);
    let draft = file.with_file_name(format!(".{NAME}.{:032x}", random()?));
    files::create(&draft, text.as_bytes())?;
    // Never onto another one. Not every file system can.
    let linked = fs::hard_link(&draft, file);
    let _ = fs::remove_file(&draft);
    match linked.or_else(|_| files::create(file, text.as_bytes())) {
        // Another recorder was as quick; it is read below.
        Err(_) if fs::symlink_metadata(file).is_ok() => Ok(()),
        made => made,
    }
}

/// The token of a file: its first line. The file is looked at as every other secret.
fn read(file: &Path) -> Result<String> {
    let text = files::read_text(file, Content::Secret).map_err(TokenError::NotRead)?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    if token.len() < SHORTEST {
        return Err(TokenError::TooShort(file.to_owned()));
    }
    Ok(token)
}

/// Takes as long for a wrong text as for a right one.
fn is_equal(given: &str, wanted: &str) -> bool {
    let differences = given
        .bytes()
        .zip(wanted.bytes())
        .fold(given.len() ^ wanted.len(), |sum, (a, b)| {
            sum | usize::from(a ^ b)
        });
    differences == 0
}

/// Folder of the token below the home directory.
const FOLDER: &str = ".config/lsl";
const NAME: &str = "rcs-token";
const SHORTEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorders_that_start_at_once_have_the_same_token() {
        let homes = std::env::temp_dir().join(format!("lsl-token-{}", std::process::id()));
        for round in 0..50 {
            let home = homes.join(round.to_string());
            fs::create_dir_all(&home).unwrap();
            let file = home.join(FOLDER).join(NAME);
            let start = std::sync::Barrier::new(3);
            let begin = || {
                start.wait();
                match Gate::in_home(&home).unwrap() {
                    Gate::Token { token, .. } => token,
                    Gate::Open => unreachable!(),
                }
            };
            // Sees the file as soon as it is there.
            let watch = || {
                start.wait();
                while !file.exists() {}
                read(&file).unwrap()
            };
            let tokens = std::thread::scope(|scope| {
                let threads = [scope.spawn(begin), scope.spawn(begin), scope.spawn(watch)];
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
            let left = fs::read_dir(home.join(FOLDER)).unwrap();
            assert_eq!(left.count(), 1, "drafts");
        }
        fs::remove_dir_all(homes).unwrap();
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_equal("abc", "abc"));
        for (given, wanted) in [("abd", "abc"), ("ab", "abc"), ("abcd", "abc"), ("", "a")] {
            assert!(!is_equal(given, wanted));
        }
    }
}
