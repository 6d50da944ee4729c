/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs of tests/rxe share: two hosts whose stacks may differ, each with one queue
 * pair, which meet by TCP before and after each step. One thread. It runs with any libibverbs.
 */
#ifndef TESTS_RXE_PEER_H
#define TESTS_RXE_PEER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { BYTES = 16384, PART = 4096, PART_BYTES = 8192 }; /* the buffer, and the part in use */
enum { DEPTH = 16, RECEIVE_ID = 100, REQUEST_ID = 7 };
enum {
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* What each side tells the other. */
struct hello {
	union ibv_gid gid;
	uint64_t address;
	uint32_t qpn, rkey;
};

struct side {
	bool server;
	bool verbena; /* the stack of this process */
	int peer;     /* TCP */
	unsigned int gid_index;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* all of buf: local write, and windows can be bound */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct hello theirs;
	uint8_t *buf;
};

extern struct side side;

/* What a new queue pair has. */
struct qp_wish {
	uint64_t send_ops;   /* of ibv_qp_ex; 0: no ibv_qp_ex */
	unsigned int access; /* of the peer's requests */
	uint8_t answers;     /* max_dest_rd_atomic */
};

void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define CHECK(condition)                                                           \
	do {                                                                       \
		if (!(condition))                                                  \
			give_up("line %d: not so: %s (%m)", __LINE__, #condition); \
	} while (0)

/* Takes -g GID-INDEX, -p PORT and the server's name, if it is the client, and the program's own
 * `options` as getopt() has them; opens the device and meets the peer. False: the words are wrong.
 */
bool peer_begin(int argc, char **argv, const char *options, void (*option_take)(int option));

void meet(void);

/* Gives the peer this number; returns its. */
uint32_t swap_key(uint32_t mine);

/* A new queue pair, connected to the peer's new one, with a receive. */
void reconnect(const struct qp_wish *wish);

/* The next completion, which must be this request's. */
struct ibv_wc completion(uint64_t id);

/* Posts the request as REQUEST_ID; returns its status. */
enum ibv_wc_status request(struct ibv_send_wr *wr);

/* Binds a window of type 2 to the part, with REMOTE; returns its new key. */
uint32_t bind_window(struct ibv_mw *mw);

void expect(const char *what, enum ibv_wc_status got, enum ibv_wc_status wanted);

#endif
