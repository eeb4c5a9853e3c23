use super::*;

const READ: u32 = 0x0012_0089;
const MODIFY: u32 = 0x0013_01BF;
const ALL: u32 = 0x001F_01FF;
const GENERIC_READ: u32 = 0x8000_0000;
const GENERIC_WRITE: u32 = 0x4000_0000;
const GENERIC_EXECUTE: u32 = 0x2000_0000;
const GENERIC_ALL: u32 = 0x1000_0000;

const USER: &str = "S-1-5-21-1-2-3-1001";
const OTHER: &str = "S-1-5-21-1-2-3-1002";
const LOCAL_SYSTEM: &str = "S-1-5-18";
const ADMINISTRATORS: &str = "S-1-5-32-544";
const INSTALLER: &str = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464";
const USERS: &str = "S-1-5-32-545";
const EVERYONE: &str = "S-1-1-0";
const CREATOR_OWNER: &str = "S-1-3-0";
const OWNER: &str = "S-1-3-4";

fn sid(text: &str) -> Vec<u8> {
    let mut numbers = text
        .split('-')
        .skip(2)
        .map(|part| part.parse::<u64>().unwrap());
    let authority = numbers.next().unwrap();
    let parts: Vec<u64> = numbers.collect();
    let mut bytes = vec![1, u8::try_from(parts.len()).unwrap()];
    bytes.extend_from_slice(&authority.to_be_bytes()[2..]);
    for part in parts {
        bytes.extend_from_slice(&u32::try_from(part).unwrap().to_le_bytes());
    }
    bytes
}

fn entry(kind: u8, flags: u8, rights: u32, who: &str) -> Vec<u8> {
    let object: &[u8] = match kind {
        // With both of the numbers that such an entry may have, or with the second one.
        ALLOWED_OBJECT | DENIED_OBJECT => &[3, 0, 0, 0],
        ALLOWED_CALLBACK_OBJECT | DENIED_CALLBACK_OBJECT => &[2, 0, 0, 0],
        _ => &[],
    };
    let numbers = match object.first() {
        Some(3) => 32,
        Some(_) => 16,
        None => 0,
    };
    let rest = [object, &vec![7; numbers], &sid(who)].concat();
    let len = u16::try_from(8 + rest.len()).unwrap().to_le_bytes();
    [&[kind, flags], &len[..], &rights.to_le_bytes(), &rest].concat()
}

fn descriptor(owner: &str, entries: Option<&[Vec<u8>]>) -> Vec<u8> {
    let owner = sid(owner);
    let list = entries.map(|entries| {
        let body = entries.concat();
        let len = u16::try_from(8 + body.len()).unwrap().to_le_bytes();
        let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
        [&[2, 0], &len[..], &count, &[0, 0], &body].concat()
    });
    let control = 0x8000_u16 | if list.is_some() { DACL_PRESENT } else { 0 };
    let list_at = list.as_ref().map_or(0, |_| 20 + owner.len());
    let mut bytes = vec![1, 0];
    bytes.extend_from_slice(&control.to_le_bytes());
    for at in [20, 0, 0, list_at] {
        bytes.extend_from_slice(&u32::try_from(at).unwrap().to_le_bytes());
    }
    [bytes, owner, list.unwrap_or_default()].concat()
}

/// Judges a list of plain entries for [`USER`], once for each need.
fn both(owner: &str, entries: &[(u32, &str)]) -> [Option<Fault>; 2] {
    let entries: Vec<_> = entries
        .iter()
        .map(|&(rights, who)| entry(ALLOWED, 0, rights, who))
        .collect();
    of_entries(owner, USER, &entries)
}

fn of_entries(owner: &str, user: &str, entries: &[Vec<u8>]) -> [Option<Fault>; 2] {
    let (descriptor, user) = (descriptor(owner, Some(entries)), sid(user));
    let user = Sid::read(&user).unwrap();
    [Need::Secret, Need::Shared].map(|need| fault(&descriptor, user, need))
}

fn read(who: &str) -> Fault {
    Fault::Read(who.to_owned())
}

fn write(who: &str) -> [Option<Fault>; 2] {
    [(); 2].map(|()| Some(Fault::Write(who.to_owned())))
}

const FINE: [Option<Fault>; 2] = [None, None];

#[test]
fn owners_are_this_user_and_those_who_can_take_any_file() {
    for owner in [USER, LOCAL_SYSTEM, ADMINISTRATORS, INSTALLER] {
        assert_eq!(both(owner, &[(ALL, USER)]), FINE, "{owner}");
    }
    for owner in [OTHER, USERS, EVERYONE, CREATOR_OWNER, OWNER] {
        let reason = Some(Fault::Owner(owner.to_owned()));
        assert_eq!(
            both(owner, &[(ALL, USER)]),
            [reason.clone(), reason],
            "{owner}"
        );
    }
    let of_other = [entry(ALLOWED, 0, ALL, LOCAL_SYSTEM)];
    assert_eq!(of_entries(OTHER, LOCAL_SYSTEM, &of_other), FINE);
}

#[test]
fn those_who_may_do_everything_are_this_user_and_those_who_can_take_any_file() {
    let home = [(ALL, LOCAL_SYSTEM), (ALL, ADMINISTRATORS), (ALL, USER)];
    assert_eq!(both(USER, &home), FINE);
    assert_eq!(both(USER, &[(ALL, INSTALLER), (GENERIC_ALL, OWNER)]), FINE);
    assert_eq!(both(USER, &[]), FINE);
    for who in [OTHER, USERS, EVERYONE] {
        for rights in [ALL, MODIFY, GENERIC_ALL, GENERIC_WRITE] {
            assert_eq!(
                both(USER, &[(ALL, USER), (rights, who)]),
                write(who),
                "{rights:x} {who}"
            );
        }
    }
}

