"""Fails unless multicast of both families is delivered here, from every veth end, at LSL's groups.

Interop results mean nothing on a network that swallows discovery, so this runs before them.
"""

import socket
import struct
import sys

PORT = 16571
GROUP4 = "239.255.172.215"
GROUPS6 = ["ff02:113d:6fdd:2c17:a643:ffe2:1bd1:3cd2", "ff05:113d:6fdd:2c17:a643:ffe2:1bd1:3cd2"]


def missing4():
    """IPv4 interface addresses whose multicast did not arrive."""
    addresses = ["127.0.0.1", "10.77.0.1", "10.77.0.2"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("", PORT))
        for address in addresses:
            request = socket.inet_aton(GROUP4) + socket.inet_aton(address)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        for address in addresses:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                interface = socket.inet_aton(address)
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
                sender.sendto(address.encode(), (GROUP4, PORT))
        return set(addresses) - received(receiver, len(addresses))


def missing6(group):
    """Interface names whose IPv6 multicast to `group` did not arrive."""
    names = {name: index for index, name in socket.if_nameindex() if name in ("v0", "v1")}
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("::", PORT))
        for index in names.values():
            request = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index)
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        for name, index in names.items():
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
                sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 24)
                sender.sendto(name.encode(), (group, PORT))
        return set(names) - received(receiver, len(names))


def received(receiver, wanted):
    receiver.settimeout(2.0)
    texts = set()
    try:
        while len(texts) < wanted:
            texts.add(receiver.recvfrom(100)[0].decode())
    except TimeoutError:
        pass
    return texts


if __name__ == "__main__":
    problems = [f"{GROUP4}: {lost}" for lost in [missing4()] if lost]
    problems += [f"{group}: {lost}" for group in GROUPS6 for lost in [missing6(group)] if lost]
    sys.exit(f"multicast not delivered: {problems}" if problems else 0)
