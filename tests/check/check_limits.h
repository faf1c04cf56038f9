/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/check_limits.h - more rows of check_fixtures.h: values at their limits, lists that are longer than what
 * is shown. */
/* clang-format off */
#define GOVERNOR(n, word) SYSTEM_CPU "cpu" n "/cpufreq/scaling_governor=" word "\n"
    { "governor", TM_CHECK_WARN, "5 of 6", 0, { GOVERNOR("0", "a"), GOVERNOR("1", "b"), GOVERNOR("2", "c"), GOVERNOR("3", "d"),
      GOVERNOR("4", "e"), GOVERNOR("5", "performance") } },
    { "pcie", TM_CHECK_WARN, "x16", 0, { EIGHT("0x74a1"), LINK("0", "2.5", "16"), LINK("1", "5.0", "16"), LINK("2", "8.0", "16"),
      LINK("3", "16.0", "16"), LINK("4", "16.0", "8"), LINK("5", "16.0", "4"), LINK("6", "32.0", "16"), LINK("7", "32.0", "15") } },
    { "xgmi", TM_CHECK_FAIL, "7 of 12", 0, { KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n", KFD "3/gpu_id=13\n", KFD "4/gpu_id=14\n",
      XGMI("1", "2"), XGMI("1", "3"), XGMI("1", "4"), XGMI("2", "1"), XGMI("4", "3") } },
#define PROCESS(n) "/sys/class/kfd/kfd/proc/" n "/pasid=1\n"
    { "foreign", TM_CHECK_FAIL, "8:", 0, { GPU("1", "0x74a1"), PROCESS("1"), PROCESS("2"), PROCESS("3"), PROCESS("4"), PROCESS("5"),
      PROCESS("6"), PROCESS("7"), PROCESS("8") } },
    { "klog", TM_CHECK_FAIL, "[mce:]", 0, { "/dev/kmsg=5,7,10,-;mce: CPU3: level five\n" } },
    { "klog", TM_CHECK_PASS, "none", 0, { "/dev/kmsg=6,7,10,-;mce: CPU3: level six\n7,8,11,-;mce: CPU3: level seven\n" } },
    { "klog", TM_CHECK_FAIL, "2 of 2", 0, { "/proc/uptime=1000 1\n", "/dev/kmsg=3,1,99999999,-;xid 1\n3,2,100000000,-;xid 2\n"
      "3,3,100000001,-;xid 3\n" } },
#define GROUP(n, type) "/sys/kernel/iommu_groups/" n "/type=" type "\n"
    { "iommu", TM_CHECK_WARN, "group", 0, { GROUP("0", "DMA"), GROUP("1", "DMA"), GROUP("2", "DMA"), GROUP("3", "DMA"), GROUP("4", "DMA"),
      GROUP("5", "identity") } },
#define BRIDGE(n) PCI "0000:00:0" n ".0/class=0x060400\n", PCI "0000:00:0" n ".0/config=%acs-on"
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
    { "numa_balancing", TM_CHECK_PASS, "0", 0, { "/proc/sys/kernel/numa_balancing= 0x0 \t\n" } },
    { "numa_balancing", TM_CHECK_WARN, "-1", 0, { "/proc/sys/kernel/numa_balancing=-1\n" } },
    { "thp", TM_CHECK_INFO, "enabled always, defrag defer", 0, { THP "enabled=[always] madvise never\n", THP "defrag=always [defer] never\n" } },
#define CLOCK "/sys/devices/system/clocksource/clocksource0/current_clocksource="
    { "clocksource", TM_CHECK_PASS, "kvm-clock", 0, { CLOCK "kvm-clock\n" } },
