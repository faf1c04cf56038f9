/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/gpu.h - what the files of this folder share: the devices cuda and hip, and how their kernels are written.
 * Private to device/.
 *
 * A kernel of an op is a row (tm_kernel) in the file of its kind: `refuse` says what it takes; `prepare` notes which
 * text (source/) it needs with which definitions, by tm_gpu_note; `launch` starts one or several of that text's
 * kernels, by tm_gpu_start. Texts that a plan needs are compiled together when all its kernels are prepared.
 */
#ifndef TM_DEVICE_GPU_GPU_H
#define TM_DEVICE_GPU_GPU_H

#include "device/backend.h"
#include "gpu/compile.h"

/* Of this folder's source/, lines; NULL ends them (made by make: gpu_texts.c). */
extern const char *const tm_gpu_text_dialect[];
extern const char *const tm_gpu_text_adafactor[];
extern const char *const tm_gpu_text_adapter[];
extern const char *const tm_gpu_text_attention[];
extern const char *const tm_gpu_text_attention_forward[];
extern const char *const tm_gpu_text_attention_matrix[];
extern const char *const tm_gpu_text_attention_wgmma[];
extern const char *const tm_gpu_text_balance[];
extern const char *const tm_gpu_text_blocks[];
extern const char *const tm_gpu_text_both[];
extern const char *const tm_gpu_text_collectives[];
extern const char *const tm_gpu_text_columns[];
extern const char *const tm_gpu_text_collectives_wide[];
extern const char *const tm_gpu_text_compare[];
extern const char *const tm_gpu_text_dispatch[];
extern const char *const tm_gpu_text_divided[];
extern const char *const tm_gpu_text_draw[];
extern const char *const tm_gpu_text_embedding[];
extern const char *const tm_gpu_text_encoders[];
extern const char *const tm_gpu_text_exchange[];
extern const char *const tm_gpu_text_experts[];
extern const char *const tm_gpu_text_frozen[];
extern const char *const tm_gpu_text_grouped[];
extern const char *const tm_gpu_text_grouped_blocks[];
extern const char *const tm_gpu_text_grouped_scaled[];
extern const char *const tm_gpu_text_heads[];
extern const char *const tm_gpu_text_images[];
extern const char *const tm_gpu_text_loss[];
extern const char *const tm_gpu_text_matrix[];
extern const char *const tm_gpu_text_muon[];
extern const char *const tm_gpu_text_norm[];
extern const char *const tm_gpu_text_optimizer[];
extern const char *const tm_gpu_text_optimizers[];
extern const char *const tm_gpu_text_pointwise[];
extern const char *const tm_gpu_text_preference[];
extern const char *const tm_gpu_text_product[];
extern const char *const tm_gpu_text_quantize[];
extern const char *const tm_gpu_text_route[];
extern const char *const tm_gpu_text_row_loss[];
extern const char *const tm_gpu_text_scaled[];
/* All of them; .name == NULL ends them. */
typedef struct tm_gpu_text {
    const char        *name; /* "scaled" */
    const char *const *lines;
} tm_gpu_text;
extern const tm_gpu_text tm_gpu_texts[];

/* Kernels by kind (kernels.def); each list ends with .name == NULL. */
#define TM_GPU_KERNELS(list) extern const tm_kernel tm_gpu_##list[];
#include "device/gpu/kernels.def"
#undef TM_GPU_KERNELS
extern const tm_kernel *const tm_gpu_kernels[]; /* all of them; NULL ends them */

/* --- definitions of a text -------------------------------------------------------------------------------------------
 */

typedef struct {
    char text[TM_GPU_MOST_DEFINES][48];
    int  n;
} tm_gpu_defines;

void tm_gpu_define(tm_gpu_defines *defines, const char *name, int64_t value);
/* name: the dialect's word for a format: "f32", "bf16", "f64". */
void tm_gpu_define_format(tm_gpu_defines *defines, const char *name, tm_dtype dtype);

/* For `prepare`: notes that a call needs this kernel (static text) of that text with these definitions. Kernels are
 * numbered by the calls from 0 on. *state, NULL at first, is for tm_gpu_start, and is released with tm_gpu_forget. */
void tm_gpu_note(const void *device, const char *name, const char *const *text, const tm_gpu_defines *defines,
                 const char *kernel, void **state);
/* Of a call that starts none under this number: the library does its work. */
void tm_gpu_note_none(const void *device, void **state);
void tm_gpu_forget(void *state);

