# shellcheck shell=bash
# A Redis (or Valkey) server for the scripts that source this file.
source scripts/lib/install.sh

# What is said at the top of a script is its help.
case ${1:-} in
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "scripts/$(basename "$0")"
        exit
        ;;
esac

# Some systems keep servers where only root looks for them.
PATH="$PATH:/usr/local/sbin:/usr/sbin"

# Makes sure that a server program is on the PATH: installs one if there is none.
ensure_redis() {
    redis_program >/dev/null && return
    echo "== no redis-server or valkey-server on the PATH: installing one"
    local manager
    for manager in $(package_managers); do
        install_redis "$manager" && redis_program >/dev/null && return
    done
    echo "error: could not install a Redis server here. Put redis-server or valkey-server on the PATH and try again." >&2
    return 1
}

# Has the servers of the tests keep their files in memory, where there is such a place with room for them: a slow disk is not
# what is tested, and a node of a cluster answers nobody while it waits for the disk to have its nodes.conf.
use_memory() {
    local free
    free=$(df -k /dev/shm 2>/dev/null | awk 'END { print $4 }') || free=0
    if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "${free:-0}" -gt 1000000 ]; then export TMPDIR=/dev/shm; fi
}

redis_program() {
    command -v redis-server || command -v valkey-server
}

# Distributions have one of the two, or both. Some also start it as a service: that one is left alone.
install_redis() {
    local package packages=(redis valkey)
    [ "$1" = apt-get ] && packages=(redis-server valkey-server)
    for package in "${packages[@]}"; do
        install_with "$1" "$package" && return
    done
    return 1
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
