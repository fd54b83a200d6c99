#!/bin/sh
# Succeeds if the Sentinel answers and does not count others that are gone. It never forgets one, and a majority of all that
# it has known must agree on a new leader: it is to start again without memory. Not while the leader is down.
set -eu
. /config/functions.sh

leader=$(ask "$POD_IP" "$SENTINEL_PORT" sentinel master cache)
[ -n "$leader" ]
case $leader in *s_down*) exit 0 ;; esac
case $(ask "$POD_IP" "$SENTINEL_PORT" sentinel sentinels cache) in *s_down*) exit 1 ;; esac
