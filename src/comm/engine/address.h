/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/address.h - addresses of hosts, and sockets at them. */
#ifndef TM_COMM_ADDRESS_H
#define TM_COMM_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct {
    struct sockaddr_storage at;
    uint64_t                length;
} tm_comm_address;

/* The first one of a name; `far`: the first that other hosts may reach, if there is one. NULL, or why not. */
const char *tm_comm_address_find(const char *name, const char *port, bool far, tm_comm_address *out);

bool tm_comm_address_is_any(const tm_comm_address *a); /* 0.0.0.0, or :: */
bool tm_comm_address_is_loopback(const tm_comm_address *a);
bool tm_comm_address_is_own(const tm_comm_address *a); /* of this host; any address is */
/* Does the text itself say so: localhost, 127.x.y.z or ::1? */
bool tm_comm_address_says_loopback(const char *text);

void     tm_comm_address_set_any(tm_comm_address *a);
void     tm_comm_address_set_loopback(tm_comm_address *a);
void     tm_comm_address_set_port(tm_comm_address *a, uint32_t port);
uint32_t tm_comm_address_port(const tm_comm_address *a);

void tm_comm_address_of_own(int fd, tm_comm_address *out); /* of this end of a connection */
void tm_comm_address_of_peer(int fd, tm_comm_address *out);

/* A socket that is bound there, and nowhere else. -1 and errno. */
int tm_comm_address_bind(const tm_comm_address *a);
int tm_comm_address_listen(int fd); /* without waiting for callers; 0, or -1 and errno */
/* A connection that does not wait, within so many seconds. -1 and errno. */
int tm_comm_address_connect(const tm_comm_address *a, int seconds);

#endif
