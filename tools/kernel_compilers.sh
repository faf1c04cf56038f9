#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/kernel_compilers.sh - the compilers of GPU kernels that the tests of tests/machine/ use, by pip into build/venv.
#
# ziglang: clang 22 with its AMD GPU back end; it links `make dist-bin`, too. nvidia-cuda-nvrtc: libnvrtc.so.13, which makes PTX; nvidia-cuda-nvrtc-cu12:
# its oldest, for the PTX that releases have inside (tools/embed_kernels.py). Tests that find no compiler say SKIPPED; with
# TM_TEST_COMPILERS=required they fail.
set -eu
cd "$(dirname "$0")/.."
packages="
ziglang==0.17.1
nvidia-cuda-nvrtc==13.0.88
nvidia-cuda-nvrtc-cu12==12.0.140
"
[ -x build/venv/bin/python ] || python3 -m venv build/venv
# shellcheck disable=SC2086
build/venv/bin/python -m pip --disable-pip-version-check --quiet install $packages
build/venv/bin/python -m ziglang clang --version | head -n 1
