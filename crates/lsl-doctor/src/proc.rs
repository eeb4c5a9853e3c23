//! Texts of Linux' `/proc`: which ports listen, what programs have loaded and may open.

/// Reads port and inode of the listening sockets of `/proc/net/tcp` or `tcp6`.
pub fn listening(text: &str) -> Vec<(u16, u64)> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let port = fields.get(1)?.rsplit_once(':')?.1;
        let port = u16::from_str_radix(port, 16).ok()?;
        let inode = fields.get(9)?.parse().ok()?;
        (*fields.get(3)? == "0A").then_some((port, inode))
    };
    text.lines().filter_map(read).collect()
}

/// Reads from `/proc/PID/limits` how many descriptors the program may have now.
pub fn soft_limit(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|it| it.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Reads from `/proc/PID/maps` which liblsl is loaded, if the name of its file says so.
pub fn library_version(text: &str) -> Option<String> {
    let read = |line: &str| {
        let file = line.rsplit_once('/')?.1;
        let version = file.strip_prefix("liblsl")?.split_once(".so.")?.1;
        let is_version = version.starts_with("1.")
            && version.len() <= 16
            && version.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        is_version.then(|| version.to_owned())
    };
    text.lines().find_map(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_limits_and_libraries() {
        let text = "  0: 00000000:40BC 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1 ffff 100 0 0 10 0\n\
            1: 0100007F:40BC 0100007F:8000 01 00000000:00000000 00:00000000 00000000 0 0 78 1 ffff 20 0 0 10 -1\n x\n";
        assert_eq!(listening(text), [(16572, 77)]);
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(soft_limit("Max open files  unlimited"), None);
        for (file, expected) in [
            ("/x/liblsl.so.1.17.7", Some("1.17.7")),
            ("/x/liblsl64.so.1.16.2", Some("1.16.2")),
            ("/x/liblsl.so.2", None),
            ("/x/liblsl.so.1.evil", None),
            ("[heap]", None),
        ] {
            let line = format!("7f00-7f01 r--p 00000000 00:20 12   {file}\n");
            assert_eq!(library_version(&line).as_deref(), expected, "{file}");
        }
    }
}
