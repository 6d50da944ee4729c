/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several users at one daemon: access to the nodes, and that no user sees, names, stops or uses up
 * another's objects. One process plays all users: the daemon learns the user of a connection from
 * the socket, which records the effective user at that moment. Needs root, is skipped otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "raw.h"
#include "shm/bell.h"

/* User numbers without names. */
enum { ALICE = 60001, BOB = 60002, GUESTS = 60003 };

static void become(uid_t uid, gid_t gid)
{
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(setegid(gid), 0);
	assert_int_equal(seteuid(uid), 0);
}

#define AS(user, action)            \
	do {                        \
		become(user, user); \
		action;             \
		become(0, 0);       \
	} while (0)

/* Starts a daemon with this configuration; skips the test if the process can't change its user. */
static void start(const char *config)
{
	if (geteuid() != 0)
		skip();
	raw_daemon_configured(&server, config);
}

static void stop(void)
{
	raw_server_stop(NULL);
}

#define OPEN_TO_ALL "node-mode = 0666\nctl-mode = 0666\n"

/* Connects. 0 or -errno. */
static int try_connect(const char *name, int type)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", server.dir, name);
	int err = connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;

	close(fd);
	return err;
}

static void expect_node(const char *name, mode_t mode, uid_t owner, gid_t group)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", server.dir, name);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	assert_int_equal(st.st_uid, owner);
	assert_int_equal(st.st_gid, group);
}

static void nodes_are_as_configured(void **state)
{
	(void)state;
	start("node-mode = 0660\nnode-group = 60003\nctl-mode = 0600\nctl-owner = 60001\n");
	expect_node("uverbs0", 0660, 0, GUESTS);
	expect_node("ctl", 0600, ALICE, 0);
	become(ALICE, ALICE);
	assert_int_equal(try_connect("uverbs0", SOCK_SEQPACKET), -EACCES);
	assert_int_equal(try_connect("ctl", SOCK_STREAM), 0);
	become(BOB, GUESTS);
	assert_int_equal(try_connect("uverbs0", SOCK_SEQPACKET), 0);
	assert_int_equal(try_connect("ctl", SOCK_STREAM), -EACCES);
	become(0, 0);
	stop();
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 100) == 1;
}

/* An attached process of a user with one object of most kinds. */
struct holder {
	struct raw_process process;
	int context;
	uint32_t pd, cq, mr, qp, qpn;
	struct ib_uverbs_reg_mr_resp keys;
};

static void hold(struct holder *h, uid_t user)
{
	AS(user, {
		raw_attach(&server, &h->process);
		h->context = raw_context(&server, &h->process);
	});
	h->pd = raw_pd(h->context);
	h->cq = raw_cq(h->context, -1);
	h->mr = raw_mr(h->context, h->pd, &h->keys);
	h->qp = raw_qp(h->context, h->pd, h->cq, &h->qpn);
}

static void drop(struct holder *h)
{
	close(h->context);
	raw_detach(&h->process);
}

static size_t length_of(const json_t *reply, const char *array)
{
	const json_t *value = json_object_get(reply, array);

	assert_true(json_is_array(value));
	return json_array_size(value);
}

/* Checks how many clients, and how many objects in total, a user is shown. */
static void expect_shown(uid_t user, size_t clients, size_t objects)
{
	static const char *const kinds[] = {"pd", "mr", "cq", "qp", "srq", "ah", "channel"};
	json_t *status, *resources;
	size_t sum = 0;

	AS(user, {
		status = raw_ctl(&server, "{\"op\":\"status\"}\n");
		resources = raw_ctl(&server, "{\"op\":\"resources\"}\n");
	});
	assert_int_equal(length_of(status, "clients"), clients);
	assert_int_equal(length_of(resources, "process"), clients);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		sum += length_of(resources, kinds[i]);
	assert_int_equal(sum, objects);
	json_decref(status);
	json_decref(resources);
}

static void everybody_sees_his_own(void **state)
{
	struct holder alice, bob;

	(void)state;
	start(OPEN_TO_ALL);
	hold(&alice, ALICE);
	expect_shown(ALICE, 1, 4);
	expect_shown(BOB, 0, 0);
	hold(&bob, BOB);
	expect_shown(ALICE, 1, 4);
	expect_shown(BOB, 1, 4);
	expect_shown(GUESTS, 0, 0);
	expect_shown(0, 2, 8);
	drop(&alice);
	drop(&bob);
	stop();
}

static void only_root_stops_it(void **state)
{
	static const char *const lines[] = {"{\"op\":\"stop\"}\n",
					    "{\"op\":\"stop\",\"force\":true}\n"};

	(void)state;
	start(OPEN_TO_ALL);
	for (size_t i = 0; i < 2; i++) {
		json_t *reply;

		AS(BOB, reply = raw_ctl(&server, lines[i]));
		assert_true(json_is_false(json_object_get(reply, "ok")));
		assert_non_null(strstr(json_string_value(json_object_get(reply, "error")), "root"));
		json_decref(reply);
	}
	stop(); /* the daemon still answers */
}

