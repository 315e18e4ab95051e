# shellcheck shell=bash
# A Sentinel group for the scripts that source this file: three sentinels, a master and a replica.
source scripts/lib/redis.sh

# start_process DIR PORT LINES [OPTION]: writes its file, into which it writes what it becomes, and starts it. Adds its id to `pids`.
start_process() {
    local dir=$1 port=$2
    mkdir "$dir"
    printf '%s\n' "port $port" "bind 127.0.0.1" "dir $dir" "$3" >"$dir/conf"
    "$(redis_program)" "$dir/conf" "${@:4}" >"$dir/log" 2>&1 &
    pids+=($!)
    # Or the shell would tell of each one's end.
    disown
}

# answers PORT: it may need a moment to start.
answers() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'PING\r\n' >&3 && read -r -t 1 answer <&3 && [[ $answer == +PONG* ]]) 2>/dev/null
}

# is_master PORT: by its ROLE, an array whose first element is the word.
is_master() {
    (
        exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'ROLE\r\n' >&3
        read -r -t 1 _ <&3 && read -r -t 1 _ <&3 && read -r -t 1 role <&3 && [[ $role == master* ]]
    ) 2>/dev/null
}

await() {
    local port tries
    for port in "$@"; do
        for tries in $(seq 200); do
            answers "$port" && continue 2
            sleep 0.05
        done
        echo "error: no server answers at port $port after $tries tries" >&2
        return 1
    done
}

# start_group DIR PORT DOWN_AFTER_MS: the master listens at this port, the replica and the sentinels at the four after it. Sets group_url,
# and group_master to the id of the master's process.
start_group() {
    local dir=$1 base=$2 down_after=$3 name=mymaster sentinel urls=()
    start_process "$dir/master" "$base" 'save ""'
    group_master=$!
    await "$base"
    start_process "$dir/replica" $((base + 1)) "$(printf 'save ""\nrepl-diskless-sync-delay 0\nreplicaof 127.0.0.1 %s' "$base")"
    for sentinel in 2 3 4; do
        start_process "$dir/sentinel-$sentinel" $((base + sentinel)) "$(printf '%s\n' \
            "sentinel monitor $name 127.0.0.1 $base 2" "sentinel down-after-milliseconds $name $down_after")" --sentinel
        urls+=("127.0.0.1:$((base + sentinel))")
    done
    await $((base + 1)) $((base + 2)) $((base + 3)) $((base + 4))
    group_url="redis+sentinel://$(IFS=,; echo "${urls[*]}")/$name"
}
