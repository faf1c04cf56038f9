/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/platform.c: the grammar, by every form that is one and many that are none; the table against itself and against
 * the devices of the published figures. */
#include "gpu/platform.h"
#include "base/file.h"

#include "support/test.h"

static const tm_gpu_sheet *sheet(const char *name)
{
    for (size_t i = 0; tm_gpu_sheet_at(i); i++)
        if (strcmp(tm_gpu_sheet_at(i)->name, name) == 0) return tm_gpu_sheet_at(i);
    return NULL;
}

TEST(forms)
{
    static const struct {
        const char *text, *name;
        int         nodes, gpus;
    } good[] = {
        { "MI300X", "MI300X", 1, 1 },           { "8xMI300X", "MI300X", 1, 8 },
        { "4x8xMI355X", "MI355X", 4, 8 },       { "1x1xH100", "H100", 1, 1 },
        { "8XmI300x", "MI300X", 1, 8 },         { "2x4xA100-80GB", "A100-80GB", 2, 4 },
        { "16384x64xB200", "B200", 16384, 64 }, { "8xh100_pcie", "H100-PCIe", 1, 8 },
    };
    static const struct {
        const char *text;
        tm_status   status;
    } bad[] = {
        { "", TM_USAGE },
        { "8", TM_USAGE },
        { "8x", TM_USAGE },
        { "4x8x", TM_USAGE },
        { "0xMI300X", TM_USAGE },
        { "8x0xMI300X", TM_USAGE },
        { "0x8xH100", TM_USAGE },
        { "65xMI300X", TM_USAGE },
        { "2x2x2xMI300X", TM_USAGE },
        { "16385x8xMI300X", TM_USAGE },
        { "99999999999999999999xH100", TM_USAGE },
        { "-8xMI300X", TM_INVALID },
        { "xMI300X", TM_INVALID },
        { "8 xMI300X", TM_USAGE },
        { "8*MI300X", TM_USAGE },
        { "8xMI300", TM_INVALID },
        { "8xMI300X ", TM_INVALID },
        { "MI300X,H100", TM_INVALID },
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tm_platform p;
        assert_int_equal(tm_platform_read(good[i].text, &p, NULL), TM_OK);
        assert_string_equal(p.gpu->name, good[i].name);
        assert_int_equal(p.nodes, good[i].nodes);
        assert_int_equal(p.gpus, good[i].gpus);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tm_platform p;
        tm_error    err = { 0 };
        tm_status   st = tm_platform_read(bad[i].text, &p, &err);
        if (st != bad[i].status) fail_msg("'%s': status %d", bad[i].text, st);
        for (size_t k = 0; tm_gpu_sheet_at(k); k++) assert_non_null(strstr(err.text, tm_gpu_sheet_at(k)->name));
    }
}

/* What makers publish of one GPU fits together: half the width of a format is twice its rate. */
TEST(sheets)
{
    for (size_t i = 0; tm_gpu_sheet_at(i); i++) {
        const tm_gpu_sheet *s = tm_gpu_sheet_at(i);
        bool                amd = strncmp(s->arch, "gfx", 3) == 0;
        tm_text             line = { 0 };
        tm_platform         p = { s, 3, 5 };
        assert_ptr_equal(sheet(s->name), s); /* once */
        assert_string_equal(s->maker, amd ? "AMD" : "NVIDIA");
        assert_true(amd || strncmp(s->arch, "sm_", 3) == 0);
        assert_true(strstr(s->source, s->maker) == s->source);
        assert_int_equal(s->memory_bytes % (1 << 30), 0);
        assert_true(s->memory_bytes >> 30 >= 40 && s->memory_bytes >> 30 <= 288);
        assert_true(s->tflops_f32 > 0 && s->tflops_bf16 > s->tflops_f32);
        if (s->tflops_fp8 > 0) assert_in_range(1000 * s->tflops_fp8 / s->tflops_bf16, 1995, 2005);
        double fp4 = strcmp(s->arch, "sm_103") == 0 ? 3 : 2; /* its units of 4 bits are wider */
        if (s->tflops_fp4 > 0) assert_in_range(1000 * s->tflops_fp4 / s->tflops_fp8, 997 * fp4, 1003 * fp4);
        tm_platform_describe(&p, &line);
        assert_true(strstr(line.data, "3 nodes of 5x ") == line.data);
        assert_non_null(strstr(line.data, s->name));
        assert_non_null(strstr(line.data, "published: "));
        assert_true((s->tflops_fp8 > 0) == (strstr(line.data, ", fp8 ") != NULL));
        tm_text_fini(&line);
    }
    assert_int_equal(sheet("MI300X")->memory_bytes, 192LL << 30);
    assert_string_equal(sheet("MI355X")->arch, "gfx950");
}

