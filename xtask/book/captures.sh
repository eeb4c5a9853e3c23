# The stage of a picture, run by `cargo xtask captures` in a terminal: three machines on the loopback
# interface, each with a home directory, and one command, whose output begins behind the mark.
set -eu
stage=$(mktemp -d)
cleanup() {
    for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$stage"
}
trap cleanup EXIT
port=$((20000 + $$ % 20000))
printf '[ports]\nBasePort = %s\nPortRange = 24\n[lab]\nSessionID = capture-%s\n' "$port" $$ >"$stage/lsl_api.cfg"
export LSLAPICFG=$stage/lsl_api.cfg

# on MACHINE COMMAND...
on() {
    local home=$stage/$1
    shift
    mkdir -p "$home"
    HOME=$home "$LSL_CAPTURED" --loopback "$@"
}
key_of() { on "$1" key show --public; }
# Waits until a stream answers.
await() { until on guest info "$1" --timeout 1 >"$stage/info" 2>&1 || grep -q encrypted "$stage/info"; do :; done; }

if [ "$1" != demo ]; then
    {
        for machine in amp1 gaze1 rec1; do on "$machine" key init --name "$machine"; done
        on amp1 trust add rec1 "$(key_of rec1)" --role inlet
        on rec1 trust add amp1 "$(key_of amp1)" --role outlet
    } >/dev/null 2>&1
    on amp1 gen --name BioSemi --channels 64 --rate 2048 >/dev/null 2>&1 &
    on gaze1 gen --name EyeTracker --type Gaze --channels 6 --rate 500 >/dev/null 2>&1 &
    on old gen --name Buttons --type Markers --channels 1 --rate 0 --format string >/dev/null 2>&1 &
    for stream in BioSemi EyeTracker Buttons; do await "$stream"; done
fi
echo @begin@
case $1 in
demo) on demo demo ;;
list) on rec1 list ;;
trust) on rec1 trust check || true ;;
esac
