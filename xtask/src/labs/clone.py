"""Answers questions as the first stream of HOST does, from a machine with another name: `clone.py HOST`. What a cloned
machine says of its running program; liblsl itself never shares a uid."""

import re
import socket
import struct
import sys

GROUPS = ("224.0.0.1", "224.0.0.183", "239.255.172.215")

with socket.create_connection((sys.argv[1], 16572), 5.0) as stream:
    stream.sendall(b"LSL:shortinfo\r\n\r\n")
    info = b"".join(iter(lambda: stream.recv(65536), b""))
info = re.sub(rb"(<hostname>)[^<]*", rb"\1other-pc", info)
answering = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
answering.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
answering.bind(("", 16571))
for group in GROUPS:
    membership = struct.pack("4s4s", socket.inet_aton(group), socket.inet_aton("0.0.0.0"))
    answering.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
print("ready", flush=True)
while True:
    question, (host, _) = answering.recvfrom(65536)
    port, number = question.split(b"\r\n")[2].split()
    answering.sendto(number + b"\r\n" + info, (host, int(port)))
