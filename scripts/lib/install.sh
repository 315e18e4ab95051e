# shellcheck shell=bash
# Installing packages, whatever the system has for that.

# The package managers there are.
package_managers() {
    local manager
    for manager in apt-get dnf yum apk pacman zypper brew; do
        command -v "$manager" >/dev/null && echo "$manager"
    done
    return 0
}

# install_with MANAGER PACKAGE...
install_with() {
    local manager=$1
    shift
    case $manager in
        apt-get)
            as_root apt-get update || echo "apt-get update failed, going on with the lists there are" >&2
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y "$@"
            ;;
        dnf | yum) as_root "$manager" install -y "$@" ;;
        apk) as_root apk add "$@" ;;
        pacman) as_root pacman -Sy --noconfirm "$@" ;;
        zypper) as_root zypper --non-interactive install "$@" ;;
        brew) brew install "$@" ;;
    esac
}

as_root() {
    if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null; then sudo "$@"; else "$@"; fi
}
