//! Links and groups, as Unix has them.

use std::os::unix::fs::{MetadataExt, chown, symlink};

use lsl_platform::files::is_group_private;

use super::*;

#[test]
fn a_place_behind_a_link_to_nothing_is_an_error() {
    let user = "home/lsl_api/lsl-secure.toml";
    let machine = Machine::new();
    fs::create_dir_all(machine.scratch.path("home/lsl_api")).unwrap();
    symlink("/none", machine.scratch.path(user)).unwrap();
    machine.refused(&[user, "cannot be read"]);
    let machine = Machine::new();
    fs::create_dir(machine.scratch.path("home")).unwrap();
    symlink("/no/such/disk", machine.scratch.path("home/lsl_api")).unwrap();
    machine.refused(&["home/lsl_api", "cannot be looked up"]);
    let machine = Machine::new();
    fs::create_dir(machine.scratch.path("home")).unwrap();
    symlink("lsl_api", machine.scratch.path("home/lsl_api")).unwrap();
    machine.refused(&[user, "cannot be looked up"]);
}

#[test]
fn no_file_where_a_group_may_have_removed_it_is_an_error() {
    for place in ["home/lsl_api", "etc/lsl_api"] {
        let machine = Machine::new();
        let file = format!("{place}/lsl_api.cfg");
        machine.scratch.write(&file, "", 0o644);
        // Files in such a folder belong to their makers.
        machine.scratch.chmod(place, 0o1777);
        assert_eq!(machine.found(), None);
        // A group of many is nobody's alone; that of one user is what most systems give to everybody.
        machine.scratch.chmod(place, 0o775);
        let metadata = fs::metadata(machine.scratch.path(place)).unwrap();
        if is_group_private(&metadata) {
            assert_eq!(machine.found(), None);
        } else {
            machine.refused(&[place, "chmod go-w"]);
        }
        let others = Some(metadata.uid() ^ 0x4000_0000);
        if chown(machine.scratch.path(place), None, others).is_ok() {
            machine.scratch.chmod(place, 0o775);
            machine.refused(&[place, "chmod go-w"]);
        }
    }
}
