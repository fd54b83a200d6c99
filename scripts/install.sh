#!/bin/sh
# Installs KubeBid's programs from the archives of a release (scripts/release makes them):
#
#   install.sh --from FOLDER [--into PREFIX] [--version VERSION]
#   install.sh --url URL     [--into PREFIX] [--version VERSION]
#
#   --from FOLDER       a folder with SHA256SUMS and the archives
#   --url URL           a web address under which these are, as in https://example.com/kubebid/0.1.0
#   --into PREFIX       the programs go to PREFIX/bin: /usr/local if not given
#   --version VERSION   which one, if there are several; needed for a pre-release
#
# The archive is the one for this machine. Nothing is installed unless its checksum is right and its programs run here.
# Manual pages, completions of shells and a unit for systemd go to PREFIX/share. To remove KubeBid, delete kubebid, kubebid-operator and market-sim from PREFIX/bin,
# and what is named kubebid* or _kubebid in PREFIX/share.
set -eu

fail() { echo "install: $*" >&2; exit 1; }
from='' url='' prefix=/usr/local version=''
while [ $# -gt 0 ]; do
    case $1 in
    --from | --url | --into | --version)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
        --from) from=$2 ;;
        --url) url=${2%/} ;;
        --into) prefix=$2 ;;
        --version) version=$2 ;;
        esac
        shift
        ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '/^set /d'; exit 0 ;;
    *) fail "there is no flag $1: install.sh --help" ;;
    esac
    shift
done
if [ -z "$from$url" ] || { [ -n "$from" ] && [ -n "$url" ]; }; then
    fail "say where the archives are: --from FOLDER or --url URL"
fi

system=$(uname -s) machine=$(uname -m)
[ "$system" = Linux ] || fail "there are archives for Linux, and this is $system: build from the source"
case $machine in
x86_64 | amd64) machine=x86_64 ;;
aarch64 | arm64) machine=aarch64 ;;
*) fail "there are archives for x86_64 and aarch64, and this is $machine: build from the source" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
fetch() {
    if [ -n "$from" ]; then
        cp "$from/$1" "$work/$1" || fail "there is no $from/$1"
    elif command -v curl >/dev/null; then
        curl -fsSL -o "$work/$1" "$url/$1" || fail "cannot fetch $url/$1"
    elif command -v wget >/dev/null; then
        wget -q -O "$work/$1" "$url/$1" || fail "cannot fetch $url/$1"
    else
        fail "install curl or wget"
    fi
}

fetch SHA256SUMS
# The highest version.
found=$(sed -n "s/^[0-9a-f]\{64\} [ *]\(kubebid-${version:-[0-9][^-]*}-$machine-unknown-linux-[a-z]*\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS" |
    sort -V | tail -n 1)
[ -n "$found" ] || fail "there is no archive for $machine${version:+ of version $version}"
fetch "$found"
wanted=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$found\$/\1/p" "$work/SHA256SUMS")
have=$(sha256sum "$work/$found" | cut -d ' ' -f 1)
[ "$wanted" = "$have" ] || fail "$found has another checksum than SHA256SUMS says: it is damaged, or not what was published"

tar -xzf "$work/$found" -C "$work"
unpacked=$work/${found%.tar.gz}
for program in "$unpacked"/bin/*; do
    "$program" --version >/dev/null 2>"$work/said" ||
        fail "$(basename "$program") does not run on this machine, which may have an older C library: $(cat "$work/said")"
done
mkdir -p "$prefix/bin" 2>/dev/null && [ -w "$prefix/bin" ] || fail "cannot write to $prefix/bin: run as root, or name a folder, --into ~/.local"
for program in "$unpacked"/bin/*; do
    # A program that runs is replaced, not written over.
    cp "$program" "$prefix/bin/.$(basename "$program").new"
    chmod 755 "$prefix/bin/.$(basename "$program").new"
    mv "$prefix/bin/.$(basename "$program").new" "$prefix/bin/$(basename "$program")"
done
if [ -d "$unpacked/share" ]; then cp -R "$unpacked/share" "$prefix/"; fi
echo "installed $(cd "$unpacked/bin" && echo *) into $prefix/bin, from $found"
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "$prefix/bin is not in your PATH" ;;
esac