/* Bob knows all of Alice's numbers, and none of them gives him access. */
static void numbers_of_others_are_worthless(void **state)
{
	struct holder alice, bob;

	(void)state;
	start(OPEN_TO_ALL);
	hold(&alice, ALICE);
	hold(&bob, BOB);
	/* Objects that Bob doesn't have: Alice's handles are invalid in his context. */
	for (int i = 0; i < 3; i++)
		alice.pd = raw_pd(alice.context);
	assert_int_equal(raw_destroy(bob.context, IB_USER_VERBS_CMD_DEALLOC_PD, alice.pd), -ENOENT);
	const struct ib_uverbs_reg_mr mr = {
		.start = 0x10000, .length = 64, .hca_va = 0x10000, .pd_handle = alice.pd};

	assert_int_equal(raw_call(bob.context, IB_USER_VERBS_CMD_REG_MR, &mr, sizeof(mr), NULL, 0),
			 -EINVAL);
	/* Handles that both have: Bob destroys his own object. */
	assert_int_equal(raw_destroy(bob.context, IB_USER_VERBS_CMD_DESTROY_QP, bob.qp), 0);
	expect_shown(ALICE, 1, 7);
	/* Alice's cookie, with which a context would be opened in her process. */
	const struct {
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} body = {.udata.cookie = alice.process.resp.cookie};
	int fd;

	AS(BOB, fd = raw_connect(&server));
	assert_int_equal(raw_call(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &body, sizeof(body), NULL, 0),
			 -ESTALE);
	close(fd);
	drop(&alice);
	drop(&bob);
	stop();
}

/* The result of attaching as a process that returns from another daemon. */
static int attach_return(uid_t user, const struct proto_attach_resp *who)
{
	const struct proto_attach body = {.abi = PROTO_ABI,
					  .flags = PROTO_ATTACH_RETURN,
					  .cookie = who->cookie,
					  .slot = who->slot,
					  .qpn_index = 1,
					  .key_index = 1};
	struct proto_attach_resp resp;
	int fd, event_fd = -1, table = raw_table(), bell = eventfd(0, EFD_NONBLOCK), err;

	AS(user, fd = raw_connect(&server));
	err = raw_attach_body(fd, &body, table, bell, &resp, &event_fd);
	close(table);
	close(bell);
	close(fd);
	if (event_fd >= 0)
		close(event_fd);
	return err;
}

/* After a daemon was replaced no process returns as another user's. */
static void places_of_others_stay_theirs(void **state)
{
	char conf[128];
	const char *const options[] = {"--config", conf, "--idle-ms", "never", NULL};
	struct raw_daemon first;
	struct holder alice;
	int status;

	(void)state;
	start(OPEN_TO_ALL);
	hold(&alice, ALICE);
	snprintf(conf, sizeof(conf), "%s/conf", server.dir);
	first = server;
	assert_int_equal(kill(first.pid, SIGKILL), 0);
	assert_int_equal(waitpid(first.pid, &status, 0), first.pid);
	raw_daemon_exec(&server, options);
	assert_int_equal(attach_return(BOB, &alice.process.resp), -ESTALE);
	assert_int_equal(attach_return(ALICE, &alice.process.resp), 0);
	drop(&alice);
	stop();
}

/* A bell's other user can't fill it, block its ringer, or hand it to a third process. */
static void strangers_share_bells_of_their_own(void **state)
{
	struct raw_process alice, also, bob;
	struct proto_event to_alice, to_bob;
	int fa[PROTO_MAX_FDS], fb[PROTO_MAX_FDS];

	(void)state;
	start(OPEN_TO_ALL);
	AS(ALICE, raw_attach(&server, &alice); raw_attach(&server, &also));
	AS(BOB, raw_attach(&server, &bob));
	const struct proto_link wish = {.slot = bob.resp.slot}, own = {.slot = also.resp.slot};

	assert_int_equal(raw_call(alice.fd, PROTO_LINK, &wish, sizeof(wish), NULL, 0), 0);
	assert_int_equal(raw_event_all(&alice, &to_alice, fa), 0);
	assert_int_equal(raw_event_all(&bob, &to_bob, fb), 0);
	assert_int_equal(to_alice.value, PROTO_LINK_BELLS);
	assert_int_equal(to_bob.value, PROTO_LINK_BELLS);
	/* Each rings the other's bell. */
	assert_int_equal(bell_ring(fa[2]), 0);
	assert_true(readable(fb[3]));
	assert_false(readable(fa[3]));
	assert_int_equal(bell_ring(fb[2]), 0);
	assert_true(readable(fa[3]));
	for (int i = 0; i < (int)PROTO_MAX_FDS; i++) {
		close(fa[i]);
		close(fb[i]);
	}
	/* The daemon checks the users when the processes are linked. */
	AS(ALICE, assert_int_equal(raw_call(alice.fd, PROTO_LINK, &own, sizeof(own), NULL, 0), 0));
	assert_int_equal(raw_event(&alice, &to_alice, fa), 0);
	assert_int_equal(to_alice.value, 0);
	assert_int_equal(eventfd_write(fa[2], 1), 0);
	assert_true(readable(also.doorbell));
	for (int i = 0; i < 3; i++)
		close(fa[i]);
	raw_detach(&alice);
	raw_detach(&also);
	raw_detach(&bob);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_are_as_configured),
		cmocka_unit_test(everybody_sees_his_own),
		cmocka_unit_test(only_root_stops_it),
		cmocka_unit_test(numbers_of_others_are_worthless),
		cmocka_unit_test(places_of_others_stay_theirs),
		cmocka_unit_test(strangers_share_bells_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
