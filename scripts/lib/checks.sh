# shellcheck shell=bash
# What scripts/quick and scripts/test have in common.
source scripts/lib/redis.sh
source scripts/lib/steps.sh

# Installs what the steps need and this machine does not have.
prepare() {
    ensure_redis
    ensure_component rustfmt fmt
    ensure_component clippy clippy
    use_memory
    # scripts/matrix says it for its own servers.
    unset REDLATCH_SERVER
    # Most tests wait for a server or a lease: more of them at once than there are cores.
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-12}
}

# ensure_component COMPONENT COMMAND: of the toolchain.
ensure_component() {
    cargo "$2" --version >/dev/null 2>&1 || rustup component add "$1" || {
        echo "error: cargo $2 is missing: install the toolchain's $1 component and try again." >&2
        return 1
    }
}

plan_lints() {
    step cargo fmt --check
    step cargo clippy --workspace --all-targets --all-features -- -D warnings
}
