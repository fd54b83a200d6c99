#!/bin/sh
# Succeeds if the server answers. One that loads entries does.
set -eu
. /config/functions.sh

[ -n "$(ask "$POD_IP" "$PORT" ping)" ]
