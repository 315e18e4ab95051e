# shellcheck shell=bash
# What the steps of a run take, for scripts/lib/steps.sh: seconds, crates that are compiled, tests that run. Cargo calls two small
# programs for that, counted-rustc and counted-tests, which write tables into target/counted. `scripts/test --night` keeps them in
# tests/night.md.

counted=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/counted
night=tests/night.md

count_all() {
    local host
    # What was built before is not compiled again, so then the number of crates says nothing.
    is_from_nothing=true
    if [ -d "${counted%/*}/debug" ]; then is_from_nothing=false; fi
    host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
    rm -rf "$counted" && mkdir -p "$counted" && touch "$counted"/{steps,crates,programs,tests}
    export REDLATCH_COUNTED=$counted REDLATCH_STEP
    # Cargo splits a runner at spaces.
    case $PWD in
        *' '*) echo "== all tests run, and none are counted: there is a space in the path of this checkout" ;;
        *) export "CARGO_TARGET_${host}_RUNNER=$PWD/scripts/lib/counted-tests" ;;
    esac
    # One that keeps what it compiled is the developer's own.
    if [ -z "${RUSTC_WRAPPER:-}" ]; then export RUSTC_WRAPPER=$PWD/scripts/lib/counted-rustc; else is_from_nothing=false; fi
}

# The seconds that all cores together have computed since the machine started.
computed() {
    local user nice system interrupts soft
    read -r _ user nice system _ _ interrupts soft _ </proc/stat
    echo $(((user + nice + system + interrupts + soft) / $(getconf CLK_TCK)))
}

# note_step SECONDS COMPUTED RESULT NAME
note_step() {
    printf '%s\t%s\t%s\t%s\t%s\n' "$REDLATCH_STEP" "$@" >>"$counted/steps"
}

# Each step with its seconds, those that the cores computed, the crates that were compiled, and the tests that ran.
table_of_steps() {
    echo "| step | s | computed, s | crates | tests | |"
    echo "| --- | --- | --- | --- | --- | --- |"
    awk -F'\t' -v OFS=' | ' '
        FILENAME ~ /crates$/ { crates[$1]++; next }
        FILENAME ~ /programs$/ { tests[$1] += $5; next }
        { print "| `" $5 "`", $2, $3, crates[$1] + 0, tests[$1] + 0, ($4 == "passed" ? "" : $4) " |"; s += $2; c += $3; n += crates[$1]; t += tests[$1] }
        END { print "| all", s, c, n + 0, t + 0, "|" }' "$counted/crates" "$counted/programs" "$counted/steps"
}

# total crates|tests|listed|largest: of all steps. `listed` are the tests that there are, `largest` those of the largest part of each program.
total() {
    case $1 in
        crates) wc -l <"$counted/crates" ;;
        *) awk -F'\t' -v of="$1" '{ n += of == "tests" ? $5 : of == "listed" ? $4 : $6 } END { print n + 0 }' "$counted/programs" ;;
    esac
}

# noted NAME: a number of the last night, or its commit.
noted() {
    [ ! -e "$night" ] || sed -n "s/^$1: \([0-9a-f]*\).*/\1/p" "$night"
}

# A run has no more than a tenth more of anything than the last night. So what grows is seen, and somebody says why.
check_growth() {
    local of now then grown=0
    for of in crates listed largest; do
        now=$(total $of) then=$(noted $of)
        # Of a part those that ran count, whatever its rules say.
        if [ $of = largest ] && [ "$REDLATCH_PART" != all ]; then now=$(total tests); fi
        echo "$of: $now, and $night has ${then:-no number}"
        if [ $of = crates ] && ! $is_from_nothing; then continue; fi
        # The first night has nothing to compare with.
        if [ -z "$then" ] && [ "$REDLATCH_PART" = all ]; then continue; fi
        if [ -z "$then" ] || ((now * 10 > then * 11)); then
            echo "error: too many $of. Make them fewer, or write the new number and the reason into $night." >&2
            grown=1
        fi
    done
    return $grown
}

