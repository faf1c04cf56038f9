#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sourced behind lib.sh: $hosts "hosts" of one machine, network namespaces $tag0, $tag1, ... with the addresses $net.1, $net.2, ...
# on a bridge ${tag}b. Where none can be made, the script that sources it is skipped. All is gone when it ends.
# shellcheck disable=SC2154
for word in ip:iproute2 unshare:util-linux; do
    command -v "${word%:*}" >/dev/null || { skip "four hosts" "no ${word%:*} here (package ${word#*:})"; finish; exit; }
done
ip netns add "$tag" 2>/dev/null || { skip "four hosts" "this system lets us make no network namespaces"; finish; exit; }
ip netns del "$tag"

down()
{
    for ((i = 0; i < hosts; i++)); do
        for pid in $(ip netns pids "$tag$i" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
        ip netns del "$tag$i" 2>/dev/null
    done
    ip link del "${tag}b" 2>/dev/null
    chmod -R u+rwX "$work" 2>/dev/null
    rm -rf "$work"
}
trap down EXIT
net=10.$((78 + RANDOM % 2)).$((RANDOM % 200))
ip link add "${tag}b" type bridge && ip link set "${tag}b" up
for ((i = 0; i < hosts; i++)); do
    ip netns add "$tag$i"
    ip link add "${tag}v$i" type veth peer name eth0 netns "$tag$i"
    ip link set "${tag}v$i" master "${tag}b" up
    ip -n "$tag$i" addr add "$net.$((i + 1))/24" dev eth0
    ip -n "$tag$i" link set eth0 up
    ip -n "$tag$i" link set lo up
done
