#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `certify --all-ranks` on four "hosts" of one machine: network namespaces, over TCP. All alike; then one whose sends are slow;
# then one slow link. Each is named by the checks between ranks.
# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../cli/lib.sh"
export OMP_WAIT_POLICY=passive TRAINMARK_SECRET=four-hosts-on-one-machine
hosts=4 tag=tmc$$ port=$((20000 + $$ % 20000))

. "$root/tests/long/namespaces.sh"

# A rank on each host; what the first one says is in $out and $err.
certify()
{
    port=$((port + 1))
    for ((i = hosts - 1; i >= 0; i--)); do
        RANK=$i WORLD_SIZE=$hosts LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$i NNODES=$hosts NODE_RANK=$i MASTER_ADDR=$net.1 \
            MASTER_PORT=$port ip netns exec "$tag$i" unshare --uts sh -c "hostname $tag$i; exec \"\$@\"" sh \
            timeout -k 5 400 "$TRAINMARK" certify --all-ranks --json --store none "$@" >"out.$i" 2>"err.$i" </dev/null &
        pid[i]=$!
    done
    for ((i = hosts - 1; i >= 0; i--)); do
        wait "${pid[i]}"
        code=$?
    done
    tr -d '\n' <out.0 >"$out"
    cat err.? >"$err"
}

certify --only collectives,links,pairs --minutes 0.4
# Where others use the machine there may be no verdict.
check "four hosts: nothing is found" [ "$code" -eq 0 -o "$code" -eq 3 ]
check "links and groups were compared" has "$out" "between hosts"
check "every element was compared" has "$out" "any wrong element"

# All links have a rate that the processors of a busy machine reach easily; then one has a quarter of it.
rate() { ip netns exec "$tag$1" tc qdisc replace dev "$2" root tbf rate "$3" burst 256kb latency 2s 2>/dev/null; }
limited=true
for ((i = 0; i < hosts; i++)); do rate $i eth0 200mbit || limited=false; done
if $limited; then
    rate 1 eth0 50mbit
    certify --only links,pairs --minutes 0.4
    check "one host sends slowly: that is found" [ "$code" -eq 5 ]
    check "its links are named at once" has "$out" "all links from rank 1"
    check "the groups with it are slow" has "$out" "every group that it is in"
    rate 1 eth0 200mbit
else
    skip "a slow host" "no tc here (package iproute2), or no tbf in this kernel"
fi
# Hosts 1 and 2 get a link of their own, which is slow from 1 to 2.
ip link add "${tag}x" type veth peer name eth1 netns "${tag}2" && ip link set "${tag}x" netns "${tag}1" name eth1
ip -n "${tag}1" link set eth1 up && ip -n "${tag}2" link set eth1 up
ip -n "${tag}1" route add "$net.3/32" dev eth1 src "$net.2" && ip -n "${tag}2" route add "$net.2/32" dev eth1 src "$net.3"
if $limited && rate 2 eth1 200mbit && rate 1 eth1 50mbit; then
    certify --only links,pairs --minutes 0.4
    check "one link is slow: that is found" [ "$code" -eq 5 ]
    check "it is named by its two ends" has "$out" "rank 1 \\([^)]*\\) -> rank 2 "
    check "the groups with both are slow" has "$out" "rank [12] \\([^)]*\\) <-> rank [12] "
else
    skip "a slow link" "no tc here (package iproute2), or no tbf in this kernel"
fi

finish
