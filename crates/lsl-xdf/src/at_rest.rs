//! Recordings encrypted at rest, in the [age v1](https://c2sp.org/age) format: stock `age` and `rage` open
//! files written here, and the other way round.
//!
//! * [`Encrypting`] and [`Decrypting`] stand between a writer or reader of XDF and the file. No plaintext
//!   touches the disk, and a file that a crash cut off gives back every whole chunk of 64 KiB.
//! * [`lock`], [`unlock`], [`rotate`] and [`verify`] work on many files in parallel; [`lock_stream`] and
//!   [`unlock_stream`] on pipes.
//! * [`Recipients`] are the keys that a file is locked to, [`Identities`] open it.
//!
//! Everything blocks, and nothing here asks a person, prints or logs. The module knows no XDF.
//!
//! ```
//! use std::io::{Read, Write};
//! use lsl_xdf::at_rest::{Decrypting, Encrypting, Ending, Identities, KeyPair, Recipients};
//!
//! let pair = KeyPair::generate();
//! let mut recipients = Recipients::new();
//! recipients.add("--recipient", &pair.recipient)?;
//! let mut writer = Encrypting::new(Vec::new(), &recipients)?;
//! writer.write_all(b"XDF:")?;
//! let file = writer.finish()?;
//!
//! let mut identities = Identities::new();
//! identities.add("the new key", &pair.identity)?;
//! let mut plain = String::new();
//! Decrypting::new(&file[..], &identities, Ending::Strict)?.read_to_string(&mut plain)?;
//! assert_eq!(plain, "XDF:");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decrypting;
mod encrypting;
mod error;
mod files;
mod header;
mod keys;
mod openssh;
mod payload;
mod pipe;
mod replace;
mod stanzas;
mod steps;

pub use decrypting::{Decrypting, End, Ending};
pub use encrypting::Encrypting;
pub use error::{Error, ErrorKind, Result};
pub use files::{
    Done, Existing, FileOutcome, Options, Rewrap, Source, Task, Watch, is_locked, lock,
    locked_name, rotate, unlock, unlocked_name, verify,
};
pub use keys::{Identities, KeyPair, Passphrase, Recipients};
pub use pipe::{Cancel, Passed, Work, lock_stream, unlock_stream};
pub use steps::{Step, StepTime};

#[cfg(test)]
mod tests;
