#!/bin/sh
# Runs a command on a private machine, as it were: in user and mount namespaces of its own, where
# programs for aarch64 run by themselves, through qemu.
#   enter.sh QEMU COMMAND...
# The kernel keeps what binfmt_misc is told per user namespace, so nothing of this is seen outside.
set -eu

if [ "${1-}" = --inside ]; then
    shift
    until [ "$(id -u)" = 0 ]; do
        sleep 0.01
    done
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    # The header of ELF files for aarch64, as in qemu's binfmt.d. O: qemu gets the open file; P: and the
    # name it was called by; F: qemu is opened now, so that it works in any root folder.
    printf '%s' ':aarch64:M::\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$1:OPF" \
        >/proc/sys/fs/binfmt_misc/register
    shift
    exec "$@"
fi

if [ "$(id -u)" != 0 ]; then
    # Users and groups as in /etc/subuid and /etc/subgid.
    exec unshare -U -m --map-root-user --map-auto sh "$0" --inside "$@"
fi

# Whoever is in the new namespace may not say who is who there; its creator may.
own=$(readlink /proc/$$/ns/user)
(
    while [ "$(readlink /proc/$$/ns/user)" = "$own" ]; do
        sleep 0.01
    done
    echo 0 0 65536 >/proc/$$/gid_map
    echo 0 0 65536 >/proc/$$/uid_map
) &
exec unshare -U -m sh "$0" --inside "$@"
