#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `trainmark certify` from the outside, on made-up machines: the certificate as a file, page and stored result; verified;
# beside the fleet; wrong usage.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"

# machine NAME BIOS: a folder with what software and host read.
machine()
{
    mkdir -p "$1/proc/sys/kernel" "$1/sys/class/dmi/id" "$1/sys/devices/system/cpu/cpu0/topology"
    printf 'processor\t: 0\nmodel name\t: Example CPU 9000\nmicrocode\t: 0x2b\nflags\t\t: fpu\n' >"$1/proc/cpuinfo"
    echo "$1" >"$1/proc/sys/kernel/hostname"
    echo 6.1.0 >"$1/proc/sys/kernel/osrelease"
    echo 0 >"$1/sys/devices/system/cpu/cpu0/topology/physical_package_id"
    echo 0 >"$1/sys/devices/system/cpu/cpu0/topology/core_id"
    echo "$2" >"$1/sys/class/dmi/id/bios_version"
}
certify() { trainmark certify --only software,host --minutes 0.1 "$@"; }

machine node7 1.4
machine node8 1.4
machine node9 1.4

# --- one node -------------------------------------------------------------------------------------------------------------

certify --sysroot node7 --out c.json --page c.html
check "a node without a fault passes" [ "$code" -eq 0 ]
check "the hash is the last member" [ "$(tail -n 2 c.json | sed 's/[0-9a-f]\{64\}/H/')" = '  "hash": "H"
}' ]
check "it is the SHA-256 of the text before it" [ "$(sed -n 's/^  "hash": "\(.*\)"$/\1/p' c.json)" = \
    "$(head -n -2 c.json | head -c -2 | sha256sum | cut -d ' ' -f 1)" ]

# --- verified -------------------------------------------------------------------------------------------------------------

says 0 '([0-9]+) of \1 figures agree with the findings, and the hash with the text' verify c.json
sed 's/"text": "1.4"/"text": "1.5"/' c.json >changed.json
says 5 '1 figure is not what the text and its findings say' verify changed.json
if command -v ssh-keygen >/dev/null && ssh-keygen -q -t ed25519 -N '' -f key; then
    trainmark verify c.json --sign key
    printf 'me %s\n' "$(cut -d ' ' -f 1,2 key.pub)" >signers
    says 0 'signed by me' verify c.json --signers signers
else
    skip "it can be signed" "no ssh-keygen"
fi

# --- the fleet ------------------------------------------------------------------------------------------------------------

certify --sysroot node8
certify --sysroot node9
echo 1.5 >node7/sys/class/dmi/id/bios_version
certify --sysroot node7 --out drifted.json
check "a node that is alone with its BIOS fails" [ "$code" -eq 5 ]
check "and is named" has "$out" "^software: node7, rank 0: board.bios_version is '1.5'; expected: '1.4', which all 2 other nodes"
trainmark results --kind certificate --all
check "the store lists certificates" [ "$(grep -c '^| *[1-4] |' "$out")" -eq 4 ]
says 5 'the latest certificate of 1 node fails' report --fleet certificates
check "the nodes, then what was found, apart" [ "$(sed '/^|-/!{/^$/!d;}; s/^|.*/table/; s/^$/-/' "$out" | tr -d '\n')" = -table--table ]
check "the node" has "$out" '^\| node7 +\| [^ ]+ +\| fail +\|'

trainmark report c.json
check "one certificate is one table" [ "$(grep -c '^|-' "$out")" -eq 1 ]
trainmark report c.json -o c2.html
check "in a file there is no text beside it" [ "$code$(wc -c <"$out")" = 00 ]
check "as the page that was made with it" cmp -s c.html c2.html

# --- hosts that are expected ----------------------------------------------------------------------------------------------

hostname=$(cat /proc/sys/kernel/hostname)
printf '# all\n%s\n' "$hostname" >hosts
says 0 '' certify --store none --all-ranks --hosts hosts --only software
echo node-that-is-down >>hosts
says 5 'node-that-is-down: the host did not come' certify --store none --all-ranks --hosts hosts --only software

# --- wrong usage ----------------------------------------------------------------------------------------------------------

certify --out c.json
failed_with 4 "a certificate is not overwritten" "'c.json' already exists; name another file with --out"

finish
