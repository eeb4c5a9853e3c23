//! Terminals of Windows: consoles, and the pipes that mintty has in their place; see the Unix version.

use std::io::{self, IsTerminal, Read};
use std::os::windows::io::{AsHandle, AsRawHandle, RawHandle};
use std::sync::OnceLock;

use windows_sys::Win32::System::Console::{
    CONSOLE_SCREEN_BUFFER_INFO, ENABLE_ECHO_INPUT, ENABLE_LINE_INPUT, ENABLE_PROCESSED_INPUT,
    ENABLE_PROCESSED_OUTPUT, ENABLE_VIRTUAL_TERMINAL_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING,
    FlushConsoleInputBuffer, GetConsoleMode, GetConsoleScreenBufferInfo, ReadConsoleW,
    SetConsoleMode,
};

use super::{Typed, read_line};
use crate::disk::checked;
use crate::exit::at_exit;

/// Returns whether pictures can be drawn on an output by the signs of terminals. Makes a console understand
/// them, until the process ends. Of mintty nobody asks what it understands: `NO_COLOR` says no.
pub fn prepare(output: &(impl IsTerminal + AsHandle)) -> bool {
    if !output.is_terminal() {
        return false;
    }
    let console = output.as_handle().as_raw_handle();
    let Ok(before) = mode(console) else {
        return std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    };
    let wanted = before | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING;
    if wanted == before {
        return true;
    }
    let prepared = set_mode(console, wanted).is_ok();
    // Standard output and errors share one mode, that of the window.
    if prepared && BEFORE.set((console as usize, before)).is_ok() {
        // Without the hook the mode stays, which harms few programs.
        let _ = at_exit(restore);
    }
    prepared
}

/// Returns the number of lines of the console that standard output is.
#[expect(unsafe_code, reason = "std does not tell")]
pub fn rows() -> Option<usize> {
    let mut info = CONSOLE_SCREEN_BUFFER_INFO::default();
    // SAFETY: the handle is open, and there is room for the structure.
    let told = unsafe {
        GetConsoleScreenBufferInfo(io::stdout().as_handle().as_raw_handle(), &raw mut info)
    };
    let window = info.srWindow;
    let rows = i32::from(window.Bottom) - i32::from(window.Top) + 1;
    usize::try_from(rows)
        .ok()
        .filter(|rows| told != 0 && *rows > 0)
}

/// Reads one line from the console `from` without showing it; see the Unix version.
///
/// # Errors
/// If `from` is no console, as in mintty, or cannot be read; [`io::ErrorKind::InvalidInput`] for a line
/// longer than 4096 bytes.
pub fn read_hidden(from: &mut (impl Read + AsHandle)) -> io::Result<Typed> {
    let console = from.as_handle().as_raw_handle();
    let before = mode(console).map_err(|error| {
        let text = format!("only a console hides what is typed; give it by a pipe ({error})");
        io::Error::new(error.kind(), text)
    })?;
    let shown = ENABLE_ECHO_INPUT | ENABLE_LINE_INPUT;
    set_mode(
        console,
        before & !(shown | ENABLE_PROCESSED_INPUT | ENABLE_VIRTUAL_TERMINAL_INPUT),
    )?;
    forget_input(console);
    let typed = read_line(&mut Keys {
        console,
        bytes: [0; 4],
        rest: 0..0,
    });
    set_mode(console, before).and(typed)
}

/// Mode of the console before [`prepare`], with its handle.
static BEFORE: OnceLock<(usize, u32)> = OnceLock::new();

extern "C" fn restore() {
    if let Some(&(console, before)) = BEFORE.get() {
        // It may be closed already.
        let _ = set_mode(console as RawHandle, before);
    }
}

/// Keys of a console as UTF-8.
struct Keys {
    console: RawHandle,
    bytes: [u8; 4],
    /// Bytes of the last key that were not read yet.
    rest: std::ops::Range<usize>,
}

impl Read for Keys {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            let Some(first) = key(self.console)? else {
                return Ok(0);
            };
            let second = if (0xD800..0xDC00).contains(&first) {
                key(self.console)?
            } else {
                None
            };
            let units = [Some(first), second].into_iter().flatten();
            let key = char::decode_utf16(units).find_map(Result::ok);
            let key = key.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.rest = 0..key.encode_utf8(&mut self.bytes).len();
        }
        match (to.first_mut(), self.rest.next()) {
            (Some(to), Some(at)) => {
                *to = std::mem::take(&mut self.bytes[at]);
                Ok(1)
            }
            _ => Ok(0),
        }
    }
}

/// Waits for a key: a unit of UTF-16. `None` at the end of input.
#[expect(unsafe_code, reason = "std reads whole lines")]
fn key(console: RawHandle) -> io::Result<Option<u16>> {
    let (mut unit, mut read) = (0_u16, 0);
    // SAFETY: the handle is open, there is room for one unit and a number, and no control is wanted.
    checked(unsafe {
        ReadConsoleW(
            console,
            (&raw mut unit).cast(),
            1,
            &raw mut read,
            std::ptr::null(),
        )
    })?;
    Ok((read == 1).then_some(unit))
}

#[expect(unsafe_code, reason = "std knows nothing of consoles")]
fn forget_input(console: RawHandle) {
    // SAFETY: the handle is open. If it fails, more is read than was asked for.
    unsafe { FlushConsoleInputBuffer(console) };
}

#[expect(unsafe_code, reason = "std knows nothing of consoles")]
fn mode(console: RawHandle) -> io::Result<u32> {
    let mut mode = 0;
    // SAFETY: the handle is open, and there is room for a number.
    checked(unsafe { GetConsoleMode(console, &raw mut mode) })?;
    Ok(mode)
}

#[expect(unsafe_code, reason = "std knows nothing of consoles")]
fn set_mode(console: RawHandle, mode: u32) -> io::Result<()> {
    // SAFETY: takes any handle and any number.
    checked(unsafe { SetConsoleMode(console, mode) })
}
