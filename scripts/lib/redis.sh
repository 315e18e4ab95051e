# shellcheck shell=bash
# A Redis (or Valkey) server for scripts/demo and scripts/test, which source this file.

# Some systems keep servers where only root looks for them.
PATH="$PATH:/usr/local/sbin:/usr/sbin"

# Makes sure that a server program is on the PATH: installs one if there is none.
ensure_redis() {
    redis_program >/dev/null && return
    echo "== no redis-server or valkey-server on the PATH: installing one"
    local manager
    for manager in apt-get dnf yum apk pacman zypper brew; do
        command -v "$manager" >/dev/null && install_redis "$manager" && redis_program >/dev/null && return
    done
    echo "error: could not install a Redis server here. Put redis-server or valkey-server on the PATH and try again." >&2
    return 1
}

redis_program() {
    command -v redis-server || command -v valkey-server
}

# Distributions have one of the two, or both. Some also start it as a service: that one is left alone.
install_redis() {
    local install package packages=(redis valkey)
    case $1 in
        apt-get)
            as_root apt-get update || echo "apt-get update failed, going on with the lists there are" >&2
            install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y)
            packages=(redis-server valkey-server)
            ;;
        dnf | yum) install=(as_root "$1" install -y) ;;
        apk) install=(as_root apk add) ;;
        pacman) install=(as_root pacman -Sy --noconfirm) ;;
        zypper) install=(as_root zypper --non-interactive install) ;;
        brew) install=(brew install) ;;
    esac
    for package in "${packages[@]}"; do
        "${install[@]}" "$package" && return
    done
    return 1
}

as_root() {
    if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null; then sudo "$@"; else "$@"; fi
}

# Starts a server of our own, without a port, and stops that very one when the script ends. Sets REDLATCH_URL.
start_redis() {
    # Not in TMPDIR: the path of a socket has to be short.
    redis_dir=$(mktemp -d /tmp/redlatch.XXXXXX)
    "$(redis_program)" --port 0 --unixsocket "$redis_dir/redis.sock" --save '' --dir "$redis_dir" >"$redis_dir/log" 2>&1 &
    redis_pid=$!
    trap stop_redis EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    until [ -S "$redis_dir/redis.sock" ]; do
        kill -0 "$redis_pid" 2>/dev/null || { cat "$redis_dir/log" >&2; return 1; }
        sleep 0.05
    done
    export REDLATCH_URL="unix://$redis_dir/redis.sock"
}

stop_redis() {
    kill "$redis_pid" 2>/dev/null || true
    wait "$redis_pid" || true
    rm -rf "$redis_dir"
}