/* --- launches
 * --------------------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned char data[512];
    size_t        bytes;
    unsigned      shared; /* bytes of a block's shared memory beyond those that the kernel declares */
} tm_gpu_arguments;

void tm_gpu_pass(tm_gpu_arguments *a, const void *address); /* of the device; NULL is one */
void tm_gpu_pass_int(tm_gpu_arguments *a, int value);
void tm_gpu_pass_i64(tm_gpu_arguments *a, int64_t value);
void tm_gpu_pass_float(tm_gpu_arguments *a, double value);
void tm_gpu_pass_double(tm_gpu_arguments *a, double value);
/* For TMA (gpu/runtime.h): rows of a view's matrix of bfloat16, each sequence of so many. */
TM_MUST_USE tm_status tm_gpu_pass_map(tm_gpu_arguments *a, const tm_call *call, const tm_view *view, int64_t sequence,
                                      unsigned box_rows, tm_error *err);

/* Starts kernel number `kernel` of those that were noted, in the queue of the call. */
TM_MUST_USE tm_status tm_gpu_start(const tm_call *call, int kernel, int64_t x, int64_t y, int64_t z, int threads,
                                   const tm_gpu_arguments *a, tm_error *err);
/* With a block of 256 threads for each 256 of n elements, as far as a grid may have so many (EACH in the dialect). */
TM_MUST_USE tm_status tm_gpu_start_each(const tm_call *call, int kernel, int64_t n, const tm_gpu_arguments *a,
                                        tm_error *err);

/* For each column of each row (EACH_OF_ROWS in the dialect). */
TM_MUST_USE tm_status tm_gpu_start_rows(const tm_call *call, int kernel, int64_t rows, int64_t columns,
                                        const tm_gpu_arguments *a, tm_error *err);

/* Runs of 16 bytes (source/vectors.cu). How many elements a lane takes at once of operands of these formats. */
int tm_gpu_run(tm_dtype a, tm_dtype b);
/* Does the operand begin where a run may begin? An absent one does. Leading dimensions are the caller's to check. */
bool tm_gpu_is_wide(const tm_view *view);
/* The same of every operand. */
bool tm_gpu_call_is_wide(const tm_call *call);
/* Pieces of n elements: runs and, behind them, single ones; not wide: single ones. */
int64_t tm_gpu_pieces(int64_t n, int run, bool wide);

/* Threads of a wave (WAVE in the dialect). */
int tm_gpu_wave(const void *device);

/* A copy within the device's memory, in the queue of the call. */
TM_MUST_USE tm_status tm_gpu_copy_of(const tm_call *call, void *to, const void *from, size_t bytes, tm_error *err);

/* Sums of parts (chunks, columns) of float32 over the chunks, into `to` (norm.c): for `prepare` of a call with
 * activations in the format x; and its start, under the number that it was noted under. */
void                  tm_gpu_note_column_sums(const void *device, tm_dtype x, tm_dtype sums, void **state);
TM_MUST_USE tm_status tm_gpu_start_column_sums(const tm_call *call, int kernel, const void *part, const tm_view *to,
                                               int64_t chunks, bool adds, tm_error *err);

/* --- optimizers (optimizers.c): of sums in two stages the first leaves one of each block. */

enum { TM_GPU_MOST_PARTS = 1024 };

/* How many blocks with such a sum a kernel over n elements has. */
int64_t tm_gpu_parts_of(int64_t n);
/* Why an update is not taken: weights (the first so many of them: p, g, p) have one format, scalars are float64. */
const char *tm_gpu_refuse_update(const tm_view *const *weights, int n, const tm_view *scalars, const tm_view *clip);

typedef enum { TM_GPU_BY_TILES, TM_GPU_BY_MATRIX, TM_GPU_BY_LIBRARY, TM_GPU_BY_OTHER } tm_gpu_how;

/* A product (product.c): c (rows, columns) = a b^T, where k goes across the rows of a or b if `across`. */
typedef struct {
    tm_dtype    c, a, b;
    bool        a_across, b_across;
    int64_t     rows, columns, depth;
    int64_t     ld_a, ld_b, ld_c;
    void       *to;
    const void *from_a, *from_b, *bias, *residual; /* the last two: of the formats of b and of c; NULL: none */
    bool        has_bias, has_residual;            /* said before there are addresses */
    bool        adds;
    void       *workspace; /* BY_LIBRARY: of tm_gpu_library_bytes */
    tm_gpu_how  how;
    const void *scale_a, *scale_b; /* BY_LIBRARY, of codes: what they are multiplied with, on the GPU */
    bool        codes, lines;      /* a and b are codes; scales are those of rows, not of matrices */
    uint8_t     kind[2];           /* tm_codes_kind of the scales of a and of b; not plain: those of blocks */

    const double *scale; /* BY_LIBRARY: a b^T is multiplied with it; NULL: with 1 */
} tm_gpu_product_of;