#define IDLE(cpu, state, file) SYSTEM_CPU "cpu" cpu "/cpuidle/state" state "/" file "\n"
    { "cstate", TM_CHECK_INFO, "3 of 4 deep states are enabled, C10 of cpu0 for one", 0, { IDLE("0", "0", "name=POLL"), IDLE("0", "1", "name=C1E"),
      IDLE("0", "2", "name=C2"), IDLE("0", "2", "disable=2"), IDLE("0", "3", "name=C10"), IDLE("0", "4", "name=C6"), IDLE("0", "4", "disable=0"),
      IDLE("0", "x", "name=C9"), IDLE("0", "5", "disable=0"), IDLE("0", "6", "name=CX"), IDLE("0", "7", "name=c7"), IDLE("1", "3", "name=C3") } },
    { "iommu_smt", TM_CHECK_FAIL, "100 processors online, 256 present", 0, { SYSTEM_CPU "online=0-99\n", SYSTEM_CPU "present=0-255\n" } },
    { "iommu_smt", TM_CHECK_PASS, "255 processors online", 0, { SYSTEM_CPU "online=0-254\n", SYSTEM_CPU "present=0-300\n", "/sys/class/iommu/dmar0/" } },
#define MEMORY(total) "/proc/meminfo=MemTotal: " total " kB\nMemAvailable: " total " kB\n"
    { "memory", TM_CHECK_PASS, "100 %", 0, { MEMORY("1464843750"), EIGHT("0x74a1") } },
    { "memory", TM_CHECK_WARN, "8 x MI300X", 0, { MEMORY("1464843749"), EIGHT("0x74a1") } },
    { "memory", TM_CHECK_WARN, "8 x MI325X", 0, { MEMORY("2000000000"), GPU("0", "0x74a1"), GPU("1", "0x74a5"), GPU("2", "0x74a1"), GPU("3", "0x74a5"),
      GPU("4", "0x74a1"), GPU("5", "0x74a1"), GPU("6", "0x74a1"), GPU("7", "0x74a1") } },
    { "numa_layout", TM_CHECK_PASS, "2 nodes", 0, { NODE("3", "0-3", "1000"), NODE("8", "4-7", "1000"), GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=3\n"),
      GPU("2", "0x74a1"), GPU_FILE("2", "numa_node=8\n") } },
    { "numa_layout", TM_CHECK_WARN, "on no node", 0, { NODE("0", "0-3", "1000"), NODE("1", "4-7", "1000"), GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=0\n"),
      GPU("2", "0x74a1"), GPU_FILE("2", "numa_node=1\n"), GPU("3", "0x74a1"), GPU_FILE("3", "numa_node=2\n") } },
    { "numa_layout", TM_CHECK_WARN, "2 nodes", 0, { NODE("0", "0-3", "1000"), NODE("1", "4-7", "1000"), GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=1\n") } },
    { "time", TM_CHECK_INFO, "9999-12-31T23:59:59Z", last_moment, { 0 } },
    { "iommu", TM_CHECK_WARN, "1 of 3", 0, { GROUP("0", "identity"), GROUP("1", "DMA"), "/sys/kernel/iommu_groups/2/" } },
    { "gpu_count", TM_CHECK_PASS, "1 x MI350X, 1 in the driver", want_1_gpu, { GPU("1", "0x75a0"), KFD "0/gpu_id=0\n", KFD "1/gpu_id=7\n" } },
    { "gpu_count", TM_CHECK_INFO, "1 x AMD device 744c", 0, { GPU_OF("0000:03:00.0", "0x1002", "0x744c", "0x030000"),
      GPU_OF("0000:04:00.0", "0x1002", "0x1234", "0x040300"), GPU_OF("0000:05:00.0", "0x10de", "0x1234", "0x120000") } },
#define LINKS(n, speed, width, most_speed, most_width) GPU_FILE(n, "current_link_speed=" speed " GT/s PCIe\n"), GPU_FILE(n, "current_link_width=" width "\n"), \
    GPU_FILE(n, "max_link_speed=" most_speed " GT/s PCIe\n"), GPU_FILE(n, "max_link_width=" most_width "\n")
    { "pcie", TM_CHECK_WARN, "1 of 2", 0, { GPU("1", "0x74a1"), LINKS("1", "16.0", "16", "16.0", "16"), GPU("2", "0x744c"), LINKS("2", "32.0", "16", "16.0", "8") } },
    { "gpu_busy", TM_CHECK_PASS, "at most 15 % on 2", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "gpu_busy_percent=15\n"), GPU("2", "0x74a1"),
      GPU_FILE("2", "gpu_busy_percent=5\n"), GPU("3", "0x74a1") } },
