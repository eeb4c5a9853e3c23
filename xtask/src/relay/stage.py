"""Machines in network namespaces, each with a clock, a home and keys of its own, and the subnets between
them. Multicast stays within a subnet; routers forward what their rules say."""

import ctypes
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "recorder"))
from lab import Lab, expect, now, until  # noqa: E402

IS_LONG = os.environ["LSL_STAGE_SCOPE"] == "all"
PEER = HERE.parents[2] / "crates/lsl-interop/pylsl_peer.py"
PORT = 16570
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)

# Of bridges, and of what is plugged into them.
NUMBER = itertools.count(1)


def run(*words, text=None):
    done = subprocess.run(list(map(str, words)), input=text, capture_output=True, text=True)
    expect(done.returncode == 0, " ".join(map(str, words)), done.stderr)
    return done.stdout


def seconds(text):
    return struct.unpack(">d", bytes.fromhex(text))[0]


class Stage(Lab):
    """The machines and subnets of a scene; both end with it."""

    def __init__(self, tools, folder, name):
        super().__init__(tools, folder, name)
        self.bridges = {}
        self.machines = []

    def machine(self, name, *addresses, clock=0.0, gateway=None):
        """A machine with these addresses (IPv4, /24), whose clock is `clock` seconds ahead of this one's."""
        machine = Machine(self, name, clock)
        self.machines.append(machine)
        for address in addresses:
            machine.join(address)
        if gateway:
            machine.ip("route", "add", "default", "via", gateway)
        return machine

    def router(self, name, *addresses, rules="policy accept;", nat=""):
        """A router between the subnets of these addresses, which forwards by rules of nftables."""
        router = self.machine(name, *addresses)
        table = f"table ip lab {{ chain pass {{ type filter hook forward priority 0; {rules} }}; {nat} }}"
        run(*router.enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        router.nft(table)
        return router

    def bridge(self, subnet):
        if subnet not in self.bridges:
            bridge = self.bridges[subnet] = f"br{next(NUMBER)}"
            run("ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", 0)
            run("ip", "link", "set", bridge, "up")
        return self.bridges[subnet]

    def trust(self, one, other, role="relay"):
        """Two machines with keys trust each other, as `role`."""
        for here, there in ((one, other), (other, one)):
            key = there.run("key", "show", "--public").stdout().strip()
            here.run("trust", "add", there.name, key, "--role", role)

    def environment(self, machine=""):
        env = super().environment(machine)
        env["LSLAPICFG"] = str(self.folder / machine / "lsl_api.cfg")
        return env

    def __exit__(self, *what):
        super().__exit__(*what)
        for machine in self.machines:
            machine.holder.kill()
            machine.holder.wait()
        for bridge in self.bridges.values():
            run("ip", "link", "delete", bridge)


class Machine:
    def __init__(self, stage, name, clock):
        self.stage, self.name, self.clock = stage, name, clock
        self.faces = 0
        self.home = stage.folder / name
        self.home.mkdir()
        self.configure("")
        words = ["unshare", "--net", "--time", "--monotonic", str(int(clock)), "--fork", "--kill-child"]
        words += ["sh", "-c", "echo $$; exec sleep infinity"]
        self.holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.pid = int(self.holder.stdout.readline())
        self.holder.stdout.close()
        self.enter = ["nsenter", "-t", str(self.pid), "--net", "--time", "--no-fork"]
        self.ip("link", "set", "lo", "up")

    def join(self, address):
        """Plugs a cable into the bridge of the subnet."""
        plug, face = f"p{next(NUMBER)}", f"e{self.faces}"
        bridge = self.stage.bridge(address.rpartition(".")[0])
        run("ip", "link", "add", plug, "type", "veth", "peer", "name", face, "netns", self.pid)
        # Without two seconds of duplicate address detection.
        run(*self.enter, "sh", "-c", f"echo 0 > /proc/sys/net/ipv6/conf/{face}/accept_dad")
        run("ip", "link", "set", plug, "master", bridge, "up")
        self.ip("address", "add", f"{address}/24", "dev", face)
        self.ip("link", "set", face, "up")
        if not self.faces:
            self.ip("route", "add", "224.0.0.0/4", "dev", face)
        self.faces += 1

    def ip(self, *words):
        return run(*self.enter, "ip", *words)

    def nft(self, text):
        return run(*self.enter, "nft", "-f", "-", text=text)

    def packets(self):
        """What the counters of this router's rules say."""
        chain = json.loads(run(*self.enter, "nft", "--json", "list", "chain", "ip", "lab", "pass"))
        parts = [part for entry in chain["nftables"] for part in entry.get("rule", {}).get("expr", [])]
        return sum(part["counter"]["packets"] for part in parts if "counter" in part)

    def reaches(self, address):
        """Whether the port of a relay there can be dialled."""
        with self.socket() as stream:
            try:
                stream.connect((address, PORT))
            except OSError:
                return False
        return True

    def configure(self, text):
        """Writes lsl_api.cfg."""
        (self.home / "lsl_api.cfg").write_text(text)

    def key(self, policy):
        """A key, and this line in place of the policy."""
        self.run("key", "init", "--name", self.name)
        file = self.home / "lsl_api/lsl-secure.toml"
        text = file.read_text()
        expect(text.count('policy = "required"\n') == 1, text)
        file.write_text(text.replace('policy = "required"\n', policy + "\n"))
        return self

    def start(self, *words):
        """Starts `lsl`."""
        return self.stage.start(*words, machine=self.name, prefix=self.enter)

    def run(self, *words, status=0, says=()):
        """Runs `lsl` to its end."""
        return self.start(*words).ends(status, says)

    def relay(self, *words):
        """Starts a relay and waits until it listens."""
        relay = self.start("relay", "--name", self.name, *words)
        until("relay", lambda: "Relay " in relay.stderr() or not relay.is_running())
        expect(relay.is_running(), relay)
        return relay

    def peer(self, ours=False):
        """Starts a program with pylsl, on real liblsl or on our library."""
        return Peer(self, ours)

    def socket(self):
        """A TCP socket on this machine."""
        with open("/proc/thread-self/ns/net") as here, open(f"/proc/{self.pid}/ns/net") as there:
            expect(LIBC.setns(there.fileno(), CLONE_NEWNET) == 0, "setns")
            try:
                made = socket.socket()
            finally:
                expect(LIBC.setns(here.fileno(), CLONE_NEWNET) == 0, "setns")
        made.settimeout(5.0)
        return made

    def status(self):
        """What the relay of this machine says, as `lsl relay status --json`; None if it does not answer."""
        try:
            with self.socket() as stream:
                stream.connect(("127.0.0.1", PORT))
                stream.sendall(b"LSL:relay-status/1\r\n")
                with stream.makefile() as answer:
                    return json.load(answer)
        except (OSError, ValueError):
            return None

    def knows(self, what="name"):
        """Names of the streams that the relay of this machine knows, sorted."""
        status = self.status() or {"streams": []}
        return sorted(entry[what] for entry in status["streams"])

    def now(self):
        """The time on this machine's clock."""
        return now() + self.clock


class Peer:
    """A program that makes outlets and inlets by pylsl as it is told (`crates/lsl-interop/pylsl_peer.py`)."""

    def __init__(self, machine, ours):
        stage = machine.stage
        env = stage.environment(machine.name)
        if ours:
            env["PYLSL_LIB"] = stage.tools.library
        self.machine = machine
        self.program = stage.spawn([*machine.enter, stage.tools.pylsl, str(PEER)], env)
        self.requests = itertools.count(1)
        self.seen = 0
        self.replies = {}
        about = self.call("hello")["info"]
        expect(("lsl-rs" if ours else "1.18") in about, about)

    def send(self, cmd, **request):
        """Sends a request without waiting; its number."""
        number = next(self.requests)
        self.program.process.stdin.write(json.dumps({"id": number, "cmd": cmd, **request}) + "\n")
        self.program.process.stdin.flush()
        return number

    def reply(self, number, limit=30.0):
        def has_come():
            lines = self.program.lines
            while self.seen < len(lines):
                reply = json.loads(lines[self.seen][1])
                self.replies[reply["id"]] = reply
                self.seen += 1
            return number in self.replies or not self.program.is_running()

        until(f"reply to request {number}", has_come, limit, step=0.002)
        expect(number in self.replies, self.program)
        reply = self.replies.pop(number)
        expect("error" not in reply, self.machine.name, reply)
        return reply

    def call(self, cmd, **request):
        return self.reply(self.send(cmd, **request))

    def outlet(self, name, form="float32", channels=1, rate=0.0):
        return Outlet(self, name, form, channels, rate)

    def streams(self, seconds=2.0):
        """All that is found in so many seconds: names with what is known of each."""
        infos = self.call("resolve", predicate="channel_count>0", minimum=512, timeout=seconds)["infos"]
        found = {}
        for info in infos:
            found.setdefault(info["name"], []).append(info)
        return found

    def finds(self, names, what="streams", limit=20.0, seconds=1.0):
        """Waits until exactly these are found, each once; what is known of them."""
        deadline = now() + limit
        while True:
            found = self.streams(seconds)
            each = {name: len(infos) for name, infos in found.items()}
            if each == dict.fromkeys(names, 1):
                return {name: infos[0] for name, infos in found.items()}
            expect(now() < deadline, f"{what} on {self.machine.name}: {each}, not {sorted(names)}")

    def inlet(self, info):
        inlet = self.call("inlet", info=info["info"])["inlet"]
        self.call("open", inlet=inlet, timeout=20.0)
        return Inlet(self, inlet, info["name"])


class Outlet:
    """An outlet and all that was pushed into it: stamps and values in hex, sample by sample."""

    def __init__(self, peer, name, form, channels, rate):
        self.peer, self.name, self.form, self.channels = peer, name, form, channels
        self.pushed = []
        self.number = peer.call(
            "outlet", name=name, type="lab", channels=channels, rate=rate, format=form,
            source_id=f"{name}-{peer.machine.name}", desc=[["unit", "Ä <&>", []]], flags=0,
        )["outlet"]  # fmt: skip

    def push(self, stamps, values):
        """Pushes a chunk of samples; `values` is the hex of each."""
        stamps = [struct.pack(">d", stamp).hex() for stamp in stamps]
        data = [text for sample in values for text in sample] if self.form == "string" else "".join(values)
        self.peer.call("push_chunk", outlet=self.number, data=data, stamps=stamps)
        self.pushed += zip(stamps, values)

    def wait_for_reader(self):
        expect(self.peer.call("consumers", outlet=self.number, timeout=20.0)["found"], self.name)

    def close(self):
        self.peer.call("close", handle=self.number)


class Inlet:
    """An inlet and all that came, in the form of `Outlet.pushed`."""

    def __init__(self, peer, number, name):
        self.peer, self.number, self.name = peer, number, name
        self.received = []

    def pull(self, timeout=0.1):
        """How many samples came."""
        reply = self.peer.call("pull_chunk", inlet=self.number, samples=1024, timeout=timeout)
        data, stamps = reply["data"], reply["stamps"]
        each = len(data) // len(stamps) if stamps else 0
        values = [data[at * each : (at + 1) * each] for at in range(len(stamps))]
        self.received += zip(stamps, values)
        return len(stamps)

    def ask_clock(self):
        """Asks for the offset to this machine's clock; the number of the request."""
        return self.peer.send("time_correction", inlet=self.number, timeout=20.0)
