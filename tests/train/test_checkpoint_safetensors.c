/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors as programs that read safetensors see them: whole tensors, and parts that their names and the
 * metadata put together again. */
#include "support/test.h"
#include "checkpoint_fixture.h"

#include "data/safetensors.h"

#include <jansson.h>

static tm_safetensors *opened(const fixture *f, const char *name)
{
    char            path[400];
    tm_safetensors *set;
    tm_error        err = { 0 };
    snprintf(path, sizeof path, "%s/step-00000003/%s", f->folder, name);
    if (tm_safetensors_open(path, &set, &err) != TM_OK) fail_msg("%s", err.text);
    return set;
}

static const tm_stored_tensor *found(const tm_safetensors *set, const char *name, const char *dtype, const char *shape)
{
    const tm_stored_tensor *t = tm_safetensors_find(set, name);
    char                    text[192];
    if (!t) fail_msg("no tensor '%s'", name);
    assert_string_equal(t->dtype_name, dtype);
    assert_string_equal(tm_stored_shape_text(text, t), shape);
    return t;
}

TEST(tensors_of_one_process_are_whole)
{
    fixture f = new_fixture();
    size_t  n;
    set_tensors(&f);
    fill(&f, 3, 1);
    f.tensors[0].dtype = TM_F32, f.tensors[1].dtype = TM_F32, f.tensors[2].dtype = TM_BF16;
    f.tensors[3].dtype = 60000; /* a format without a name there: bytes */
    tm_error err = { 0 };
    assert_int_equal(tm_checkpoint_save(f.folder, &f.state, f.tensors, N_TENSORS, 0, &err), TM_OK);
    tm_safetensors *set = opened(&f, "tensors.safetensors");
    tm_safetensors_list(set, &n);
    assert_int_equal(n, N_TENSORS);
    assert_string_equal(tm_safetensors_metadata(set, "step"), "3");
    const tm_stored_tensor *w = found(set, "layers.0.wq.weight", "F32", "[3, 5]");
    assert_int_equal(w->offset % 64, 0);
    assert_memory_equal(w->data, f.data, 60);
    assert_memory_equal(found(set, "loss_scale", "F32", "[]")->data, f.data + 60, 4);
    assert_int_equal(found(set, "nothing", "BF16", "[0, 7]")->bytes, 0);
    assert_memory_equal(found(set, "bytes", "U8", "[130]")->data, f.data + 64, 130);
    tm_safetensors_close(set);
    clear(f.folder);
}

/* A matrix of 6 x 8 numbers of 2 bytes in rectangles, and a vector in runs, one of which ends within a number. */
enum { ROWS = 6, COLUMNS = 8, MATRIX = ROWS * COLUMNS * 2, VECTOR = 40 };

static void copy_part(const unsigned char *whole, const tm_checkpoint_part *part, unsigned char *to)
{
    for (size_t r = 0; r < part->rows; r++)
        memcpy(to + r * part->row_part, whole + (part->first_row + r) * part->row_bytes + part->first_byte,
               part->row_part);
}

/* The numbers of "[0:3,4:8]", two or one slice. */
static int slices_of(const char *name, size_t from[2], size_t to[2])
{
    const char *at = strchr(name, '[');
    int         n = at ? sscanf(at, "[%zu:%zu,%zu:%zu]", &from[0], &to[0], &from[1], &to[1]) : 0;
    assert_true(n == 2 || n == 4);
    return n / 2;
}