#[test]
fn others_read_what_is_shared_and_nothing_that_is_secret() {
    for rights in [
        READ,
        GENERIC_READ,
        GENERIC_EXECUTE,
        1,
        0x20,
        0x0100,
        0x0100_0000,
    ] {
        assert_eq!(
            both(USER, &[(rights, USERS)]),
            [Some(read(USERS)), None],
            "{rights:x}"
        );
    }
    for rights in [0, 8, 0x80, 0x0002_0000, 0x0010_0000, 0x0012_0088] {
        assert_eq!(both(USER, &[(rights, EVERYONE)]), FINE, "{rights:x}");
    }
    for right in [2, 4, 0x10, 0x40, 0x0001_0000, 0x0004_0000, 0x0008_0000] {
        assert_eq!(both(USER, &[(right, OTHER)]), write(OTHER), "{right:x}");
    }
}

#[test]
fn folders_that_lack_a_file_may_be_added_to() {
    let of = |owner, rights, who| {
        let bytes = descriptor(owner, Some(&[entry(ALLOWED, 0, rights, who)]));
        fault(&bytes, Sid::read(&sid(USER)).unwrap(), Need::Kept)
    };
    // What everybody has in %ProgramData%: to read and to add.
    for rights in [READ, 2, 4, 0x10, 0x0012_01BF] {
        assert_eq!(of(USER, rights, USERS), None, "{rights:x}");
    }
    for right in [0x40, 0x0001_0000, 0x0004_0000, 0x0008_0000, GENERIC_ALL] {
        let reason = Some(Fault::Write(USERS.to_owned()));
        assert_eq!(of(USER, right, USERS), reason, "{right:x}");
    }
    let foreign = Some(Fault::Owner(OTHER.to_owned()));
    assert_eq!(of(OTHER, 0, USERS), foreign);
}

#[test]
fn kinds_of_entries_that_allow_count_and_those_that_deny_or_are_for_others_do_not() {
    for kind in [
        ALLOWED,
        ALLOWED_OBJECT,
        ALLOWED_CALLBACK,
        ALLOWED_CALLBACK_OBJECT,
    ] {
        let entries = [entry(kind, 0, READ, OTHER)];
        assert_eq!(
            of_entries(USER, USER, &entries),
            [Some(read(OTHER)), None],
            "{kind}"
        );
        let inherited = [entry(kind, 0x10, ALL, OTHER)];
        assert_eq!(of_entries(USER, USER, &inherited), write(OTHER), "{kind}");
        let inherit_only = [entry(kind, INHERIT_ONLY | 3, ALL, CREATOR_OWNER)];
        assert_eq!(of_entries(USER, USER, &inherit_only), FINE, "{kind}");
    }
    for kind in [
        DENIED,
        DENIED_OBJECT,
        DENIED_CALLBACK,
        DENIED_CALLBACK_OBJECT,
    ] {
        let entries = [entry(kind, 0, ALL, EVERYONE), entry(ALLOWED, 0, ALL, USER)];
        assert_eq!(of_entries(USER, USER, &entries), FINE, "{kind}");
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    let unknown = [(); 2].map(|()| Some(Fault::Unknown));
    for kind in [2, 3, 4, 7, 8, 13, 17, 255] {
        let entries = [entry(kind, 0, READ, USER)];
        assert_eq!(of_entries(USER, USER, &entries), unknown, "{kind}");
    }
    let user = sid(USER);
    let user = Sid::read(&user).unwrap();
    let no_list = fault(&descriptor(USER, None), user, Need::Shared);
    assert_eq!(no_list, Some(Fault::NoList));
    let whole = descriptor(
        USER,
        Some(&[entry(ALLOWED, 0, ALL, USER), entry(ALLOWED, 0, 0, USERS)]),
    );
    assert_eq!(fault(&whole, user, Need::Secret), None);
    for len in 0..whole.len() {
        let cut = fault(&whole[..len], user, Need::Secret);
        assert_eq!(cut, Some(Fault::Unknown), "{len}");
    }
}

#[test]
fn numbers_of_users_are_written_as_everywhere() {
    for text in [USER, LOCAL_SYSTEM, INSTALLER, EVERYONE] {
        assert_eq!(Sid::read(&sid(text)).unwrap().to_string(), text);
    }
    let trusted = [LOCAL_SYSTEM, ADMINISTRATORS, INSTALLER];
    assert!(
        TRUSTED
            .iter()
            .zip(trusted)
            .all(|(bytes, text)| *bytes == sid(text))
    );
    assert!(OWNER_RIGHTS == sid(OWNER));
}

#[test]
fn services_are_told_from_groups() {
    let check = |text: &str| is_service(Sid(&sid(text)));
    for service in [
        LOCAL_SYSTEM,
        "S-1-5-19",
        "S-1-5-20",
        INSTALLER,
        "S-1-5-82-3006700770-424185619-1745488364-794895919-4004696415",
    ] {
        assert!(check(service), "{service}");
    }
    // The last ones are interactive users, all services, and all web applications.
    for group in [
        USER,
        USERS,
        EVERYONE,
        ADMINISTRATORS,
        CREATOR_OWNER,
        OWNER,
        "S-1-5-4",
        "S-1-5-80-0",
        "S-1-5-82-0",
    ] {
        assert!(!check(group), "{group}");
    }
}
