# shellcheck shell=bash
# Go of version 1.19 or newer, for the script that sources this file.
source scripts/lib/install.sh

# Makes sure that go is on the PATH: installs it if it is not.
ensure_go() {
    has_go && return
    echo "== no go of version 1.19 or newer on the PATH: installing it"
    local manager
    for manager in $(package_managers); do
        install_go "$manager" && has_go && return
    done
    echo "error: could not install it here. Put Go 1.19 or newer on the PATH and try again." >&2
    return 1
}

# A version of three parts or two: go1.26.8, go1.19.
has_go() {
    command -v go >/dev/null || return
    local version
    version=$(go env GOVERSION) && version=${version#go1.}
    [ "${version%%[!0-9]*}" -ge 19 ]
}

install_go() {
    case $1 in
        apt-get) install_with "$1" golang-go ;;
        dnf | yum) install_with "$1" golang ;;
        apk | pacman | zypper | brew) install_with "$1" go ;;
    esac
}