/* Puts the parts of the tensor `name` together as docs/checkpoints.md says. Returns its bytes. */
static size_t put_together(const tm_safetensors *set, const char *name, const char *dtype, const char *shape,
                           unsigned char *out)
{
    size_t                  n, all = 0, length = strlen(name);
    const tm_stored_tensor *t = tm_safetensors_list(set, &n);
    json_t                 *about = json_loads(tm_safetensors_metadata(set, name), 0, NULL);
    assert_non_null(about);
    char *is = json_dumps(json_object_get(about, "shape"), JSON_COMPACT);
    assert_string_equal(is, shape);
    assert_string_equal(json_string_value(json_object_get(about, "dtype")), dtype);
    free(is);
    json_t      *view = json_object_get(about, "view");
    const size_t columns = (size_t)json_integer_value(json_array_get(view, json_array_size(view) - 1));
    for (size_t i = 0; i < n; i++) {
        size_t from[2], to[2];
        if (strncmp(t[i].name, name, length) != 0 || t[i].name[length] != '[') continue;
        const int    axes = slices_of(t[i].name, from, to);
        const size_t first = axes == 2 ? from[0] : 0, last = axes == 2 ? to[0] : 1, begin = from[axes - 1];
        const size_t width = to[axes - 1] - begin, unit = t[i].bytes / ((last - first) * width);
        assert_string_equal(t[i].dtype_name, dtype);
        assert_int_equal(axes, json_array_size(view));
        assert_true(t[i].rank == axes && t[i].n[axes - 1] == (int64_t)width);
        for (size_t r = first; r < last; r++)
            memcpy(out + (r * columns + begin) * unit, t[i].data + (r - first) * width * unit, width * unit);
        all += t[i].bytes;
    }
    json_decref(about);
    return all;
}

TEST(parts_are_slices)
{
    static const tm_checkpoint_part parts[] = {
        { MATRIX, 16, 0, 4, 0, 6 },       { MATRIX, 16, 0, 4, 6, 10 },      { MATRIX, 16, 4, 2, 0, 16 },
        { VECTOR, VECTOR, 0, 1, 0, 24 },  { VECTOR, VECTOR, 0, 1, 24, 16 }, { VECTOR, VECTOR, 0, 1, 0, 13 },
        { VECTOR, VECTOR, 0, 1, 13, 27 },
    };
    static const char *const names[] = { "m", "m", "m", "v", "v", "odd", "odd" };
    enum { N = 8 };
    unsigned char        whole[3][MATRIX], bytes[N][MATRIX], again[MATRIX] = { 0 };
    tm_checkpoint_tensor tensors[N] = { { 0 } };
    fixture              f = new_fixture();
    tm_error             err = { 0 };
    fill(&f, 3, 1);
    for (int i = 0; i < 3 * MATRIX; i++) whole[i / MATRIX][i % MATRIX] = (unsigned char)(i * 7 + i / 13);
    for (int i = 0; i < N - 1; i++) {
        const int of = names[i][0] == 'm' ? 0 : names[i][0] == 'v' ? 1 : 2;
        tensors[i] = (tm_checkpoint_tensor){ .name = names[i],
                                             .dtype = of == 0 ? TM_BF16 : TM_F32,
                                             .rank = of == 0 ? 2 : 1,
                                             .n = { of == 0 ? ROWS : VECTOR / 4, of == 0 ? COLUMNS : 0 },
                                             .bytes = parts[i].rows * parts[i].row_part,
                                             .part = parts[i] };
        copy_part(whole[of], &parts[i], bytes[i]);
        place(&tensors[i], bytes[i]);
    }
    tensors[N - 1] = (tm_checkpoint_tensor){ .name = "whole", .dtype = TM_F32, .rank = 1, .n = { 5 }, .bytes = 20 };
    place(&tensors[N - 1], whole[0]);
    /* One rank that tells all its parts: a record each, as ranks do. */
    if (tm_checkpoint_save(f.folder, &f.state, tensors, N, 0, &err) != TM_OK) fail_msg("%s", err.text);
    tm_safetensors *set = opened(&f, "tensors-00000.safetensors");
    assert_int_equal(put_together(set, "m", "BF16", "[6,8]", again), MATRIX);
    assert_memory_equal(again, whole[0], MATRIX);
    assert_int_equal(put_together(set, "v", "F32", "[10]", again), VECTOR);
    assert_memory_equal(again, whole[1], VECTOR);
    assert_int_equal(put_together(set, "odd", "U8", "[40]", again), VECTOR); /* no whole numbers: bytes */
    assert_memory_equal(again, whole[2], VECTOR);
    found(set, "m[0:4,3:8]", "BF16", "[4, 5]");
    found(set, "v[6:10]", "F32", "[4]");
    found(set, "whole", "F32", "[5]");
    assert_null(tm_safetensors_metadata(set, "whole"));
    tm_safetensors_close(set);
    clear(f.folder);
}
