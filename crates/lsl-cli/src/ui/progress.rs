//! Progress of long work, drawn on stderr where that is a terminal and nowhere else.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Creates a bar of `total` bytes; not drawn for work that is done in a moment.
pub(crate) fn bytes(total: u64, doing: &str) -> ProgressBar {
    // `stderr` draws nothing unless it is a terminal.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template(
        "{msg:24!} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
    );
    // The template is a constant of ours; without it the bar looks plainer.
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(doing.to_owned());
    bar
}

/// Creates a line that says what is being done, and for how long already.
pub(crate) fn line(is_wanted: bool) -> ProgressBar {
    if !is_wanted {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("{msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}
