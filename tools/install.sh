#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make install` and `make uninstall` do: the program, its man pages and completion (made by the program itself), the
# licence and the example configurations.
#
#   tools/install.sh install BINARY ROOT PREFIX     ROOT/PREFIX/bin/trainmark ...; ROOT may be empty
#   tools/install.sh uninstall ROOT PREFIX          removes what the list ROOT/PREFIX/share/trainmark/installed names
#
# An archive of `make dist-bin` has it beside what is to be installed. PREFIX: /usr/local for root, ~/.local for others.
#
#   ./install.sh [PREFIX]              PREFIX/bin/trainmark ...
#   ./install.sh uninstall [PREFIX]
set -eu

# put MODE FILE PLACE: PLACE is below the prefix, and noted in the list.
put()
{
    mkdir -p "$base/$(dirname "$3")"
    rm -f "$base/$3" # never written through a link
    cp "$2" "$base/$3"
    chmod "$1" "$base/$3"
    echo "$3" >>"$list"
}

do_install()
{
    cd "$(dirname "$0")/.."
    binary=$1
    base=${2:-}$3
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    list=$work/installed
    put 755 "$binary" bin/trainmark
    for module in "${binary%/*}"/trainmark-*.so; do # of the MPIs that there were when it was built
        [ -f "$module" ] && put 644 "$module" "lib/trainmark/${module##*/}"
    done
    "$binary" manual "$work/man"
    for page in "$work"/man/*.1; do put 644 "$page" "share/man/man1/${page##*/}"; done
    "$binary" completion bash >"$work/bash"
    "$binary" completion zsh >"$work/zsh"
    put 644 "$work/bash" share/bash-completion/completions/trainmark
    put 644 "$work/zsh" share/zsh/site-functions/_trainmark
    put 644 LICENSE share/doc/trainmark/LICENSE
    put 644 README.md share/doc/trainmark/README.md
    for file in docs/*.md; do put 644 "$file" "share/doc/trainmark/$file"; done
    find configs/experiments -name '*.yaml' | sort >"$work/configs"
    while IFS= read -r file; do put 644 "$file" "share/trainmark/$file"; done <"$work/configs"
    put_list
}

# The list goes last: what is half installed has none.
put_list()
{
    mkdir -p "$base/share/trainmark"
    cp "$list" "$base/share/trainmark/installed"
    chmod 644 "$base/share/trainmark/installed"
}

# do_unpacked ARCHIVE PREFIX: what an unpacked archive has.
do_unpacked()
{
    mkdir -p "$2"
    base=$(cd "$2" && pwd)
    [ "$base" != "$1" ] || { echo "install: '$base' is where it was unpacked: nothing is to be done" >&2; exit 4; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    list=$work/installed
    while IFS= read -r file; do
        mode=644
        [ ! -x "$1/$file" ] || mode=755
        put "$mode" "$1/$file" "$file"
    done <"$1/share/trainmark/installed"
    put_list
    echo "installed: $base/bin/trainmark"
    case :$PATH: in *:"$base/bin":*) ;; *) echo "$base/bin is not in PATH: add it, to call trainmark by its name" ;; esac
}

do_uninstall()
{
    base=${1:-}$2
    list=$base/share/trainmark/installed
    [ -f "$list" ] || { echo "trainmark is not installed in '$base' (no $list)" >&2; exit 4; }
    while IFS= read -r file; do rm -f "$base/$file"; done <"$list"
    while IFS= read -r file; do dirname "$file"; done <"$list" | sort -ru >"$list.folders"
    while IFS= read -r folder; do
        case $folder in
        *trainmark*) rmdir -p --ignore-fail-on-non-empty "$base/$folder" 2>/dev/null || true ;;
        esac
    done <"$list.folders"
    rm -f "$list" "$list.folders"
    rmdir "$base/share/trainmark" 2>/dev/null || true
}

here=$(cd "$(dirname "$0")" && pwd)
if [ -f "$here/share/trainmark/installed" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
    case ${1:-} in
    -*) echo "usage: ./install.sh [PREFIX] | uninstall [PREFIX]" >&2; exit 2 ;;
    uninstall) do_uninstall "" "${2:-$prefix}" ;;
    *) do_unpacked "$here" "${1:-$prefix}" ;;
    esac
    exit
fi
case ${1:-} in
install) do_install "$2" "$3" "$4" ;;
uninstall) do_uninstall "$2" "$3" ;;
*) echo "usage: tools/install.sh install BINARY ROOT PREFIX | uninstall ROOT PREFIX" >&2; exit 2 ;;
esac
