#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every command that the README and the pages under docs/ show is executed: the lines of fenced blocks marked sh or
# console that begin with `trainmark`, `./trainmark` or `make` (in console blocks behind a `$ `), those of a page in their
# order, in a copy of the sources per page. A line that fails is a failed test. tests/cli/docs.txt has the commands that
# are executed in another way, and why. Files that a page makes (cat >FILE, up to a line END) are made.
#
# Of a pipe the last command counts.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# commands PAGE DIRECTIVES: the command lines of a page, one a line, "LINE NUMBER<tab>COMMAND<tab>DIRECTIVE". Then
# "unused<tab>COMMAND" for each directive of the page that is for none of them.
commands()
{
    page=${1#"$root"/}
    awk -v page="${page#"$work"/}: " '
        # As docs.txt has it: without a remark, with single blanks.
        function plain(line) { sub(/ *#.*/, "", line); gsub(/ +/, " ", line); sub(/^ /, "", line); sub(/ $/, "", line); return line }
        FNR == NR {
            at = index($0, "  # test: ")
            if (at && index($0, page) == 1) {
                command = substr($0, length(page) + 1, at - length(page) - 1)
                directive[command] = substr($0, at + 10)
                unused[command] = 1
            }
            next
        }
        /^ *```/ {
            fence = $0
            sub(/^ *```/, "", fence)
            if (inside) { inside = 0; next }
            split(fence, words, /[ \t{]/)
            inside = 1
            wanted = words[1] == "sh" || words[1] == "console"
            console = words[1] == "console"
            next
        }
        !inside || !wanted { continued = ""; next }
        file != "" && $0 != "END" { gsub(quote, quote "\\" quote quote); made = made " " quote $0 quote; next }
        file != "" { print number "\tprintf " quote "%s\\n" quote made " >" file "\t"; file = ""; next }
        /^cat >[^ ]+ <<.END.$/ { file = substr($2, 2); made = ""; number = FNR; quote = sprintf("%c", 39); next }
        {
            line = $0
            if (continued != "") {
                sub(/^ *(> )?/, "", line)
                line = continued line
            } else {
                number = FNR
                if (console && line !~ /^ *\$ /) next
                sub(/^ *(\$ )?/, "", line)
            }
            if (line ~ /\\$/) { continued = substr(line, 1, length(line) - 1); next }
            continued = ""
            if (line !~ /^([A-Z_][A-Z_0-9]*=[^ ]* )*(\.\/)?(trainmark|make)( |$)/) next
            delete unused[plain(line)]
            told = directive[plain(line)]
            if (told == "" && line !~ /--dry-run| explain / && line ~ /^make|--device (cuda|hip)|--ranks |--scaling |--engine nccl|mlperf run |[ =](FOLDER|DIR|RUN|CACHE|PICTURES)([ \/]|$)/)
                told = "skip it takes a GPU, an MPI, minutes or a folder of its own"
            print number "\t" line "\t" told
        }
        END { for (command in unused) print "unused\t" command }' "$2" "$1"
}

# Goes to the page's copy of the sources, without build outputs; made when it is needed first.
enter()
{
    if [ ! -d "$work/$1.d" ]; then
        mkdir "$work/$1.d"
        (cd "$root" && tar cf - --exclude ./build --exclude ./output --exclude ./.git --exclude ./trainmark .) |
            (cd "$work/$1.d" && tar xf -)
    fi
    cd "$work/$1.d" || exit 1
}

# execute PAGE NUMBER COMMAND DIRECTIVE
execute()
{
    page=$1
    number=$2
    command=$3
    directive=$4
    wanted=0
    case $command in
    "printf "*) name="$page:$number: makes ${command##*>}" ;;
    *) name="$page:$number: $(echo "$command" | sed 's/ *#.*//; s/ *$//')" ;;
    esac
    [ "$number" != unused ] || { fail "$name" "tests/cli/docs.txt has it, the page does not"; return; }
    case $directive in
    "skip "?*) skip "$name" "${directive#skip }"; return ;;
    skip*) fail "$name" "a skip needs a reason: skip REASON"; return ;;
    "exit "*)
        directive=${directive#exit }
        wanted=${directive%% *}
        directive=${directive#"$wanted"}
        directive=${directive# }
        ;;
    esac
    case $command in "printf "*) ;; *) command=$(echo "$command" | sed 's/ #.*//') ;; esac
    enter "$page"
    # Pipes, redirections and variables belong to the command; `trainmark` is found through PATH.
    PATH=$work/bin:$PATH timeout -k 5 "$seconds" sh -c "$(printf '%s\n' "$command" | add_arguments "$directive")" \
        >"$out" 2>"$err" </dev/null
    code=$?
    cd "$work" || exit 1
    case "|$wanted|" in
    *"|$code|"*) pass "$name" ;;
    *)
        # Other machines took this one's processors away: it has no numbers today, and no test.
        disturbed=$(sed -n 's/.*numbers of this run are invalid: \(the machine was disturbed: .*\)/\1/p' "$err")
        if [ "$code" -eq 3 ] && [ "$disturbed" ]; then skip "$name" "$disturbed"; else fail "$name" "exit code $code, wanted $wanted"; fi
        ;;
    esac
}

# Puts arguments at the end of the program's own, before a pipe, a redirection or the next command.
add_arguments()
{
    awk -v more="$1" '{
        sub(/^\.\/trainmark/, "trainmark")
        gsub(/ \.\/trainmark/, " trainmark")
        if (more == "") { print; next }
        at = match($0, / *(\||>|<|&&|;)/)
        if (at) print substr($0, 1, at - 1) " " more substr($0, at)
        else print $0 " " more
    }'
}

mkdir "$work/bin"
ln -s "$TRAINMARK" "$work/bin/trainmark"

# README here; `make test-full` also executes the pages.
pages=
[ -z "${TM_TEST_FULL:-}" ] || pages=$(echo "$root"/docs/*.md)
for document in "$root/README.md" $pages; do
    commands "$document" "$root/tests/cli/docs.txt" >"$work/list"
    while IFS="$(printf '\t')" read -r number command directive; do
        execute "$(basename "$document")" "$number" "$command" "$directive"
    done <"$work/list"
done

finish
