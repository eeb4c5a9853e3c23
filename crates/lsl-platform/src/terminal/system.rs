//! Terminals of Unix, by their settings.
//!
//! Line editing, echo and signals of the terminal are switched off together, so that Ctrl-C cannot end the
//! process while the echo is off. Ctrl-C is read like any key, and the settings are restored before the
//! caller acts on it.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::{Typed, read_line};

/// Returns whether pictures can be drawn on an output by the signs of terminals. On Windows it makes the
/// console understand them, until the process ends.
pub fn prepare(output: &impl IsTerminal) -> bool {
    output.is_terminal()
}

/// Returns the number of lines of the terminal that standard output is.
pub fn rows() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// Reads one line from the terminal `from` without showing it. Backspace and Ctrl-U work. Blocks
/// until the user is done.
///
/// # Errors
/// If `from` is no terminal or cannot be read; [`io::ErrorKind::InvalidInput`] for a line longer
/// than 4096 bytes.
pub fn read_hidden(from: &mut (impl Read + AsFd)) -> io::Result<Typed> {
    let before = tcgetattr(from.as_fd())?;
    let mut hidden = before.clone();
    hidden.local_modes -= LocalModes::ECHO
        | LocalModes::ECHONL
        | LocalModes::ICANON
        | LocalModes::ISIG
        | LocalModes::IEXTEN;
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    // Input typed ahead was echoed already, so it is discarded.
    tcsetattr(from.as_fd(), OptionalActions::Flush, &hidden)?;
    let typed = read_line(from);
    restore(from, &before).and(typed)
}

fn restore(terminal: &impl AsFd, settings: &Termios) -> io::Result<()> {
    Ok(tcsetattr(
        terminal.as_fd(),
        OptionalActions::Drain,
        settings,
    )?)
}
