//! Numbers and names as a report prints them.

use lsl_cli::ui::text::count;
use serde_json::Value;

use crate::stats::Interval;

/// A number with three digits that matter: `0.063`, `3.14`, `61.1`, `333`, `12.1k`, `1.08M`.
pub(super) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let size = value.abs();
    // A value that would round up to four digits belongs to the next row.
    let (scaled, suffix) = match size {
        _ if size < 9999.5 => (value, ""),
        _ if size < 999.5e3 => (value / 1e3, "k"),
        _ if size < 999.5e6 => (value / 1e6, "M"),
        _ => (value / 1e9, "G"),
    };
    let digits = match scaled.abs() {
        0.0 => 0,
        small if small < 0.009_995 => 4,
        small if small < 0.9995 => 3,
        small if small < 9.995 => 2,
        small if small < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    let text = if text == "-0" { "0" } else { text };
    format!("{}{suffix}", text.replace('-', "−"))
}

/// A ratio: with more digits near 1, so that an end of an interval that is not 1 does not print as 1.
pub(super) fn ratio(value: f64) -> String {
    if value.total_cmp(&1.0).is_eq() {
        return "1".into();
    }
    let digits = match (value - 1.0).abs() {
        near if near < 0.000_5 => 5,
        near if near < 0.005 => 4,
        near if near < 0.1 => 3,
        _ => return figure(value),
    };
    let text = format!("{value:.digits$}");
    // `1.00000` is not 1, and says so.
    let short = text.trim_end_matches('0');
    if short.ends_with('.') {
        text
    } else {
        short.into()
    }
}

/// A difference: with its sign.
pub(super) fn signed(value: f64) -> String {
    let text = figure(value);
    if value > 0.0 && text != "0" && value.is_finite() {
        format!("+{text}")
    } else {
        text
    }
}

/// A number with its unit.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", figure(value)).trim_end().into()
}

/// Applies `show` to a value; a dash where there is none.
pub(super) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".into(), show)
}

/// Both ends of an interval.
pub(super) fn figures(interval: Interval) -> String {
    let [low, high] = interval.map(figure);
    format!("[{low}, {high}]")
}

/// Both ends of an interval of ratios.
pub(super) fn ratios(interval: Interval) -> String {
    let [low, high] = interval.map(ratio);
    format!("[{low}, {high}]")
}

/// A metric with its unit, as a title.
pub(super) fn titled(title: &str, unit: &str) -> String {
    format!("{title}, {unit}").trim_end_matches(", ").into()
}

/// Describes the smallest and largest number of rounds in words.
pub(super) fn rounds(rounds: (usize, usize)) -> String {
    match rounds {
        (least, most) if least == most => count(most, "round"),
        (least, most) => format!("{least} to {most} rounds"),
    }
}

/// A chance, as papers print it.
pub(super) fn chance(p: f64) -> String {
    match p {
        _ if p.is_nan() => "–".into(),
        _ if p < 0.0001 => "< 0.0001".into(),
        _ => format!("{p:.4}"),
    }
}

/// A share in percent with three decimals, rounded down: 100.000 % means all.
pub(super) fn delivered(received: u64, expected: u64) -> String {
    let thousandths = u128::from(received) * 100_000 / u128::from(expected.max(1));
    format!("{}.{:03} %", thousandths / 1000, thousandths % 1000)
}

/// A point of the grid in words: `64 ch`, `1 kHz`, `4 inlets`, `batch 64`.
pub(super) fn parameter(name: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match (name, value.as_f64()) {
        ("channels", Some(_)) => format!("{text} ch"),
        ("rate" | "rate_hz", Some(rate)) => hertz(rate),
        ("bytes" | "size", Some(_)) => format!("{text} B"),
        ("inlets" | "readers" | "streams" | "outlets" | "threads", Some(number)) => {
            let noun = if number.total_cmp(&1.0).is_eq() {
                name.trim_end_matches('s')
            } else {
                name
            };
            format!("{text} {noun}")
        }
        ("duration" | "seconds" | "duration_s", Some(_)) => format!("{text} s"),
        _ => format!("{} {text}", name.replace('_', " ")),
    }
}

/// The title of an axis along which `name` varies.
pub(super) fn axis(name: &str) -> String {
    match name {
        "rate" | "rate_hz" => "rate, Hz".into(),
        "bytes" | "size" => "sample size, bytes".into(),
        "batch" => "samples per push".into(),
        other => other.replace('_', " "),
    }
}

fn hertz(rate: f64) -> String {
    if rate == 0.0 {
        "as fast as it goes".into()
    } else if rate >= 1000.0 {
        format!("{} kHz", rate / 1000.0)
    } else {
        format!("{rate} Hz")
    }
}

/// Puts a section between two marks of a page; `None` if it has not both.
pub(super) fn put_between(page: &str, begin: &str, end: &str, section: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n\n{section}\n{end}{after}"))
}

/// A file name of letters, digits and dashes.
pub(super) fn file_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    let name: String = name.chars().take(60).collect();
    match name.trim_end_matches('-') {
        "" => "unnamed".into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.000_001, "0"),
            (0.0626, "0.063"),
            (0.0079, "0.0079"),
            (0.999_6, "1"),
            (3.137, "3.14"),
            (61.14, "61.1"),
            (99.96, "100"),
            (333.4, "333"),
            (9999.0, "9999"),
            (9999.9, "10k"),
            (12_060.0, "12.1k"),
            (999_600.0, "1M"),
            (1_080_000.0, "1.08M"),
            (3.2e9, "3.2G"),
            (-4.5, "−4.5"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(figure(value), expected, "{value}");
        }
        for (value, expected) in [
            (1.0, "1"),
            (0.999_68, "0.99968"),
            (1.02, "1.02"),
            (1.000_000_1, "1.00000"),
            (0.5, "0.5"),
            (2.481, "2.48"),
        ] {
            assert_eq!(ratio(value), expected);
        }
        assert_eq!(signed(2.0), "+2");
        assert_eq!(signed(-2.0), "−2");
        assert_eq!(signed(0.0), "0");
        assert_eq!(with_unit(2.0, "µs"), "2 µs");
        assert_eq!(with_unit(2.0, ""), "2");
    }

    #[test]
    fn almost_all_is_not_all() {
        assert_eq!(delivered(30_000, 30_000), "100.000 %");
        assert_eq!(delivered(9_999_999, 10_000_000), "99.999 %");
        assert_eq!(delivered(0, 5), "0.000 %");
        assert_eq!(delivered(6, 5), "120.000 %");
    }

    #[test]
    fn parameters() {
        for (name, value, expected) in [
            ("channels", json!(64), "64 ch"),
            ("rate", json!(1000), "1 kHz"),
            ("rate", json!(250.0), "250 Hz"),
            ("inlets", json!(1), "1 inlet"),
            ("readers", json!(16), "16 readers"),
            ("batch", json!(64), "batch 64"),
            ("via", json!("relay"), "via relay"),
            ("some_thing", json!(true), "some thing true"),
        ] {
            assert_eq!(parameter(name, &value), expected);
        }
    }

    #[test]
    fn chances_and_file_names() {
        assert_eq!(chance(0.0485), "0.0485");
        assert_eq!(chance(1e-9), "< 0.0001");
        assert_eq!(chance(f64::NAN), "–");
        assert_eq!(file_name("../../etc/Passwd µs"), "etc-passwd-s");
        assert_eq!(file_name("///"), "unnamed");
    }
}
