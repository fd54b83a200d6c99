#!/bin/sh
# Starts the Sentinel of this pod, which watches the leader that the server of the pod follows. It begins without memory:
# the others tell it what there is, under the name that it always has.
set -eu
. /config/functions.sh

leader=
while [ -z "$leader" ]; do
    role=$(ask "$POD_IP" "$PORT" role)
    case $role in
    master*) leader=$POD_IP ;;
    slave*) leader=$(echo "$role" | sed -n 2p) ;;
    *) sleep 1 ;;
    esac
done
id=$(printf %s "$POD_NAMESPACE/$POD_NAME" | sha1sum)
{
    cat /config/sentinel.conf
    echo "sentinel myid ${id%% *}"
    echo "sentinel announce-ip $POD_IP"
    echo "sentinel monitor cache $leader $PORT 2"
    echo "sentinel down-after-milliseconds cache 5000"
    echo "sentinel failover-timeout cache 15000"
} >/data/sentinel.conf
exec "$SERVER" /data/sentinel.conf --sentinel
