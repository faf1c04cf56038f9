/* SPDX-License-Identifier: Apache-2.0 */
/* Which modules plans ask for: a text with definitions, and which of its kernels. src/device/gpu/source/modules.txt
 * lists them: of the devices hip and cuda, and what sm_90 asks for beside these. Releases have the code of these
 * inside, and tests/gpu/test_judged.c launches it. A plan that asks for another one, or a line that no plan asks for,
 * fails here; TM_RECORD=1 writes the list anew. */
#include "device/backend.h"
#include "device/gpu/own.h"
#include "gpu/emulated.h"
#include "gpu/usual.h"
#include "op/describe.h"
#include "support/training.h"
#include "support/whole.h"

#include "support/test.h"

enum { MOST_LINES = 400, LINE = 320 };

/* The one that has modules of its own. */
#define ARCH "sm_90"

typedef struct {
    char line[MOST_LINES][LINE];
    int  n;
} line_list;

static void write_line(char line[LINE], const char *maker, const tm_gpu_module *m, const char *kernel)
{
    int at = snprintf(line, LINE, "%s %s", maker, m->name);
    for (int i = 0; i < m->defines.n; i++) at += snprintf(line + at, LINE - (size_t)at, " %s", m->defines.text[i]);
    at += snprintf(line + at, LINE - (size_t)at, ": %s\n", kernel);
    assert_true(at < LINE);
}

static bool has(const line_list *list, const char *line)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->line[i], line) == 0) return true;
    return false;
}

/* A line: maker or architecture, text, definitions; one more for each kernel of a module. */
static void add(line_list *list, const char *maker, const tm_gpu_module *m, const char *kernel)
{
    char line[LINE], of_all[LINE];
    write_line(line, maker, m, kernel);
    write_line(of_all, "cuda", m, kernel);
    if (has(list, line) || (strcmp(maker, ARCH) == 0 && has(list, of_all))) return;
    assert_true(list->n < MOST_LINES);
    memcpy(list->line[list->n++], line, sizeof line);
}

/* What is noted of a kernel. */
static void add_noted(line_list *list, const tm_device *device, void *state)
{
    const tm_gpu_own   *own = device->own;
    const tm_gpu_noted *noted = state;
    for (int k = 0; k < noted->n; k++)
        if (noted->all[k].name)
            add(list, own->gpu ? ARCH : device->info.name, &own->modules[noted->all[k].module], noted->all[k].name);
    tm_gpu_forget(state);
}

static void prepare_all(tm_device *device, const tm_step *step, line_list *list)
{
    for (size_t p = 0; p < step->plan->n_programs; p++) {
        const tm_program *program = &step->plan->programs[p];
        for (size_t i = 0; i < program->count; i++) {
            const tm_instruction *in = &program->instructions[i];
            void                 *state = NULL;
            tm_error              err = { 0 };
            if (!in->kernel->prepare) continue;
            if (in->kernel->prepare(device, &in->call, &state, &err) != TM_OK) fail_msg("%s", err.text);
            add_noted(list, device, state);
        }
    }
}

/* Steps of a family with heads of a size: moments in either format, tied or not; with the program of a certificate. */
static void ask(tm_device *device, tm_model_family family, const tm_precision *precision, int head, line_list *list)
{
    tm_chooser        chooser = tm_device_chooser(device);
    const tm_gpu_own *own = device->own;
    for (int way = 0; way < (own->gpu ? 1 : 4); way++) { /* which one makes no difference to an architecture */
        tm_step_options o = test_family_options(family);
        o.precision = precision;
        o.shape.head_dim = head;
        o.shape.dim = 2 * head;
        o.shape.tied = way & 1;
        o.hyper.bf16_moments = way & 2;
        if (way == 3 && o.shape.bias == TM_BIAS_ALL) o.shape.bias = TM_BIAS_NONE; /* gelu without a bias in front */
        o.accumulation = 2;
        o.sample = true;
        o.exact = precision == &tm_precision_f32 ? NULL : &tm_precision_f32;
        tm_step *step = test_step_plan(&o, &chooser);
        prepare_all(device, step, list);
        tm_step_destroy(step);
    }
}

static int in_order(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Of all families and formats. `there`: of a GPU, whose architecture is known. */
static void ask_all(const char *name, bool there, int head, line_list *list)
{
    static const tm_model_family families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_MISTRAL, TM_FAMILY_QWEN2 };
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    tm_device                       *device;
    tm_error                         err = { 0 };
    tm_status                        st = (there ? tm_device_open : tm_device_open_planning)(name, 1, &device, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    for (int f = 0; f < TM_COUNT_OF(families); f++)
        for (int p = 0; p < TM_COUNT_OF(precisions); p++) ask(device, families[f], precisions[p], head, list);
    for (int bf16 = 0; bf16 < 2; bf16++) { /* initial values */
        void *state = NULL;
        tm_gpu_note_draw(device, bf16 ? TM_BF16 : TM_F32, &state);
        add_noted(list, device, state);
    }
    tm_device_close(device);
}

TEST(plans_ask_for_what_is_listed)
{
    line_list *list = calloc(1, sizeof *list);
    tm_text    text = { 0 };
    setenv("TRAINMARK_CUDNN", "none", 1);
    for (int m = 0; m < 2; m++) { /* products by own kernels: more than beside a library */
        setenv(m ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT", "none", 1);
        for (int h = 0; h < USUAL_HEADS; h++) ask_all(m ? "hip" : "cuda", false, usual_heads[h], list);
    }
    (void)emulated_device("cuda"); /* plans need no compiler that works */
    setenv("TRAINMARK_CUBLASLT", "none", 1);
    setenv("STANDIN_GPU_ARCH", ARCH, 1);
    for (int h = 0; h < USUAL_HEADS; h++) ask_all("cuda", true, usual_heads[h], list);
    qsort(list->line, (size_t)list->n, LINE, in_order);
    for (int i = 0; i < list->n; i++) tm_text_add(&text, list->line[i]);
    free(list);
    whole_is("src/device/gpu/source/modules.txt", &text);
}

/* A second row of one name would never be chosen. */
TEST(names_of_kernels_are_given_once)
{
    const char *names[500];
    int         n = 0;
    for (const tm_kernel *const *list = tm_gpu_kernels; *list; list++)
        for (const tm_kernel *k = *list; k->name; k++) {
            for (int i = 0; i < n; i++)
                if (strcmp(names[i], k->name) == 0) fail_msg("two rows are called %s", k->name);
            assert_true(n < 500);
            names[n++] = k->name;
        }
    assert_true(n > 100);
}
