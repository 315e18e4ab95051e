# shellcheck shell=bash
# Steps for the scripts that source this file. `step` plans one, `run_steps` runs them in order, each whatever failed before, and
# `report` says what failed: so one run tells all that is wrong. What they build and test is counted, see scripts/lib/counted.sh.
source scripts/lib/counted.sh

outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
names=()
commands=()
failed=()

# step COMMAND...: plans a step.
step() {
    local command
    printf -v command '%q ' "$@"
    commands+=("$command")
    names+=("$*")
}

# Runs the steps: says of each its number and its name, and at its end how long it took and how many are left.
run_steps() {
    local number count=${#names[@]} output began computed result
    count_all
    for number in "${!names[@]}"; do
        output=$outputs/$number began=$SECONDS computed=$(computed) result=passed REDLATCH_STEP=$((number + 1))
        echo "== step $((number + 1)) of $count: ${names[number]}" | tee "$output"
        if ! eval "${commands[number]}" 2>&1 | tee -a "$output"; then
            result=failed
            failed+=("$output")
        fi
        echo "== $result in $((SECONDS - began)) s, $((count - number - 1)) left: ${names[number]}"
        note_step $((SECONDS - began)) $(($(computed) - computed)) "$result" "${names[number]}"
    done
}

# name_of OUTPUT
name_of() {
    head -n 1 "$1" | sed 's/^== step [0-9]* of [0-9]*: //'
}

# What the output of a step says to have failed: tests, commands of cargo, and tests on a server of the matrix.
what_failed() {
    { grep -E 'FAILED( <.*>)?$|^error|^- failed on ' "$1" || true; } | awk '!seen[$0]++ && length(all = all $0) < 4000'
}

# The first panics in the output of a step, each with its message.
panics() {
    { grep -m 20 -A 1 'panicked at' "$1" || true; } | cut -c 1-400
}

# The list of what failed and why is the last that a run says, for a record of a run may keep no more of it than the last page.
# Before it stand the ends of the outputs, and the seconds of each step. It fails if a step did.
report() {
    local output
    for output in ${failed[@]+"${failed[@]}"}; do
        echo "== the end of: $(name_of "$output")"
        tail -c 4000 "$output"
    done
    table_of_steps
    echo "== ${#failed[@]} of ${#names[@]} steps failed in $SECONDS s"
    for output in ${failed[@]+"${failed[@]}"}; do
        echo "== failed: $(name_of "$output")"
        what_failed "$output"
        panics "$output"
    done
    [ "${#failed[@]}" -eq 0 ]
}
