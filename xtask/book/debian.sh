# Read by the shell in which `cargo xtask book` types what users of Debian do, as root, where the packages
# lie. Nobody is there to answer apt, and a minimal Debian has no sudo.
sudo() { "$@"; }
if [ -z "${APT_CONFIG-}" ]; then
    cd /mnt || exit
    export APT_CONFIG=$HOME/.book-apt.conf
    echo 'APT::Get::Assume-Yes "true"; APT::Sandbox::User "root";' >"$APT_CONFIG"
fi
