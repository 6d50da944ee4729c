/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows between two hosts whose stacks may differ: the server has the windows, the client
 * reaches them. It runs with any libibverbs.
 *
 * usage: rxe_windows -g GID-INDEX -p PORT [SERVER]      (tests/rxe/run, group windows)
 *
 * Both sides do the steps of main() in turn, and meet by TCP before and after each. A step in which
 * an access is refused ends its connection; the next one has a new one.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 16384, PART = 4096, PART_BYTES = 8192, PATIENCE_S = 20, SEED = 77 };
enum {
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* What each side tells the other. */
struct hello {
	union ibv_gid gid;
	uint64_t address;
	uint32_t qpn, rkey;
};

static struct side {
	bool server;
	bool verbena; /* the stack of this process */
	int peer;     /* TCP */
	unsigned int gid_index;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct hello theirs;
	uint8_t *buf;
} side;

static void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	exit(1);
}

#define CHECK(condition)                                                           \
	do {                                                                       \
		if (!(condition))                                                  \
			give_up("line %d: not so: %s (%m)", __LINE__, #condition); \
	} while (0)

/* ------------------------------------------------------------------ TCP */

static void swap(const void *mine, void *theirs, size_t size)
{
	CHECK(write(side.peer, mine, size) == (ssize_t)size);
	for (size_t n = 0; n < size;) {
		ssize_t got = read(side.peer, (uint8_t *)theirs + n, size - n);

		if (got <= 0)
			give_up("the peer has left");
		n += (size_t)got;
	}
}

static void meet(void)
{
	uint32_t mine = 1, theirs;

	swap(&mine, &theirs, sizeof(mine));
}

static void listen_at(const char *port)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)atoi(port))};
	int one = 1, fd = socket(AF_INET6, SOCK_STREAM, 0);

	CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!bind(fd, (struct sockaddr *)&any, sizeof(any)) && !listen(fd, 1));
	CHECK((side.peer = accept(fd, NULL, NULL)) >= 0);
	close(fd);
}

static void connect_to(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;

	CHECK(!getaddrinfo(host, port, &hints, &found));
	CHECK((side.peer = socket(found->ai_family, SOCK_STREAM, 0)) >= 0);
	if (connect(side.peer, found->ai_addr, found->ai_addrlen))
		give_up("no server at %s", host);
	freeaddrinfo(found);
}

