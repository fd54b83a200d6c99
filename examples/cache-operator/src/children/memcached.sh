#!/bin/sh
# Starts memcached.
set -eu
# shellcheck disable=SC2046 # Each line is an option, or an option and its value.
exec memcached --port="$PORT" $(cat /config/server.conf)
