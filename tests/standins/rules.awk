# SPDX-License-Identifier: Apache-2.0
# Functions of a stand-in that refuse something: "FILE FUNCTION cited" or "FILE FUNCTION uncited". A refusal is a return of an
# error, or words of what is wrong. It is cited if a comment inside the function, or the one above it, names a header, a
# document or what a library was seen to do; or the file's head does for all of it ("Rules are those of").
function names_source(text) { return text ~ /\.h[ ,:;.)]|documentation|Guide|seen on/ }
FNR == 1 { whole = 0; depth = 0; above = ""; comment = 0; name = ""; file = FILENAME; sub(/.*\//, "", file) }
/Rules are those of/ { whole = 1 }
/^\/\*/ { above = ""; comment = 1 }
comment { above = above " " $0 }
/\*\/$/ { comment = 0 }
/^[A-Za-z].*\(/ && !/^ *#/ && !/;$/ {
    line = $0
    if (line ~ /^API/) { sub(/^API *(NAME|LT|RTC|CALL)?\(*/, "", line); sub(/[ ,()].*/, "", line) }
    else { sub(/\(.*/, "", line); sub(/.*[ *]/, "", line) }
    name = line
}
/^{/ { inside = 1; refuses = 0; cited = whole || names_source(above) }
inside && /(return|[?:]) *(INVALID|INVALID_VALUE|INVALID_IMAGE|NO_MEMORY|NOT_FOUND|NOT_READY)[ ;]|wrong\("|return "|broken\(ILLEGAL/ { refuses = 1 }
inside && /\/[*\/]/ && names_source($0) { cited = 1 }
/^}/ {
    if (inside && refuses) print file, name, cited ? "cited" : "uncited"
    inside = 0
    above = ""
}
