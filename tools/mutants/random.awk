# SPDX-License-Identifier: Apache-2.0
# tools/mutants/random.awk -v count=N -v seed=S FILE... - N random mutants of C files as records, one a line, fields between tabs:
#   name, file, line number, kind of change, the line, the new line
#
# Every line of code that something can be done to is as likely as any other one; then a kind is drawn among those that the line
# allows, then a place:
#   operator     + - * / % == != && || & | << >> += -= ++ -- replaced by a sibling, an ! dropped
#   bound        < <= > >= replaced by the one with or without equality, or by its opposite; a "+ 1" or "- 1" dropped
#   constant     a number one more, one less or (with a point) twice itself; true and false
#   condition    if (c): if (!(c))
#   statement    an assignment, a call or a guarded statement ("if (c) f();") dropped
#   arguments    two neighbours of a call swapped
# The same seed and sources give the same mutants with every awk. Assertions, strings, comments, preprocessor lines and sizes of
# text buffers stay; so do arguments whose order makes no difference.

# Park and Miller: exact in doubles.
function draw(n) { state = (state * 16807) % 2147483647; return int(state / 2147483647 * n) }

# The line with what is in strings, characters and comments blotted out, places kept; in_comment goes on from line to line.
function mask(line,    out, i, c, quote)
{
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (in_comment) {
            if (substr(line, i, 2) == "*/") { in_comment = 0; i++; out = out "@" }
            out = out "@"
        } else if (quote != "") {
            if (c == "\\") { i++; out = out "@" }
            else if (c == quote) quote = ""
            out = out "@"
        } else if (substr(line, i, 2) == "/*") {
            in_comment = 1
            i++
            out = out "@@"
        } else if (substr(line, i, 2) == "//") {
            while (i++ <= length(line)) out = out "@"
        } else {
            if (c == "\"" || c == "'") { quote = c; c = "@" }
            out = out c
        }
    }
    return out
}

# Notes the mutant that puts `new` in the place of `length_` characters at `at`.
function offer(kind, at, length_, new,    line)
{
    line = substr(text, 1, at - 1) new substr(text, at + length_)
    if (line == text) return
    n_offers[kind]++
    offers[kind, n_offers[kind]] = line
}

# All places of `old` in the code, each replaced by `new`.
function swap(kind, old, new,    from, at)
{
    for (from = 1; (at = index(substr(code, from), old)) > 0; from += at + length(old) - 1)
        offer(kind, from + at - 1, length(old), new)
}

function operators()
{
    swap("operator", " + ", " - "); swap("operator", " - ", " + ")
    swap("operator", " * ", " / "); swap("operator", " / ", " * "); swap("operator", " % ", " / ")
    swap("operator", " == ", " != "); swap("operator", " != ", " == ")
    swap("operator", " && ", " || "); swap("operator", " || ", " && ")
    swap("operator", " & ", " | "); swap("operator", " | ", " & ")
    swap("operator", " << ", " >> "); swap("operator", " >> ", " << ")
    swap("operator", " += ", " -= "); swap("operator", " += ", " = "); swap("operator", " -= ", " += ")
    swap("operator", " *= ", " /= "); swap("operator", " /= ", " *= "); swap("operator", " |= ", " = ")
    swap("operator", "++", "--"); swap("operator", "--", "++")
    swap("bound", " < ", " <= "); swap("bound", " < ", " >= ")
    swap("bound", " <= ", " < "); swap("bound", " <= ", " > ")
    swap("bound", " > ", " >= "); swap("bound", " > ", " <= ")
    swap("bound", " >= ", " > "); swap("bound", " >= ", " < ")
    swap("bound", " + 1)", ")"); swap("bound", " - 1)", ")"); swap("bound", " + 1;", ";"); swap("bound", " - 1;", ";")
    swap("bound", " + 1]", "]"); swap("bound", " - 1]", "]"); swap("bound", " + 1,", ","); swap("bound", " - 1,", ",")
    swap("constant", "true", "false"); swap("constant", "false", "true")
}

function negations(    from, at, next_)
{
    for (from = 1; (at = index(substr(code, from), "!")) > 0; from += at) {
        next_ = substr(code, from + at, 1)
        if (next_ ~ /[A-Za-z_(*]/) offer("operator", from + at - 1, 1, "")
    }
}

# Numbers that are no part of a name; hexadecimal ones are patterns more often than numbers.
function constants(    from, number, before, digits, suffix)
{
    for (from = 1; match(substr(code, from), /[0-9][0-9a-zA-Z_.]*([eE]-[0-9]+)?/); from += RSTART + RLENGTH - 1) {
        number = substr(code, from + RSTART - 1, RLENGTH)
        before = from + RSTART - 2 > 0 ? substr(code, from + RSTART - 2, 1) : " "
        if (before ~ /[A-Za-z_0-9.]/ || number ~ /^0[xX]/) continue
        if (number ~ /[.eE]/) {
            if (number + 0 != 0) offer("constant", from + RSTART - 1, RLENGTH, "(2 * " number ")")
            continue
        }
        match(number, /^[0-9]+/)
        digits = substr(number, 1, RLENGTH)
        suffix = substr(number, RLENGTH + 1)
        match(substr(code, from), /[0-9][0-9a-zA-Z_.]*([eE]-[0-9]+)?/)
        if (length(digits) > 9 || suffix !~ /^[uUlL]*$/) continue
        offer("constant", from + RSTART - 1, RLENGTH, (digits + 1) suffix)
        if (digits > 0) offer("constant", from + RSTART - 1, RLENGTH, (digits - 1) suffix)
    }
}

# Sizes of text buffers are as good with one more.
function without_sizes(line,    at, end, blank)
{
    for (at = 1; match(substr(line, at), /\[[^\]]*\]/); at = end) {
        end = at + RSTART - 1 + RLENGTH
        blank = substr(line, at + RSTART - 1, RLENGTH)
        gsub(/./, "@", blank)
        line = substr(line, 1, at + RSTART - 2) blank substr(line, end)
    }
    return line
}

