#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws faults for a campaign: a line each, of the same seed the same ones. COUNT is divided evenly among the kinds.
#
#   tests/faults/draw.sh SEED COUNT [RANKS [PERCENT [STEPS]]]
#
# A line has a number, the kind, the tool that has to find it, who is to be named (a rank, A-B: one or both of a pair, cN: the
# processor N), and the words of TM_FAULT; of a full disk, in their place, the bytes for tests/faults/full_disk.sh. RANKS: 4, at
# least 3. STEPS: 400, of the training. Certificates of a tenth of a minute, of the processors 0 and 1.
#
# In reach, and drawn, is what a run of so many steps or such a certificate can show:
#   slow         PERCENT (3) to 10 percent, by the made-up clock with a noise of 0.5 percent a launch: from the start, from
#                a step of the second quarter on (3 percent takes up to 200 steps to be named), or of the products alone
#                (then 20 to 40 percent). PERCENT is to be twice what two equal runs differ by. Launches take no time but
#                that of their bytes and products: ranks that update other tensors have other numbers of launches. By
#                certificates 5 to 10 percent: their floor is 1 percent at least, and of two processors they find 4.
#   flip         a bit of a result, of a weight or of a message, once in 20 to 200 launches or calls: so often that a
#                check of one step in 4 meets several. Any bit: what compares bits finds the lowest, too. In certificates
#                once in 1,000 to 3,000 launches of trainings, 50 to 150 products, 5 to 15 fills of memory.
#   stuck        1 to 3 words in each allocation, with one of 64 bits at 0 or 1; what is never used, nobody can find. In
#                training it is the same both times that a step is computed: only the certificate's check of memory finds it.
#   link         a rate of 0.5 to 0.25, of a pair of hosts, by the made-up clock. (Within a host it takes 0.37.)
#   stale, swap, tail    in one collective call of 5 to 20; swap in one gather or exchange of 3 to 6. Where slices of a sum
#                are swapped, or the pieces that a rank sends to be added, that is found, but a rank is not always named.
#   hang         for ever, before a collective call of the first half.
#   full         after 1 to 64 KiB, below the folder of the run.
set -eu
[ $# -ge 2 ] || { sed -n '3,5s/^#  *//p' "$0" >&2; exit 2; }
exec awk -v seed="$1" -v count="$2" -v ranks="${3:-4}" -v least="${4:-3}" -v steps="${5:-400}" '
# Park and Miller: exact in float64.
function draw(n) { state = (16807 * state) % 2147483647; return int(state / 2147483647 * n) }
function between(a, b) { return a + draw(b - a + 1) }
function pair()
{
    a = draw(ranks)
    b = (a + 1 + draw(ranks - 1)) % ranks
    return a < b ? a "-" b : b "-" a
}
function clock() { return ";clock=made,noise=0.5,gflops=0.2,gigabytes=0.04,latency_us=0;seed=" between(1, 1000000) }
function slower_clock() { return ";clock=made,noise=0.5,gflops=5,wire=0.05;seed=" between(1, 1000000) }
function plain() { return ";seed=" between(1, 1000000) }
function part(least, most) { return sprintf("%.1f", least + draw(1001) / 1000 * (most - least)) }
function core() { who = "c" draw(2); return "core=" substr(who, 2) }
# The next one of the tools that are meant to find the kind.
function next_of(tools,   words, n) { n = split(tools, words, " "); tool = words[int(i / kinds_n) % n + 1]; return tool }
BEGIN {
    if (seed !~ /^[0-9]+$/ || count !~ /^[0-9]+$/ || ranks < 3) {
        print "draw.sh: SEED and COUNT are whole numbers, RANKS is at least 3" >"/dev/stderr"
        exit 2
    }
    state = seed % 2147483646 + 1
    for (i = 0; i < 16; i++) draw(2)
    kinds_n = split("flip-result slow stale flip-memory slow-late hang link tail flip-message slow-products swap full stuck",
                    kinds, " ")
    for (i = 0; i < count; i++) {
        kind = kinds[i % kinds_n + 1]
        who = draw(ranks)
        here = "rank=" who
        rare = between(5, 20)
        every = ",name=certified,every=" rare
        if (kind == "flip-result" && next_of("replay step product") == "replay")
            text = "flip," here ",every=" between(20, 200) plain()
        if (kind == "flip-result" && tool == "step") text = "flip," core() ",every=" between(1000, 3000) plain()
        if (kind == "flip-result" && tool == "product") text = "flip," core() ",every=" between(50, 150) plain()
        if (kind == "flip-memory" && next_of("replay memory") == "replay")
            text = "flip,where=memory," here ",every=" between(20, 200) plain()
        if (kind == "flip-memory" && tool == "memory") text = "flip,where=memory," core() ",every=" between(5, 15) plain()
        if (kind == "flip-message") {
            tool = "collectives"
            text = "flip,where=message,name=certified," here ",every=" between(20, 200) plain()
        }
        if (kind == "stuck") { tool = "memory"; text = "stuck," core() ",words=" between(1, 3) ",to=" draw(2) plain() }
        if (kind == "slow" && next_of("ledger product") == "ledger") text = "slow," here ",percent=" part(least, 10) clock()
        if (kind == "slow" && tool == "product") text = "slow," core() ",percent=" part(5, 10) slower_clock()
        if (kind == "slow-late" && next_of("ledger curve") == "ledger")
            text = "slow," here ",percent=" part(least, 10) ",step=" between(int(steps / 4), int(steps / 2)) clock()
        if (kind == "slow-late" && tool == "curve")
            text = "slow," core() ",percent=" part(5, 10) ",after=" part(1, 3) slower_clock()
        if (kind == "slow-products" && next_of("ledger product") == "ledger")
            text = "slow," here ",op=linear,percent=" between(20, 40) clock()
        if (kind == "slow-products" && tool == "product") {
            split("256x256 128x96 32x768 768x32", shapes, " ")
            text = "slow," core() ",shape=" shapes[draw(4) + 1] ",percent=" part(5, 10) slower_clock()
        }
        if (kind == "link") {
            tool = "links"
            who = pair()
            text = "link,ranks=" who ",rate=" sprintf("%.2f", between(25, 50) / 100) slower_clock()
        }
        if (kind == "stale") { tool = "collectives"; text = "stale,of=" who every plain() }
        if (kind == "swap") {
            both = pair()
            op = next_of("all_gather all_to_all")
            tool = "collectives"
            text = "swap,name=certified,ranks=" both ",op=" op ",every=" 3 + rare % 4 plain()
            who = both
        }
        if (kind == "tail") { tool = "collectives"; text = "tail," here ",elements=" between(1, 16) every plain() }
        if (kind == "hang") { tool = "deadline"; text = "hang," here ",at=" between(5, steps * 2) plain() }
        if (kind == "full") { next_of("run disk"); text = between(1, 64) * 1024 }
        printf "%d %s %s %s %s\n", i + 1, kind, tool, who, text
    }
}'
