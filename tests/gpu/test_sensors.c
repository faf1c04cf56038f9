/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's sensors: files of amdgpu that the test makes, byte by byte as the kernel's header lays them out, and NVML
 * over a stand-in; what is not there is unknown, and said. */
#include "gpu/sensors.h"

#include "support/folder.h"
#include "support/test.h"

#include "base/file.h"

static const char bus[] = "0000:05:00.0";

static void put(const char *root, const char *file, const void *bytes, size_t n)
{
    char path[700], *slash;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, bus, file);
    slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(tm_folder_make(path, NULL), TM_OK);
    *slash = '/';
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_text(const char *root, const char *file, const char *text)
{
    put(root, file, text, strlen(text));
}

/* gpu_metrics of format 1: where its counters begin. */
static void put_metrics(const char *root, int content, size_t begin, const uint32_t count[6])
{
    unsigned char bytes[200] = { 200, 0, 1, (unsigned char)content };
    memset(bytes + 4, 0xee, sizeof bytes - 4);
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 4; k++) bytes[begin + 4 * i + k] = (unsigned char)(count[i] >> 8 * k);
    put(root, "gpu_metrics", bytes, sizeof bytes);
}

static tm_gpu_sensors *opened(tm_gpu_maker maker, const char *root)
{
    tm_text         why = { 0 };
    tm_gpu_sensors *s = tm_gpu_sensors_open(maker, bus, root, &why);
    if (!s) fail_msg("%s", why.data);
    tm_text_fini(&why);
    return s;
}

/* There are none at this address, and the words say why. */
static void is_without(tm_gpu_maker maker, const char *at, const char *root, const char *words)
{
    tm_text why = { 0 };
    assert_null(tm_gpu_sensors_open(maker, at, root, &why));
    if (!strstr(why.data, words)) fail_msg("'%s' lacks '%s'", why.data, words);
    tm_text_fini(&why);
}

static void close_to(double a, double b)
{
    if (!(fabs(a - b) < 1e-9 * (1 + fabs(b)))) fail_msg("%.17g, not %.17g", a, b);
}

/* Cycles, processor hot, power, socket, regulator, memory: over the end of 32 bits, too. */
TEST(amd)
{
    static const struct {
        int    content;
        size_t begin;
    } formats[] = { { 6, 32 }, { 7, 40 }, { 8, 40 } };
    for (size_t i = 0; i < 3; i++) {
        char          *root = test_tree_make();
        tm_gpu_reading one, two;
        put_text(root, "hwmon/hwmon7/freq1_input", "2100000000\n");
        put_text(root, "hwmon/hwmon7/power1_average", "747000000\n");
        put_text(root, "hwmon/hwmon7/temp1_label", "edge\n");
        put_text(root, "hwmon/hwmon7/temp1_input", "40000\n");
        put_text(root, "hwmon/hwmon7/temp2_label", "junction\n");
        put_text(root, "hwmon/hwmon7/temp2_input", "71500\n");
        put_metrics(root, formats[i].content, formats[i].begin, (uint32_t[]){ 4294967000u, 1, 50, 2, 3, 4 });
        tm_gpu_sensors *s = opened(TM_GPU_HIP, root);
        tm_gpu_sensors_read(s, &one);
        put_metrics(root, formats[i].content, formats[i].begin, (uint32_t[]){ 704, 11, 250, 22, 33, 44 });
        put_text(root, "hwmon/hwmon7/freq1_input", "132000000\n");
        tm_gpu_sensors_read(s, &two);
        close_to(one.clock_mhz, 2100);
        close_to(two.clock_mhz, 132);
        close_to(two.power_w, 747);
        close_to(two.temperature_c, 71.5);
        close_to(two.held_of - one.held_of, 1000);
        close_to(two.power_held - one.power_held, 200);
        close_to(two.heat_held - one.heat_held, 10 + 20 + 30 + 40);
        tm_gpu_sensors_close(s);
        test_tree_remove(root);
    }
}

/* Content 9: a list of {what, type, how many} and the values behind it, without gaps (kgd_pp_interface.h, smu_cmn.h).
 */
typedef struct {
    unsigned char bytes[600];
    size_t        n;
    uint32_t      listed;
} list;

enum { TYPE_U16 = 2, TYPE_U32 = 4, TYPE_U64 = 6, ID_POWER_NOW = 3, ID_CYCLES = 9, ID_CLOCKS = 33 };

static void put_value(list *l, uint64_t value, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++) l->bytes[l->n++] = (unsigned char)(value >> 8 * k);
}

