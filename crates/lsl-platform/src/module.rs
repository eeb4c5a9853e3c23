//! The library that this code is part of, as the process has it loaded.

/// Keeps the library in the process for good: its threads would go on in code that is gone. On Unix the
/// library itself asks for that when it is linked.
#[cfg_attr(
    windows,
    expect(unsafe_code, reason = "std knows nothing of libraries")
)]
pub fn pin() {
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::LibraryLoader::{
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN,
            GetModuleHandleExW,
        };

        let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
        let within: *const u16 = (pin as *const fn()).cast();
        let mut module = std::ptr::null_mut();
        // SAFETY: an address of this library in place of a name, and room for a handle, which needs no
        // closing.
        let done = unsafe { GetModuleHandleExW(flags, within, &raw mut module) };
        debug_assert_ne!(done, 0, "the library with this code is loaded");
    }
}

/// Returns the GNU build id of the library or program that this code is part of, as its file has it; `None` where it
/// has none, or is gone since it was loaded.
pub fn build_id() -> Option<Vec<u8>> {
    #[cfg(target_os = "linux")]
    return elf::build_id();
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
mod elf {
    //! The note in which linkers leave the build id (System V ABI, "Note Section"): files of 64 bits with the byte order of
    //! all machines that we ship for.

    use std::ffi::OsStr;
    use std::fs::File;
    use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
    use std::os::unix::ffi::OsStrExt;

    pub(super) fn build_id() -> Option<Vec<u8>> {
        let own = build_id as fn() -> _ as usize as u64;
        let maps = BufReader::new(File::open("/proc/self/maps").ok()?);
        let mut lines = maps.split(b'\n').map_while(Result::ok);
        // A file that was replaced has no such name.
        let path = lines.find_map(|line| path_of(&line, own))?;
        id_of(&mut File::open(OsStr::from_bytes(&path)).ok()?)
    }

    /// Returns the file of a mapping, if `address` lies in it.
    fn path_of(line: &[u8], address: u64) -> Option<Vec<u8>> {
        // Addresses, rights, offset, device, number of the file, and its path behind blanks.
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16));
        let path = fields.nth(4)?.trim_ascii_start();
        (start.ok()?..end.ok()?)
            .contains(&address)
            .then(|| path.to_vec())
    }

    fn id_of(file: &mut (impl Read + Seek)) -> Option<Vec<u8>> {
        let mut head = [0; 64];
        file.read_exact(&mut head).ok()?;
        head.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        let table = u64::from_le_bytes(at(&head, 32)?);
        let [len, count] = [at(&head, 54)?, at(&head, 56)?].map(u16::from_le_bytes);
        for index in 0..u64::from(count.min(MAX_SEGMENTS)) {
            let start = table.checked_add(index * u64::from(len))?;
            file.seek(SeekFrom::Start(start)).ok()?;
            let mut segment = [0; 40];
            file.read_exact(&mut segment).ok()?;
            if u32::from_le_bytes(at(&segment, 0)?) != PT_NOTE {
                continue;
            }
            let [start, len] = [at(&segment, 8)?, at(&segment, 32)?].map(u64::from_le_bytes);
            file.seek(SeekFrom::Start(start)).ok()?;
            let mut notes = Vec::new();
            let mut rest = file.by_ref().take(len.min(MAX_NOTES_LEN));
            rest.read_to_end(&mut notes).ok()?;
            if let Some(id) = id_in(&notes) {
                return Some(id.to_vec());
            }
        }
        None
    }

    fn id_in(mut notes: &[u8]) -> Option<&[u8]> {
        loop {
            let [name_len, len, kind] =
                [at(notes, 0)?, at(notes, 4)?, at(notes, 8)?].map(u32::from_le_bytes);
            let [name_len, len] = [name_len, len].map(usize::try_from);
            let (name_len, len) = (name_len.ok()?, len.ok()?);
            let (name, rest) = split(notes.get(12..)?, name_len)?;
            let (content, rest) = split(rest, len)?;
            if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !content.is_empty() {
                return Some(content);
            }
            notes = rest;
        }
    }

    /// Cuts off so many bytes, and what fills them up to words.
    fn split(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
        let rest = bytes.get(len.checked_next_multiple_of(4)?..)?;
        Some((bytes.get(..len)?, rest))
    }

    fn at<const N: usize>(bytes: &[u8], start: usize) -> Option<[u8; N]> {
        bytes.get(start..)?.first_chunk().copied()
    }

    const PT_NOTE: u32 = 4;
    const NT_GNU_BUILD_ID: u32 = 3;
    const MAX_SEGMENTS: u16 = 64;
    const MAX_NOTES_LEN: u64 = 4096;

    #[cfg(test)]
    mod tests {
        use std::io::Cursor;

        use super::*;

        #[test]
        fn the_own_id_is_the_one_in_the_own_file() {
            let mut start = Vec::new();
            let file = File::open(std::env::current_exe().unwrap()).unwrap();
            // Notes lie in the first page; further back is what this test itself looks for.
            file.take(4096).read_to_end(&mut start).unwrap();
            // As linkers write it, where they are asked to.
            let head = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
            let place = start.windows(head.len()).position(|it| it == head);
            let expected = place.map(|place| start[place + head.len()..][..20].to_vec());
            assert_eq!(super::super::build_id(), expected);
        }

        #[test]
        fn whatever_lies_in_a_file_is_read_or_not() {
            let note = |name: &[u8; 4], kind: u8, content: &[u8]| {
                let len = u8::try_from(content.len()).unwrap();
                let head = [4, 0, 0, 0, len, 0, 0, 0, kind, 0, 0, 0];
                let filling = vec![0; content.len().next_multiple_of(4) - content.len()];
                [&head[..], name, content, &filling].concat()
            };
            let notes = [
                note(b"GNU\0", 5, &[9; 5]),
                note(b"Go\0\0", 3, &[8; 4]),
                note(b"GNU\0", 3, &[7; 6]),
            ];
            let notes = notes.concat();
            let mut file = b"\x7fELF\x02\x01".to_vec();
            file.resize(64 + 2 * 56, 0);
            (file[32], file[54], file[56]) = (64, 56, 2);
            let second = 64 + 56;
            (file[second], file[second + 8]) = (4, 64 + 2 * 56);
            file[second + 32] = u8::try_from(notes.len()).unwrap();
            file.extend_from_slice(&notes);
            let id = |bytes: &[u8]| id_of(&mut Cursor::new(bytes));
            assert_eq!(id(&file), Some(vec![7; 6]));
            // The last two bytes only fill it up.
            for len in 0..file.len() {
                assert_eq!(id(&file[..len]), None, "{len}");
            }
            for place in 0..file.len() {
                for byte in [0, 0x7f, 0xff] {
                    let mut changed = file.clone();
                    changed[place] = byte;
                    let _ = id(&changed);
                }
            }
        }

        #[test]
        fn mappings_name_their_files() {
            let line = b"7f00-7fff r-xp 00001000 fd:01 1234                       /a b/lib.so";
            assert_eq!(path_of(line, 0x7f00), Some(b"/a b/lib.so".to_vec()));
            assert_eq!(path_of(line, 0x7fff), None);
            assert_eq!(path_of(b"", 0), None);
            assert_eq!(path_of(b"0-1 rw-p 00000000 00:00 0", 0), None);
        }
    }
}
