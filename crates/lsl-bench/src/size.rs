//! Sizes of files as people write them, in units of 1024.

/// Parses sizes such as `16M`, `1GiB` and `4096`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        _ => return Err("K, M or G may follow the number".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "not a size such as 16M")?;
    let size = number.checked_mul(1 << shift);
    size.filter(|size| (1..=LARGEST).contains(size))
        .ok_or_else(|| "from 1 byte to 64 GiB".into())
}

/// Formats a size in the largest unit that fits: `16 MiB`.
pub(crate) fn shown(size: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| size >= 1 << shift) {
        Some((shift, unit)) => {
            let number = size as f64 / (1_u64 << shift) as f64;
            let text = format!("{number:.1}");
            format!("{} {unit}", text.trim_end_matches(".0"))
        }
        None => format!("{size} B"),
    }
}

const LARGEST: u64 = 64 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, size, again) in [
            ("16M", 16 << 20, "16 MiB"),
            ("1GiB", 1 << 30, "1 GiB"),
            ("1536k", 1536 << 10, "1.5 MiB"),
            ("7", 7, "7 B"),
        ] {
            assert_eq!(parse(text), Ok(size));
            assert_eq!(shown(size), again);
        }
        for text in ["", "0", "M", "1T", "65G", "-1", "99999999999G"] {
            parse(text).expect_err(text);
        }
    }
}
