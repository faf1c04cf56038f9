/* SPDX-License-Identifier: Apache-2.0 */
/* The plans whose kernels a release has inside (src/device/gpu/source/modules.txt): every family that GPUs train, with
 * heads of the usual sizes. Other sizes are compiled where they are wanted. */
#ifndef TESTS_GPU_USUAL_H
#define TESTS_GPU_USUAL_H

static const int usual_heads[] = { 16, 32, 64, 80, 96, 128 };
enum { USUAL_HEADS = sizeof usual_heads / sizeof usual_heads[0] };

#endif
