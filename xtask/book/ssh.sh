# Read by the shell in which `cargo xtask book` types `lsl deploy`: the machine of the stage under the name
# that the page uses. The service over there has no configuration of ours.
unset LSLAPICFG
if [ ! -e "$HOME/.ssh/config" ]; then
    mkdir -p "$HOME/.ssh"
    cat >"$HOME/.ssh/config" <<END
Host raspberrypi.local
    HostName 127.0.0.1
    Port 2222
    IdentityFile $LSL_DEPLOY_STAGE/key
    UserKnownHostsFile $LSL_DEPLOY_STAGE/known_hosts
END
fi
