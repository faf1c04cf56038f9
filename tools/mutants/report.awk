# SPDX-License-Identifier: Apache-2.0
# tools/mutants/report.awk RESULTS - what judge.sh found: survivors, then a table by room. Exit 1 when one survived.
# Counted are mutants that compile to other code and that a test looked at: exit 1, too, when one has none.
BEGIN { FS = "\t" }

{
    n[$2, $1]++
    rooms[$2] = 1
    all[$1]++
    if ($1 == "survived" || $1 == "unjudged") {
        sub(/^ +/, "", $6)
        sub(/^ +/, "", $7)
        printf "%s: %s (%s)\n  - %s\n  + %s\n", $1, $5, $4, $6, $7
    }
}

function row(room, killed, time, survived, same, uncompiled,    counted)
{
    counted = killed + time + survived
    printf "%-10s %7d %7d %8d %9d %10d %11d %7s\n", room, counted, killed, time, survived, same, uncompiled,
        counted ? sprintf("%.1f %%", 100 * (killed + time) / counted) : "-"
}

END {
    printf "%-10s %7s %7s %8s %9s %10s %11s %7s\n", "room", "mutants", "killed", "by time", "survived", "same code", "uncompiled",
        "score"
    for (room in rooms) names[++count] = room
    for (i = 1; i <= count; i++)
        for (j = i + 1; j <= count; j++) if (names[j] < names[i]) { swap = names[i]; names[i] = names[j]; names[j] = swap }
    for (i = 1; i <= count; i++) {
        room = names[i]
        row(room, n[room, "killed"], n[room, "time"], n[room, "survived"], n[room, "same"], n[room, "uncompiled"])
    }
    row("all", all["killed"], all["time"], all["survived"], all["same"], all["uncompiled"])
    exit all["survived"] + all["unjudged"] > 0
}
