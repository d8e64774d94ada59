#!/bin/sh
# Installs the lab from its bundle, without a network: sh redis-latency-lab-VERSION-SYSTEM/install.sh [FOLDER]
# First it looks: is every file whole, is the bundle for this machine and its Python, is the folder free? Then come the
# repository, its packages, and the images where a container engine runs. Run again, it needs another FOLDER.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
folder=${1:-redis-latency-lab}
python=${PYTHON:-python3}

stop() {
    printf 'lab: %s\n' "$*" >&2
    exit 3
}

sums='sha256sum'
command -v sha256sum >/dev/null 2>&1 || sums='shasum -a 256' # macOS
[ -f "$here/SHA256SUMS" ] || stop "the bundle is damaged (SHA256SUMS is missing): copy it again."
# In the language of this machine, "OK" may be another word.
damaged=$(cd "$here" && LC_ALL=C $sums -c SHA256SUMS 2>/dev/null | grep -v ': OK$' | sed 's/: .*//' | head -n 1) || true
[ -z "$damaged" ] || stop "the bundle is damaged ($damaged is missing or altered): copy it again."
# A list of checksums that was cut names fewer files than there are; what names this bundle is the last of them.
[ -f "$here/system" ] && [ -f "$here/pythons" ] || stop "the bundle is damaged (a part is missing): copy it again."

kernel=$(uname -s)
case $kernel in Linux) kernel=linux ;; Darwin) kernel=macos ;; esac
made_for=$(cat "$here/system")
[ "$kernel-$(uname -m)" = "$made_for" ] ||
    stop "this bundle is for $made_for, and this machine is $kernel-$(uname -m): ask for the bundle of that system."
command -v "$python" >/dev/null 2>&1 || stop "there is no $python: install Python ($(paste -s -d ' ' "$here/pythons")) first."
has=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
grep -qxF "$has" "$here/pythons" ||
    stop "this bundle has packages for Python $(paste -s -d ' ' "$here/pythons"), and $python is $has: name another with PYTHON=python3.13."
[ ! -e "$folder" ] || stop "$folder exists already: name another folder, as in sh $0 FOLDER."

mkdir -p "$folder"
tar xzf "$here/lab.tar.gz" -C "$folder" || stop "lab.tar.gz cannot be unpacked: see the message above."
# make up finds its images loaded, and neither builds nor fetches any.
: >"$folder/.from-bundle"
# pip takes a space in PIP_FIND_LINKS for the end of a folder's name: hence a name without the way to it.
there=$(CDPATH='' cd -- "$folder" && pwd)
(cd "$here" && PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels "$there/bin/lab" --bootstrap) || exit $?

if [ -f "$here/images.tar.gz" ]; then
    if docker version >/dev/null 2>&1; then
        gzip -dc "$here/images.tar.gz" | docker load --quiet ||
            stop "the images could not be loaded: see the message above. make demo works without them."
    else
        printf 'lab: no container engine answers, so the images stay packed. With one: gzip -dc %s | docker load\n' \
            "$here/images.tar.gz" >&2
    fi
fi
printf 'installed: cd %s, and then make demo\n' "$folder"
