#!/bin/sh
# Succeeds if the server leads, or has the entries of its leader. Later it answers with what it has.
set -eu
. /config/functions.sh

state=$(ask "$POD_IP" "$PORT" info)
value() {
    echo "$state" | sed -n "s/^$1:\([^[:cntrl:]]*\).*/\1/p"
}
[ "$(value role)" = master ] || [ "$(value master_link_status)" = up ] || [ "$(value uptime_in_seconds)" -gt 60 ]
