#!/bin/sh
# Starts the server of this pod. The first pod leads, and the others follow it, unless a Sentinel names another leader.
set -eu
. /config/functions.sh

# Prints the leader that a Sentinel names. One that names another pod than this one counts more. Fails if none answers.
named_leader() {
    named=
    for sentinel in $(addresses "$SERVICE") "$POD_IP"; do
        answer=$(ask "$sentinel" "$SENTINEL_PORT" sentinel get-master-addr-by-name cache | head -n 1)
        case $answer in
        '' | *' '*) ;;
        "$POD_IP") named=$answer witness=$sentinel ;;
        *) named=$answer && break ;;
        esac
    done
    [ -n "$named" ]
}

leads() {
    [ "$(ask "$1" "$PORT" role | head -n 1)" = master ]
}

# Sets `leader` to the address of the server to follow, or to nothing if this one leads.
find_leader() {
    tries=0
    while [ "$tries" -lt 60 ]; do
        tries=$((tries + 1))
        leader=
        if named_leader; then
            if [ "$named" = "$POD_IP" ]; then
                # It led before it was restarted, and its memory is empty: one that has the entries is to lead, if there is.
                [ "$tries" -lt 30 ] || return 0
                ask "$witness" "$SENTINEL_PORT" sentinel failover cache >/dev/null
            elif leads "$named"; then
                leader=$named
                return 0
            fi
        elif [ "$POD_NAME" = "$SERVICE-0" ]; then
            # A Sentinel may be about to answer.
            [ "$tries" -lt 3 ] || return 0
        else
            for address in $(addresses "$SERVICE-0.$SERVICE"); do
                if leads "$address"; then
                    leader=$address
                    return 0
                fi
            done
        fi
        sleep 1
    done
    leader=
    # The Sentinels name one that is gone, and have nothing to choose from.
    [ "$POD_NAME" = "$SERVICE-0" ]
}

if [ "$FAILS_OVER" = true ]; then
    find_leader || { echo "no server leads" >&2 && exit 1; }
elif [ "$POD_NAME" = "$SERVICE-0" ]; then
    leader=
else
    leader=$SERVICE-0.$SERVICE
fi
# A Sentinel changes the file.
cp /config/server.conf /data/server.conf
set -- /data/server.conf --replica-announce-ip "$POD_IP"
if [ -n "$leader" ]; then
    set -- "$@" --replicaof "$leader" "$PORT"
fi
echo "leader: ${leader:-this server}"
exec "$SERVER" "$@"
