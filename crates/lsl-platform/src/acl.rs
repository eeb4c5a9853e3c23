//! Rule of who may have read or changed a file, for owners and lists of access as Windows keeps them. Knows
//! only their bytes, so that lists that no file here has can be judged. Spec: LSS/1 §3.3.

use std::fmt;

use crate::access::Need;

/// Reason why a file may have been read or changed by others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It belongs to this other user.
    Owner(String),
    /// This user or group may read it.
    Read(String),
    /// This user or group may change it.
    Write(String),
    /// It has no list of access: everybody may do everything.
    NoList,
    /// Its disk knows no owners.
    NoOwners,
    /// Its list has an entry that only a later system understands, or is damaged.
    Unknown,
}

/// Judges a security descriptor (self-relative, with owner and list) for a process of `user`. Returns the
/// first reason against it.
pub(crate) fn fault(descriptor: &[u8], user: Sid<'_>, need: Need) -> Option<Fault> {
    let judged = judge(descriptor, user, need).unwrap_or(Err(Fault::Unknown));
    judged.err()
}

/// Does the work of [`fault`]. `None` for a descriptor that is damaged.
fn judge(descriptor: &[u8], user: Sid<'_>, need: Need) -> Option<Result<(), Fault>> {
    let owner = owner(descriptor)?;
    let is_trusted = |who: Sid<'_>| who == user || TRUSTED.contains(&who.0);
    // As root on Unix: what runs as the system reads the files of any user.
    if user.0 != SYSTEM && !is_trusted(owner) {
        return Some(Err(Fault::Owner(owner.to_string())));
    }
    let at = u32_at(descriptor, 16)? as usize;
    if u16_at(descriptor, 2)? & DACL_PRESENT == 0 || at == 0 {
        return Some(Err(Fault::NoList));
    }
    for entry in entries(descriptor.get(at..)?)? {
        let (kind, flags) = (*entry.first()?, *entry.get(1)?);
        let sid_at = match kind {
            ALLOWED | ALLOWED_CALLBACK => 8,
            ALLOWED_OBJECT | ALLOWED_CALLBACK_OBJECT => {
                12 + 16 * (u32_at(entry, 8)? & 3).count_ones() as usize
            }
            DENIED | DENIED_OBJECT | DENIED_CALLBACK | DENIED_CALLBACK_OBJECT => continue,
            _ => return None,
        };
        let trustee = Sid::read(entry.get(sid_at..)?)?;
        if flags & INHERIT_ONLY != 0 || is_trusted(trustee) || trustee.0 == OWNER_RIGHTS {
            continue;
        }
        let rights = specific(u32_at(entry, 4)?);
        let refused = match need {
            Need::Kept => REMOVALS,
            Need::Secret | Need::Shared => CHANGES,
        };
        if rights & refused != 0 {
            return Some(Err(Fault::Write(trustee.to_string())));
        }
        if need == Need::Secret && rights & !HARMLESS != 0 {
            return Some(Err(Fault::Read(trustee.to_string())));
        }
    }
    Some(Ok(()))
}

/// Splits a list of access into its entries. `None` for one that is damaged.
fn entries(list: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = list.get(8..u16_at(list, 2)?.into())?;
    let next = |_| {
        let (entry, others) = rest.split_at_checked(u16_at(rest, 2)?.into())?;
        rest = others;
        Some(entry)
    };
    (0..u16_at(list, 4)?).map(next).collect()
}

/// Returns the owner in a security descriptor.
pub(crate) fn owner(descriptor: &[u8]) -> Option<Sid<'_>> {
    Sid::read(descriptor.get(u32_at(descriptor, 4)? as usize..)?)
}

/// Returns whether a number is that of a program's account. Windows calls such accounts groups that are well
/// known, as it does Everyone.
pub(crate) fn is_service(sid: Sid<'_>) -> bool {
    let parts: Vec<u32> = (8..sid.0.len())
        .step_by(4)
        .filter_map(|at| u32_at(sid.0, at))
        .collect();
    // The system, the two accounts for services, and those of one service or one web application each.
    sid.0.get(2..8) == Some(&[0, 0, 0, 0, 0, 5])
        && matches!(parts[..], [18..=20] | [80 | 82, _, _, ..])
}

/// Converts rights of any object into those of files.
fn specific(rights: u32) -> u32 {
    let generic = [
        (0x8000_0000, 0x0012_0089),
        (0x4000_0000, 0x0012_0116),
        (0x2000_0000, 0x0012_00A0),
        (0x1000_0000, 0x001F_01FF),
    ];
    let mapped = generic.iter().filter(|(bit, _)| rights & bit != 0);
    mapped.fold(rights & 0x0FFF_FFFF, |all, (_, files)| all | files)
}

/// Number of a user or group, as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sid<'a>(pub(crate) &'a [u8]);

impl<'a> Sid<'a> {
    /// Reads the number at the beginning of `bytes`.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let len = 8 + 4 * usize::from(*bytes.get(1)?);
        (*bytes.first()? == 1).then_some(Self(bytes.get(..len)?))
    }
}

impl fmt::Display for Sid<'_> {
    /// Writes it as Windows does: `S-1-5-18`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, parts) = self.0.split_at_checked(8).unwrap_or_default();
        let authority = head.iter().skip(2);
        let authority = authority.fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
        write!(f, "S-1-{authority}")?;
        for part in parts.chunks_exact(4) {
            write!(f, "-{}", u32_at(part, 0).unwrap_or(0))?;
        }
        Ok(())
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// S-1-5-18: the account of the system itself.
const SYSTEM: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0];
/// S-1-3-4, whoever owns the file.
const OWNER_RIGHTS: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0];
/// Those who can take any file anyway: the system, administrators and TrustedInstaller.
const TRUSTED: [&[u8]; 3] = [
    SYSTEM,
    &[1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 32, 2, 0, 0],
    &[
        1, 6, 0, 0, 0, 0, 0, 5, 80, 0, 0, 0, 0xB5, 0x89, 0xFB, 0x38, 0x19, 0x84, 0xC2, 0xCB, 0x5C,
        0x6C, 0x23, 0x6D, 0x57, 0x00, 0x77, 0x6E, 0xC0, 0x02, 0x64, 0x87,
    ],
];

const DACL_PRESENT: u16 = 4;
const INHERIT_ONLY: u8 = 8;
const ALLOWED: u8 = 0;
const DENIED: u8 = 1;
const ALLOWED_OBJECT: u8 = 5;
const DENIED_OBJECT: u8 = 6;
const ALLOWED_CALLBACK: u8 = 9;
const DENIED_CALLBACK: u8 = 10;
const ALLOWED_CALLBACK_OBJECT: u8 = 11;
const DENIED_CALLBACK_OBJECT: u8 = 12;

/// To synchronise, and to read the list, the attributes and the extended attributes.
const HARMLESS: u32 = 0x0012_0088;
/// To write data and extended attributes, to append, to delete it or what is in a folder, and to change the
/// list and the owner.
const CHANGES: u32 = 0x000D_0056;
/// Those of them that remove what is in a folder: to delete it or all, and to change its list and its owner.
const REMOVALS: u32 = 0x000D_0040;

#[cfg(test)]
mod tests;
