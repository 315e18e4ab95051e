# shellcheck shell=bash
# Steps for the scripts that source this file: each runs whatever failed before, so that one run tells all that is wrong.

outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
steps=0
failed=()

# step COMMAND...: runs it, and says its name and how long it took.
step() {
    local output began=$SECONDS result=passed
    steps=$((steps + 1))
    output=$outputs/$steps
    echo "== $*" | tee "$output"
    if ! "$@" 2>&1 | tee -a "$output"; then
        result=failed
        failed+=("$output")
    fi
    echo "== $result in $((SECONDS - began)) s: $*"
}

# name_of OUTPUT
name_of() {
    head -n 1 "$1" | cut -c 4-
}

# What the output of a step says to have failed: tests, commands of cargo, and the steps of a script that has steps itself. Such a
# script names each failed test twice.
what_failed() {
    { grep -E 'FAILED$|^error|^== failed: ' "$1" || true; } | awk '!seen[$0]++ && length(all = all $0) < 4000'
}

# The list of what failed is the last that a run says, for a record of a run may keep no more of it than the last pages. Before
# it stands why. It fails if a step did.
report() {
    local output
    for output in ${failed[@]+"${failed[@]}"}; do
        echo "== panics and the end of: $(name_of "$output")"
        grep -m 20 -A 1 'panicked at' "$output" | cut -c 1-400 || true
        echo "..."
        tail -c 4000 "$output"
    done
    echo "== ${#failed[@]} of $steps steps failed in $SECONDS s"
    for output in ${failed[@]+"${failed[@]}"}; do
        echo "== failed: $(name_of "$output")"
        what_failed "$output"
    done
    [ "${#failed[@]}" -eq 0 ]
}
