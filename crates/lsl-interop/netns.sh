#!/bin/sh
# Lays out the network inside a fresh network namespace, then runs the given command in it:
#   unshare -n  sh netns.sh COMMAND...      as root
#   unshare -rn sh netns.sh COMMAND...      as anybody else
# A veth pair, because the kernel does not deliver IPv6 multicast on `lo`.
set -eu

ip link set lo up
ip link add v0 type veth peer name v1
for end in v0 v1; do
    # Skip the two seconds of duplicate address detection where /proc lets us; wait for it below.
    echo 0 2>/dev/null >"/proc/sys/net/ipv6/conf/$end/accept_dad" || true
done
ip address add 10.77.0.1/24 dev v0
ip address add 10.77.0.2/24 dev v1
ip address add fd77::1/64 dev v0 nodad
ip address add fd77::2/64 dev v1 nodad
ip link set v0 up
ip link set v1 up
# For sockets that name no interface; the kernel adds the ff00::/8 routes by itself.
ip route add 224.0.0.0/4 dev v0

tries=50
while [ -n "$(ip -6 address show tentative)" ] && [ "$tries" -gt 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
done

exec "$@"
