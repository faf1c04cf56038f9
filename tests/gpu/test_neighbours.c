/* SPDX-License-Identifier: Apache-2.0 */
/* What is near a GPU, on machines that the test makes: files and links as /sys has them. */
#include "gpu/neighbours.h"

#include "base/file.h"
#include "support/folder.h"

#include "support/test.h"

/* A device at the end of links of PCI: "pci0000:00/0000:00:01.0/0000:01:00.0". node NULL: the file is not there. */
static void put_device(const char *root, const char *way, const char *node)
{
    char path[1200], target[1200];
    snprintf(path, sizeof path, "%s/sys/devices/%s", root, way);
    assert_int_equal(tm_folder_make(path, NULL), TM_OK);
    if (node) {
        snprintf(path, sizeof path, "%s/sys/devices/%s/numa_node", root, way);
        assert_int_equal(tm_file_write(path, node, strlen(node), NULL), TM_OK);
    }
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    assert_int_equal(tm_folder_make(path, NULL), TM_OK);
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s", root, strrchr(way, '/') + 1);
    snprintf(target, sizeof target, "../../../devices/%s", way);
    assert_int_equal(symlink(target, path), 0);
}

/* A network card of a class, which is that device; way NULL: it is none (lo). */
static void put_card(const char *root, const char *class, const char *name, const char *way)
{
    char path[1200], target[1200];
    snprintf(path, sizeof path, "%s/sys/class/%s/%s", root, class, name);
    assert_int_equal(tm_folder_make(path, NULL), TM_OK);
    if (!way) return;
    snprintf(path, sizeof path, "%s/sys/class/%s/%s/device", root, class, name);
    snprintf(target, sizeof target, "%s/sys/devices/%s", root, way);
    assert_int_equal(symlink(target, path), 0);
}

static void is(const char *root, const char *bus, int node, const char *nic, int nics)
{
    tm_gpu_neighbours found;
    tm_gpu_neighbours_find(bus, root, &found);
    if (found.numa_node != node || strcmp(found.nic, nic) != 0 || found.nics != nics)
        fail_msg("%s: node %d, '%s' of %d; wanted %d, '%s' of %d", bus, found.numa_node, found.nic, found.nics, node,
                 nic, nics);
}

/* Each GPU and a card below one switch; two switches below one root port, another one at the other processor. */
TEST(below_switches)
{
    const char *root = *test_state;
    put_device(root, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:05:00.0", "0\n");
    put_device(root, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:15:00.0", "0\n");
    put_device(root, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:85:00.0", "1\n");
    put_device(root, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:06:00.0", "0\n");
    put_device(root, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:16:00.0", "0\n");
    put_device(root, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:86:00.0", "1\n");
    put_card(root, "infiniband", "mlx5_2", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:06:00.0");
    put_card(root, "infiniband", "mlx5_1", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:16:00.0");
    put_card(root, "infiniband", "mlx5_0", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:86:00.0");
    put_card(root, "net", "eth0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:06:00.0");
    is(root, "0000:05:00.0", 0, "mlx5_2", 1);
    is(root, "0000:15:00.0", 0, "mlx5_1", 1);
    is(root, "0000:85:00.0", 1, "mlx5_0", 1);
}

/* No way in common: cards of the node, then any. Names of buses that begin alike are others. */
TEST(of_the_node)
{
    const char *root = *test_state;
    put_device(root, "pci0000:3/0000:03:00.0/0000:04:00.0", "0\n");
    put_device(root, "pci0000:c0/0000:c0:00.0/0000:c1:00.0", "1\n");
    put_device(root, "pci0000:d0/0000:d0:00.0/0000:d1:00.0", "1\n");
    put_device(root, "pci0000:e0/0000:e0:00.0/0000:e1:00.0", "-1\n");
    put_card(root, "infiniband", "a_far", "pci0000:3/0000:03:00.0/0000:04:00.0");
    put_card(root, "infiniband", "b_near", "pci0000:c0/0000:c0:00.0/0000:c1:00.0");
    put_card(root, "infiniband", "c_near", "pci0000:d0/0000:d0:00.0/0000:d1:00.0");
    is(root, "0000:e1:00.0", -1, "a_far", 3);
    is(root, "0000:C1:00.0", 1, "b_near", 1);
    put_device(root, "pci0000:3a/0000:3a:01.0/0000:3c:00.0", "1\n");
    is(root, "0000:3c:00.0", 1, "b_near", 2);
}

/* Without RDMA: cards of the network that are devices. A GPU that /sys does not show has none that is nearer. */
TEST(plain_networks)
{
    const char *root = *test_state;
    is(root, "0000:05:00.0", -1, "", 0);
    put_device(root, "pci0000:00/0000:00:03.0", NULL);
    put_device(root, "pci0000:00/0000:00:05.0", "0\n");
    put_card(root, "net", "lo", NULL);
    put_card(root, "net", "ens3", "pci0000:00/0000:00:03.0");
    is(root, "0000:00:05.0", 0, "ens3", 1);
    is(root, "0000:77:00.0", -1, "ens3", 1);
}

static int make_root(void **state)
{
    *state = test_tree_make();
    return 0;
}

static int remove_root(void **state)
{
    test_tree_remove(*state);
    return 0;
}

TEST_FIXTURE(make_root, remove_root)