/* ------------------------------------------------------------------ a connection */

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0]);
	side.verbena = !strncmp(ibv_get_device_name(list[0]), "verbena", 7);
	CHECK((side.ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CHECK((side.pd = ibv_alloc_pd(side.ctx)));
	CHECK(!posix_memalign((void **)&side.buf, 4096, BYTES));
	memset(side.buf, 0, BYTES);
	CHECK((side.mr = ibv_reg_mr(side.pd, side.buf, BYTES,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	CHECK((side.cq = ibv_create_cq(side.ctx, 64, NULL, NULL, 0)));
}

static void move_to_rts(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = side.theirs.qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = side.theirs.gid,
				    .sgid_index = (uint8_t)side.gid_index,
				    .hop_limit = 64}},
	};

	CHECK(!ibv_modify_qp(side.qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 18,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(side.qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void receive_post(void)
{
	struct ibv_sge sge = {(uintptr_t)side.buf, 64, side.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 100, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(side.qp, &wr, &bad));
}

/* A new queue pair, connected to the peer's new one, with a receive. */
static void reconnect(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side.cq,
		.recv_cq = side.cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE};
	struct hello mine = {.address = (uintptr_t)side.buf};
	struct ibv_wc wc;

	if (side.qp)
		CHECK(!ibv_destroy_qp(side.qp));
	while (ibv_poll_cq(side.cq, 1, &wc) > 0)
		;
	CHECK((side.qp = ibv_create_qp(side.pd, &init)));
	CHECK(!ibv_modify_qp(side.qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	receive_post();
	CHECK(!ibv_query_gid(side.ctx, 1, (int)side.gid_index, &mine.gid));
	mine.qpn = side.qp->qp_num;
	swap(&mine, &side.theirs, sizeof(mine));
	move_to_rts();
	meet();
}

/* ------------------------------------------------------------------ requests */

static struct ibv_wc completion(uint64_t id)
{
	time_t until = time(NULL) + PATIENCE_S;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(side.cq, 1, &wc)))
		if (time(NULL) > until)
			give_up("no completion of request %d", (int)id);
	CHECK(n == 1);
	if (wc.wr_id != id)
		give_up("a completion of %d (%s), not of %d", (int)wc.wr_id,
			ibv_wc_status_str(wc.status), (int)id);
	return wc;
}

static enum ibv_wc_status request(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->wr_id = 7;
	CHECK(!ibv_post_send(side.qp, wr, &bad));
	return completion(7).status;
}

static void expect(const char *what, enum ibv_wc_status got, enum ibv_wc_status wanted)
{
	printf("%s: %s\n", what, ibv_wc_status_str(got));
	if (got != wanted)
		give_up("%s: not `%s`", what, ibv_wc_status_str(wanted));
}

/* The client's access through the window. */
static void reach(enum ibv_wr_opcode opcode, uint32_t rkey, enum ibv_wc_status wanted)
{
	struct ibv_sge sge = {(uintptr_t)side.buf + PART, PART_BYTES, side.mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.wr = {.rdma = {.remote_addr = side.theirs.address + PART, .rkey = rkey}},
	};

	expect(opcode == IBV_WR_RDMA_WRITE ? "WRITE" : "READ", request(&wr), wanted);
}

static uint32_t bind_2(struct ibv_mw *mw)
{
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = mw,
			    .rkey = rkey,
			    .bind_info = {.mr = side.mr,
					  .addr = (uintptr_t)side.buf + PART,
					  .length = PART_BYTES,
					  .mw_access_flags = REMOTE}},
	};

	expect("BIND", request(&wr), IBV_WC_SUCCESS);
	mw->rkey = rkey; /* not every provider does that */
	return rkey;
}

static void bind_1(struct ibv_mw *mw, size_t length)
{
	struct ibv_mw_bind bind = {.wr_id = 8,
				   .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {.mr = side.mr,
						 .addr = (uintptr_t)side.buf + PART,
						 .length = length,
						 .mw_access_flags = length ? REMOTE : 0}};

	CHECK(!ibv_bind_mw(side.qp, mw, &bind));
	expect("ibv_bind_mw", completion(8).status, IBV_WC_SUCCESS);
}

/* The server's key. */
static uint32_t key_pass(uint32_t mine)
{
	uint32_t theirs;

	swap(&mine, &theirs, sizeof(mine));
	return theirs;
}

static void pattern_fill(uint8_t seed)
{
	for (int i = 0; i < PART_BYTES; i++)
		side.buf[PART + i] = (uint8_t)(i * 7 + seed);
}

static bool pattern_holds(uint8_t seed)
{
	for (int i = 0; i < PART_BYTES; i++)
		if (side.buf[PART + i] != (uint8_t)(i * 7 + seed))
			return false;
	return true;
}

/* ------------------------------------------------------------------ steps */

/* The client writes through the window, and reads it back. */
static void step_through(uint32_t key, uint8_t seed)
{
	if (!side.server) {
		pattern_fill(seed);
		reach(IBV_WR_RDMA_WRITE, key, IBV_WC_SUCCESS);
		memset(side.buf, 0, BYTES);
		reach(IBV_WR_RDMA_READ, key, IBV_WC_SUCCESS);
		CHECK(pattern_holds(seed));
	}
	meet();
	if (side.server)
		CHECK(pattern_holds(seed) && !side.buf[PART - 1] && !side.buf[PART + PART_BYTES]);
	meet();
}

/* A message of the client's with this key. What the server's stack says when it refuses differs. */
static void step_invalidates(uint32_t key, bool refused)
{
	struct ibv_sge sge = {(uintptr_t)side.buf, 16, side.mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .invalidate_rkey = key};
	uint32_t verbena = side.verbena, theirs;

	swap(&verbena, &theirs, sizeof(verbena));
	if (!side.server) {
		enum ibv_wc_status status = request(&wr);

		if (refused && !theirs)
			printf("refused SEND_WITH_INV: %s\n", ibv_wc_status_str(status));
		else
			expect("SEND_WITH_INV", status,
			       refused ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	} else {
		struct ibv_wc wc = completion(100);

		printf("receive: %s, flags 0x%x, key 0x%x of 0x%x\n", ibv_wc_status_str(wc.status),
		       wc.wc_flags, wc.invalidated_rkey, key);
		CHECK((wc.status == IBV_WC_SUCCESS) == !refused);
		/* Soft-RoCE gives the kernel's flag, which is another bit. */
		CHECK(refused || !side.verbena || wc.wc_flags & IBV_WC_WITH_INV);
		CHECK(refused || (wc.invalidated_rkey == key && wc.byte_len == 16));
	}
	meet();
}

static void step_refused(uint32_t key)
{
	if (!side.server)
		reach(IBV_WR_RDMA_WRITE, key, IBV_WC_REM_ACCESS_ERR);
	meet();
	reconnect();
}

static void type_2(void)
{
	struct ibv_mw *mw = NULL;
	uint32_t key;

	reconnect();
	CHECK(!side.server || (mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_2)));
	key = side.server ? bind_2(mw) : 0;
	key = side.server ? (key_pass(key), key) : key_pass(0);
	step_through(key, SEED);
	step_invalidates(key, false);
	step_refused(key);
	key = side.server ? bind_2(mw) : 0;
	key = side.server ? (key_pass(key), key) : key_pass(0);
	step_through(key, SEED + 1);
	if (side.server) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key};

		expect("LOCAL_INV", request(&wr), IBV_WC_SUCCESS);
	}
	meet();
	step_refused(key);
	step_invalidates(key + 0x10, true);
	reconnect();
	CHECK(!mw || !ibv_dealloc_mw(mw));
}

static void type_1(void)
{
	struct ibv_mw *mw = NULL;
	uint32_t key;

	CHECK(!side.server || (mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_1)));
	if (side.server)
		bind_1(mw, PART_BYTES);
	key = key_pass(mw ? mw->rkey : 0);
	step_through(key, SEED + 2);
	if (side.server)
		bind_1(mw, PART_BYTES / 2); /* the former key ends */
	meet();
	step_refused(key);
	if (side.server)
		bind_1(mw, 0);
	key = key_pass(mw ? mw->rkey : 0);
	step_refused(key);
	CHECK(!mw || !ibv_dealloc_mw(mw));
}

int main(int argc, char **argv)
{
	const char *port = "18515";
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt(argc, argv, "g:p:")) != -1) {
		if (option == 'g')
			side.gid_index = (unsigned int)atoi(optarg);
		else if (option == 'p')
			port = optarg;
		else
			return 2;
	}
	side.server = optind == argc;
	open_device();
	if (side.server)
		listen_at(port);
	else
		connect_to(argv[optind], port);
	type_2();
	type_1();
	printf("windows: all well\n");
	return 0;
}
