/* SPDX-License-Identifier: Apache-2.0 */
/* What `run --dry-run` says: its text is that of its JSON, what fits is what there is, and the largest batch that is
 * named fits while one more does not. What each rank needs: test_rank_plans.c. */
#include "asked.h"

#include "base/text.h"

#define PLAN                                                                                                           \
    "run --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 --training.seq_len 32 "              \
    "--training.threads 1 --device reference --model.n_layers 4 --dry-run "
#define SHARD "--parallelism.data_parallel_shard_degree "
#define PIPE "--parallelism.pipeline_parallel_degree "

typedef struct {
    const char *words, *mesh; /* mesh NULL: one rank */
    const char *memory;
    int         global; /* sequences that a batch of a rank has to divide; 0: any */
    int         set;    /* training.local_batch_size */
} row;

static const row rows[] = {
    { "", NULL, "1GiB", 0, 2 },
    { "", NULL, "1MiB", 0, 2 },
    { "", NULL, "1700KiB", 0, 2 },
    { "", NULL, "1700KiB", 0, 3 },
    { "", NULL, "300KiB", 0, 2 },
    { SHARD "3 ", "3 ranks (dp_shard 3)", "1GiB", 0, 2 },
    { SHARD "3 --optimizer.name Muon --parallelism.context_parallel_degree 2 ", "6 ranks (dp_shard 3 x cp 2)", "1GiB",
      0, 2 },
    { PIPE "2 " SHARD "3 --training.global_batch_size 12 ", "6 ranks (pp 2 x dp_shard 3)", "1GiB", 4, 2 },
    { PIPE "2 " SHARD "3 --training.global_batch_size 12 ", "6 ranks (pp 2 x dp_shard 3)", "150KiB", 4, 2 },
    { "--parallelism.tensor_parallel_degree 2 ", "2 ranks (tp 2)", "1GiB", 0, 2 },
    { "--parallelism.data_parallel_replicate_degree 3 ", "3 ranks (dp_replicate 3)", "1GiB", 0, 2 },
};

/* Places of each stage without a gap, from the first to the last. */
static void places_are(const json_t *j, double *most)
{
    size_t  i;
    json_t *place;
    int     next = 0, part = 0;
    json_array_foreach((json_t *)member(j, "ranks"), i, place)
    {
        int first = (int)number(place, "first_place"), last = (int)number(place, "last_place");
        if (number(place, "pipeline_part") > part) part++, next = 0;
        is("part", number(place, "pipeline_part"), part);
        is("first place", first, next);
        assert_true(last >= first);
        next = last + 1;
        *most = fmax(*most, number(place, "plan_bytes"));
    }
}

static bool batch_fits(const row *r, int batch)
{
    tm_text line = { 0 };
    tm_text_printf(&line, PLAN "%s--training.local_batch_size %d --memory 4TiB", r->words, batch);
    json_t *j = asked_json(line.data, TM_OK);
    double  most = number(j, "memory/plan_bytes"), available;
    size_t  i;
    json_t *place;
    json_array_foreach((json_t *)member(j, "ranks"), i, place)
    {
        most = fmax(most, number(place, "plan_bytes"));
    }
    json_decref(j);
    available = strtod(r->memory, NULL) * (strstr(r->memory, "KiB")   ? 1024
                                           : strstr(r->memory, "MiB") ? 1048576
                                                                      : 1 << 30);
    tm_text_fini(&line);
    return most <= available;
}

/* The sentence about the largest batch, which is looked for up to four times the one that is set. */
static void expect_largest(const row *r, tm_text *out)
{
    int largest = 0;
    for (int batch = 1; batch <= 4 * r->set; batch++)
        if ((!r->global || r->global % batch == 0) && batch_fits(r, batch)) largest = batch;
    char tail[60];
    snprintf(tail, sizeof tail,
             largest == r->set ? ", the one that is set"
             : largest == 0    ? " (none; %d is set)"
                               : " (%d is set; `auto` takes the largest)",
             r->set);
    expect(out, "largest training.local_batch_size that fits%s: %s%d%s",
           r->global ? " and divides training.global_batch_size 12" : "", largest == 4 * r->set ? "at least " : "",
           largest, tail);
}

/* What does not fit is refused with a way out. */
static void refusal_is(const json_t *j)
{
    bool alone = number(j, "memory/weights") + number(j, "memory/gradients") + number(j, "memory/optimizer") >
                 number(j, "available_bytes");
    assert_non_null(strstr(asked_error.text, " are available (--memory); "));
    assert_non_null(strstr(asked_error.text,
                           alone ? "; weights, gradients and the optimizer's state alone need more: take more devices "
                                 : "; lower training.local_batch_size or training.seq_len, or set "
                                   "activation_checkpoint.mode full; "));
}

TEST(planned)
{
    setenv("OMP_WAIT_POLICY", "passive", 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row  *r = &rows[i];
        tm_text     line = { 0 }, wanted[3] = { { 0 } }, words = { 0 };
        char        a[40], b[40];
        const char *name;
        json_t     *value;
        bool        fit = batch_fits(r, r->set);
        double      sum = 0, most = 0;
        tm_text_printf(&line, PLAN "%s--training.local_batch_size %d --memory %s", r->words, r->set, r->memory);
        json_t *j = asked_json(line.data, fit ? TM_OK : TM_NOMEM);
        tm_text found = asked(line.data, fit ? TM_OK : TM_NOMEM);
        if (!fit) refusal_is(j);
        places_are(j, &most);
        assert_int_equal(json_is_true(member(j, "fits")), fit);
        double plan = number(j, "memory/plan_bytes"), available = number(j, "available_bytes");
        most = fmax(most, plan);
        json_object_foreach((json_t *)member(j, "memory"), name, value)
        {
            if (strcmp(name, "plan_bytes") != 0) sum += json_number_value(value);
        }
        is("memory", sum, plan);
        expect(&wanted[0], "%s: %s parameters, %s%s%s", string(j, "model"),
               tm_format_grouped(a, (int64_t)number(j, "parameters")), string(j, "configuration/training.dtype"),
               r->mesh ? ", " : "", r->mesh ? r->mesh : "");
        expect(&wanted[1], "%s %s %s of --memory", tm_format_bytes(a, most), fit ? "fit into" : "do not fit into",
               tm_format_bytes(b, available));
        expect_largest(r, &wanted[1]);
        expect(&wanted[2], "plan %s ", tm_format_bytes(a, plan));
        for (char *rest = found.data, *word; (word = strtok_r(rest, " \n", &rest));)
            tm_text_printf(&words, "%s ", word);
        for (int k = 0; k < 3; k++) {
            if (!strstr(words.data, wanted[k].data))
                fail_msg("%s: no '%s' in %s", line.data, wanted[k].data, words.data);
            tm_text_fini(&wanted[k]);
        }
        tm_text_fini(&found), tm_text_fini(&words), tm_text_fini(&line);
        json_decref(j);
    }
}
TEST_FIXTURE(NULL, test_folder_teardown)
