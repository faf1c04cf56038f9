/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/kind.h - a kind of encoder is a row: what its config.json means, how its program is built, what goes in and
 * comes out. Private to encoder/; a new kind is a file and a line in encoder.c. */
#ifndef TM_ENCODER_KIND_H
#define TM_ENCODER_KIND_H

#include "base/arena.h"
#include "device/forward.h"
#include "encoder/config.h"
#include "encoder/encoder.h"

/* A tensor of the files and where it goes: `elements` of a parameter from number `first` on. */
typedef struct tm_frozen_weight {
    tm_tensor_id parameter;
    int64_t      first;
    const char  *name; /* in the files, without prefix */
    int          rank; /* its shape there */
    int64_t      n[TM_MAX_RANK];
    /* The element of the stored tensor that is element i of ours (of this weight); NULL: element i. */
    int64_t (*from)(const struct tm_frozen_weight *weight, int64_t i);
} tm_frozen_weight;

enum { TM_FROZEN_FIELDS = 2 };

/* A program while it is built. */
typedef struct {
    tm_graph             *graph;
    const void           *config; /* as the row's keys fill it */
    const tm_frozen_size *size;
    tm_frozen_weight     *weights;
    size_t                n_weights, capacity;
    tm_tensor_id          field[TM_FROZEN_FIELDS], out; /* inputs of the program; what it computes */
} tm_frozen_program;

typedef struct tm_frozen_row {
    const char          *class_name; /* "CLIPTextModel": the architecture, or _class_name of diffusers */
    const tm_frozen_key *keys;       /* of config.json, ended by a row without key */
    size_t               config_bytes;
    const char          *prefix;     /* that names in files may have or not; NULL: none */
    const char *const   *ignored;    /* names of tensors that files may hold beside (a '*' ends a pattern), and NULL */
    const char *const (*aliases)[2]; /* { name, another name that it may have }, ended by { NULL }; or NULL */
    /* After the keys: what does not fit together, and sizes. `path` is that of config.json, for messages. */
    tm_status (*check)(const char *path, const void *config, const tm_frozen_size *size, tm_frozen_facts *facts,
                       tm_error *err);
    void (*build)(tm_frozen_program *program);
    /* Of text: fills the second field of (batch), given the ids. NULL: there is none. */
    void (*mark)(const void *config, const tm_frozen_size *size, const int32_t *ids, int32_t *out);
} tm_frozen_row;

extern const tm_frozen_row tm_frozen_vae_encode, tm_frozen_vae_decode, tm_frozen_clip, tm_frozen_t5;

/* --- build.c: what builders share --- */

/* A parameter that is one tensor of the files, of the same shape, its name by a format. */
tm_tensor_id tm_frozen_parameter(tm_frozen_program *program, tm_shape shape, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A parameter of `n` tensors of the files, one behind the other: matrices (rows, columns), or vectors (columns 0) of
 * `rows` elements. `names`: in their order, each with its `suffix`, behind `prefix`. */
tm_tensor_id tm_frozen_fused(tm_frozen_program *program, int64_t rows, int64_t columns, const char *prefix,
                             const char *const *names, int n, const char *suffix);
/* Queries, keys and values of x (rows, in) in one product, with biases or not: parts[k] is its (rows, out) of the
 * matrix names[k]. */
void tm_frozen_qkv(tm_frozen_program *program, const char *prefix, const char *const names[3], int64_t out, int64_t in,
                   bool biased, tm_tensor_id x, tm_tensor_id parts[3]);
/* A parameter whose elements the files have in another order: their shape is (n[0], ..., n[rank - 1]), and `from` says
 * where each of ours is. */
tm_tensor_id tm_frozen_reordered(tm_frozen_program *program, tm_shape shape, const char *name, int rank,
                                 const int64_t *n, int64_t (*from)(const tm_frozen_weight *weight, int64_t i));
/* An input of the program. */
tm_tensor_id tm_frozen_field(tm_frozen_program *program, int number, const char *name, tm_shape shape, tm_dtype dtype);
/* Appends a node; returns its first result. Absent inputs: TM_NONE. */
tm_tensor_id tm_frozen_emit(tm_frozen_program *program, tm_op_id op, const void *attr, size_t attr_bytes,
                            tm_tensor_id a, tm_tensor_id b, tm_tensor_id c, tm_tensor_id d);
/* Nodes appended from here on belong to this module ("layers.3.mlp"). */
void tm_frozen_module(tm_frozen_program *program, int layer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- weights.c --- */

/* The files of a folder, and the tensor of each weight. The caller closes *out, also after a failure. TM_INVALID,
 * TM_FORMAT, TM_UNSUPPORTED: see tm_frozen_open. */
typedef struct tm_frozen_files tm_frozen_files;
TM_MUST_USE tm_status          tm_frozen_files_open(const char *folder, const tm_frozen_row *row,
                                                    const tm_frozen_program *program, tm_frozen_files **out, tm_error *err);
void                           tm_frozen_files_close(tm_frozen_files *files); /* NULL is fine */

/* Fills all parameters. */
TM_MUST_USE tm_status tm_frozen_load(const tm_forward *target, const tm_frozen_files *files,
                                     const tm_frozen_program *program, tm_error *err);

#endif