/* NULL: matrix units compute a product of these formats; else why not. */
const char *tm_gpu_by_matrix(const void *device, tm_dtype a, tm_dtype b);
/* NULL: they multiply codes of these formats; else why not. */
const char *tm_gpu_codes_by_matrix(const void *device, tm_dtype a, tm_dtype b);
bool        tm_gpu_is_code(tm_dtype dtype);
/* Begins the refusal of what own products of codes do not know at all. */
#define TM_GPU_OWN_LACK "own kernels have no "
/* Definitions of a text with fragments.cu for codes: which of them are e5m2, and whether scales are in rows of e8m0. */
void tm_gpu_define_codes(tm_gpu_defines *defines, int kind, tm_dtype a, tm_dtype b);
/* NULL: the maker's library computes it; else why not (product_library.c). */
const char *tm_gpu_by_library(const void *device, const tm_gpu_product_of *p);
size_t      tm_gpu_library_bytes(const void *device, const tm_gpu_product_of *p);

/* Of an own product with a factor that is scaled (low_rank.c): the format of the scaled copy of it. bfloat16 where that
 * is exact, so that matrix units take it; else float32. */
tm_dtype tm_gpu_scaled_format(tm_dtype factor, double scale);
/* For `prepare`: the kernel that makes such a copy; and its start. */
void                  tm_gpu_note_scaled(const void *device, tm_dtype from, tm_dtype to, void **state);
TM_MUST_USE tm_status tm_gpu_start_scaled(const tm_call *call, int kernel, void *to, const tm_view *from, double scale,
                                          tm_error *err);

TM_MUST_USE tm_status tm_gpu_note_product(const void *device, const tm_gpu_product_of *p, void **state, tm_error *err);
TM_MUST_USE tm_status tm_gpu_start_product(const tm_call *call, int kernel, const tm_gpu_product_of *p, tm_error *err);

/* Attention (attention.c): what its kernels in tiles and by matrix units have in common. A block's own rows and its
 * threads; narrow: lengths and positions are 32 bits wide; shared: as in tm_gpu_arguments. */
typedef struct {
    int      rows, threads;
    bool     narrow;
    unsigned shared;
} tm_gpu_attention_block;

enum { TM_GPU_DELTA, TM_GPU_QUERIES, TM_GPU_KEYS, TM_GPU_SINKS }; /* kernels of the gradients */

const char           *tm_gpu_refuse_attention(const tm_call *call);
const char           *tm_gpu_refuse_attention_grad(const tm_call *call);
size_t                tm_gpu_attention_workspace(const tm_call *call); /* of the gradients: delta of each query */
void                  tm_gpu_note_sinks(const void *device, const tm_call *call, void **state);
TM_MUST_USE tm_status tm_gpu_start_attention(const tm_call *call, tm_gpu_attention_block b, tm_error *err);
/* kernel: of the queries, or of the keys. */
TM_MUST_USE tm_status tm_gpu_start_attention_grad(const tm_call *call, int kernel, tm_gpu_attention_block b,
                                                  tm_error *err);
TM_MUST_USE tm_status tm_gpu_start_sinks(const tm_call *call, tm_error *err);
/* TM_INTERNAL: one of n operands does not begin at a multiple of 16 bytes. */
TM_MUST_USE tm_status tm_gpu_check_places(const tm_view *views, int n, tm_error *err);

/* --- what kernels refuse
 * ----------------------------------------------------------------------------------------------- */

/* NULL: the operand is absent, or float32 or bfloat16 without gaps. */
const char *tm_gpu_refuse_view(const tm_view *view);
/* The same of one whose rows may lie apart. */
const char *tm_gpu_refuse_strided(const tm_view *view);
/* NULL: whole numbers of 32 bits, without gaps. */
const char *tm_gpu_refuse_whole(const tm_view *view);
/* NULL: absent, or of the format of the other one. */
const char *tm_gpu_refuse_other(const tm_view *view, tm_dtype dtype);

#endif
