/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a model beside its weights: every member of its shape, and what is said where another model goes on.
 */
#include "support/test.h"
#include "support/training.h"
#include "shape_members.h"

#include "train/checkpoint/description.h"

#define EXPERTS "--model.n_experts=4 --model.n_experts_per_token=2 --model.moe_ffn_dim=32 "

static const char *const models[][2] = {
    { "tiny-llama", NULL },
    { "tiny-llama", "--model.family=mistral" },
    { "tiny-llama", "--model.family=qwen2 --model.tied=true" },
    { "tiny-llama", "--model.family=qwen3 --model.rope_theta=5000" },
    { "tiny-llama", "--model.bias=all --model.sliding_window=5 --model.sliding_window_every=2 "
                    "--model.rope_layout=interleaved --model.sinks=true" },
    { "tiny-llama", "--model.rope_scaling=yarn --model.rope_scaling_factor=4 --model.rope_original_max_seq_len=8" },
    { "tiny-llama", "--model.rope_scaling=llama3 --model.rope_scaling_factor=8 --model.rope_original_max_seq_len=64" },
    { "tiny-llama", "--model.family=mixtral " EXPERTS },
    { "tiny-llama", "--model.family=mixtral " EXPERTS "--model.moe_pattern=10" },
    { "tiny-llama", "--model.family=qwen3_moe " EXPERTS "--model.head_dim=48" },
    { "tiny-llama", "--model.family=gpt_oss " EXPERTS "--model.sliding_window=8" },
    { "tiny-llama", "--model.family=deepseek --model.n_kv_heads=null --model.kv_lora_rank=16 --model.q_lora_rank=24 "
                    "--model.qk_nope_head_dim=8 --model.qk_rope_head_dim=8 --model.v_head_dim=8 " EXPERTS
                    "--model.n_shared_experts=1 --model.n_dense_layers=1 --model.moe_score=sigmoid "
                    "--model.n_expert_groups=2 --model.n_limited_groups=1" },
    { "gpt-small", NULL },
    { "gpt-small", "--model.tied=false --model.bias=none" },
    { "tiny-flux", NULL },
    { "tiny-flux", "--model.guidance_embed=true --model.n_single_layers=3" },
};
enum { MODELS = sizeof models / sizeof models[0] };

/* The value of the line of that name; "0": there is none. */
static void find_line(const char *text, const char *name, char *value)
{
    const size_t n = strlen(name);
    strcpy(value, "0");
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            snprintf(value, 64, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
}

/* A line for each member that is not 0, and no other one. */
TEST(descriptions_have_every_member)
{
    for (int m = 0; m < MODELS; m++) {
        tm_model_shape shape = test_shape_preset(models[m][0], models[m][1]);
        tm_text        text = { 0 };
        member         all[80];
        char           value[64];
        int            lines = 1 + (shape.moe.pattern[0] != 0);
        tm_description_print(&shape, &text);
        find_line(text.data, "family", value);
        assert_string_equal(value, tm_model_family_name(&shape));
        find_line(text.data, "moe.pattern", value);
        assert_string_equal(value, shape.moe.pattern[0] ? shape.moe.pattern : "0");
        for (size_t i = 0, n = members_of(&shape, all); i < n; i++) {
            find_line(text.data, all[i].name, value);
            if (memcmp(&(double){ strtod(value, NULL) }, &all[i].value, sizeof(double)) != 0)
                fail_msg("%s %s: %s %s, in the shape %.17g", models[m][0], models[m][1], all[i].name, value,
                         all[i].value);
            lines += strcmp(value, "0") != 0;
        }
        for (const char *c = text.data; *c; c++) lines -= *c == '\n';
        assert_int_equal(lines, 0);
        tm_text_fini(&text);
    }
}

/* What is said names a line, and what it is in both texts. */
TEST(another_model_is_told_by_a_member)
{
    static const struct {
        const char *found, *wanted, *says; /* says: NULL: they are one model */
    } rows[] = {
        { "family llama\ndim 8\ntied 1\n", "dim 8\ntied 1\nfamily llama\n", NULL },
        { "", "dim 8\n", NULL }, /* not known */
        { "dim 8\nn_layers 2\n", "dim 8\nn_layers 20\n", "its model has n_layers 2, this run's has 20" },
        { "dim 8\n", "dim 8\ntied 1\n", "its model has tied 0, this run's has 1" },
        { "dim 8\ntied 1\n", "dim 8\n", "its model has tied 1, this run's has 0" },
        { "dims 8\n", "dim 8\n", "its model has dim 0, this run's has 8" },
        { "family gpt\n", "family llama\n", "its model has family gpt, this run's has llama" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_error  err = { 0 };
        tm_status st = tm_description_check(rows[i].found, rows[i].wanted, &err);
        assert_int_equal(st, rows[i].says ? TM_INVALID : TM_OK);
        assert_string_equal(err.text, rows[i].says ? rows[i].says : "");
    }
}
