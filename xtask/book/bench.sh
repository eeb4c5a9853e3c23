# Read by the shell in which `cargo xtask book` types the commands of docs/performance.md: each runs, once
# and shortly. Numbers that mean something take hours on a quiet machine.
lsl() {
    local words=() drop=
    for word in "$@"; do
        # Of lists of numbers the first.
        [[ $word =~ ^[0-9]+(,[0-9]+)+$ ]] && word=${word%%,*}
        case $word in
        --rounds | --streams) drop=1 ;;
        *) [ -n "$drop" ] || words+=("$word"); drop= ;;
        esac
    done
    case $2 in
    discovery) words+=(--streams 5 --repeat 1) ;;
    scale) words+=(--streams 5 --idle 1) ;;
    grid) words+=(--quick) ;;
    handshake) words+=(--count 20 --repeat 1) ;;
    aead) words+=(--seconds 0.01 --repeat 1) ;;
    *) words+=(--rounds 1 --seconds 0.2) ;;
    esac
    command lsl "${words[@]}" --output "$HOME/results"
}
