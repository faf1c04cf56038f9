/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/threads_left.h - a system that gives only so many threads more. For one file of a test program: it has
 * a pthread_create of its own, which comes before that of the C library.
 */
#ifndef TM_TESTS_THREADS_LEFT_H
#define TM_TESTS_THREADS_LEFT_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static atomic_int threads_left = -1; /* -1: as many as are wanted */

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*body)(void *),
                   void *restrict argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    if (!symbol || threads_left == 0) return EAGAIN;
    if (threads_left > 0) threads_left--;
    memcpy(&create, &symbol, sizeof create);
    return create(thread, attributes, body, argument);
}

#endif
