#!/bin/sh
# Includes point down only: a file of a room includes headers of its own room and of rooms below it, and another room's
# private header never. The order of the rooms, from the ground, is the list below (docs/architecture.md).
set -eu
cd "$(dirname "$0")/.."
order="base stats config graph op device model data system train record cli"
# graph and op are one floor: a graph is made of ops, an op's gradient rule emits graph nodes.
floor_of() {
    case $1 in op) room=graph ;; *) room=$1 ;; esac
    n=0
    for r in $order; do
        [ "$r" = "$room" ] && { echo $n; return; }
        n=$((n + 1))
    done
    echo "unknown room '$1'" >&2
    exit 1
}
private="device/backend.h graph/place.h model/blocks.h config/internal.h config/yaml.h data/source_kind.h data/text_files.h \
train/checkpoint_format.h train/checkpoint_io.h record/sink.h record/report.h record/step_line.h record/csv.h op/describe.h"
bad=0
for file in $(find src -name '*.c' -o -name '*.h'); do
    room=$(echo "$file" | cut -d/ -f2)
    here=$(floor_of "$room")
    for include in $(sed -n 's/^ *# *include "\([^"]*\)".*/\1/p' "$file"); do
        case $include in */*) ;; *) echo "$file: include \"$include\" without its room"; bad=1; continue ;; esac
        [ -f "src/$include" ] || { echo "$file: no such header: $include"; bad=1; continue; }
        other=${include%%/*}
        if [ "$(floor_of "$other")" -gt "$here" ]; then
            echo "$file: room $room includes $include, which is above it"
            bad=1
        fi
        if [ "$other" != "$room" ]; then
            for header in $private; do
                [ "$header" = "$include" ] && { echo "$file: $include is private to $other"; bad=1; }
            done
        fi
    done
done
[ $bad -eq 0 ] && echo "layers: $(find src -name '*.c' -o -name '*.h' | wc -l) files, every include points down"
exit $bad
