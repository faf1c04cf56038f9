#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/fresh_root.sh [FOLDER] [SUITE...] - README's two commands on bare systems, as root and as an ordinary user.
#
# SUITE: bookworm (Debian 12), trixie (Debian 13), noble (Ubuntu 24.04); default: all of them. One whose archive cannot be
# reached is named and skipped. FOLDER (build/fresh) keeps a bare root of each suite, made once by debootstrap. The commands
# run in a copy, FOLDER/SUITE.used: made anew each time, and left there to be looked at. Takes root, and debootstrap.
#
# In each root make is installed by hand, and nothing else. An ordinary user's `make bench` must then name what is missing,
# and ask nothing (exit 4; make's own is 2). Root runs `make bench` and `make test` with ASSUME_YES=1, then the user without
# it. No MPI may have come along. Each has its own clone of HEAD: what is not committed is not in it.
#
# The archive is that of this machine's apt, or MIRROR. Its proxy and name server hold inside too. COMMANDS ("bench test")
# says which are run. TM_TEST_CPU, TM_TEST_SECONDS and JOBS are handed on. Logs: FOLDER/logs. Exit status 1 if
# something failed.
set -eu

# Mounts of its own: whatever ends this, none is left behind.
if [ "$(id -u)" = 0 ] && [ -z "${FRESH_ROOT_ALONE:-}" ] && unshare --mount true 2>/dev/null; then
    FRESH_ROOT_ALONE=1 exec unshare --mount --propagation private "$0" "$@"
fi

fail()
{
    echo "fresh_root: $*" >&2
    exit 4
}

[ "$(id -u)" = 0 ] || fail "only root can make a root, and enter it"
command -v debootstrap >/dev/null || fail "there is no debootstrap (package debootstrap)"
case ${1:-} in
'' | bookworm | trixie | noble) folder= ;;
*)
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    shift
    ;;
esac
cd "$(dirname "$0")/.."
folder=${folder:-$PWD/build/fresh}
[ $# -gt 0 ] || set -- bookworm trixie noble
for suite; do
    case $suite in
    bookworm | trixie | noble) ;;
    *) fail "'$suite' is not known; suites: bookworm trixie noble" ;;
    esac
done
logs=$folder/logs
mkdir -p "$logs"
table=$logs/table
: >"$table"
commands=${COMMANDS:-bench test}
mounted=

# --- roots --------------------------------------------------------------------------------------------------------------

# Lazily where something in there still runs.
leave()
{
    for place in $mounted; do umount "$place" 2>/dev/null || umount -l "$place" || :; done
    mounted=
}
trap leave EXIT
trap 'exit 130' HUP INT TERM

# hold PLACE ARGUMENT...: mounts there, until leave.
hold()
{
    place=$1
    shift
    mkdir -p "$place"
    mount "$@" "$place"
    mounted="$place $mounted"
}

# archive_of ORIGIN LABEL: where this machine's apt has it from; nothing if it has not.
archive_of()
{
    # shellcheck disable=SC2016 # apt fills them in
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(RELEASE)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk -F '|' -v origin="$1" -v label="$2" '
            $1 == origin && $2 == label && (label ~ /Security/ || $3 !~ /-/) { sub(/\/$/, "", $4); print $4; exit }'
}

# about SUITE: its family, archive, keyring and script.
about()
{
    security=
    parts=main
    script=
    case $1 in
    noble)
        archive=${MIRROR:-$(archive_of Ubuntu Ubuntu)}
        parts="main universe"
        keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
        # All suites of Ubuntu have the same script; older debootstraps know it by older names only.
        [ -e "/usr/share/debootstrap/scripts/$1" ] || script=/usr/share/debootstrap/scripts/gutsy
        ;;
    *)
        archive=${MIRROR:-$(archive_of Debian Debian)}
        security=$(archive_of Debian Debian-Security)
        keyring=/usr/share/keyrings/debian-archive-keyring.gpg
        ;;
    esac
}

# skip SUITE REASON
skip()
{
    echo "fresh_root: $1 is skipped: $2"
}

# bare SUITE: FOLDER/SUITE, as debootstrap leaves it. Not 0: it cannot be made; why has been said.
bare()
{
    [ ! -d "$folder/$1" ] || return 0
    if [ ! -e "$keyring" ]; then
        skip "$1" "its archive cannot be trusted without a keyring, $keyring"
        return 1
    fi
    echo "fresh_root: $1 is made"
    part=$folder/$1.part
    rm -rf --one-file-system "$part"
    # shellcheck disable=SC2086 # without an archive of apt's, or a script, debootstrap takes its own
    if debootstrap --variant=minbase --force-check-gpg --keyring="$keyring" "$1" "$part" $archive $script \
        >"$logs/$1.debootstrap" 2>&1; then
        rm -f "$part"/var/cache/apt/archives/*.deb
        mv "$part" "$folder/$1"
        return 0
    fi
    reason=$(grep '^E: ' "$logs/$1.debootstrap" | head -n 1)
    case $reason in
    *"getting release file"*) skip "$1" "its archive cannot be reached (${reason#E: })" ;;
    *) note "$1" root debootstrap 1 0 "${reason:-see the log}" "$logs/$1.debootstrap" ;;
    esac
    return 1
}

# enter_sources SUITE: apt in there works as it does out here.
enter_sources()
{
    archive=${archive:-$(sed -n 's/^deb \(\[.*\] \)\{0,1\}\([^ ]*\) .*/\2/p' "$root/etc/apt/sources.list" | head -n 1)}
    [ "$1" != noble ] || security=$archive
    {
        echo "deb $archive $1 $parts"
        echo "deb $archive $1-updates $parts"
        [ -z "$security" ] || echo "deb $security $1-security $parts"
    } >"$root/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::(https?|ftp)::|^Acquire::(Retries|ForceIPv[46]|Check-Valid-Until|Check-Date) ' \
        >"$root/etc/apt/apt.conf.d/99outside" || :
    for file in resolv.conf hosts; do cat "/etc/$file" >"$root/etc/$file"; done
    case $archive in
    https:*)
        mkdir -p "$root/etc/ssl/certs"
        cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
        ;;
    esac
}

