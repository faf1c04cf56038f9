/* SPDX-License-Identifier: Apache-2.0 */
/* tests/system/check_limits.h - more rows of check_fixtures.h: values at their limits, lists that are longer than what
 * is shown. What is said of each is in tests/golden/whole-checks.txt. */
/* clang-format off */
#define GOVERNOR(n, word) SYSTEM_CPU "cpu" n "/cpufreq/scaling_governor=" word "\n"
    { "governor", TM_CHECK_WARN, "4 of 4", 0, { GOVERNOR("0", "a"), GOVERNOR("1", "b"), GOVERNOR("2", "c"), GOVERNOR("3", "d") } },
    { "governor", TM_CHECK_WARN, "5 of 6", 0, { GOVERNOR("0", "a"), GOVERNOR("1", "b"), GOVERNOR("2", "c"), GOVERNOR("3", "d"),
      GOVERNOR("4", "e"), GOVERNOR("5", "performance") } },
#define EACH_GPU(file) EIGHT("0x74a1"), GPU_FILE("0", file), GPU_FILE("1", file), GPU_FILE("2", file), GPU_FILE("3", file), \
    GPU_FILE("4", file), GPU_FILE("5", file), GPU_FILE("6", file), GPU_FILE("7", file)
    { "gpu_busy", TM_CHECK_WARN, "%", 0, { EACH_GPU("gpu_busy_percent=99\n") } },
    { "gpu_mem", TM_CHECK_FAIL, "GiB", 0, { EACH_GPU("mem_info_vram_used=9147483648\n") } },
    { "gpu_clocks", TM_CHECK_INFO, "MHz", 0, { EACH_GPU("pp_dpm_sclk=0: 100Mhz\n1: 500Mhz *\n2: 900Mhz\n") } },
    { "ecc", TM_CHECK_FAIL, "umc 7", 0, { EACH_GPU("ras/umc_err_count=ue: 7\nce: 0\n") } },
    { "pcie", TM_CHECK_WARN, "x16", 0, { EIGHT("0x74a1"), LINK("0", "2.5", "16"), LINK("1", "5.0", "16"), LINK("2", "8.0", "16"),
      LINK("3", "16.0", "16"), LINK("4", "16.0", "8"), LINK("5", "16.0", "4"), LINK("6", "32.0", "16"), LINK("7", "32.0", "15") } },
    { "xgmi", TM_CHECK_FAIL, "6 of 6", 0, { KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n", KFD "3/gpu_id=13\n" } },
    { "xgmi", TM_CHECK_FAIL, "7 of 12", 0, { KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n", KFD "3/gpu_id=13\n", KFD "4/gpu_id=14\n",
      XGMI("1", "2"), XGMI("1", "3"), XGMI("1", "4"), XGMI("2", "1"), XGMI("4", "3") } },
#define PROCESS(n) "/sys/class/kfd/kfd/proc/" n "/pasid=1\n"
    { "foreign", TM_CHECK_FAIL, "6:", 0, { GPU("1", "0x74a1"), PROCESS("1"), PROCESS("2"), PROCESS("3"), PROCESS("4"), PROCESS("5"),
      PROCESS("6") } },
    { "foreign", TM_CHECK_FAIL, "8:", 0, { GPU("1", "0x74a1"), PROCESS("1"), PROCESS("2"), PROCESS("3"), PROCESS("4"), PROCESS("5"),
      PROCESS("6"), PROCESS("7"), PROCESS("8") } },
    { "klog", TM_CHECK_FAIL, "[mce:]", 0, { "/dev/kmsg=5,7,10,-;mce: CPU3: level five\n" } },
    { "klog", TM_CHECK_PASS, "none", 0, { "/dev/kmsg=6,7,10,-;mce: CPU3: level six\n7,8,11,-;mce: CPU3: level seven\n" } },
#define LETTERS "abcdefghijklmnopqrstuvwxyz"
    { "klog", TM_CHECK_FAIL, "xid", 0, { "/dev/kmsg=3,1,1,-;xid " LETTERS LETTERS LETTERS LETTERS "0123456789\n"
      "3,2,2,-;xid " LETTERS LETTERS LETTERS LETTERS "0123456789!\n3,3,3,-;a\tb xid\n" } },
    { "klog", TM_CHECK_FAIL, "xid", 0, { "/dev/kmsg=3,1,1,-;xid 1\n3,2,2,-;xid 2\n3,3,3,-;xid 3\n3,4,4,-;xid 4\n3,5,5,-;maxid xids\n" } },
    { "klog", TM_CHECK_FAIL, "2 of 2", 0, { "/proc/uptime=1000 1\n", "/dev/kmsg=3,1,99999999,-;xid 1\n3,2,100000000,-;xid 2\n"
      "3,3,100000001,-;xid 3\n" } },
#define GROUP(n, type) "/sys/kernel/iommu_groups/" n "/type=" type "\n"
    { "iommu", TM_CHECK_WARN, "group", 0, { GROUP("0", "DMA"), GROUP("1", "DMA"), GROUP("2", "DMA"), GROUP("3", "DMA") } },
    { "iommu", TM_CHECK_WARN, "group", 0, { GROUP("0", "DMA"), GROUP("1", "DMA"), GROUP("2", "DMA"), GROUP("3", "DMA"), GROUP("4", "DMA"),
      GROUP("5", "identity") } },
#define BRIDGE(n) PCI "0000:00:0" n ".0/class=0x060400\n", PCI "0000:00:0" n ".0/config=%acs-on"
    { "acs", TM_CHECK_WARN, "0000", 0, { BRIDGE("1"), BRIDGE("2"), BRIDGE("3"), BRIDGE("4"), BRIDGE("5"), BRIDGE("6") } },
    { "acs", TM_CHECK_WARN, "0000", 0, { BRIDGE("1"), BRIDGE("2"), BRIDGE("3"), BRIDGE("4"), BRIDGE("5"), BRIDGE("6"), BRIDGE("7"),
      BRIDGE("8") } },
    { "memlock", TM_CHECK_FAIL, "GiB", 0, { "/proc/self/limits=Max locked memory         34359738367          34359738368          bytes\n",
      GPU("1", "0x74a1") } },
    { "shm", TM_CHECK_PASS, "8.00 GiB", shm_enough, { 0 } },
    { "shm", TM_CHECK_FAIL, "GiB", shm_not_enough, { 0 } },
    { "memory", TM_CHECK_PASS, "10 %", 0, { "/proc/meminfo=MemTotal: 1000000 kB\nMemAvailable: 100000 kB\n" } },
    { "memory", TM_CHECK_WARN, "%", 0, { "/proc/meminfo=MemTotal: 1000000 kB\nMemAvailable: 99999 kB\n" } },
    { "numa_layout", TM_CHECK_PASS, "2 nodes", 0, { NODE("0", "0-3", "1000000"), NODE("1", "4-7", "900000") } },
    { "numa_layout", TM_CHECK_WARN, "2 nodes", 0, { NODE("0", "0-3", "1000000"), NODE("1", "4-7", "899999") } },
    { "numa_layout", TM_CHECK_PASS, "9 nodes", 0, { NODE("0", "0", "9"), NODE("1", "1", "9"), NODE("2", "2", "9"), NODE("3", "3", "9"),
      NODE("4", "4", "9"), NODE("5", "5", "9"), NODE("6", "6", "9"), NODE("7", "7", "9"), NODE("8", "8", "9") } },
    { "nic", TM_CHECK_FAIL, "mlx5_0", 0, { PORT("mlx5_0", "1: DOWN", "3: Disabled", "10 Gb/sec (4X)", "Ethernet"),
      PORT("mlx5_1", "1: DOWN", "3: Disabled", "10 Gb/sec (4X)", "Ethernet"), PORT("mlx5_2", "4: ACTIVE", "5: LinkUp", "399 Gb/sec (4X)", "InfiniBand") } },
    { "iommu_smt", TM_CHECK_PASS, "256", 0, { SYSTEM_CPU "online=0-255\n", SYSTEM_CPU "present=0-255\n" } },
    { "iommu_smt", TM_CHECK_FAIL, "255", 0, { SYSTEM_CPU "online=0-254\n", SYSTEM_CPU "present=0-254\n" } },
    /* clang-format on */
