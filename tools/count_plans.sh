#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/count_plans.sh FOLDER... - plans every experiment, job file and recipe below the folders (*.yaml, *.yml, *.toml) and
# counts how that ended, by exit code and first message, in which names, numbers and paths are left out. OPTIONS are further
# options of `trainmark run`, SECONDS_EACH (300) the limit of a file. The folders are read, nothing is fetched.
set -u

trainmark=${TRAINMARK:-build/release/trainmark}
[ $# -gt 0 ] || { echo "usage: tools/count_plans.sh FOLDER..." >&2; exit 2; }
find "$@" \( -name '*.yaml' -o -name '*.yml' -o -name '*.toml' \) | sort | while read -r file; do
    # shellcheck disable=SC2086
    message=$(timeout "${SECONDS_EACH:-300}" "$trainmark" run "$file" --dry-run --memory 1000TiB ${OPTIONS:-} 2>&1 >/dev/null)
    code=$?
    [ $code -ne 0 ] || message=
    printf '%s\t%s\n' "$code" "$(printf '%s\n' "$message" | grep -v '^trainmark: \(note\|warning\):' | head -n 1 |
        sed "s,'[^']*',X,g; s,[^ ]*/[^ :]*,PATH,g; s,[0-9][0-9.]*,N,g" | cut -c 1-150)"
done | sort | uniq -c | sort -rn | awk -F '\t' '
    { split($1, part, " "); n[part[2]] += part[1]; all += part[1]; print }
    END { printf "%d of %d plan, %d are refused, %d took too long\n", n[0], all, all - n[0] - n[124], n[124] }'
