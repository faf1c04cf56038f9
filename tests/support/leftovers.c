/* SPDX-License-Identifier: Apache-2.0 */
/* A test that ends well, but leaves files open or mapped that were not at its beginning, ends with exit status 1 and
 * their names. */
#include "support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>

enum { MOST = 1024 };

static bool  open_before[MOST];
static pid_t program;

/* Files, folders, pipes and sockets; what libraries keep of devices and of the kernel's own is theirs. */
static bool counts(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 &&
           (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode) || S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode));
}

static int tell_open(void)
{
    int left = 0;
    for (int fd = 0; fd < MOST; fd++) {
        char link[64], target[PATH_MAX] = "";
        if (open_before[fd] || !counts(fd)) continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) < 0 || strstr(target, "/open_mpi.")) continue;
        fprintf(stderr, "# left open: %s\n", target);
        left++;
    }
    return left;
}

/* Parts of regular files that are no program. */
static int tell_mapped(void)
{
    char  line[PATH_MAX + 128];
    int   left = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        struct stat s;
        char       *path = strchr(line, '/');
        if (!path) continue;
        path[strcspn(path, "\n")] = '\0';
        if (strstr(path, ".so") || strstr(line, "r-x") || strncmp(path, "/usr/", 5) == 0) continue;
        if (strncmp(path, "/dev/", 5) == 0 || (strstr(line, "(deleted)") == NULL && stat(path, &s) != 0)) continue;
        if (strncmp(path, "/memfd:", 7) == 0 || strstr(path, "/tsan.")) continue; /* ThreadSanitizer's own */
        char self[PATH_MAX] = "";
        if (readlink("/proc/self/exe", self, sizeof self - 1) > 0 && strcmp(self, path) == 0) continue;
        fprintf(stderr, "# left mapped: %s\n", path);
        left++;
    }
    if (maps) fclose(maps);
    return left;
}

static void at_the_end(int status, void *unused)
{
    (void)unused;
    if (status != 0 || getpid() != program) return;
    fflush(NULL);
    int left = tell_open();
    left += tell_mapped();
    if (left > 0) _exit(1);
}

/* The driver of a real GPU keeps pipes, sockets and maps until the process ends: nothing is judged beside it. */
void test_leftovers_begin(void)
{
    const char *gpu = getenv("TM_TEST_GPU");
    if (gpu && strcmp(gpu, "real") == 0) return;
    program = getpid();
    for (int fd = 0; fd < MOST; fd++) open_before[fd] = fcntl(fd, F_GETFD) >= 0;
    on_exit(at_the_end, NULL);
}

/* Libraries that stand in for those of GPUs keep what they made: a queue of theirs may still come to it. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:standins\n";
}
