/* SPDX-License-Identifier: Apache-2.0 */
/* Offload on the devices cuda and hip: what lies in the host's memory while it is not used changes no bit, bound or
 * not; that memory is what was planned; it is read and written like any other; a call that fails is told. */
#include "device/backend.h"
#include "device/gpu/own.h"
#include "gpu/emulated.h"
#include "gpu/trained.h"

#include "support/test.h"

enum { STEPS = 2, FORMS = 4 };

/* form: bit 0 moments, bit 1 activations. */
static tm_step_options options_of(int form, const tm_precision *precision, const tm_optimizer *optimizer)
{
    tm_step_options o = test_llama_options();
    o.shape.n_layers = 3;
    o.shape.dim = 32, o.shape.head_dim = 16, o.shape.ffn_dim = 80, o.seq = 16;
    o.precision = precision;
    o.optimizer = optimizer;
    o.accumulation = 2;
    o.recompute = (tm_recompute){ .cheap = true };
    o.offload = (tm_offload){ .optimizer = form & 1, .activations = form & 2, .space = TM_SPACE_HOST };
    return o;
}

/* Bytes of pinned memory that the trainer holds. */
static size_t held(const tm_device *device)
{
    const tm_gpu_own *own = device->own;
    size_t            bytes = 0;
    for (size_t i = 0; i < own->n_near; i++) bytes += own->near[i].bytes;
    return bytes;
}

static size_t copies_of(const tm_plan *plan)
{
    size_t n = 0;
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            const tm_instruction *i = &plan->programs[p].instructions[x];
            if (i->call.op != &tm_op_fetch && i->call.op != &tm_op_store) continue;
            assert_int_equal(i->stream, TM_ON_COPY);
            n++;
        }
    return n;
}

/* That memory is what was planned, and moved by the queue of copies. */
static size_t check_plan(tm_device *device, const tm_step_options *o, int form)
{
    tm_trainer    *trainer = test_trainer_open(device, o, 7);
    const tm_plan *plan = tm_trainer_step_of(trainer)->plan;
    size_t         resident = plan->arena_bytes;
    assert_int_equal(held(device), plan->spaces[TM_SPACE_HOST].arena_bytes);
    assert_true((held(device) > 0) == (form > 0) && (copies_of(plan) > 0) == (form > 0));
    tm_trainer_close(trainer);
    assert_int_equal(held(device), 0);
    return resident;
}

static void offload_changes_no_bit(const char *name, const tm_precision *precision, const tm_optimizer *optimizer)
{
    tm_device *device = emulated_open(name);
    trained    wanted;
    size_t     resident = 0;
    for (int form = 0; form < FORMS; form++)
        for (int way = BOUND; way <= (form ? ONE_BY_ONE : BOUND); way++) {
            tm_step_options o = options_of(form, precision, optimizer);
            size_t          here = check_plan(device, &o, form);
            trained         found = train(device, &o, STEPS, (trained_way)way);
            if (form == 0) resident = here, wanted = found;
            if (form & 1) assert_true(here < resident);
            if (memcmp(&found, &wanted, sizeof found) != 0)
                fail_msg("%s, %s, form %d, way %d: other bits", name, precision->name, form, way);
        }
    tm_device_close(device);
}

FULL_TEST(offload_changes_no_bit_on_cuda)
{
    if (!emulated_device("cuda")) skip();
    offload_changes_no_bit("cuda", &tm_precision_f32, &tm_optimizer_adamw);
    offload_changes_no_bit("cuda", &tm_precision_bf16, &tm_optimizer_muon);
}

FULL_TEST(offload_changes_no_bit_on_hip)
{
    if (!emulated_device("hip")) skip();
    offload_changes_no_bit("hip", &tm_precision_bf16, &tm_optimizer_adamw);
    offload_changes_no_bit("hip", &tm_precision_f32, &tm_optimizer_adamw8bit);
}

/* Whoever writes it, reads it, fills it, copies from and to it: behind what was queued before. */
TEST(memory_of_the_host_is_like_any_other)
{
    enum { BYTES = 3 << 20 };
    tm_error   err = { 0 };
    tm_address near, there;
    if (!emulated_device("hip")) skip();
    tm_device     *device = emulated_open("hip");
    unsigned char *a = malloc(BYTES), *b = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) a[i] = (unsigned char)(i * 7 + i / 1000);
    assert_int_equal(tm_device_alloc_near(device, BYTES, &near, &err), TM_OK);
    assert_int_equal(tm_device_alloc(device, BYTES, &there, &err), TM_OK);
    assert_int_equal(tm_device_read(device, b, near, BYTES, &err), TM_OK);
    assert_int_equal(tm_device_wait(device, &err), TM_OK);
    for (int i = 0; i < BYTES; i++) assert_int_equal(b[i], 0);
    assert_int_equal(tm_device_write(device, near, a, BYTES, &err), TM_OK);
    assert_int_equal(tm_device_copy(device, there, near, BYTES, &err), TM_OK);
    assert_int_equal(tm_device_fill(device, near, 3, BYTES, &err), TM_OK);
    assert_int_equal(tm_device_copy(device, tm_address_add(near, 5), tm_address_add(there, 5), BYTES - 5, &err), TM_OK);
    assert_int_equal(tm_device_read(device, b, near, BYTES, &err), TM_OK);
    assert_int_equal(tm_device_wait(device, &err), TM_OK);
    for (int i = 0; i < BYTES; i++) assert_int_equal(b[i], i < 5 ? 3 : a[i]);
    tm_device_release(device, there, BYTES);
    tm_device_release_near(device, near, BYTES);
    tm_device_close(device);
    free(a), free(b);
}

/* Of the calls that offload makes the first one fails, or the first behind the two of a device that is opened. */
TEST(a_copy_that_fails_is_told)
{
    static const char *const rows[][2] = { { "cuMemHostAlloc@3=719", "cuMemHostAlloc" },
                                           { "cuMemcpyHtoDAsync_v2@1=719", "cuMemcpyHtoDAsync_v2" },
                                           { "cuMemcpyDtoHAsync_v2@1=719", "cuMemcpyDtoHAsync_v2" } };
    if (gpu_is_real() || !emulated_device("cuda")) skip();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_step_options o = options_of(3, &tm_precision_f32, &tm_optimizer_adamw);
        tm_error        err = { 0 };
        tm_trainer     *trainer = NULL;
        fflush(NULL);
        setenv("STANDIN_GPU_FAIL", rows[i][0], 1);
        tm_device *device = emulated_open("cuda");
        tm_status  st = tm_trainer_open(device, &o, 7, &trainer, &err);
        unsetenv("STANDIN_GPU_FAIL");
        if (st != TM_DEVICE || !strstr(err.text, rows[i][1]) || !strstr(err.text, "(error 719)"))
            fail_msg("%s: status %d, '%s'", rows[i][0], (int)st, err.text);
        assert_int_equal(held(device), 0);
        tm_device_close(device);
    }
}