#define RAS(block, counts) GPU_FILE("1", "ras/" block "=" counts)
    { "ecc", TM_CHECK_FAIL, "gfx 1, 0000:01:00.0 umc 2", 0, { GPU("1", "0x74a1"), RAS("umc_err_count", "ue: 2\nce: 1\n"), RAS("gfx_err_count", "ue: 1\n"),
      RAS("_err_count", "ue: 5\n"), RAS("x_err_counts", "ue: 6\n"), RAS("sdma_err_count", "ce: 9\n") } },
    { "gpu_clocks", TM_CHECK_WARN, "0000:01:00.0 2100 of 2100 MHz, 0000:02:00.0 0 of 90 MHz", 0, { GPU("1", "0x74a1"), GPU("2", "0x74a1"), GPU("3", "0x74a1"),
      GPU_FILE("1", "pp_dpm_sclk=OD_SCLK *\n0: 132Mhz\n1: 2100Mhz *"), GPU_FILE("2", "pp_dpm_sclk=0: 90Mhz\n1: 80Mhz\n"), GPU_FILE("3", "pp_dpm_sclk=none *\n") } },
#define POWER(n, monitor, cap, most) GPU_FILE(n, "hwmon/hwmon" monitor "/power1_cap=" cap "000000\n"), GPU_FILE(n, "hwmon/hwmon" monitor "/power1_cap_max=" most "000000\n")
    { "gpu_power", TM_CHECK_WARN, "and 1 more", 0, { GPU("1", "0x74a1"), POWER("1", "1", "1", "9"), POWER("1", "2", "2", "9"), POWER("1", "3", "3", "9"), POWER("1", "4", "4", "9"),
      GPU("2", "0x74a1"), POWER("2", "5", "5", "9") } },
    { "foreign", TM_CHECK_FAIL, "2: 77 python, 79 (unknown)", trainers_allowed, { GPU("1", "0x74a1"), PROCESS("77"), PROCESS("78"), PROCESS("79"), PROCESS("x"),
      "/proc/77/comm=python\n", "/proc/78/comm=train\n" } },
    { "foreign", TM_CHECK_SKIP, "is not there", 0, { GPU("1", "0x74a1") } },
    { "versions", TM_CHECK_INFO, "nvidia NVRM 5, NIC firmware 1, NIC firmware 2", 0, { "/proc/driver/nvidia/version=NVRM 5\nGCC\n", "/sys/module/amdgpu/version=\n",
      IB "a/fw_ver=1\n", IB "b/fw_ver=2\n", IB "c/fw_ver=1\n" } },
#define UP(nic, layer) PORT(nic, "4: ACTIVE", "5: LinkUp", "400 Gb/sec", layer)
    { "nic", TM_CHECK_FAIL, "a/1 is unreadable, b/1 is unreadable, c/1 has no rate, d/1 has no RoCE v2 GID at index 3 and 1 more", 0, { IB "a/ports/1/rate=400\n",
      IB "b/ports/1/state=4:ACTIVE\n", IB "c/ports/1/state=4:   ACTIVE\n", IB "c/ports/1/phys_state=5: LinkUp\n", UP("d", "Ethernet"),
      IB "d/ports/1/gid_attrs/types/3=RoCE v2\n", IB "d/ports/1/gids/3=0000:0000:0000:0000:0000:0000:0000:0000\n", UP("e", "Ethernet"),
      IB "e/ports/1/gid_attrs/types/3=RoCE v2\n" } },
    { "nic", TM_CHECK_FAIL, "e2 399999 Mb/s, 1 cards, not 2", want_2_nics, { UP("a", "InfiniBand"), IB "a/device/net/e0/speed=0\n", IB "a/device/net/e1/speed=-1\n",
      IB "a/device/net/e2/speed=399999\n", IB "a/device/net/e3/speed=x\n", IB "a/ports/x/state=1: DOWN\n" } },
