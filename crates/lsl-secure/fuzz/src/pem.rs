//! Private key files, as text. Input: the text. Nothing is decrypted: that takes half a second by
//! design.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use lsl_secure::keyfile::{is_encrypted, read_key};

pub fn check(input: &[u8]) {
    let file = File::new(input);
    let key = read_key(&file.0, None);
    let encrypted = is_encrypted(&file.0);
    if let Ok(key) = key {
        assert!(!encrypted.expect("it could be read"));
        // The same key whatever its form.
        assert_eq!(
            read_key(&file.0, Some("")).expect("needs none").public(),
            key.public()
        );
    }
}

/// A file that only we can read.
struct File(PathBuf);

impl File {
    fn new(bytes: &[u8]) -> Self {
        let thread = format!("{:?}", std::thread::current().id());
        let name = format!("lsl-secure-fuzz-{}-{thread}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path).expect("the temporary directory");
        file.write_all(bytes).expect("the temporary directory");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
