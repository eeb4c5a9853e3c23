#!/bin/sh
# Runs a command in a root folder, with a layer in memory above it that takes what is written. Only to
# be run in a mount namespace of its own.
#   stage.sh ROOT SHARE PLACE COMMAND...
# SHARE is what the command finds in /mnt, PLACE an empty folder to mount things at.
set -eu

root=$1
share=$2
place=$3
shift 3
mount -t tmpfs -o size=2g,mode=755 scratch "$place"
mkdir "$place/upper" "$place/work" "$place/root"
layers=lowerdir=$root,upperdir=$place/upper,workdir=$place/work,userxattr
mount -t overlay -o "$layers" overlay "$place/root"
mount --rbind /proc "$place/root/proc"
mount --rbind /dev "$place/root/dev"
mount --bind "$share" "$place/root/mnt"
exec chroot "$place/root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
