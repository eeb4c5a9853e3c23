//! Shows the progress of a run.

use std::io::Write;

use lsl_cli::ui::notice::note;
use lsl_cli::ui::text::age;
use lsl_core::local_clock;
use lsl_platform::terminal::prepare;

/// Progress on stderr: one line that is overwritten on a terminal.
pub(crate) struct Progress {
    begun: f64,
    done: usize,
    total: usize,
    is_terminal: bool,
}

impl Progress {
    /// Starts a display of so many steps that take about the same time.
    pub(crate) fn new(total: usize) -> Self {
        Self {
            begun: local_clock(),
            done: 0,
            total,
            is_terminal: prepare(&std::io::stderr()),
        }
    }

    pub(crate) fn show(&self, what: std::fmt::Arguments<'_>) {
        let spent = local_clock() - self.begun;
        let left = if self.done == 0 {
            String::new()
        } else {
            let left = spent / self.done as f64 * (self.total - self.done) as f64;
            format!(", about {} left", age(left))
        };
        if self.is_terminal {
            // Clears the previous line.
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K{what}{left}");
        } else {
            note(format_args!("{what}{left}"));
        }
    }

    pub(crate) fn step(&mut self) {
        self.done += 1;
    }

    pub(crate) fn end(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
