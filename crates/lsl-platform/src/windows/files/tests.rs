use std::fs;

use super::*;

#[test]
fn private_files_are_for_their_user_alone() {
    let folder = std::env::temp_dir().join(format!("lsl-files-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    create_directory(&folder, Who::Owner).unwrap();
    let path = folder.join("it");
    let mut made = create_new(&path, Who::Owner).unwrap();
    io::Write::write_all(&mut made, b"text").unwrap();
    assert_eq!(
        create_new(&path, Who::Owner).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
    let file = File::open(&path).unwrap();
    for need in [Need::Secret, Need::Shared] {
        assert_eq!(exposed(&file, &path, need).unwrap(), None);
    }
    drop((file, made));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_an_administrator_makes_for_a_folder_is_its_owner_s_too() {
    let user = user().unwrap();
    let (user, other) = (Sid::read(&user).unwrap(), "S-1-5-21-1-2-3-1001");
    let check = |other: &str, expected: Option<Fault>| {
        let owned = Descriptor::shared(&user.to_string(), other).unwrap();
        assert_eq!(fault(&owned.bytes(), user, Need::Secret), expected);
    };
    check(&user.to_string(), None);
    check(other, Some(Fault::Write(other.into())));
}

#[test]
fn two_handles_are_of_one_file_by_the_short_numbers_too() {
    let path = |name| std::env::temp_dir().join(format!("lsl-{name}-{}", std::process::id()));
    let (one, other) = (path("one"), path("other"));
    let open = |path| short_identity(&File::open(path).unwrap()).unwrap();
    for path in [&one, &other] {
        fs::write(path, "").unwrap();
    }
    assert!(open(&one).is_same(open(&one)) && !open(&one).is_same(open(&other)));
    fs::remove_file(one).unwrap();
    fs::remove_file(other).unwrap();
}

#[test]
fn groups_are_no_owners() {
    for (name, is_owner) in [("SYSTEM", true), ("Everyone", false), ("Users", false)] {
        assert_eq!(Owner::named(name).is_some(), is_owner, "{name}");
    }
}

#[test]
fn the_user_has_a_number() {
    let user = user().unwrap();
    assert_eq!(Sid::read(&user).map(|sid| sid.0.len()), Some(user.len()));
}
