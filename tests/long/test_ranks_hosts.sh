#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks on four "hosts" of one machine: network namespaces with names and addresses of their own, which share no memory. The
# same calls over Open MPI and MPICH, with a slow link, with losses; and a host whose link goes down is named.
# shellcheck disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/../cli/lib.sh"
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$work"
hosts=4 tag=tmr$$
modules=$(dirname "$(readlink -f "$TRAINMARK")")

. "$root/tests/long/namespaces.sh"

# Stands for ssh: ADDRESS COMMAND..., one line for a shell there. MPICH's launcher says -x first.
cat >"$work/shell" <<END_SHELL
#!/bin/bash
[ "\$1" != -x ] || shift
host=\$((\${1##*.} - 1)); shift
exec ip netns exec $tag\$host unshare --uts sh -c "hostname $tag\$host; exec sh -c '\$*'"
END_SHELL
chmod +x "$work/shell"

# over MPI EACH SECONDS ARGUMENTS...: the program on all hosts, EACH ranks on every one.
over()
{
    mpi=$1 each=$2 limit=$3 list=
    shift 3
    for ((i = 0; i < hosts; i++)); do
        list+=,$net.$((i + 1)):$each
    done
    if [ "$mpi" = openmpi ]; then
        set -- mpirun.openmpi --quiet --oversubscribe --bind-to none --mca plm_rsh_agent "$work/shell" --host "${list#,}" \
            --mca orte_keep_fqdn_hostnames 1 --mca oob_tcp_if_include "$net.0/24" --mca btl_tcp_if_include "$net.0/24" \
            --mca btl tcp,self,vader --mca pml ob1 "$TRAINMARK" "$@"
    else
        set -- env UCX_TLS=tcp,self mpiexec.mpich -launcher ssh -launcher-exec "$work/shell" -hosts "${list#,}" \
            -n $((hosts * each)) -iface eth0 "$TRAINMARK" "$@"
    fi
    ip netns exec "${tag}0" unshare --uts timeout -k 5 "$limit" sh -c "hostname ${tag}0; exec \"\$@\"" sh "$@" \
        >"$out" 2>"$err" </dev/null
    code=$?
}

# The bytes between hosts of the largest message, of a call.
bytes_between()
{
    tr -d ' \n' <"$out" | grep -Eo '\{[^{}]*"call":"'"$1"'"[^{}]*\}' | tail -1 | sed 's/.*"between_hosts_bytes":\([0-9]*\).*/\1/'
}
weights()
{
    grep -o '"weights_hash": *"[^"]*"' "$1/result.json"
}
# Gradients of more than 32 KiB.
wider="${tiny/--model.dim 32/--model.dim 128} --training.steps 4"

quick="--min-bytes 64 --max-bytes 262144 --factor 64 --rep-ms 5 --warmup-ms 1 --precision 0 --deadline 30"
large="--min-bytes 262144 --budget 250"
calls=all-reduce,all-gather,reduce-scatter,all-to-all,all-to-all-v,broadcast,p2p
for mpi in openmpi mpich; do
    launcher=mpirun.openmpi
    [ $mpi = mpich ] && launcher=mpiexec.mpich
    if [ ! -f "$modules/trainmark-$mpi.so" ] || ! command -v $launcher >/dev/null; then
        skip "four hosts over $mpi" "$launcher or trainmark-$mpi.so is not here"
        continue
    fi
    over $mpi 1 100 bench collectives $quick --calls $calls --json
    check "$mpi: four hosts, a rank each" [ "$code" -eq 0 ]
    check "$mpi: all calls are right" [ "$(grep -c '"correct": *true' "$out")" -eq 21 ]
    check "$mpi: there are four hosts" [ "$(grep -c '"hosts": *4' "$out")" -eq 21 ]
    [ $mpi = mpich ] && continue # with more ranks than processors it takes minutes to end: its ranks spin
    over $mpi 2 300 bench collectives $quick $large --calls $calls --json
    check "$mpi: two ranks on each" [ "$code" -eq 0 ]
    check "$mpi: those calls are right" [ "$(grep -c '"correct": *true' "$out")" -eq 7 ]
    check "$mpi: sums, gathers and broadcasts are shared by hosts" [ "$(grep -c '"algorithm": *"shared by hosts"' "$out")" -eq 4 ]
    shared=$(bytes_between all-reduce)
    check "$mpi: an all-reduce sends what the formula says" [ "$shared" -eq $((6 * 262144 + 48 * 120)) ]
    over $mpi 2 100 bench collectives $quick $large --calls all-reduce --algorithm direct --json
    check "$mpi: from rank to rank it is right, too" [ "$(grep -c '"correct": *true' "$out")" -eq 1 ]
    check "$mpi: and sends twice as much" [ "$(bytes_between all-reduce)" -eq $((12 * 262144 + 48 * 120)) ]
    # Eight copies on four hosts, and on this one: the bits of one rank.
    copies="$wider --parallelism.data_parallel_shard_degree 1 --parallelism.exact true"
    over $mpi 2 100 run $copies --parallelism.data_parallel_replicate_degree 8 --out hosts
    check "$mpi: eight ranks train on four hosts" [ "$code" -eq 0 ]
    trainmark run $wider --training.grad_accumulation 8 --training.separate_sums 8 --out alone
    check "$mpi: with the bits of one rank" [ "$(weights hosts)" = "$(weights alone)" ]
done

if [ -f "$modules/trainmark-openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then
    if ip netns exec "${tag}1" tc qdisc add dev eth0 root tbf rate 100mbit burst 256kb latency 50ms 2>/dev/null; then
        over openmpi 1 100 bench collectives $quick --calls all-reduce --json
        check "a slow link: right" [ "$(grep -c '"correct": *true' "$out")" -eq 3 ]
        ip netns exec "${tag}1" tc qdisc del dev eth0 root
    else
        skip "a slow link" "no tc here, or no tbf in this kernel"
    fi
    if command -v nft >/dev/null && ip netns exec "${tag}2" nft "add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in iifname eth0 numgen random mod 1000 < 10 drop" 2>/dev/null; then
        over openmpi 1 100 bench collectives $quick --calls all-reduce --json
        check "one packet of a hundred is lost: right" [ "$(grep -c '"correct": *true' "$out")" -eq 3 ]
        ip netns exec "${tag}2" nft delete table inet t
    else
        skip "lost packets" "no nft here (package nftables), or no numgen in this kernel"
    fi
    (sleep 6 && ip -n "${tag}3" link set eth0 down) &
    over openmpi 1 40 bench collectives --calls all-reduce --duration 60 --deadline 4
    check "a link goes down: not a success" [ "$code" -ne 0 ]
    check "the host behind it is named" has "$err" "rank 3 on ${tag}3.* is late|connection to rank 3 failed"
fi

finish
