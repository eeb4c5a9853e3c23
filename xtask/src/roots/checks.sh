#!/bin/sh
# The life of our packages on a Debian without network: installed, used from the command line and from
# Python, removed. Prints `ok: ...` for what holds and ends at the first thing that does not.
#   checks.sh MACHINE VERSION
set -eu

machine=$1
version=$2
libraries=/usr/lib/$machine-linux-gnu

ok() {
    echo "ok: $machine: $*"
}

fail() {
    echo "FAILED: $machine: $*" >&2
    exit 1
}

# Has the text of a file, shown if not.
says() {
    grep -qF "$2" "$1" || {
        cat "$1" >&2
        fail "does not say '$2'"
    }
}

# All files of the system but those in which apt and dpkg keep books.
files() {
    find / -xdev \( -path /proc -o -path /dev -o -path /mnt -o -path /tmp -o -path /var/log \
        -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg \) -prune -o -print |
        sort
}

# Python programs that are started leave nothing behind.
export PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d)
files >$work/before

apt-get -qq install /mnt/lsl-rs.deb >$work/install 2>&1 || {
    cat $work/install >&2
    fail "apt-get install"
}
dpkg -s lsl-rs >$work/status
says $work/status "Status: install ok installed"
says $work/status "Version: $version"
ok "apt-get installs the package"

ldconfig -p >$work/cache
says $work/cache "liblsl.so.2 ("
says $work/cache "=> /lib/$machine-linux-gnu/liblsl.so.2"
ok "ldconfig lists liblsl.so.2"

lsl --version >$work/said
says $work/said "$version"
ok "$(head -n 1 $work/said)"

lslver >$work/said
says $work/said "LSL version: 118"
ok "lslver: $(sed -n 2p $work/said)"

lsl demo --duration 2 >$work/said 2>&1 || {
    cat $work/said >&2
    fail "lsl demo"
}
says $work/said "Nothing was lost"
ok "lsl demo: nothing was lost"

dpkg -L lsl-rs >$work/contents
for file in /usr/bin/lsl /usr/bin/lsl-bench "$libraries/liblsl.so" "$libraries/pkgconfig/lsl.pc" /usr/include/lsl_c.h \
    /usr/include/lsl_cpp.h "$libraries/cmake/LSL/LSLCMake.cmake" /usr/lib/liblsl.so /usr/lib/liblsl.so.2 \
    /usr/share/man/man1/lsl.1.gz /usr/share/bash-completion/completions/lsl \
    /usr/share/zsh/vendor-completions/_lsl /usr/share/fish/vendor_completions.d/lsl.fish \
    /usr/lib/systemd/user/lsl@.service /usr/lib/systemd/system/lsl-relay.service /usr/lib/sysusers.d/lsl.conf \
    /usr/share/doc/lsl-rs/copyright; do
    grep -qxF "$file" $work/contents || fail "$file is not in the package"
    test -s "$file" || fail "$file is empty"
done
gzip -cd /usr/share/man/man1/lsl.1.gz >$work/said
says $work/said ".TH"
bash -n /usr/share/bash-completion/completions/lsl || fail "completions for bash"
ok "man page, completions, headers and unit are in place"

python3 -m venv --without-pip /opt/venv
python=/opt/venv/bin/python
installer=$(echo /mnt/wheels/pip-*.whl)
pip() {
    "$python" "$installer/pip" --disable-pip-version-check --no-cache-dir --quiet "$@"
}
pip install --no-index --no-deps --no-compile --find-links /mnt/wheels pylsl numpy
ok "pip install pylsl"

# Wheels for x86-64 carry a liblsl, which pylsl prefers; those for aarch64 do not.
if [ "$machine" = aarch64 ]; then
    "$python" /mnt/roundtrip.py "$libraries/liblsl.so"
else
    PYLSL_LIB=$libraries/liblsl.so.2 "$python" /mnt/roundtrip.py "$libraries/liblsl.so"
fi
ok "pylsl on the library of the package: outlet to inlet"

pip install --no-index --no-deps --no-compile --find-links /mnt/wheels lsl_rs
"$python" -m lsl_rs doctor >$work/said 2>&1 || {
    cat $work/said >&2
    fail "doctor"
}
says $work/said /opt/venv/lib/
ok "python -m lsl_rs doctor names the library of the wheel"
"$python" /mnt/roundtrip.py /opt/venv/lib/
ok "pylsl on the library of the wheel: outlet to inlet"

pip uninstall --yes lsl_rs
if find /opt/venv -iname '*lsl_rs*' | grep .; then
    fail "pip uninstall leaves files"
fi
if [ "$machine" = aarch64 ]; then
    "$python" /mnt/roundtrip.py "$libraries/liblsl.so"
    ok "without the wheel pylsl is back on the library of the package"
fi

rm -r /opt/venv
apt-get -qq purge lsl-rs >$work/purge 2>&1 || {
    cat $work/purge >&2
    fail "apt-get purge"
}
files >$work/after
cmp -s $work/before $work/after || {
    comm -3 $work/before $work/after >&2
    fail "the package leaves files behind, or takes others with it"
}
if ldconfig -p | grep liblsl; then
    fail "ldconfig still lists the library"
fi
ok "apt-get purge leaves nothing"

echo "all checks done"
