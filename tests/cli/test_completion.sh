#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is made from the rows of commands, held against their help: what shells complete (bash does it, zsh has the same words)
# and man pages (read back without their requests).
# shellcheck disable=SC1091,SC2016,SC2086,SC2154
. "$(dirname "$0")/lib.sh"

trainmark completion bash
cp "$out" bash.sh
trainmark completion zsh
cp "$out" zsh.sh
check "bash accepts its function" bash -n bash.sh

# complete_all: reads lines "WORD... LAST" and prints for each the completions of LAST, sorted, on one line.
cat >complete_all <<'END'
source ./bash.sh
while read -ra COMP_WORDS; do
    [ "${COMP_WORDS[-1]}" = "''" ] && COMP_WORDS[-1]=
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _trainmark
    printf '%s\n' "${COMPREPLY[@]}" | sort -u | paste -sd ' '
done
END

# Every command, its options and the commands below it, as the help has them.
listed() { sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' "$1"; }
walk()
{
    trainmark $1 --help
    below=$(listed "$out")
    options=$(sed -n '/^options:/,$s/^ \{2,6\}\(-[a-z], \)\{0,1\}\(--[A-Za-z_0-9-]*\).*/\2/p' "$out" | sort -u | paste -sd ' ')
    [ -n "$options" ] || options="--help --quiet --verbose"
    cp "$out" "help $1"
    echo "$1|$(echo "$below" | sort | paste -sd ' ')|$options" >>commands
    for word in $below; do walk "${1:+$1 }$word"; done
}
walk ''
check "there are 50 commands at least" [ "$(wc -l <commands)" -ge 50 ]

trainmark keys
grep -o '^ *--[a-z_0-9.]*' "$out" | tr -d ' ' | sort >keys
cut -d '|' -f 1 commands | sed 's/^/trainmark /; s/ *$/ --/' | bash complete_all >options
cut -d '|' -f 1 commands | sed "s/^/trainmark /; s/ *\$/ ''/" | (mkdir -p void && cd void && cp ../bash.sh . && bash ../complete_all) >words
paste -d '|' commands options words >table
while IFS='|' read -r command below wanted found words; do
    lacks='' more=''
    for word in $wanted; do case " $found " in *" $word "*) ;; *) lacks="$lacks $word" ;; esac; done
    for word in $found; do case " $wanted " in *" $word "*) ;; *) grep -qxF -e "$word" keys || more="$more $word" ;; esac; done
    for word in $below; do case " $words " in *" $word "*) ;; *) lacks="$lacks $word" ;; esac; done
    if [ -n "$lacks$more" ]; then fail "trainmark $command" "not completed:$lacks" "in no help:$more"; else pass "trainmark $command"; fi
    # the same words in zsh, each with a sentence of the help
    grep -F "    \"$command\") rows=(" zsh.sh | sed "s/'\\\\''/\x01/g" | grep -o "'[^']*'" | tr '\001' "'" | sed "s/^'//; s/'\$//" >rows
    echo "$below $wanted" | tr ' ' '\n' | sed '/^$/d' | sort -u >all
    tr -s ' \n' '  ' <"help $command" >flat
    strange=$(awk 'NR == FNR { flat = $0; next } { at = index($0, ":"); text = substr($0, at + 1); gsub(/\\/, "", text)
        if (at == 0 || (index(flat, " " substr($0, 1, at - 1) " ") && !index(flat, text))) print }' flat rows)
    [ -n "$command" ] || strange='' # the commands' own lines are longer there
    check "and zsh: $command" [ -z "$(cut -d : -f 1 rows | sort -u | comm -13 - all)$strange" ]
done <table

# LINE|WHAT IT IS COMPLETED TO
cat >cases <<'END'
trainmark plan --training.dtype ''|bfloat16 float32
trainmark plan --training.dtype = b|bfloat16
trainmark run --training.offload a|activations all
trainmark data pack docs --format ''|govreport megatron
trainmark data pack --fo|--format
trainmark tokeni|tokenizer
trainmark data pac|pack
trainmark frobnicate --j|
trainmark completion z|zsh
trainmark results --kind ''|bench certificate run
END
cut -d '|' -f 1 cases | bash complete_all >found
cut -d '|' -f 2 cases | paste -d '|' - found >pairs
check "values of options" [ "$(awk -F '|' '$1 != $2' pairs | tee wrong | wc -l)" -eq 0 ]
sed 's/^/# wanted|found: /' wrong
: >a_file
echo "trainmark plan --trace a_" | bash complete_all >found
check "files where an option takes one" grep -qx a_file found
echo "trainmark mlperf a_" | bash complete_all >found
check "no files where a command stands" [ -z "$(cat found)" ]
files_of() { grep ' others=1 ;;$' "$1" | cut -d '"' -f 2 | sort; }
check "zsh has files in the same places" [ "$(files_of bash.sh)" = "$(files_of zsh.sh)" ]

# --- man pages ------------------------------------------------------------------------------------------------------------

export SOURCE_DATE_EPOCH=86400
trainmark manual man --json
check "the pages are listed" [ "$(tr -d '[]," ' <"$out" | sed '/^$/d' | sort | paste -sd ' ')" = "$(find man -type f | sort | paste -sd ' ')" ]
check "there is one for each command" [ "$(find man -type f | wc -l)" -eq "$(wc -l <commands)" ]
says 4 "/dev/null/man" manual /dev/null/man

# Each page is well formed and has the usage and every option of the help.
while IFS='|' read -r command below options; do
    page=man/$(echo "trainmark $command" | sed 's/ $//; s/ /-/g').1
    wrong=
    [ "$(grep -c '^\.' "$page")" = "$(grep -cE '^\.(TH|SH|TP|BR?|PP|nf|fi)( |$)' "$page")" ] || wrong="unknown requests;"
    ! grep -v '^\.TH' "$page" | grep -qE '(^|[^\\])-' || wrong="$wrong a bare hyphen;"
    [ "$(grep -o '\\f[BI]' "$page" | wc -l)" = "$(grep -o '\\fR' "$page" | wc -l)" ] || wrong="$wrong fonts that do not end;"
    [ "$(grep -o '^\.[nf][fi]' "$page" | paste -sd ' ' | sed 's/\.nf \.fi *//g')" = '' ] || wrong="$wrong .nf without .fi;"
    head -n 1 "$page" | grep -q "^\.TH $(basename "$page" .1 | tr '[:lower:]' '[:upper:]') 1 \"1970-01-02\" " || wrong="$wrong heading;"
    sed 's/\\f[BIR]//g; s/\\-/-/g' "$page" >flat
    for option in $options; do
        [ -z "$(listed "help $command")$below" ] || break # a list of commands has options of all
        grep -qF -e "$option" flat || wrong="$wrong $option;"
    done
    for word in $below; do
        grep -qF ".BR $(echo "$(basename "$page" .1)-$word" | sed 's/-/\\-/g') (1)" "$page" || wrong="$wrong $word;"
    done
    if [ -n "$wrong" ]; then fail "the page of trainmark $command" "$wrong"; else pass "the page of trainmark $command"; fi
done <commands
finish