static void add(list *l, int id, int type, int many, uint64_t value)
{
    put_value(l, (uint64_t)1 << 24 | (uint64_t)type << 20 | (uint64_t)id << 10 | (uint64_t)many, 8);
    for (int i = 0; i < many; i++) put_value(l, value, (size_t)1 << type / 2);
    l->listed++;
}

/* As amdgpu of MI300X has it: cycles of 64 bits, the others of 32, among other values and arrays. */
static list list_of(const uint32_t count[6], int without)
{
    list l = { .bytes = { 0, 0, 1, 9 }, .n = 8 };
    add(&l, ID_POWER_NOW, TYPE_U16, 1, 747);
    for (int i = 0; i < 6; i++)
        if (i != without) add(&l, ID_CYCLES + i, i ? TYPE_U32 : TYPE_U64, 1, (i ? 0 : (uint64_t)7 << 32) | count[i]);
    add(&l, ID_CLOCKS, TYPE_U16, 8, 2100);
    for (size_t k = 0; k < 4; k++) l.bytes[4 + k] = (unsigned char)(l.listed >> 8 * k);
    return l;
}

static void read_of(tm_gpu_sensors *s, const char *root, const list *l, size_t n, tm_gpu_reading *out)
{
    put(root, "gpu_metrics", l->bytes, n);
    tm_gpu_sensors_read(s, out);
}

TEST(amd_lists)
{
    /* the order of the list: cycles, processor hot, power, socket, regulator, memory */
    static const uint32_t first[6] = { 4294967000u, 1, 50, 2, 3, 4 }, second[6] = { 704, 11, 250, 22, 33, 44 };
    char                 *root = test_tree_make();
    tm_gpu_reading        one, two, three;
    list                  a = list_of(first, -1), b = list_of(second, -1);
    put(root, "gpu_metrics", a.bytes, a.n);
    tm_gpu_sensors *s = opened(TM_GPU_HIP, root);
    for (int without = 0; without < 6; without++) {
        list less = list_of(first, without);
        read_of(s, root, &less, less.n, &one);
        assert_true(isnan(one.held_of) && isnan(one.power_held) && isnan(one.heat_held));
    }
    for (size_t n = 64; n < a.n - 24; n++) { /* cut off within the counters, behind which the clocks have 24 bytes */
        read_of(s, root, &a, n, &one);
        assert_true(isnan(one.held_of));
    }
    list unfilled = list_of((const uint32_t[]){ 1, 2, UINT32_MAX, 4, 5, 6 }, -1);
    tm_gpu_sensors_close(s);
    s = opened(TM_GPU_HIP, root);
    read_of(s, root, &unfilled, unfilled.n, &one);
    assert_true(isnan(one.held_of));
    read_of(s, root, &a, a.n, &one);
    read_of(s, root, &b, b.n, &two);
    close_to(two.held_of - one.held_of, 1000);
    close_to(two.power_held - one.power_held, 200);
    close_to(two.heat_held - one.heat_held, 10 + 20 + 30 + 40);
    b.bytes[8 + 2] = 0xff; /* a type that there is not: what follows is nowhere */
    read_of(s, root, &b, b.n, &three);
    close_to(three.held_of, two.held_of);
    tm_gpu_sensors_close(s);
    test_tree_remove(root);
}

/* Formats whose counters are elsewhere or not there, short files, no number; and a GPU that names no sensor. */
TEST(amd_without)
{
    char          *root = test_tree_make();
    tm_gpu_reading r;
    is_without(TM_GPU_HIP, bus, root, "sys/bus/pci/devices/0000:05:00.0 has neither hwmon nor gpu_metrics");
    put_text(root, "hwmon/hwmon0/power1_input", "80000000\n");
    put_text(root, "hwmon/hwmon0/temp1_input", "30000\n");
    for (int content = 0; content < 12; content++) {
        if (content >= 6 && content <= 8) continue;
        put_metrics(root, content, 32, (uint32_t[]){ 1, 2, 3, 4, 5, 6 });
        tm_gpu_sensors *s = opened(TM_GPU_HIP, root);
        tm_gpu_sensors_read(s, &r);
        assert_true(isnan(r.held_of) && isnan(r.power_held) && isnan(r.heat_held) && isnan(r.clock_mhz));
        close_to(r.power_w, 80);
        close_to(r.temperature_c, 30);
        tm_gpu_sensors_close(s);
    }
    put(root, "gpu_metrics", "\100\0\1\6", 4);
    put_text(root, "hwmon/hwmon0/power1_input", "?\n");
    tm_gpu_sensors *s = opened(TM_GPU_HIP, root);
    tm_gpu_sensors_read(s, &r);
    assert_true(isnan(r.held_of) && isnan(r.power_w));
    tm_gpu_sensors_close(s);
    test_tree_remove(root);
}