/* A peak is units x clock x FLOPs of a unit in a clock, of matrix units; NVIDIA's float32: of vector units. */
TEST(peaks_by_the_clock)
{
    static const struct {
        const char *name;
        int         units;
        double      ghz, ghz_f32;
        int         f32, bf16; /* FLOPs of a unit in a clock */
    } gpus[] = {
        { "MI210", 104, 1.7, 1.7, 256, 1024 },        { "MI250X", 110, 1.7, 1.7, 256, 1024 },
        { "MI300A", 228, 2.1, 2.1, 256, 2048 },       { "MI300X", 304, 2.1, 2.1, 256, 2048 },
        { "MI325X", 304, 2.1, 2.1, 256, 2048 },       { "MI350X", 256, 2.2, 2.2, 256, 4096 },
        { "MI355X", 256, 2.4, 2.4, 256, 4096 },       { "A100-40GB", 108, 1.41, 1.41, 128, 2048 },
        { "A100-80GB", 108, 1.41, 1.41, 128, 2048 },  { "H100", 132, 1.83, 1.98, 256, 4096 },
        { "H100-PCIe", 114, 1.62, 1.755, 256, 4096 }, { "H200", 132, 1.83, 1.98, 256, 4096 },
    };
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        const tm_gpu_sheet *s = sheet(gpus[i].name);
        double              f32 = gpus[i].units * gpus[i].ghz_f32 * gpus[i].f32 / 1000;
        double              bf16 = gpus[i].units * gpus[i].ghz * gpus[i].bf16 / 1000;
        assert_non_null(s);
        assert_int_equal(s->mhz, (int)lround(1000 * gpus[i].ghz));
        if (!(fabs(s->tflops_f32 - f32) < 0.004 * f32) || !(fabs(s->tflops_bf16 - bf16) < 0.002 * bf16))
            fail_msg("%s: float32 %g, by the clock %g; bfloat16 %g, %g", s->name, s->tflops_f32, f32, s->tflops_bf16,
                     bf16);
    }
}

/* Figures are published of these. */
TEST(devices_of_figures)
{
    static const char *const files[] = { "training", "mlperf", "gemm" };
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char    path[64];
        tm_text text = { 0 };
        int     rows = 0;
        snprintf(path, sizeof path, "configs/reference/%s.csv", files[f]);
        assert_int_equal(tm_file_read(path, 1 << 20, &text, NULL), TM_OK);
        for (char *line = strchr(text.data, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
            char device[32];
            if (sscanf(line + 1, "%*[^,],%*[^,],%31[^,]", device) != 1) continue;
            if (strncmp(device, "MI", 2) != 0) continue;
            if (!sheet(device)) fail_msg("%s: no data sheet of %s", path, device);
            rows++;
        }
        assert_true(rows > 0);
        tm_text_fini(&text);
    }
}

/* By the names that runtimes give. */
TEST(sheets_of_devices)
{
    static const struct {
        const char *device, *arch, *name;
    } cases[] = {
        { "AMD Instinct MI300X", "gfx942", "MI300X" },
        { "AMD Instinct MI300X OAM", NULL, "MI300X" },
        { "AMD Instinct MI250X / MI250", "gfx90a", "MI250X" },
        { "AMD Instinct MI300X", "gfx950", NULL },
        { "AMD Instinct MI300XY", NULL, NULL },
        { "AMD Instinct MI308X", "gfx942", NULL },
        { "NVIDIA H100 80GB HBM3", "sm_90", "H100" },
        { "NVIDIA H100 PCIe", "sm_90", "H100-PCIe" },
        { "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm_90", NULL },
        { "NVIDIA A100-SXM4-80GB", "sm_80", "A100-80GB" },
        { "NVIDIA A100-PCIE-40GB", "sm_80", "A100-40GB" },
        { "NVIDIA A100 80GB PCIe", "sm_80", "A100-80GB" },
        { "NVIDIA GH200 480GB", "sm_90", NULL },
        { "NVIDIA H200", "sm_90", "H200" },
        { "a stand-in", "sm_90", NULL },
        { "", NULL, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tm_gpu_sheet *found = tm_gpu_sheet_of(cases[i].device, cases[i].arch);
        const char         *name = found ? found->name : NULL;
        if ((name == NULL) != (cases[i].name == NULL) || (name && strcmp(name, cases[i].name) != 0))
            fail_msg("'%s' (%s): %s", cases[i].device, cases[i].arch ? cases[i].arch : "any", name ? name : "none");
        if (name) assert_true(tm_gpu_sheet_names(found, cases[i].device));
    }
    assert_true(tm_gpu_sheet_names(sheet("H100"), "NVIDIA H100 PCIe"));
    assert_false(tm_gpu_sheet_names(sheet("H100-PCIe"), "NVIDIA H100 80GB HBM3"));
}
