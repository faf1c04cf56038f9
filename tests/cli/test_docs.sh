#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every command that the README and the pages under docs/ show is executed: the lines of fenced blocks marked sh or
# console that begin with `trainmark`, `./trainmark` or `make` (in console blocks behind a `$ `), those of a page in their
# order, in a copy of the sources per page. A line that fails is a failed test. A comment at its end can say how it is tested:
#
#     trainmark run gpt-small          # test: --training.steps 3     these arguments are added
#     make bench                       # test: skip REASON            it is not executed, and listed with the reason
#     trainmark run --out old          # test: exit 130               the exit code that is wanted (0 otherwise); `exit 0|3 ARGUMENTS` where speed decides
#
# Where readers should not see that, an HTML comment above the block says it for the block's Nth line: <!-- test N: ... -->
#
# Of a pipe the last command counts.
# shellcheck disable=SC1091,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

# commands PAGE: the command lines of a page, one a line, "LINE NUMBER<tab>COMMAND".
commands()
{
    awk '
        /^<!-- test [0-9]+: .* -->$/ {
            said = $0
            sub(/^<!-- test [0-9]+: /, "", said)
            sub(/ -->$/, "", said)
            directive[$3 + 0] = said
            next
        }
        /^ *```/ {
            fence = $0
            sub(/^ *```/, "", fence)
            if (inside) { inside = 0; split("", directive); next }
            split(fence, words, /[ \t{]/)
            inside = 1
            opened = FNR
            wanted = words[1] == "sh" || words[1] == "console"
            console = words[1] == "console"
            next
        }
        !inside || !wanted { continued = ""; next }
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
            if (line ~ /^([A-Z_][A-Z_0-9]*=[^ ]* )*(\.\/)?(trainmark|make)( |$)/)
                print number "\t" line (number - opened in directive ? " # test: " directive[number - opened] : "")
        }' "$1"
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

# execute PAGE NUMBER COMMAND
execute()
{
    page=$1
    number=$2
    command=${3%%# test:*}
    directive=
    case $3 in *"# test:"*) directive=${3#*"# test:"} ;; esac
    directive=${directive# }
    wanted=0
    name="$page:$number: $(echo "$command" | sed 's/ *#.*//; s/ *$//')"
    case $directive in
    "skip "?*) skip "$name" "${directive#skip }"; return ;;
    skip*) fail "$name" "a skip needs a reason: # test: skip REASON"; return ;;
    "exit "*)
        directive=${directive#exit }
        wanted=${directive%% *}
        directive=${directive#"$wanted"}
        directive=${directive# }
        ;;
    esac
    command=$(echo "$command" | sed 's/ #.*//')
    enter "$page"
    # Pipes, redirections and variables belong to the command; `trainmark` is found through PATH.
    PATH=$work/bin:$PATH timeout -k 5 "$seconds" sh -c "$(echo "$command" | add_arguments "$directive")" \
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

# The rules above, tried on a page of its own.
cat >"$work/rules.md" <<'END'
```sh
trainmark models          # a remark
./trainmark explain gpt-small | head -n 1
trainmark run gpt-small --dry-run \
    --training.steps 7
ls -l
PRIMUS_SEQ_LENGTH=64 trainmark run --out x  # test: --dry-run
trainmark runn  # test: exit 2
make bench  # test: skip too long
```
<!-- test 2: exit 2 -->
```sh
trainmark models
trainmark modelz
```
```
trainmark not-marked
```
```console
$ trainmark version
trainmark 0.0.0
```
END
check "the commands of a page are found" [ "$(commands "$work/rules.md" | cut -f 1 | tr '\n' ' ')" = "2 3 4 7 8 9 13 14 20 " ]
check "a comment above a block is for one of its lines" [ "$(commands "$work/rules.md" | sed -n '7,8p' | cut -f 2 | tr '\n' ,)" = \
    "trainmark models,trainmark modelz # test: exit 2," ]
check "continued lines are joined" [ "$(commands "$work/rules.md" | sed -n 3p | tr -s ' ' | cut -f 2)" = \
    "trainmark run gpt-small --dry-run --training.steps 7" ]
check "arguments are added before a pipe" [ "$(echo './trainmark run a | tail' | add_arguments '--b 1')" = \
    "trainmark run a --b 1 | tail" ]

# README here; `make test-full` also executes the pages.
pages=
[ -z "${TM_TEST_FULL:-}" ] || pages=$(echo "$root"/docs/*.md)
for document in "$work/rules.md" "$root/README.md" $pages; do
    commands "$document" >"$work/list"
    while IFS="$(printf '\t')" read -r number command; do
        execute "$(basename "$document")" "$number" "$command"
    done <"$work/list"
done

finish
