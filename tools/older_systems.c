/* SPDX-License-Identifier: Apache-2.0 */
/* tools/older_systems.c - what `make dist-bin` links instead of what older systems lack.
 *
 * libudev has no archive. Debian's hwloc asks it about disks and network cards, which trainmark does not ask hwloc for.
 * As in a system without udev, udev_new gives nothing, and hwloc then calls nothing else. */
#include <stddef.h>

struct udev;
struct udev_device;

extern char  *program_invocation_name, *__progname_full;
extern char   __libc_single_threaded;
extern char **environ, **__environ, **_environ;

/* Data of glibc that a program refers to is moved into it, for all libraries; here with each of its names. zig moves it
 * with the one that is used only: setenv then changes what nobody else sees. */
char        **environ;
extern char **__environ __attribute__((alias("environ")));
extern char **_environ __attribute__((alias("environ")));
char         *program_invocation_name = (char *)(size_t) "";
extern char  *__progname_full __attribute__((alias("program_invocation_name")));

/* glibc 2.32: libstdc++ counts references without atomics where it is not 0. */
char __libc_single_threaded = 0;

struct udev        *udev_new(void);
struct udev        *udev_unref(struct udev *udev);
struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *udev, const char *subsystem, const char *name);
const char         *udev_device_get_property_value(struct udev_device *device, const char *key);
struct udev_device *udev_device_unref(struct udev_device *device);

struct udev *udev_new(void)
{
    return NULL;
}

struct udev *udev_unref(struct udev *udev)
{
    (void)udev;
    return NULL;
}

struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *udev, const char *subsystem, const char *name)
{
    (void)udev, (void)subsystem, (void)name;
    return NULL;
}

const char *udev_device_get_property_value(struct udev_device *device, const char *key)
{
    (void)device, (void)key;
    return NULL;
}

struct udev_device *udev_device_unref(struct udev_device *device)
{
    (void)device;
    return NULL;
}
