# Runs a throw-away PostgreSQL cluster in a folder of its own until standard input ends, which it
# also does when the test process dies. Says "ready FOLDER" once it answers.
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
"$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c max_connections=300 "$@" \
    >"$dir/postgres.log" 2>&1 </dev/null &
pid=$!
tries=0
until "$bin/pg_isready" -q -h "$dir" -p 5432; do
    tries=$((tries + 1))
    if [ "$tries" -gt 1200 ] || ! kill -0 "$pid" 2>/dev/null; then
        cat "$dir/postgres.log" >&2
        exit 1
    fi
    sleep 0.05
done
echo "ready $dir"
cat >/dev/null
