# Functions of all scripts. SERVER and CLI name the programs, PORT is the port of the servers.

# Sends a command to the server or the Sentinel at an address. No answer is an empty one.
ask() {
    ask_host=$1 ask_port=$2
    shift 2
    # shellcheck disable=SC2086 # TLS_OPTIONS are several words, or none.
    timeout 3 "$CLI" ${TLS_OPTIONS:-} -h "$ask_host" -p "$ask_port" "$@" 2>/dev/null || true
}

# Returns the addresses of a host, one a line.
addresses() {
    getent ahosts "$1" | while read -r address _; do echo "$address"; done | sort -u
}