# How long ago the last night was, and how it ended.
say_night() {
    local commit
    commit=$(noted commit)
    if [ -z "$commit" ]; then
        echo "== no night was noted in $night"
    elif git cat-file -e "$commit^{commit}" 2>/dev/null; then
        echo "== the last night: $(git rev-list --count "$commit..HEAD") commits ago, $(sed -n 's/^result: //p' "$night")"
    else
        echo "== the last night: at $commit, which is not in this clone"
    fi
}

# line_of crates|listed|largest: as the page has it, with the reason that somebody wrote. A night makes the number less, if nothing failed.
line_of() {
    local now then
    now=$(total "$1") then=$(noted "$1")
    if [ -n "$then" ] && { [ ${#failed[@]} -gt 0 ] || [ "$now" -ge "$then" ] || { [ "$1" = crates ] && ! $is_from_nothing; }; }; then
        grep "^$1: " "$night"
    else
        echo "$1: $now"
    fi
}

# The page of a run that had all parts.
write_night() {
    local page
    page=$(night_page)
    echo "$page" >"$night"
}

night_page() {
    cat <<END
# The last night

\`scripts/test --night\` runs all that there is, without a cut, and writes this page. \`.ci/run\` says how many commits ago that was. It fails
if it compiles a tenth more crates than \`crates\` says, or if there are a tenth more tests than \`listed\`. The same holds if it runs a tenth
more of them than \`largest\` says: the largest part of each program. Whoever has a reason for more writes the number and the reason behind it.

commit: $(git rev-parse HEAD)
result: ${#failed[@]} of ${#names[@]} steps failed in $SECONDS s, $(date +%F), $(nproc) cores
crates: $(line_of crates | cut -d' ' -f2-)
listed: $(line_of listed | cut -d' ' -f2-)
largest: $(line_of largest | cut -d' ' -f2-)

## Steps

$(table_of_steps)

## Programs of tests

| program | step | s | tests |
| --- | --- | --- | --- |
$(awk -F'\t' -v OFS=' | ' '{ print "| " $2, $1, int($3 / 1000 + .5), $5 " |" }' "$counted/programs")

## The forty slowest tests

Twelve run at a time, so the seconds of all are more than those of their step.

| test | step | s |
| --- | --- | --- |
$(sort -t"$(printf '\t')" -k3,3nr "$counted/tests" | awk -F'\t' -v OFS=' | ' 'NR <= 40 { print "| `" $2 "::" $4 "`", $1, int($3 + .5) " |" }')

## Crates that were compiled

One that was compiled again was wanted in another way: to check it or to build it, with other optimization, flags or features.

| step | way | crates | s of one core | the longest |
| --- | --- | --- | --- | --- |
$(crates_by_way)
END
}

# The page for those who run the checks has the table, too.
show_night() {
    local page=CONTRIBUTING.md new
    new=$(mktemp)
    {
        sed '/<!-- steps of the last night -->/q' "$page"
        table_of_steps
        sed -n '/<!-- end of the steps -->/,$p' "$page"
    } >"$new"
    cat "$new" >"$page"
    rm "$new"
}

crates_by_way() {
    awk -F'\t' '
        { way = $1 " | " $3 ($4 == "0" ? "" : ", optimized") ($5 == "-" ? "" : ", " $5); n[way]++; ms[way] += $2 }
        $2 > longest[way] { longest[way] = $2; name[way] = $6 ($7 == "-" ? "" : " (tests)") ($8 == "" ? "" : " with " $8) }
        END { for (way in n) printf "| %s | %d | %.0f | %s, %.0f s |\n", way, n[way], ms[way] / 1000, name[way], longest[way] / 1000 }' "$counted/crates" | sort -t'|' -k2,2n
}
