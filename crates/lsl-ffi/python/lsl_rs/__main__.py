"""``python -m lsl_rs doctor``: which LSL library do this Python's packages really use?"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys

import lsl_rs

# A package, and how it says its own version and that of the library it has loaded.
PACKAGES = {
    "pylsl": "import pylsl; version = pylsl.__version__; library = pylsl.library_version()",
    "mne_lsl": (
        "import mne_lsl.lsl; version = mne_lsl.__version__;"
        " library = mne_lsl.lsl.library_version()"
    ),
}

# Said by a Python of its own, started as users start theirs: what is loaded there does not depend on
# what is loaded here, a package that cannot be imported ends only that one, and what a library logs
# stays there.
PROBE = """
import json, os, re, sys
{imports}
def loaded():
    if sys.platform.startswith("linux"):
        with open("/proc/self/maps") as maps:
            return {{line.split(None, 5)[5].strip() for line in maps if "/" in line}}
    import ctypes as c
    if sys.platform == "darwin":
        name = c.CDLL(None)._dyld_get_image_name
        name.restype = c.c_char_p
        images = map(name, range(c.CDLL(None)._dyld_image_count()))
        return {{os.fsdecode(image) for image in images if image}}
    kernel = c.WinDLL("kernel32")
    kernel.GetCurrentProcess.restype = c.c_void_p
    this, modules, size = c.c_void_p(kernel.GetCurrentProcess()), (c.c_void_p * 4096)(), c.c_uint32()
    kernel.K32EnumProcessModules(this, modules, c.sizeof(modules), c.byref(size))
    name = c.create_unicode_buffer(32768)
    files = set()
    for module in modules[: size.value // c.sizeof(c.c_void_p)]:
        if kernel.GetModuleFileNameW(c.c_void_p(module), name, len(name)):
            files.add(name.value)
    return files
# On macOS also that of a framework, which is called `lsl`.
ends = r"(lib)?lsl(64)?(-debug)?([.](so([.]|$)|dll$|([\\d.]+[.])?dylib$)|$)"
is_library = re.compile(ends, re.I).match
files = sorted(file for file in loaded() if is_library(os.path.basename(file)))
print(json.dumps({{"version": version, "library_version": str(library), "files": files}}))
"""

SECURITY = """
import ctypes
library = ctypes.CDLL(%r)
library.lslx_security_text.restype = ctypes.c_char_p
print((library.lslx_security_text() or b"unknown").decode("utf-8", "replace"))
"""


def main():
    parser = argparse.ArgumentParser(
        prog="python -m lsl_rs",
        description="The Lab Streaming Layer library of lsl-rs, for pylsl and mne-lsl.",
        epilog="Exit status of doctor: 0 all packages use our library, 1 one does not, 2 wrong usage.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("path", help="print the path of the library")
    doctor = actions.add_parser("doctor", help="say which library Python really uses")
    doctor.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args()
    if arguments.action == "path":
        print(lsl_rs.LIBRARY)
        return 0
    report = examine()
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)
    return 0 if report["ok"] else 1


def examine():
    """Everything that decides which library is used, and which one is."""
    report = {
        "python": sys.executable,
        "library": lsl_rs.LIBRARY,
        "variables": {name: os.environ.get(name) for name in lsl_rs.VARIABLES},
        "switched_off": os.environ.get("LSL_RS") == "off",
        "packages": {name: ask(name) for name in PACKAGES},
    }
    report["loads"], report["encryption"], report["error"] = load()
    installed = [package for package in report["packages"].values() if package]
    report["ok"] = report["loads"] and all(package.get("ours") for package in installed)
    return report


def load():
    """Whether our library loads, what it says about encryption, and why not."""
    run = python(SECURITY % lsl_rs.LIBRARY)
    if run.returncode == 0:
        return True, run.stdout.strip(), None
    return False, None, last_line(run)


def ask(name):
    """What a package says in a fresh Python; None if it is not installed."""
    if importlib.util.find_spec(name) is None:
        return None
    run = python(PROBE.format(imports=PACKAGES[name]))
    try:
        answer = json.loads(run.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"ours": False, "error": last_line(run)}
    # Windows writes one name in several ways.
    files = [os.path.normcase(os.path.realpath(file)) for file in answer["files"]]
    answer["ours"] = files == [os.path.normcase(os.path.realpath(lsl_rs.LIBRARY))]
    return answer


def python(code):
    """Runs ``code`` in a Python of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def last_line(run):
    """What a Python that failed had to say."""
    lines = run.stderr.strip().splitlines()
    return lines[-1] if lines else "no answer, status %d" % run.returncode


def show(report):
    """The report for people: what is, and what to do where it is not as it should be."""
    print("Python     " + report["python"])
    print("lsl-rs     " + report["library"])
    if report["error"]:
        print("           does not load: " + report["error"])
    for name, package in report["packages"].items():
        print("%-11s%s" % (name.replace("_", "-"), describe(package)))
    print("encryption " + (report["encryption"] or "unknown"))
    for advice in advise(report):
        print("\n" + advice)


def describe(package):
    if package is None:
        return "not installed"
    if "error" in package:
        return "cannot be imported: " + package["error"]
    if package["ours"]:
        return package["version"] + ", uses lsl-rs"
    return "%s, uses %s" % (package["version"], ", ".join(package["files"]) or "no library")


def advise(report):
    if report["switched_off"]:
        yield "LSL_RS=off is set: unset it to use lsl-rs."
        return
    for name, path in report["variables"].items():
        if path and path != report["library"]:
            yield "%s=%s is set: unset it to use lsl-rs." % (name, path)
    if report["error"]:
        yield "This wheel is for another machine, or its file was changed: install it again."
    if not any(report["packages"].values()):
        yield "Neither pylsl nor mne-lsl is here: pip install pylsl"


if __name__ == "__main__":
    sys.exit(main())
