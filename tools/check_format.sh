#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Are all sources as `make format` leaves them? Versions of clang-format differ: only the one named below judges, any other is
# SKIPPED.
set -eu
cd "$(dirname "$0")/.."
wanted=14
tool=$(command -v "clang-format-$wanted" || command -v clang-format || :)
version=$([ -n "$tool" ] && "$tool" --version | sed 's/.*version \([0-9]*\).*/\1/' || echo none)
if [ "$version" != "$wanted" ]; then
    echo "format: SKIPPED, it takes clang-format $wanted, found $version"
    exit 0
fi
git ls-files -z '*.c' '*.h' | xargs -0 "$tool" --dry-run --Werror
echo "format: $(git ls-files '*.c' '*.h' | wc -l) files are as \`make format\` leaves them"
