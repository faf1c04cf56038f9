# SPDX-License-Identifier: Apache-2.0
# Writes the program that compares the rows of one library with its header: WORDS of the header, later.txt, ROWS
# (tests/gpu/headers/tables.c). Rows whose words the header lacks are told apart here, since they would not compile.
function quote(text) { gsub(/[\\"]/, "\\\\&", text); return "\"" text "\"" }
function lacks(text,    i, n, word) {
    n = split(text, word, /[^A-Za-z_0-9]+/)
    for (i = 1; i <= n; i++)
        if (word[i] ~ /^[A-Za-z_]/ && word[i] !~ /^(sizeof|offsetof|alignof|struct)$/ && !(word[i] in there)) return 1
    return 0
}
file == 1 { there[$1] = 1; next }
file == 2 && /^#/ { next }
file == 2 { if ((" " $1 " ") ~ (" " library " ")) since[$3] = $2; next }
$1 != library || $3 == "type" { next }
{
    n++
    what[n] = $3; where[n] = $2; name[n] = $4; ours[n] = $5; theirs[n] = $6
}
END {
    print "#include \"headers.hpp\""
    print "#include \"judge.hpp\""
    print "namespace ours {"
    print "#include \"comm/coll/nccl_calls.h\""
    print "#include \"gpu/sensors_calls.h\""
    print "typedef nccl_unique_id unique_id; struct communicator; typedef void config;" # of the stand-in for NCCL
    for (i = 1; i <= n; i++)
        if (what[i] == "call") print "typedef " ours[i] " (*call_" i ")" theirs[i] ";"
    print "}"
    print "int main() {"
    print "const long long version = " version ";"
    if ("NCCL_CONFIG_INITIALIZER" in there) print "ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;"
    there["initial"] = 1
    for (i = 1; i <= n; i++) {
        key = what[i] == "call" ? name[i] : theirs[i]
        from = (key in since) ? since[key] : 0
        skips = sub(/~/, "", from)
        if (skips)
            printf "if (version < %s) judge::later++; else ", from
        if (skips)
            from = 0
        if (lacks(key))
            print "judge::is_due(" quote(where[i]) ", " quote(key) ", false, " from ", version);"
        else if (what[i] == "call")
            print "judge::call<ours::call_" i ", decltype(&" key ")>(" quote(where[i]) ", " quote(key) ", " from ", version);"
        else
            print "judge::number(" quote(where[i]) ", " quote(name[i]) ", " ours[i] ", " quote(key) ", judge::value(" key "), " from ", version);"
    }
    print "return judge::finish(" quote(library) ", std::to_string(version).c_str());"
    print "}"
}
