#!/bin/sh
# Two machines on one wire, and what `lsl bench net` measures between them:
#   unshare -n -p -f --kill-child --mount-proc sh wire.sh BENCH PROFILE FOLDER WORDS...
# PROFILE is one of `lsl bench wire`, WORDS stand behind `lsl bench net client HOST`. FOLDER is made: each machine has
# its home there, with keys that trust each other. What fails in between fails all of it.
set -eu

bench=$1 profile=$2 folder=$3
shift 3
here=10.78.0.1 there=10.78.0.2
mkdir -p "$folder/a" "$folder/b"
unset LSLAPICFG LSL_SECURE_CONFIG XDG_CONFIG_HOME

# What is started here ends with the process namespace.
# Waits up to half a minute until a command succeeds.
until_true() {
    tries=600
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { echo "wire.sh: in vain: $*" >&2; exit 1; }
        sleep 0.05
    done
}

ip link set lo up
"$bench" wire lsla lslb --profile "$profile" &
unshare -n sleep infinity &
other=$!
until_true ip link show lslb
own=$(readlink /proc/self/ns/net)
moved() { [ "$(readlink "/proc/$other/ns/net")" != "$own" ]; }
until_true moved
ip link set lslb netns "$other"

a() { HOME="$folder/a" "$@"; }
b() { HOME="$folder/b" nsenter -t "$other" -n "$@"; }
machine() { # WHO DEVICE ADDRESS
    "$1" ip link set lo up
    "$1" ip address add "$3/24" dev "$2"
    "$1" ip link set "$2" up
    "$1" ip route add 224.0.0.0/4 dev "$2"
}
machine a lsla "$here"
machine b lslb "$there"

for who in a b; do "$who" "$bench" lsl key init >/dev/null; done
a "$bench" lsl trust add there "$(b "$bench" lsl key show --public)" >/dev/null
b "$bench" lsl trust add here "$(a "$bench" lsl key show --public)" >/dev/null

# Queries by multicast pass.
HOME="$folder/b" nsenter -t "$other" -n "$bench" lsl gen --name over-the-wire >/dev/null 2>&1 &
generator=$!
found() { a "$bench" lsl list --json | grep -q over-the-wire; }
until_true found
kill "$generator"

b "$bench" net server >/dev/null 2>&1 &
listens() { grep -q ':4132 .* 0A ' "/proc/$other/net/tcp" "/proc/$other/net/tcp6"; }
until_true listens
a "$bench" net client "$there" "$@"
