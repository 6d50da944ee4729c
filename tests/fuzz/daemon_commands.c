/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: verbenad, in this process, and clients with arbitrary behaviour: they connect,
 * attach with descriptors of all sorts, send commands that are valid, nearly valid, or any bytes,
 * read their replies or don't, disconnect, end, return after the daemon was killed, use the control
 * socket. Allocations and descriptors may run out, users differ.
 *
 * After each input all connections are closed; then the daemon must have no object, link, slot,
 * user or descriptor, and no memory (LeakSanitizer).
 */
#include "commands.h"
#include "counters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core/conn.h"
#include "daemon/core/ctl.h"
#include "daemon/core/process.h"
#include "daemon/core/return.h"
#include "daemon/core/user.h"
#include "fuzz_server.h"
#include "input.h"
#include "shm/pub.h"

enum {
	SOUND_TABLE,
	UNSEALED_TABLE,
	SMALL_TABLE,
	SOUND_BELL,
	BLOCKING_BELL,
	NULL_FD,
	PIPE,
	SOCKET,
	THINGS
};

static int things[THINGS]; /* descriptors that a client may hand in */
static struct pub *table;
static struct client clients[CLIENTS];

/* ------------------------------------------------------------------ once */

static int table_make(off_t size, int seals)
{
	int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && ftruncate(fd, size) == 0);
	if (size == (off_t)PUB_SIZE && seals)
		table = mmap(NULL, PUB_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			     0);
	MUST(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void once(void)
{
	int pair[2];

	/* Full log level, to /dev/null, so that formatting is tested as well. */
	log_open(open("/dev/null", O_WRONLY | O_CLOEXEC), "fuzz");
	things[SOUND_TABLE] = table_make(PUB_SIZE, F_SEAL_SHRINK | F_SEAL_GROW |
							   F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	things[UNSEALED_TABLE] = table_make(PUB_SIZE, 0);
	things[SMALL_TABLE] =
		table_make(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	things[SOUND_BELL] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	things[BLOCKING_BELL] = eventfd(0, EFD_CLOEXEC);
	things[NULL_FD] = open("/dev/null", O_RDWR | O_CLOEXEC);
	MUST(pipe2(pair, O_CLOEXEC) == 0);
	things[PIPE] = pair[0];
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	things[SOCKET] = pair[0];
	MUST(table != MAP_FAILED);
	for (unsigned int i = 0; i < CLIENTS; i++)
		clients[i].fd = clients[i].event_fd = -1;
	server_begin();
}

/* ------------------------------------------------------------------ what clients do */

static struct client *pick(struct input *in)
{
	return &clients[input_u8(in) % CLIENTS];
}

static void client_open(struct client *client, struct input *in)
{
	uint8_t user = input_u8(in);

	if (client->fd < 0)
		client->fd = server_connect(SOCK_SEQPACKET, user < 192 ? 0 : user % 4);
}

static void client_close(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	if (client->event_fd >= 0)
		close(client->event_fd);
	*client = (struct client){.fd = -1,
				  .event_fd = -1,
				  .slot = client->slot,
				  .cookie = client->cookie,
				  .link_id = client->link_id};
}

/* Chooses the descriptors that `which` names; returns their number. */
static unsigned int choose(struct input *in, int *fds)
{
	uint8_t which = input_u8(in);
	unsigned int n = which % 8 == 7 ? 6 : which % 5;

	for (unsigned int i = 0; i < n; i++)
		fds[i] = things[input_u8(in) % THINGS];
	return n;
}

static void act_bytes(struct input *in)
{
	struct client *client = pick(in);
	uint8_t packet[PROTO_MAX_MESSAGE + 64];
	int fds[8];
	unsigned int count = choose(in, fds);
	size_t size = input_u8(in);

	if (size >= 240)
		size = input_u32(in) % sizeof(packet);
	input_bytes(in, packet, size);
	client_send(client, packet, size, fds, count);
}

static bool asks_for(const struct packet *p, uint32_t command)
{
	struct ib_uverbs_cmd_hdr header = {0};

	if (p->size >= sizeof(header))
		memcpy(&header, p->bytes, sizeof(header));
	return header.command == command;
}

static void act_command(struct input *in)
{
	struct client *client = pick(in);
	struct packet p;
	int fds[8];

	command_make(&p, client, &clients[input_u8(in) % CLIENTS], in);
	/* Then some bytes are changed. */
	for (uint8_t changes = input_u8(in); changes >= 224 && p.size; changes = input_u8(in)) {
		uint32_t at = input_u8(in) % p.size;

		p.bytes[at] = changes & 1 ? input_u8(in) : (uint8_t)(p.bytes[at] + 1);
	}
	uint8_t cut = input_u8(in);

	if (cut >= 250)
		p.size = p.size * (cut - 249u) / 8;
	unsigned int count = cut == 249 ? choose(in, fds) : 0;

	if (!count && asks_for(&p, PROTO_ALLOC_DM)) { /* its memory: a sealed file of one page */
		fds[0] = things[SMALL_TABLE];
		count = 1;
	}
	client_send(client, p.bytes, p.size, fds, count);
	if (cut < 128)
		server_rounds(1);
	if (cut < 192)
		client_read(client);
}

static void act_attach(struct input *in)
{
	struct client *client = pick(in);
	const struct client *who = pick(in);
	uint8_t how = input_u8(in);
	int fds[8] = {things[SOUND_TABLE], things[SOUND_BELL]};
	unsigned int count = how < 224 ? 2 : choose(in, fds);
	struct proto_attach body = {.abi = PROTO_ABI, .flags = how & 3};

	client_open(client, in);
	if (how & PROTO_ATTACH_RETURN) {
		body.cookie = who->cookie;
		body.slot = who->slot;
		body.qpn_index = how & 4 ? input_u32(in) % LIMIT_QPS_PER_SLOT : 1;
		body.key_index = how & 4 ? input_u32(in) % LIMIT_MRS_PER_SLOT : 1;
	}
	client_request(client, PROTO_ATTACH, &body, sizeof(body), fds, count);
	server_rounds(1);
	client_read(client);
}

static void act_open_context(struct input *in)
{
	struct client *client = pick(in);
	const struct client *process = pick(in);
	const struct {
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} body = {.udata = {.cookie = process->cookie, .token = {input_u8(in) % 3, 0}}};

	client_open(client, in);
	client_request(client, IB_USER_VERBS_CMD_GET_CONTEXT, &body, sizeof(body), NULL, 0);
	server_rounds(1);
	client_read(client);
}

/* Ends of all kinds. */
static void act_end(struct input *in)
{
	struct client *client = pick(in);
	uint8_t how = input_u8(in);
	struct process *process = process_by_slot(server_now(), client->slot);

	if (how < 128) {
		client_close(client);
	} else if (how < 176 && client->event_fd >= 0) {
		close(client->event_fd);
		client->event_fd = -1;
	} else if (how < 224 && process && process->death.fd >= 0) {
		process->death.ready(&process->death, EPOLLIN); /* as if its pidfd said so */
	} else {
		struct absent *absent = server_now()->slots.absent[client->slot % LIMIT_SLOTS];

		if (absent)
			absent->death.ready(&absent->death, EPOLLIN);
	}
}

static void act_ctl(struct input *in)
{
	static const char *const lines[] = {
		"{\"op\":\"status\"}\n",
		"{\"op\":\"resources\"}\n",
		"{\"op\":\"stop\"}\n",
		"{\"op\":\"stop\",\"force\":true}\n",
		"{\"op\":",
	};
	char text[128], sink[4096];
	uint8_t which = input_u8(in);
	int fd = server_connect(SOCK_STREAM, which & 1);
	size_t size = sizeof(text);

	if (fd < 0)
		return;
	if (which < 200) {
		size = (size_t)snprintf(text, sizeof(text), "%s", lines[which / 2 % 5]);
		if (which >= 160)
			text[which % size] = (char)input_u8(in);
	} else {
		size = which - 199;
		input_bytes(in, text, size);
	}
	if (send(fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		server_rounds(2);
	while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		server_rounds(1);
	close(fd);
	server_rounds(1);
	server_now()->loop.stop = false; /* it was asked to stop: ignored here */
}

/* The daemon is killed, the next one starts. Clients keep their state. */
static void act_restart(struct input *in)
{
	(void)in;
	for (unsigned int i = 0; i < CLIENTS; i++) {
		uint32_t count = clients[i].count;
		struct known known[KNOWN];

		memcpy(known, clients[i].known, sizeof(known));
		client_close(&clients[i]);
		memcpy(clients[i].known, known, sizeof(known));
		clients[i].count = count;
	}
	server_restart();
}

static void act_read(struct input *in)
{
	client_read(pick(in));
}

static void act_rounds(struct input *in)
{
	server_rounds(1 + input_u8(in) % 4);
}

/* Makes memory, descriptors, or socket buffers scarce. */
static void act_scarce(struct input *in)
{
	uint8_t b = input_u8(in);

	if (b < 224)
		server_scarce(b);
	else
		server_narrow(b & 1);
}

static void act_time(struct input *in)
{
	server_pass_time(1ull << input_u8(in) % 16);
	server_rounds(1);
}

/* What the daemon shows of a process's QPs is read from the process's table. */
static void act_table(struct input *in)
{
	struct pub_qp *e = &table->qp[input_u8(in) % 16];

	atomic_store(&e->state, input_u32(in));
	atomic_store(&e->peer, input_u32(in));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	typedef void action_fn(struct input * in);
	static action_fn *const actions[] = {
		act_command, act_command, act_command,	    act_command, act_command,
		act_bytes,   act_attach,  act_attach,	    act_attach,	 act_open_context,
		act_end,     act_ctl,	  act_open_context, act_read,	 act_rounds,
		act_table,   act_scarce,  act_time,	    act_restart,
	};
	struct input in = {data, data + size};
	int restarts = 0;

	counters_draw(data, size);
	if (!table)
		once();
	server_check_begin();
	for (int i = 0; i < 150 && input_left(&in); i++) {
		action_fn *action = actions[input_u8(&in) % (sizeof(actions) / sizeof(actions[0]))];

		if (action != act_restart || restarts++ < 2)
			action(&in);
	}
	server_scarce(0);
	server_narrow(false);
	for (unsigned int i = 0; i < CLIENTS; i++) {
		client_close(&clients[i]);
		clients[i] = (struct client){.fd = -1, .event_fd = -1};
	}
	server_check_end(restarts != 0);
	return 0;
}