TEST(nvidia)
{
    tm_gpu_reading one, two;
    setenv("TRAINMARK_NVML", test_built("standins/nvml.so"), 1);
    setenv("STANDIN_NVML_BUS", bus, 1);
    setenv("STANDIN_NVML_HEAT", "3", 1);
    tm_gpu_sensors *s = opened(TM_GPU_CUDA, "");
    tm_gpu_sensors_read(s, &one);
    tm_gpu_sensors_read(s, &two);
    close_to(two.clock_mhz - one.clock_mhz, 10);
    close_to(two.power_w, 650.5);
    assert_true(two.temperature_c >= 60 && two.temperature_c < 67);
    close_to(two.held_of - one.held_of, 1);
    close_to(two.power_held - one.power_held, 0.25);
    close_to(two.heat_held - one.heat_held, 0.03);
    tm_gpu_sensors_close(s);
    static const struct {
        const char *call;
        size_t      at; /* what is unknown then */
    } fails[] = { { "nvmlDeviceGetClockInfo", offsetof(tm_gpu_reading, clock_mhz) },
                  { "nvmlDeviceGetPowerUsage", offsetof(tm_gpu_reading, power_w) },
                  { "nvmlDeviceGetTemperature", offsetof(tm_gpu_reading, temperature_c) },
                  { "nvmlDeviceGetViolationStatus", offsetof(tm_gpu_reading, heat_held) } };
    s = opened(TM_GPU_CUDA, "");
    for (size_t i = 0; i < 4; i++) {
        setenv("STANDIN_NVML_FAIL", fails[i].call, 1);
        tm_gpu_sensors_read(s, &one);
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(isnan(*(double *)(void *)((char *)&one + fails[k].at)) != 0, k == i);
    }
    tm_gpu_sensors_close(s);
    unsetenv("STANDIN_NVML_FAIL");
    unsetenv("STANDIN_NVML_HEAT");
}

/* nvml.h of CUDA 13: the calls that tell the temperature and what held the clock down leave with CUDA 14, or they are
 * not supported; other ones tell the same. */
TEST(nvidia_later)
{
    for (int k = 0; k < 2; k++) {
        tm_gpu_reading one, two;
        setenv("TRAINMARK_NVML", test_built(k ? "standins/nvml-later.so" : "standins/nvml.so"), 1);
        setenv("STANDIN_NVML_BUS", bus, 1);
        setenv("STANDIN_NVML_HEAT", "3", 1);
        setenv("STANDIN_NVML_FAIL", "nvmlDeviceGetViolationStatus", 1);
        tm_gpu_sensors *s = opened(TM_GPU_CUDA, "");
        unsetenv("STANDIN_NVML_FAIL");
        tm_gpu_sensors_read(s, &one);
        tm_gpu_sensors_read(s, &two);
        assert_true(two.temperature_c >= 60 && two.temperature_c < 67);
        assert_true(fabs(two.held_of - one.held_of - 1) < 1e-6); /* seconds since 1970 */
        close_to(two.power_held - one.power_held, 0.25);
        close_to(two.heat_held - one.heat_held, 0.03);
        static const char *const fails[] = { "nvmlDeviceGetFieldValues", "heat", "type", "nvmlDeviceGetTemperatureV" };
        for (size_t i = 0; i < 4; i++) {
            setenv("STANDIN_NVML_FAIL", fails[i], 1);
            tm_gpu_sensors_read(s, &one);
            assert_int_equal(isnan(one.held_of) && isnan(one.power_held) && isnan(one.heat_held), i < 3);
            assert_int_equal(isnan(one.temperature_c) != 0, k == 1 && i == 3);
            assert_false(isnan(one.power_w));
        }
        unsetenv("STANDIN_NVML_FAIL");
        tm_gpu_sensors_close(s);
    }
    unsetenv("STANDIN_NVML_HEAT");
}

TEST(nvidia_without)
{
    setenv("TRAINMARK_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    is_without(TM_GPU_CUDA, bus, "", "/nowhere/libnvidia-ml.so.1");
    setenv("TRAINMARK_NVML", test_built("standins/cublaslt.so"), 1);
    is_without(TM_GPU_CUDA, bus, "", "has no nvmlInit_v2");
    setenv("TRAINMARK_NVML", test_built("standins/nvml.so"), 1);
    is_without(TM_GPU_CUDA, "0000:99:00.0", "", "fails for the GPU at 0000:99:00.0 with code 6");
    setenv("STANDIN_NVML_FAIL", "nvmlInit_v2", 1);
    is_without(TM_GPU_CUDA, bus, "", "with code 3");
    unsetenv("STANDIN_NVML_FAIL");
}
