# SPDX-License-Identifier: Apache-2.0
# tools/mutants/select.awk -v file=F -v line=L -v sum=CKSUM build/coverage/... - the tests that can
# notice a change in line L of file F, the likeliest killers first: "test seconds", or "none" in front when the map shows that
# no test reaches the line (the tests behind it reach the file at least).
#
# Outside of functions, where no line has a count, every test that reaches the file can, and every test of the room. Where there
# is no map, those of the room can, and those that compare whole trainings: tests/differential and tests/oracle.
#
# Input: red, kills, seconds, the rows of the file (made by map.sh).

function base(path) { sub(/.*\//, "", path); return path }
function folder(path) { sub(/\/[^\/]*$/, "", path); return path }

BEGIN {
    # What the line belongs to: with its own count, or that of the nearest line before it in the same function.
    while ((getline text < file) > 0) {
        n++
        if (n <= line && text ~ /^\{/) { inside = 1; start = n }
        if (n < line && text ~ /^}/) inside = 0
    }
    close(file)
    room = file
    if (!sub(/^src\/(apps\/)?/, "tests/", room) || !match(room, /^tests\/[^\/]*/)) room = ""
    else room = substr(room, 1, RLENGTH)
    if (file ~ /^src\/device\/gpu\//) room = "tests/gpu"
    stem = base(file)
    sub(/\..*/, "", stem)
    # The map knows nothing about them.
    kernels = file ~ /\/simd\// ? "^tests/(device|golden|train)/" : "^$"
    order = "sort -n | cut -d' ' -f2-"
}

FILENAME ~ /\/red$/ { red[$1] = 1; next }
FILENAME ~ /\/kills$/ { if ($1 == file) killer[$2]++; next }
FILENAME ~ /\/seconds$/ { seconds[$1] = $2; next }

{
    test = $1
    reaches[test] = 1
    if ($3 != sum) { stale = 1; next }
    reached = 1
    for (i = 5; i <= NF; i++) {
        if ($i == "-") { reached = 0; continue }
        if ($i > line || $i < start) continue
        known[$i] = 1
        if (reached) hit[test, $i] = 1
    }
}

END {
    if (inside && !stale) for (l = line; l >= start && !nearest; l--) if (l in known) nearest = l
    for (test in reaches) if (!(test in red) && (!nearest || ((test, nearest) in hit))) { take[test] = 1; taken++ }
    if (!taken) {
        # Table, kernel or a line that no test reaches.
        if (nearest) print "-1 none" | order
        for (test in reaches)
            if (!(test in red) && folder(test) == room) { take[test] = 1; taken++ }
    }
    if (!taken && !nearest)
        for (test in seconds)
            if (!(test in red) && (folder(test) == room || test ~ kernels || test ~ /^tests\/(differential|oracle)\//))
                take[test] = 1
    # A table of the file is read by tests that run nothing else of it (an option's row, by one that looks at all options).
    if (!inside)
        for (test in seconds)
            if (!(test in red) && folder(test) == room) take[test] = 1
    for (test in take) {
        name = base(test)
        sub(/^test_/, "", name)
        score = seconds[test] + 0.05
        if (folder(test) == room) score *= 0.3
        if (index(name, stem) || index(stem, name)) score *= 0.2
        if (test in killer) score *= 0.3
        printf "%.6f %s %s\n", score, test, seconds[test] | order
    }
    close(order)
}
