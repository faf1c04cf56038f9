# SPDX-License-Identifier: Apache-2.0
# tools/mutants/rows.awk LIST... - rows of lists of mutants (form: docs/testing.md) as records, one a line, fields between tabs:
#   name, list, tests (or "-"), file, line number, what it breaks, why no test can notice (or "-"), the line, the new line
# `-v only=PATTERN` (with *) takes some. What cannot be applied is said on standard error; exit 1 then.

function complain(what) { print FILENAME ":" FNR ": " what | "cat >&2"; bad = 1 }

function load(path,    line, got)
{
    if (path == loaded) return lines > 0
    loaded = path
    for (lines = 0; (got = (getline line < path)) > 0; ) text[++lines] = line
    close(path)
    return lines > 0
}

# Looks for `old` in the block that begins at the first line with `where` and ends at the next one that starts with "}".
function find(where, old,    i, at, rest, inside)
{
    found = 0
    for (i = 1; i <= lines; i++) {
        if (!inside) {
            if (!index(text[i], where)) continue
            inside = 1
        }
        for (rest = text[i]; (at = index(rest, old)) > 0; rest = substr(rest, at + length(old)))
            if (++found == 1) line_number = i
        if (substr(text[i], 1, 1) == "}") break
    }
    return inside
}

# The part of `row` up to the first " ~ ", which is taken away.
function field(    at, part)
{
    at = index(row, " ~ ")
    part = at ? substr(row, 1, at - 1) : row
    row = at ? substr(row, at + 3) : ""
    return part
}

BEGIN {
    gsub(/[.+?()[\]]/, "\\\\&", only)
    gsub(/\*/, ".*", only)
    if (only == "") only = ".*"
    only = "^(" only ")$"
}

FNR == 1 { file = tests = "" }

/^$/ || /^#/ { next }

/^\[.*\]$/ {
    tests = substr($0, 2, length($0) - 2)
    file = tests
    sub(/ .*/, "", file)
    if (!sub(/^[^ ]* +/, "", tests)) tests = "-"
    if (!load(file)) complain("no file '" file "'")
    folder = FILENAME
    sub(/[^\/]*$/, "", folder)
    n = tests == "-" ? 0 : split(tests, names, " ")
    for (i = 1; i <= n; i++) {
        if (names[i] ~ /\//) complain("'" names[i] "' is not beside this list: put the rows into the list beside it")
        if ((getline ignored < (folder names[i])) < 0) complain("no test '" folder names[i] "'")
        close(folder names[i])
    }
    next
}

{
    row = $0
    name = field()
    where = field()
    change = field()
    what = field()
    note = row
    if (name !~ only) next
    at = index(change, " =>")
    if (file == "" || what == "" || at < 2) { complain("not \"name ~ where ~ old => new ~ what it breaks\""); next }
    old = substr(change, 1, at - 1)
    new = substr(change, at + 3)
    sub(/^ /, "", new)
    if (note == "") note = "-"
    else if (!sub(/^equivalent: /, "", note)) { complain("after the last ~ stands \"equivalent: why\""); next }
    if (seen[FILENAME, name]++) complain("two mutants are called " name)
    if (lines == 0) next
    if (!find(where, old)) { complain(name ": no line of " file " contains '" where "'"); next }
    if (found != 1) {
        complain(name ": '" old "' is there " found " times in " file " from '" where "' on, not exactly once")
        next
    }
    at = index(text[line_number], old)
    line = substr(text[line_number], 1, at - 1) new substr(text[line_number], at + length(old))
    if (line == text[line_number]) { complain(name ": nothing is changed"); next }
    print name "\t" FILENAME "\t" tests "\t" file "\t" line_number "\t" what "\t" note "\t" text[line_number] "\t" line
}

END { close("cat >&2"); exit bad }