# Where the parenthesis that opens at `at` closes; 0: not on this line.
function closing(at,    depth, c)
{
    for (depth = 0; at <= length(code); at++) {
        c = substr(code, at, 1)
        if (c == "(") depth++
        if (c == ")" && --depth == 0) return at
    }
    return 0
}

function conditions(    at, end)
{
    at = index(code, "if (")
    if (at == 0 || (end = closing(at + 3)) == 0) return
    offer("condition", at + 3, end - at - 2, "(!" substr(text, at + 3, end - at - 2) ")")
}

function statements(    body, indent)
{
    body = code
    sub(/^ +/, "", body)
    gsub(/@+$/, "", body)
    sub(/ +$/, "", body)
    indent = length(code) - length(body)
    if (code !~ /^ / || body !~ /;$/ || before_ !~ /([;{}):@]|else|do)$/) return
    if (body ~ /^(return|goto|case|default|typedef|static|const|struct|union|enum|extern|else|do|while|for|[{}#])/) return
    if (body ~ /^if \(/) {
        if (after_ !~ /^ *else/ && body !~ /;.*;/ && closing(index(code, "if (") + 3)) whole()
        return
    }
    if (body ~ /^(break|continue);$/ || body ~ /^[*(]*[A-Za-z_][A-Za-z0-9_.>\[\]*()+-]* [-+*\/%&|^<>]*= / ||
        body ~ /^(\(void\))?[A-Za-z_][A-Za-z0-9_.>\[\]-]*\(.*\);$/ || body ~ /^[A-Za-z_][A-Za-z0-9_.>\[\]-]*(\+\+|--);$/)
        whole()
}

function whole(    at)
{
    match(text, /^ */)
    at = RLENGTH + 1
    offer("statement", at, length(text) - at + 1, ";")
}

# Is it a call of tm_min and its like, or strcmp(...) == 0? Its name ends at `last`.
function symmetric(last,    name)
{
    name = substr(code, 1, last)
    sub(/.*[^A-Za-z0-9_]/, "", name)
    if (name ~ /^(tm_min|tm_max|tm_min_size|fmin|fmax|fminf|fmaxf)$/) return 1
    return name ~ /^(strcmp|strncmp|memcmp|strcasecmp)$/ && substr(code, closing(last + 1) + 1) ~ /^ [!=]= 0/
}

function arguments(    from, at, call, first, second, a, b)
{
    for (from = 1; match(substr(code, from), /[A-Za-z0-9_]\([^(),@{}]+, [^(),@{}]+[,)]/); from += RSTART) {
        at = from + RSTART + 1
        call = substr(code, at, RLENGTH - 3)
        a = index(call, ", ")
        first = substr(call, 1, a - 1)
        second = substr(call, a + 2)
        if (first == second || symmetric(from + RSTART - 1) || first ~ /^(const|void|int|double|float|char|tm_[a-z_]+|size_t|u?int[0-9]+_t) /) continue
        offer("arguments", at, length(call), second ", " first)
    }
}

BEGIN {
    split("operator bound constant condition statement arguments", kinds, " ")
    state = (seed * 7919 + 104729) % 2147483646 + 1
    for (i = 0; i < 10; i++) draw(2)
    for (a = 1; a < ARGC; a++) {
        file = ARGV[a]
        in_comment = 0
        for (n = 0; (getline line < file) > 0; ) { raw[++n] = line; masked[n] = mask(line) }
        close(file)
        raw[n + 1] = masked[n + 1] = before = ""
        for (i = 1; i <= n; i++) {
            was = before
            if (masked[i] !~ /^[ @]*$/) before = masked[i]
            gsub(/[ @]+$/, "", before)
            if (masked[i] ~ /^[ @]*$/ || masked[i] ~ /^ *#/ || masked[i] ~ /ASSERT/ || masked[i - 1] ~ /\\$/) continue
            if (masked[i] ~ /^ *(static |const )*(unsigned )?char +[^=;(]*\[[^\]]*[0-9]/) masked[i] = without_sizes(masked[i])
            # Kept for later: the file, the number, the line, its neighbours.
            pool_file[++pool] = file
            pool_line[pool] = i
            pool_text[pool] = raw[i]
            pool_code[pool] = masked[i]
            pool_before[pool] = was
            pool_after[pool] = masked[i + 1]
        }
    }
    for (tries = 0; made < count && tries < 100 * count + 1000; tries++) {
        p = draw(pool) + 1
        text = pool_text[p]
        code = pool_code[p]
        before_ = pool_before[p]
        after_ = pool_after[p]
        for (k in n_offers) n_offers[k] = 0
        operators(); negations(); constants(); conditions(); statements(); arguments()
        m = 0
        for (k = 1; k <= 6; k++) if (n_offers[kinds[k]] > 0) allowed[++m] = kinds[k]
        if (m == 0) continue
        kind = allowed[draw(m) + 1]
        new = offers[kind, draw(n_offers[kind]) + 1]
        if (taken[pool_file[p], pool_line[p], new]++) continue
        base = pool_file[p]
        sub(/.*\//, "", base)
        made++
        printf "%s:%d\t%s\t%d\t%s\t%s\t%s\n", base, pool_line[p], pool_file[p], pool_line[p], kind, text, new
    }
    exit made == count ? 0 : 1
}
