/* SPDX-License-Identifier: Apache-2.0 */
/* What is installed on made-up machines, as facts; what two of them differ in; and which nodes are of one kind. */
#include "support/test.h"

#include "../support/folder.h"
#include "apps/node/checks.h"
#include "apps/node/judge.h"

static void make(const char *root, const char *kernel, const char *firmware)
{
    test_put(root, "/proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Example CPU 9000\nmicrocode\t: 0x2b\nflags\t\t: fpu\n");
    test_put(root, "/sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
    test_put(root, "/sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
    test_put(root, "/sys/devices/system/cpu/online", "0\n");
    test_put(root, "/proc/sys/kernel/osrelease", kernel);
    test_put(root, "/proc/sys/kernel/hostname", "node7\n");
    test_put(root, "/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1-2-3 iommu=pt quiet\n");
    test_put(root, "/sys/class/dmi/id/bios_version", "1.4\n");
    test_put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    test_put(root, "/sys/class/drm/card0/device/fw_version/smc_fw_version", "0x0055\n");
    test_put(root, "/sys/class/drm/card1/device/fw_version/smc_fw_version", firmware);
    test_put(root, "/sys/class/drm/card1-DP-1/device/fw_version/smc_fw_version", "no card\n");
    test_put(root, "/proc/driver/nvidia/gpus/0000:41:00.0/information",
             "Model: \t X\nVideo BIOS: \t 96.00\nGPU UUID: \t u\n");
    test_put(root, "/sys/class/infiniband/mlx5_0/fw_ver", "28.39\n");
    test_put(root, "/sys/class/infiniband/mlx5_0/board_id", "MT_1\n");
    for (int i = 0; i < 2; i++) {
        test_put(root, i ? "/sys/bus/pci/devices/0000:41:00.0/class" : "/sys/bus/pci/devices/0000:01:00.0/class",
                 "0x030200\n");
        test_put(root, i ? "/sys/bus/pci/devices/0000:41:00.0/vendor" : "/sys/bus/pci/devices/0000:01:00.0/vendor",
                 "0x10de\n");
        test_put(root, i ? "/sys/bus/pci/devices/0000:41:00.0/device" : "/sys/bus/pci/devices/0000:01:00.0/device",
                 "0x2335\n");
    }
    test_put(root, "/sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n");
}

static const char *text_of(const tm_node_outcome *o, const char *name, const char *place)
{
    for (size_t i = 0; i < o->n_facts; i++)
        if (strcmp(o->facts[i].name, name) == 0 && strcmp(o->facts[i].place, place) == 0) return o->facts[i].text;
    return "(not there)";
}

static void look(const char *root, bool first, tm_node_outcome *out)
{
    tm_error        err = { 0 };
    tm_node_options options = { .sysroot = root };
    *out = (tm_node_outcome){ 0 };
    assert_int_equal(node_check_software(&(tm_node_task){ .options = &options, .first = first }, out, &err), TM_OK);
}

TEST(facts_of_a_machine)
{
    tm_node_outcome o;
    char           *root = test_tree_make();
    make(root, "6.1.0\n", "0x0055\n");
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_ALGO", "Ring", 1);
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    setenv("TRAINMARK_SECRET", "s3cr3t-0123456789", 1);
    unsetenv("LD_PRELOAD");
    look(root, true, &o);
    assert_string_equal(text_of(&o, "os.kernel", ""), "6.1.0");
    assert_string_equal(text_of(&o, "cpu.microcode", ""), "0x2b");
    assert_string_equal(text_of(&o, "board.bios_version", ""), "1.4");
    assert_string_equal(text_of(&o, "settings.transparent_huge_pages", ""), "madvise");
    assert_string_equal(text_of(&o, "settings.governor", ""), "none");
    assert_string_equal(text_of(&o, "kernel command line", ""), "iommu=pt quiet");
    assert_string_equal(text_of(&o, "smc_fw_version firmware", "card1"), "0x0055");
    assert_string_equal(text_of(&o, "smc_fw_version firmware", "card1-DP-1"), "(not there)");
    assert_string_equal(text_of(&o, "GPU BIOS", "0000:41:00.0"), "96.00");
    assert_string_equal(text_of(&o, "firmware of MT_1", "mlx5_0"), "28.39");
    assert_non_null(strstr(text_of(&o, "NCCL_*", ""), "NCCL_ALGO=Ring NCCL_DEBUG=INFO"));
    assert_null(strstr(text_of(&o, "CUDA_*", ""), "VISIBLE")); /* which devices a rank sees is its own */
    assert_string_equal(text_of(&o, "LD_PRELOAD", ""), "none");
    assert_int_equal(strlen(text_of(&o, "program", "")), 16);
    for (size_t i = 0; i < o.n_facts; i++) {
        assert_true(o.facts[i].kept);
        assert_null(strstr(o.facts[i].text, "s3cr3t"));
    }
    tm_node_outcome_fini(&o);
    look(root, false, &o); /* another rank of the host: variables only */
    assert_string_equal(text_of(&o, "os.kernel", ""), "(not there)");
    assert_non_null(strstr(text_of(&o, "NCCL_*", ""), "NCCL_ALGO=Ring NCCL_DEBUG=INFO"));
    tm_node_outcome_fini(&o);
    unsetenv("NCCL_DEBUG");
    unsetenv("NCCL_ALGO");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("TRAINMARK_SECRET");
    test_tree_remove(root);
}

TEST(kinds)
{
    tm_node_site site;
    tm_error     err = { 0 };
    char        *root = test_tree_make();
    make(root, "6.1.0\n", "0x0055\n");
    assert_int_equal(tm_node_sites(NULL, root, &site, &err), TM_OK);
    assert_string_equal(site.host, "node7");
    assert_int_equal(site.number, 0);
    assert_non_null(strstr(site.kind, "x Example CPU 9000, 2 x PCI 10de:2335"));
    test_tree_remove(root);
}