#define NETS(name) NET name "/operstate=up\n"
    { "ifname", TM_CHECK_PASS, "=eth0, eth5, route over eth0", 0, { "$NCCL_SOCKET_IFNAME==eth0, eth5", "$MASTER_ADDR=10.0.0.9", NETS("eth0"), NET "eth01/operstate=down\n", NET "eth5/operstate=unknown\n", ROUTES } },
    { "ifname", TM_CHECK_PASS, "^docker,eth1, route over eth0", 0, { "$NCCL_SOCKET_IFNAME=^docker,eth1", "$MASTER_ADDR=10.0.0.9", ROUTES } },
    { "ifname", TM_CHECK_PASS, "not set, no route looked up: MASTER_ADDR is not an IPv4 address", 0, { "$MASTER_ADDR=node1", ROUTES } },
    { "ifname", TM_CHECK_PASS, "not set, MASTER_ADDR is this machine", 0, { "$MASTER_ADDR=127.3.2.1" } },
    { "ifname", TM_CHECK_PASS, "not set, route over eth2", 0, { "$MASTER_ADDR=10.0.0.9", "$NCCL_SOCKET_IFNAME=", "/proc/net/route=Iface\neth0 0000000A 0 0 0 0 0 000000FF\neth1 0000000A 0 0 0 0 0 000000FF\n"
      "eth2 0000000A 0 0 0 0 0 0000FFFF\neth3 00000000 0 0 0 0 0 00000000\neth4 0000000A 0 0\neth5 0000000B 0 0 0 0 0 FFFFFFFF\n" } },
    { "ifname", TM_CHECK_WARN, "lo does not reach", 0, { "$NCCL_SOCKET_IFNAME=lo,cni,br", NETS("lo") } },
    { "dist_env", TM_CHECK_PASS, "rank 16777215 of 16777216, a:1", 0, { "$MASTER_ADDR=a", "$MASTER_PORT=1", "$RANK=16777215", "$WORLD_SIZE=16777216", "$LOCAL_RANK=65536", "$NNODES=1048576", "$NODE_RANK=1048575" } },
    { "dist_env", TM_CHECK_FAIL, "WORLD_SIZE is '16777217', not a number of 1 to 16777216", 0, { "$MASTER_ADDR=a", "$MASTER_PORT=1", "$RANK=0", "$WORLD_SIZE=16777217" } },
    { "dist_env", TM_CHECK_FAIL, "LOCAL_WORLD_SIZE is '65537', not a number of 1 to 65536", 0, { "$MASTER_ADDR=a", "$MASTER_PORT=1", "$RANK=0", "$WORLD_SIZE=65537", "$LOCAL_WORLD_SIZE=65537" } },
    { "perf_gemm", TM_CHECK_FAIL, "g5 is 5, wanted at most 1.5 and 1 more", many_gates, { 0 } },
    { "memlock", TM_CHECK_PASS, "512.00 MiB", half_a_gib, { "/proc/self/limits=Max locked memory         536870912          34359738368          bytes\n",
      GPU("1", "0x74a1") } },
    { "gpu_mem", TM_CHECK_FAIL, "0.5 GiB", half_a_gib, { GPU("1", "0x74a1"), GPU_FILE("1", "mem_info_vram_used=536870912\n") } },
    { "klog", TM_CHECK_PASS, "1 recent kernel message,", half_a_gib, { "/proc/uptime=1000 1\n", "/dev/kmsg=3,1,969999999,-;xid 1\n6,2,970000000,-;fine\n" } },
    { "cmdline", TM_CHECK_WARN, "missing: pci=bfsort, iommu=pt, numa_balancing=disable", 0, { "/proc/cmdline=pci=realloc=off bfsort iommu= pt x=numa_balancing=disable\n" } },
