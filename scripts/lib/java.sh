# shellcheck shell=bash
# A JDK of version 17 or newer and Maven, for the script that sources this file.
source scripts/lib/install.sh

# Makes sure that javac and mvn are on the PATH: installs them if they are not.
ensure_java() {
    has_java && return
    echo "== no javac of version 17 or newer, or no mvn, on the PATH: installing them"
    local manager
    for manager in $(package_managers); do
        install_java "$manager" && has_java && return
    done
    echo "error: could not install them here. Put a JDK of version 17 or newer and mvn on the PATH and try again." >&2
    return 1
}

has_java() {
    command -v mvn >/dev/null && command -v java >/dev/null && [ "$(javac_version)" -ge 17 ]
}

# Its major version; 0 without one.
javac_version() {
    local version
    version=$(javac -version 2>&1) || version="javac 0"
    version=${version#javac }
    echo "${version%%[!0-9]*}"
}

install_java() {
    case $1 in
        apt-get) install_with "$1" default-jdk-headless maven ;;
        dnf | yum) install_with "$1" java-latest-openjdk-devel maven || install_with "$1" java-21-openjdk-devel maven ;;
        apk) install_with "$1" openjdk21 maven ;;
        pacman) install_with "$1" jdk21-openjdk maven ;;
        zypper) install_with "$1" java-21-openjdk-devel maven ;;
        brew) install_with "$1" openjdk maven ;;
    esac
}
