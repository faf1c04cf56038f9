#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/make_deb.sh BINARY VERSION FOLDER - FOLDER/trainmark_VERSION_ARCH.deb, made of what `make install` installs. DEBFULLNAME and
# DEBEMAIL name the maintainer. Needs dpkg-dev; lintian looks at the package if it is there, and an error or warning of it is a failure.
set -eu
cd "$(dirname "$0")/.."
binary=$1 version=$2
mkdir -p "$3"
folder=$(cd "$3" && pwd)
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/root
doc=$root/usr/share/doc/trainmark
maintainer="${DEBFULLNAME:-trainmark maintainers} <${DEBEMAIL:-maintainers@trainmark.invalid}>"
date=$(git log -1 --format=%aD 2>/dev/null || date -R)
SOURCE_DATE_EPOCH=$(date -d "$date" +%s)
export SOURCE_DATE_EPOCH

tools/install.sh install "$binary" "$root" /usr
rm "$root/usr/share/trainmark/installed" # dpkg keeps its own list
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/trainmark"
modules=$(find "$root/usr/lib/trainmark" -name '*.so' 2>/dev/null | sort)
for module in $modules; do strip --strip-unneeded --remove-section=.comment --remove-section=.note "$module"; done
gzip -9n "$root"/usr/share/man/man1/*.1
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_trainmark" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

rm "$doc/LICENSE"
cat >"$doc/copyright" <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: trainmark

Files: *
Copyright: 2026 trainmark maintainers
License: Apache-2.0
 On Debian systems, the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
END
printf 'trainmark (%s) unstable; urgency=medium\n\n  * See README.md and the pages beside it.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$date" | gzip -9n >"$doc/changelog.gz"

mkdir "$work/debian" "$root/DEBIAN"
printf 'Source: trainmark\n\nPackage: trainmark\nArchitecture: any\n' >"$work/debian/control"
needs=$(cd "$work" && dpkg-shlibdeps -O -e root/usr/bin/trainmark 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
# An MPI is wanted only by who trains with several ranks: the module of one that is absent is never opened.
suggests=
for module in $modules; do
    suggests="$suggests $(cd "$work" && dpkg-shlibdeps -O -dSuggests -e "${module#"$work"/}" 2>/dev/null |
        sed -n 's/^shlibs:Suggests=//p' | tr ',' '\n' | grep -e openmpi -e mpich | tr '\n' ',')"
done
suggests=$(echo "$suggests openmpi-bin | mpich, libpng16-16, libturbojpeg0 | libturbojpeg, libwebp7" | sed 's/^ *//; s/,  */, /g')
cat >"$root/DEBIAN/control" <<END
Package: trainmark
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -ks "$root/usr" | cut -f 1)
Depends: $needs
Suggests: $suggests
Section: science
Priority: optional
Description: train, measure, check and predict the training of models
 trainmark trains transformer and diffusion models on the machine it runs on
 and measures throughput, memory, FLOP/s and loss. It checks its own numbers,
 prints the program of a training step before it runs, measures parts of
 training, and writes and checks MLPerf-style logs.
END
(cd "$root" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2 >DEBIAN/md5sums)
chmod -R u+rwX,go+rX,go-w "$root"
package=$folder/trainmark_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$package" >"$work/log" || { cat "$work/log" >&2; exit 1; }
echo "$package"
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning "$package"
else
    echo "lintian: SKIPPED, it is not installed"
fi
