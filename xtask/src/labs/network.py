"""Two machines on a switch: `amp` with three streams, of ours and of two real liblsl, and `rec`, where the doctor runs
as a rule. Configuration files lie where users have them."""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "relay"))
from stage import Stage, run  # noqa: E402
from lab import expect, now, until  # noqa: E402

# Where observations are kept, if they are wanted.
RECORDINGS = os.environ.get("LSL_STAGE_RECORDINGS")

# Names of the streams of `amp`.
STREAMS = ("Ours", "New", "Old")


class Network(Stage):
    def __init__(self, tools, folder, name):
        super().__init__(tools, folder, name)
        self.amp = self.host("amp", "10.50.0.1")
        self.rec = self.host("rec", "10.50.0.2")
        self.switch = self.bridges["10.50.0"]
        self.senders = []
        # Too much to be kept.
        self.is_large = False

    def host(self, name, *addresses):
        machine = self.into_its_home(self.machine(name, *addresses))
        for number, address in enumerate(addresses):
            last = address.rpartition(".")[2]
            machine.ip("address", "add", f"fd{address.split('.')[1]}::{last}/64", "dev", f"e{number}", "nodad")
        until("link-local addresses", lambda: "tentative" not in machine.ip("-6", "address"))
        return machine

    def into_its_home(self, machine):
        """Programs are started in a folder of their own, without a configuration."""
        (machine.home / "lsl_api.cfg").unlink()
        (machine.home / "work").mkdir()
        machine.enter += ["env", "-C", str(machine.home / "work")]
        return machine

    def without_ipv6(self):
        for machine in (self.amp, self.rec):
            run(*machine.enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/e0/disable_ipv6")

    def environment(self, machine=""):
        env = super().environment(machine)
        del env["LSLAPICFG"]
        env["PATH"] = f"{Path(self.tools.lsl).parent}:{env['PATH']}"
        return env

    def set_up(self, machine, text, place="lsl_api/lsl_api.cfg"):
        """A file in the home of a machine."""
        path = machine.home / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def streams(self, machine=None, names=STREAMS, channels="1", how=()):
        """Starts the senders and waits until they offer their streams."""
        machine = machine or self.amp
        for name in names:
            if name == "Ours":
                program = machine.start("gen", "--name", name, "--rate", "50", "--channels", channels)
                until(name, lambda: "Ctrl-C" in program.stderr() or not program.is_running())
            else:
                program = self.foreign(machine, name, 1, *self.library(name), *how)
            expect(program.is_running(), program)
            self.senders.append(program)

    def library(self, name):
        """What a library calls itself, and where it is."""
        return {
            "New": ("1.18", None),
            "Old": ("1.17", os.environ["LSL_STAGE_OLDER"]),
            "Ours": ("lsl-rs", self.tools.library),
        }[name]

    def foreign(self, machine, name, count, expected, library, *how):
        env = self.environment(machine.name)
        env["LSL_STAGE_EXPECT"] = expected
        if library:
            env["PYLSL_LIB"] = library
        words = [*machine.enter, self.tools.pylsl, str(HERE / "sender.py"), name, str(count), *how]
        program = self.spawn(words, env)
        until(name, lambda: program.lines or not program.is_running())
        return program

    def forty(self):
        """Starts forty outlets of the older liblsl; their names."""
        self.senders.append(self.foreign(self.amp, "O", 40, "1.17", os.environ["LSL_STAGE_OLDER"]))
        return [f"O{number}" for number in range(40)]

    def again(self):
        """Starts the senders again."""
        for program in self.senders:
            program.end()
        self.senders.clear()
        self.streams()

    def doctor(self, machine, *words, status, expected=()):
        """What the doctor says: its object. It is kept for tests that have no network."""
        start = now()
        program = machine.start("doctor", "--json", *words)
        found = program.wait()
        took = now() - start
        expect(took < 30.0, f"{took:.1f} s:", program)
        report = json.loads(program.stdout())
        expect(found == status, f"status {found}, {status} expected:", json.dumps(report, indent=1))
        if RECORDINGS and not self.is_large:
            text = json.dumps({"findings": expected, "observations": report["observations"]})
            path = Path(RECORDINGS) / f"{self.folder.name}-{machine.name}.json"
            path.write_text(text.replace(str(self.folder), "/lab") + "\n")
        return report

    def diagnosed(self, machine, finding, *words, status=1):
        """Has the doctor name this and nothing else."""
        report = self.doctor(machine, *words, status=status, expected=[finding])
        found = [each["id"] for each in report["findings"]]
        seen = json.dumps(report["observations"], indent=1)
        expect(found == [finding], f"{found}, not {finding}; notes {report['notes']}:", seen)
        return report["findings"][0]

    def type_in(self, machine, finding, answer=""):
        """Types what the doctor printed."""
        commands = [command for remedy in finding["remedies"] for command in remedy["run"]]
        expect(commands, "nothing to type:", finding)
        for command in commands:
            program = self.spawn([*machine.enter, "sh", "-c", command + answer], self.environment(machine.name))
            program.ends(0)

    def all_there(self, names=STREAMS, reads=3):
        """All streams of `amp` are found at `rec`, and some are read."""
        found = set()
        deadline = now() + 20.0
        while found != set(names):
            program = self.rec.start("list", "--json")
            program.wait()
            found = {stream["name"] for stream in json.loads(program.stdout())}
            expect(now() < deadline, f"{sorted(found)}:", program)
        for name in names[:reads]:
            self.rec.run("recv", name, "--count", "3")

    def none_there(self):
        """Nothing is found at `rec`; what is said of it."""
        return self.rec.run("list", status=3).stderr()

    def cures(self, finding, *words, machine=None):
        """The doctor names this, and what it prints puts it right."""
        self.none_there()
        machine = machine or self.rec
        found = self.diagnosed(machine, finding, *words)
        self.type_in(machine, found)
        self.all_there()

    def ports(self):
        """Those of the switch."""
        return json.loads(run("ip", "-json", "link", "show", "master", self.switch))

    def isolate(self, but):
        """Keeps all machines but this one apart; the ports of the switch that do so."""
        (face,) = json.loads(but.ip("-json", "link", "show", "e0"))
        apart = [port["ifname"] for port in self.ports() if port["ifindex"] != face["link_index"]]
        for port in apart:
            run("ip", "link", "set", port, "type", "bridge_slave", "isolated", "on")
        return apart

    def swallow(self, rules):
        """Makes the switch drop frames. Rules are those of nftables' bridges."""
        names = ", ".join(port["ifname"] for port in self.ports())
        text = f"table bridge lab{self.switch} {{ chain pass {{ type filter hook forward priority 0; "
        text += "".join(f"iifname {{ {names} }} {rule}; " for rule in rules) + "}; }"
        run("nft", "-f", "-", text=text)

    def swallow_groups(self):
        """Makes it carry no questions to groups and broadcast; neighbours still find each other."""
        v4 = ("224.0.0.0/4", "255.255.255.255", "10.50.0.255")
        self.swallow([f"ip daddr {to} drop" for to in v4] + ["ip6 daddr ff00::/8 udp dport 16571 drop"])


def ports_of(program):
    """Ports that a program has, in its network."""
    process = Path("/proc") / str(program.process.pid)
    inodes = set()
    for descriptor in (process / "fd").iterdir():
        target = os.readlink(descriptor)
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    ports = set()
    for table in ("tcp", "udp"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)