#define FREQUENCY(n, may, can) \
    SYSTEM_CPU "cpu" n "/cpufreq/scaling_max_freq=" may "\n", SYSTEM_CPU "cpu" n "/cpufreq/cpuinfo_max_freq=" can "\n"
    { "frequency", TM_CHECK_PASS, "no limit on all 2", 0, { FREQUENCY("0", "3500000", "3500000"),
      FREQUENCY("1", "3480000", "3500000") } },
    { "frequency", TM_CHECK_WARN, "2 of 2 are limited: cpu0 2.40 of 3.50 GHz", 0,
      { FREQUENCY("0", "2400000", "3500000"), FREQUENCY("1", "2400000", "3500000") } },
    { "frequency", TM_CHECK_FAIL, "1 of 2 are limited: cpu1 1.20 of 3.50 GHz", 0,
      { FREQUENCY("0", "3500000", "3500000"), FREQUENCY("1", "1200000", "3500000") } },
    { "frequency", TM_CHECK_SKIP, "no cpufreq", 0, { SYSTEM_CPU "cpu0/cpufreq/scaling_max_freq=x\n" } },
#define STAT(n, name, state, parent) "/proc/" n "/stat=" n " (" name ") " state " " parent " 1 1\n"
    { "zombies", TM_CHECK_PASS, "none of 2", 0, { STAT("1", "init", "S", "0"), STAT("7", "a) Z 1", "R", "1") } },
    { "zombies", TM_CHECK_WARN, "2: 8 python3 (parent 7), 9 a b (parent 1)", 0, { STAT("7", "sh", "S", "1"),
      STAT("8", "python3", "Z", "7"), STAT("9", "a b", "Z", "1") } },
#define TEN_DEAD(t) STAT(t "0", "x", "Z", "1"), STAT(t "1", "x", "Z", "1"), STAT(t "2", "x", "Z", "1"), \
    STAT(t "3", "x", "Z", "1"), STAT(t "4", "x", "Z", "1"), STAT(t "5", "x", "Z", "1"), STAT(t "6", "x", "Z", "1"), \
    STAT(t "7", "x", "Z", "1"), STAT(t "8", "x", "Z", "1"), STAT(t "9", "x", "Z", "1")
    { "zombies", TM_CHECK_FAIL, "20: ", 0, { TEN_DEAD("1"), TEN_DEAD("2") } },
    { "zombies", TM_CHECK_SKIP, "no processes", 0, { "/proc/meminfo=\n" } },
#define SEGMENTS "/proc/sysvipc/shm=       key      shmid perms                  size  cpid  lpid nattch   uid\n"
    { "left_shm", TM_CHECK_PASS, "5 B in 1 files of /dev/shm, the largest is a", 0,
      { "/proc/meminfo=MemTotal: 1000 kB\n", "/dev/shm/a=1234\n", SEGMENTS "0 1 666 900000 1 1 2 0\n" } },
    { "left_shm", TM_CHECK_WARN, "in 1 segments", 0, { "/proc/meminfo=MemTotal: 1000 kB\n",
      SEGMENTS "0 1 666 10240 1 1 0 0\n" } },
    { "left_shm", TM_CHECK_FAIL, "in 2 segments", 0, { "/proc/meminfo=MemTotal: 1000 kB\n",
      SEGMENTS "0 1 666 30000 1 1 0 0\n0 2 666 21200 1 1 0 0\n" } },
    { "left_shm", TM_CHECK_SKIP, "no MemTotal", 0, { "/proc/meminfo=\n" } },
    /* clang-format on */
