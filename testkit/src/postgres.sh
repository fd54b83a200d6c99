# Runs a throw-away PostgreSQL cluster in a folder of its own until standard input ends, which it
# also does when the test process dies. Says "ready FOLDER" once it answers.
# Each line of standard input is an order, answered with "done" when the server answers again:
#   restart SIGNAL        sends the signal to the postmaster and starts the server again
#   crash PID             kills one of the server's processes; the postmaster recovers by itself
# Arguments: the folder of PostgreSQL's programs, then options for `postgres`.
set -eu
bin=$1
shift
# A Ctrl-C is for the tests; their end is ours.
trap '' INT
dir=$(mktemp -d /tmp/kubebid-pg.XXXXXX)
pid=
finish() {
    if [ -n "$pid" ]; then
        # At once: what it holds is thrown away.
        kill -QUIT "$pid" 2>/dev/null || true
        wait "$pid" || true
    fi
    rm -rf "$dir"
}
trap finish EXIT
if ! "$bin/initdb" -D "$dir/data" -U kubebid -A trust -E UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1; then
    cat "$dir/initdb.log" >&2
    exit 1
fi
start() {
    "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c max_connections=300 "$@" \
        >>"$dir/postgres.log" 2>&1 </dev/null &
    pid=$!
}

# Waits until the server answers. One that has ended is started again if $1 says so: after a SIGKILL of the postmaster
# the memory is in use until the last of its children has gone.
ready() {
    again=$1
    shift
    tries=0
    until "$bin/pg_isready" -q -h "$dir" -p 5432; do
        tries=$((tries + 1))
        if [ "$tries" -gt 1200 ]; then
            cat "$dir/postgres.log" >&2
            return 1
        fi
        if ! kill -0 "$pid" 2>/dev/null; then
            if [ "$again" = no ]; then
                cat "$dir/postgres.log" >&2
                return 1
            fi
            start "$@"
        fi
        sleep 0.05
    done
}

start "$@"
ready no "$@"
echo "ready $dir"
while read -r order what; do
    case $order in
    restart)
        kill "-$what" "$pid"
        wait "$pid" || true
        start "$@"
        ready yes "$@"
        ;;
    crash)
        kill -KILL "$what"
        # Until the postmaster has noticed it.
        while kill -0 "$what" 2>/dev/null; do sleep 0.01; done
        ready no "$@"
        ;;
    esac
    echo done
done
