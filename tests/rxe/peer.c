/* SPDX-License-Identifier: BSD-2-Clause */
#include "peer.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };

struct side side;

void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	exit(1);
}

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

uint32_t swap_key(uint32_t mine)
{
	uint32_t theirs;

	swap(&mine, &theirs, sizeof(mine));
	return theirs;
}

void meet(void)
{
	swap_key(0);
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

static void move_to_rts(uint8_t answers)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = side.theirs.qpn,
		.max_dest_rd_atomic = answers,
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
				    .retry_cnt = 6, /* Soft-RoCE takes 7 for "for ever" */
				    .rnr_retry = 7,
				    .max_rd_atomic = answers ? answers : 1};
	CHECK(!ibv_modify_qp(side.qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void receive_post(void)
{
	struct ibv_sge sge = {(uintptr_t)side.buf, 64, side.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = RECEIVE_ID, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(side.qp, &wr, &bad));
}

void reconnect(const struct qp_wish *wish)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = side.cq,
		.recv_cq = side.cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 3 * DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.pd = side.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     (wish->send_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.send_ops_flags = wish->send_ops,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = wish->access};
	struct hello mine = {.address = (uintptr_t)side.buf};
	struct ibv_wc wc;

	if (side.qp)
		CHECK(!ibv_destroy_qp(side.qp));
	while (ibv_poll_cq(side.cq, 1, &wc) > 0)
		;
	CHECK((side.qp = ibv_create_qp_ex(side.ctx, &init)));
	CHECK(!ibv_modify_qp(side.qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	receive_post();
	CHECK(!ibv_query_gid(side.ctx, 1, (int)side.gid_index, &mine.gid));
	mine.qpn = side.qp->qp_num;
	swap(&mine, &side.theirs, sizeof(mine));
	move_to_rts(wish->answers);
	meet();
}

/* ------------------------------------------------------------------ requests */

struct ibv_wc completion(uint64_t id)
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

enum ibv_wc_status request(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->wr_id = REQUEST_ID;
	CHECK(!ibv_post_send(side.qp, wr, &bad));
	return completion(REQUEST_ID).status;
}

void expect(const char *what, enum ibv_wc_status got, enum ibv_wc_status wanted)
{
	printf("%s: %s\n", what, ibv_wc_status_str(got));
	if (got != wanted)
		give_up("%s: not `%s`", what, ibv_wc_status_str(wanted));
}

uint32_t bind_window(struct ibv_mw *mw)
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

/* ------------------------------------------------------------------ the beginning */

bool peer_begin(int argc, char **argv, const char *options, void (*option_take)(int option))
{
	const char *port = "18515";
	char all[16];
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	snprintf(all, sizeof(all), "g:p:%s", options);
	while ((option = getopt(argc, argv, all)) != -1) {
		if (option == 'g')
			side.gid_index = (unsigned int)atoi(optarg);
		else if (option == 'p')
			port = optarg;
		else if (option == '?')
			return false;
		else
			option_take(option);
	}
	side.server = optind == argc;
	open_device();
	if (side.server)
		listen_at(port);
	else
		connect_to(argv[optind], port);
	return true;
}