# furnish SUITE: a copy of the bare root with what a running system has, a user, and two clones.
furnish()
{
    root=$folder/$1.used
    ! grep -q " $root/" /proc/mounts || fail "something is still mounted in $root"
    rm -rf --one-file-system "$root"
    cp -a "$folder/$1" "$root"
    enter_sources "$1"
    hold "$root/proc" -t proc proc
    hold "$root/sys" --bind /sys
    [ ! -d /sys/fs/cgroup ] || hold "$root/sys/fs/cgroup" --bind /sys/fs/cgroup
    hold "$root/dev" -t tmpfs -o mode=755 dev
    for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$root/dev/${node%:*}" c 1 "${node#*:}"; done
    mknod -m 666 "$root/dev/tty" c 5 0
    for link in fd:/proc/self/fd stdin:fd/0 stdout:fd/1 stderr:fd/2 ptmx:pts/ptmx; do
        ln -s "${link#*:}" "$root/dev/${link%:*}"
    done
    hold "$root/dev/pts" -t devpts -o newinstance,ptmxmode=666,mode=620 devpts
    hold "$root/dev/shm" -t tmpfs -o mode=1777 shm
    chroot "$root" useradd -m -u 1000 -s /bin/sh user
    for home in root home/user; do git clone -q --no-hardlinks "$PWD" "$root/$home/trainmark"; done
    chroot "$root" chown -R user: /home/user/trainmark
}

# --- commands -----------------------------------------------------------------------------------------------------------

# enter USER COMMAND: in the user's clone, with what a login has.
enter()
{
    case $1 in
    root) id=0:0 home=/root ;;
    *) id=1000:1000 home=/home/$1 ;;
    esac
    # shellcheck disable=SC2016 # expanded inside
    chroot --userspec="$id" --groups="${id#*:}" "$root" /usr/bin/env -i USER="$1" LOGNAME="$1" HOME="$home" TERM=dumb \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        ${TM_TEST_CPU:+"TM_TEST_CPU=$TM_TEST_CPU"} ${TM_TEST_SECONDS:+"TM_TEST_SECONDS=$TM_TEST_SECONDS"} \
        ${JOBS:+"JOBS=$JOBS"} \
        sh -c 'cd ~/trainmark && eval "$1"' sh "$2"
}

# note SUITE USER COMMAND STATUS SECONDS LINE [LOG]: a row of the table; with LOG, of a failure.
note()
{
    printf '%-9s %-5s %-28s %4s %8s  %s\n' "$1" "$2" "$3" "$4" "$5" "$6" >>"$table"
    [ -z "${7:-}" ] || echo "failed: $1, $2, $3: see $7" >>"$logs/failed"
}

# try SUITE USER NAME COMMAND [STATUS TEXT]: COMMAND must end with STATUS (0), and say TEXT.
try()
{
    log=$logs/$1.$2.$(echo "${3#ASSUME_YES=1 }" | tr -cs 'a-z0-9\n' -)
    echo "fresh_root: $1, $2: $3"
    status=0
    from=$(date +%s)
    enter "$2" "$4" >"$log" 2>&1 </dev/null || status=$?
    seconds=$(($(date +%s) - from))
    bad=
    [ "$status" = "${5:-0}" ] && { [ -z "${6:-}" ] || grep -q "$6" "$log"; } || bad=$log
    ! grep -q '\[y/N\]' "$log" || bad=$log # nobody was to be asked
    note "$1" "$2" "$3" "$status" "$seconds" "$(tr -d '\r' <"$log" | grep . | tail -n 1 | cut -c 1-100)" "$bad"
    [ -z "$bad" ]
}

# commands_of SUITE
commands_of()
{
    try "$1" root "apt-get install make" \
        "export DEBIAN_FRONTEND=noninteractive; apt-get update && apt-get install -y --no-install-recommends make" || return 0
    # At a terminal: without one it could not ask.
    for command in $commands; do
        try "$1" user "make $command, nothing there" "script -qec 'make $command' /dev/null" 2 'setup\] Error 4' || :
        grep -q "setup: missing for 'make " "$log" ||
            echo "failed: $1, user, make $command did not say what is missing: see $log" >>"$logs/failed"
    done
    for user in root user; do
        for command in $commands; do
            yes=$([ "$user" = user ] || echo "ASSUME_YES=1 ")
            try "$1" "$user" "${yes}make $command" "${yes}make $command" || :
        done
    done
    try "$1" root "no MPI is there" '
        ! command -v mpicc mpirun mpiexec &&
        ! find / -xdev \( -path /root -o -path /home \) -prune -o -name "libmpi*.so*" -print | grep . &&
        echo "none"' || :
}

: >"$logs/failed"
made=0
for suite; do
    about "$suite"
    bare "$suite" || continue
    furnish "$suite"
    made=$((made + 1))
    commands_of "$suite"
    leave
done
[ "$made" -gt 0 ] || [ -s "$logs/failed" ] || fail "no root could be made"
printf '\n%-9s %-5s %-28s %4s %8s  %s\n' suite user command exit seconds "last line"
cat "$table"
if [ -s "$logs/failed" ]; then
    echo
    cat "$logs/failed"
    exit 1
fi
echo "fresh_root: nothing failed, in $made of $# systems; logs: $logs"
