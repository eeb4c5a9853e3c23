#!/bin/sh
# The other machine for the tests of `lsl deploy`: a user `lab` with an empty home, a real systemd that
# manages his services and an sshd that lets root in as him, all on this machine but in namespaces of
# their own. Nothing of it is seen outside or outlives the command. As root:
#   unshare --net --mount --pid --fork --mount-proc --kill-child sh netns.sh sh stage.sh COMMAND...
# COMMAND finds keys, logs and known hosts in $LSL_DEPLOY_STAGE.
set -eu

uid=4242
stage=/run/lsl-stage
home=/run/lab

as_lab() {
    setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all \
        env -i HOME="$home" XDG_RUNTIME_DIR="/run/user/$uid" PATH=/usr/bin:/bin "$@"
}

# Never on the system itself, which this would take apart: in /proc, too, the first process is this one.
is_on_stage() {
    tr '\0' '\n' 2>/dev/null </proc/1/cmdline | grep -qxF -e "$0"
}
if ! is_on_stage || { [ "${1-}" != --inside ] && [ "$$" != 1 ]; }; then
    echo "stage: only as the first process of namespaces of its own; see the top of $0" >&2
    exit 1
fi

# The second half, inside the control group.
if [ "${1-}" = --inside ]; then
    shift
    # Seen from here this group is the root of all groups, which the user's systemd may divide.
    umount /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    as_lab /usr/lib/systemd/systemd --user </dev/null >"$stage/systemd.log" 2>&1 &
    # As it is; a machine with another processor, as far as it says; one without systemd.
    /usr/sbin/sshd -f "$stage/sshd_config" -E "$stage/sshd.log" -p 2222
    /usr/sbin/sshd -f "$stage/sshd_config" -E "$stage/sshd.log" -p 2223 -o "SetEnv=PATH=$stage/other"
    /usr/sbin/sshd -f "$stage/sshd_config" -E "$stage/sshd.log" -p 2224 -o "SetEnv=PATH=$stage/without"
    tries=100
    until as_lab systemctl --user is-system-running >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" = 0 ]; then
            echo "stage: systemd did not come up:" >&2
            as_lab systemctl --user is-system-running >&2 || true
            cat "$stage/systemd.log" >&2
            exit 1
        fi
        sleep 0.1
    done
    export LSL_DEPLOY_STAGE="$stage"
    status=0
    "$@" || status=$?
    exit "$status"
fi

mount --make-rprivate /
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
# What the first process of a system makes for the managers of users.
mkdir -p /run/systemd/system /run/systemd/unit-root "/run/user/$uid" /run/sshd "$home" "$stage"
chown "$uid:$uid" "/run/user/$uid" "$home"
chmod 700 "/run/user/$uid"

# A configuration of its own, which tests may change.
cp -a /etc "$stage/etc"
echo "lab:x:$uid:$uid::$home:/bin/sh" >>"$stage/etc/passwd"
echo "lab:x:$uid:" >>"$stage/etc/group"
mount --bind "$stage/etc" /etc

for key in host_key key stranger; do
    ssh-keygen -q -t ed25519 -N '' -C "$key" -f "$stage/$key"
done
cp "$stage/key.pub" "$stage/authorized_keys"
for port in 2222 2223 2224; do
    echo "[127.0.0.1]:$port $(cat "$stage/host_key.pub")" >>"$stage/known_hosts"
done
echo "[127.0.0.1]:2222 $(cat "$stage/stranger.pub")" >"$stage/known_otherwise"
cat >"$stage/sshd_config" <<END
ListenAddress 127.0.0.1
HostKey $stage/host_key
AuthorizedKeysFile $stage/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
END
mkdir "$stage/other" "$stage/without"
for tool in /usr/bin/*; do
    name=${tool##*/}
    [ "$name" = uname ] || ln -s "$tool" "$stage/other/$name"
    [ "$name" = systemctl ] || ln -s "$tool" "$stage/without/$name"
done
cat >"$stage/other/uname" <<'END'
#!/bin/sh
if [ "$*" = -m ]; then echo aarch64; else exec /usr/bin/uname "$@"; fi
END
chmod 755 "$stage/other/uname" "$stage"
chmod 644 "$stage/authorized_keys"

group=/sys/fs/cgroup/lsl-deploy-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
mkdir "$group" "$group/all"
chown -R "$uid:$uid" "$group"
status=0
sh -c 'echo $$ >"$1/all/cgroup.procs"; shift; exec unshare --cgroup --mount sh "$@"' \
    sh "$group" "$0" --inside "$@" || status=$?
# This is the first process of its namespace: all others are of the stage.
kill -9 -1 2>/dev/null || true
tries=50
while [ -d "$group" ] && [ "$tries" -gt 0 ]; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    tries=$((tries - 1))
done
exit "$status"
