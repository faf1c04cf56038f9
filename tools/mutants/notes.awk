# SPDX-License-Identifier: Apache-2.0
# tools/mutants/notes.awk tests/equivalent.txt - are the lines still there that the notes on random mutants speak of? A row:
#   src/file.c ~ the line ~ the line as changed ~ why no test can notice
# (without indentation: a note stays true when the line moves).
BEGIN { FS = " ~ " }
/^$/ || /^#/ { next }
NF != 4 { print FILENAME ":" FNR ": not \"file ~ line ~ changed line ~ reason\""; bad = 1; next }
{
    if ($1 != loaded) {
        split("", lines)
        while ((getline text < $1) > 0) { sub(/^ +/, "", text); lines[text] = 1 }
        close($1)
        loaded = $1
    }
    if (!($2 in lines)) { print FILENAME ":" FNR ": " $1 " has no line '" $2 "'"; bad = 1 }
    if ($2 == $3) { print FILENAME ":" FNR ": nothing is changed"; bad = 1 }
}
END { exit bad }
