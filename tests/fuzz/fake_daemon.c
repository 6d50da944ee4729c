/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fake daemon that grants every request, for HCAs in fuzz targets; and parts of the library that
 * have no role there: returning to another daemon, catching faults (here a fault is a finding),
 * /proc.
 */
#include "fake_daemon.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/start.h"
#include "hca/local/peer.h"
#include "hca/mem/guard.h"
#include "hca/mem/peer_map.h"
#include "hca/process/books.h"
#include "proto/limits.h"

struct fake_daemon fake_daemon;
int fake_peer_files[FAKE_FILES];

_Thread_local void **guard_place __attribute__((tls_model("initial-exec")));

void guard_install(void)
{
}

void peer_open(struct peer_process *peer, int32_t pid, const struct pub *table,
	       const struct pub_regions *regions)
{
	*peer = (struct peer_process){.pid = pid, .fd = -1, .life = &table->header.life};
	(void)regions;
}

void peer_close(struct peer_process *peer)
{
	(void)peer;
}

/* The owner's files; a print that isn't 1 is another one than the kernel's. */
int peer_map(const struct peer_process *peer, const struct peer_map_region *region,
	     struct peer_map *out)
{
	struct stat status;

	(void)peer;
	*out = (struct peer_map){.in_memory = true};
	if (region->print != 1)
		return -ESTALE;
	if (region->fd < 0 || region->fd >= FAKE_FILES ||
	    fstat(fake_peer_files[region->fd], &status) || !region->length ||
	    region->length > (uint64_t)status.st_size)
		return -EACCES;
	out->pages = mmap(NULL, region->length, PROT_READ | (region->write ? PROT_WRITE : 0),
			  MAP_SHARED, fake_peer_files[region->fd], 0);
	if (out->pages == MAP_FAILED) {
		out->pages = NULL;
		return -errno;
	}
	out->size = region->length;
	out->base = out->pages;
	return 0;
}

void peer_unmap(struct peer_map *map)
{
	if (map->pages)
		munmap(map->pages, map->size);
	map->pages = NULL;
}

int peer_end_descriptor(const struct peer_process *peer)
{
	(void)peer;
	return -1;
}

char peer_state(const struct peer_process *peer)
{
	(void)peer;
	return fake_daemon.peer_state;
}

bool peer_runs(const struct peer_process *peer)
{
	char state = peer_state(peer);

	return state == 'R' || state == 'S' || state == 'D';
}

bool peer_ended(const struct peer_process *peer)
{
	(void)peer;
	return !fake_daemon.peer_state;
}

bool peer_stopped_after_copy(const struct peer_process *peer, uint32_t thread)
{
	(void)peer, (void)thread;
	return false;
}

void start_stay(void)
{
}

int return_to_daemon(struct hca *hca, uint32_t seen, bool may_start)
{
	(void)hca, (void)seen, (void)may_start;
	return -EIO;
}

void return_seek(struct hca *hca, bool start)
{
	(void)hca, (void)start;
}

void return_for_link(struct hca *hca)
{
	(void)hca;
}

void return_sought(struct hca *hca)
{
	(void)hca;
}

void return_leave(struct hca *hca)
{
	(void)hca;
}

void return_watched(struct hca *hca)
{
	(void)hca;
}

int daemon_attach(struct daemon_conn *conn, const struct proto_attach *old, int table_fd,
		  int doorbell_fd, int regions_fd, int park, struct proto_attach_resp *resp,
		  int *event_fd, struct daemon_wire *roce)
{
	(void)conn, (void)old, (void)table_fd, (void)regions_fd, (void)park;
	*roce = (struct daemon_wire){.socket = -1, .park = -1, .groups = -1};
	*resp = (struct proto_attach_resp){.cookie = 1, .slot = FAKE_SLOT};
	*event_fd = dup(doorbell_fd); /* never read: there is no engine thread */
	return *event_fd < 0 ? -errno : 0;
}

int daemon_link(struct daemon_conn *conn, uint32_t slot)
{
	(void)conn;
	return slot == FAKE_PEER_SLOT ? 0 : -ENOENT;
}

int daemon_unlink(struct daemon_conn *conn, uint32_t slot, uint64_t link_id)
{
	(void)conn, (void)link_id;
	return slot == FAKE_PEER_SLOT ? 0 : -ENOENT;
}

int daemon_event_next(int event_fd, struct proto_event *event, int *fds)
{
	(void)event_fd, (void)event, (void)fds;
	return -EAGAIN;
}

int daemon_context_open(struct daemon_conn *conn, const char *node, uint64_t cookie,
			const uint64_t token[2], uint32_t *num_comp_vectors)
{
	(void)conn, (void)node, (void)cookie, (void)token;
	*num_comp_vectors = 1;
	return 0;
}

int daemon_route(struct daemon_conn *conn, const struct proto_route *request,
		 struct proto_route_resp *resp)
{
	(void)conn, (void)request;
	*resp = (struct proto_route_resp){.flags = PROTO_ROUTE_LOCAL};
	return 0;
}

void daemon_leave(struct daemon_conn *conn)
{
	(void)conn;
}

void daemon_close(struct daemon_conn *conn)
{
	(void)conn;
}

int daemon_query_gid(struct daemon_conn *conn, uint32_t port, uint32_t index,
		     struct proto_query_gid_resp *resp)
{
	(void)conn, (void)port;
	memset(resp, 0, sizeof(*resp));
	return index ? -EINVAL : 0;
}

static int made(uint32_t *handle)
{
	*handle = 1;
	fake_daemon.objects++;
	return 0;
}

static int ended(void)
{
	fake_daemon.objects--;
	return 0;
}

int daemon_alloc_mw(struct daemon_conn *conn, uint32_t pd, uint8_t type,
		    struct ib_uverbs_alloc_mw_resp *resp)
{
	enum { FIRST = LIMIT_MRS_PER_SLOT / 2 }; /* the targets' regions are below */
	static uint32_t windows;

	(void)conn, (void)pd, (void)type;
	resp->rkey = (FIRST + windows++ % FIRST) << LIMIT_KEY_TAG_BITS | 1;
	return made(&resp->mw_handle);
}

int daemon_dealloc_mw(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	return ended();
}

int daemon_create_channel(struct daemon_conn *conn, uint32_t *handle)
{
	(void)conn;
	return made(handle);
}

int daemon_create_channel_cq(struct daemon_conn *conn, uint32_t cqe, uint32_t comp_vector,
			     struct proto_create_channel_cq_resp *resp)
{
	(void)conn, (void)cqe, (void)comp_vector;
	made(&resp->channel);
	return made(&resp->cq);
}

void daemon_destroy_channel(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	ended();
}

int daemon_create_cq(struct daemon_conn *conn, uint32_t cqe, int64_t channel, uint32_t comp_vector,
		     uint32_t *handle)
{
	(void)conn, (void)cqe, (void)channel, (void)comp_vector;
	return made(handle);
}

int daemon_resize_cq(struct daemon_conn *conn, uint32_t handle, uint32_t cqe)
{
	(void)conn, (void)handle, (void)cqe;
	return 0;
}

void daemon_destroy_cq(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	ended();
}

int daemon_create_qp(struct daemon_conn *conn, const struct ib_uverbs_create_qp *cmd,
		     struct ib_uverbs_create_qp_resp *resp)
{
	(void)conn, (void)cmd;
	resp->qpn = FAKE_SLOT << LIMIT_QP_BITS | fake_daemon.next_qp++;
	return made(&resp->qp_handle);
}

int daemon_create_qp_cqs(struct daemon_conn *conn, const struct proto_create_qp_cqs *cmd,
			 struct proto_create_qp_cqs_resp *resp)
{
	if (cmd->send.cqe)
		made(&resp->send.cq), made(&resp->send.channel);
	if (cmd->recv.cqe)
		made(&resp->recv.cq), made(&resp->recv.channel);
	return daemon_create_qp(conn, &cmd->qp, &resp->qp);
}

void daemon_destroy_qp(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	ended();
}

int daemon_attach_mcast(struct daemon_conn *conn, uint32_t qp, const uint8_t gid[16], uint16_t lid)
{
	(void)conn, (void)qp, (void)gid, (void)lid;
	return 0;
}

int daemon_detach_mcast(struct daemon_conn *conn, uint32_t qp, const uint8_t gid[16], uint16_t lid)
{
	(void)conn, (void)qp, (void)gid, (void)lid;
	return 0;
}

int daemon_create_flow(struct daemon_conn *conn, const struct proto_create_flow *body,
		       uint32_t *handle)
{
	(void)conn, (void)body;
	return made(handle);
}

int daemon_destroy_flow(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	return ended();
}

int daemon_create_srq(struct daemon_conn *conn, uint32_t pd, uint32_t max_wr, uint32_t max_sge,
		      uint32_t *handle)
{
	(void)conn, (void)pd, (void)max_wr, (void)max_sge;
	return made(handle);
}

int daemon_open_xrcd(struct daemon_conn *conn, const struct proto_open_xrcd *body,
		     struct proto_open_xrcd_resp *resp)
{
	(void)conn, (void)body;
	resp->domain = 1;
	return made(&resp->handle);
}

int daemon_close_target(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	return ended();
}

int daemon_close_xrcd(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	return ended();
}

int daemon_create_xsrq(struct daemon_conn *conn, const struct ib_uverbs_create_xsrq *body,
		       struct ib_uverbs_create_srq_resp *resp)
{
	(void)conn;
	/* Only XRC's have a number, among those of queue pairs. */
	resp->srqn = body->srq_type == IBV_SRQT_XRC
			     ? FAKE_SLOT << LIMIT_QP_BITS | fake_daemon.next_qp++
			     : 0;
	return made(&resp->srq_handle);
}

int daemon_open_qp(struct daemon_conn *conn, uint32_t xrcd, uint32_t qpn, uint8_t type,
		   uint32_t *handle)
{
	(void)conn, (void)xrcd, (void)qpn, (void)type;
	return made(handle);
}

int daemon_xrc_query(struct daemon_conn *conn, uint32_t handle, uint32_t qpn,
		     struct proto_xrc_state *state)
{
	(void)conn, (void)handle, (void)qpn;
	*state = (struct proto_xrc_state){.version = 1};
	return 0;
}

int daemon_xrc_modify(struct daemon_conn *conn, uint32_t handle, const struct proto_xrc_state *to,
		      struct proto_xrc_state *now)
{
	(void)conn, (void)handle;
	*now = *to;
	return 0;
}

int daemon_alternate(struct daemon_conn *conn, uint32_t qpn, uint32_t status,
		     struct proto_alternate_resp *next)
{
	(void)conn, (void)qpn, (void)status, (void)next;
	return -ENOENT;
}

int daemon_xrc_report(struct daemon_conn *conn, const struct proto_xrc_report *report)
{
	(void)conn, (void)report;
	return 0;
}

int daemon_xrc_memory(struct daemon_conn *conn, int *fd)
{
	(void)conn, (void)fd;
	return -EOPNOTSUPP;
}

int daemon_source(struct daemon_conn *conn, int fd)
{
	(void)conn, (void)fd;
	return 0;
}

int daemon_xrc_socket(struct daemon_conn *conn, uint32_t slot, int *fd)
{
	(void)conn, (void)slot, (void)fd;
	return -EINVAL;
}

int daemon_xrc_memory_returns(struct daemon_conn *conn, int fd)
{
	(void)conn, (void)fd;
	return 0;
}

int daemon_xrc_returns(struct daemon_conn *conn, uint32_t xrcd, const struct proto_xrc_state *was,
		       struct proto_xrc_state *now)
{
	(void)conn, (void)xrcd;
	*now = *was;
	return 0;
}

int daemon_modify_srq(struct daemon_conn *conn, uint32_t handle, uint32_t max_wr)
{
	(void)conn, (void)handle, (void)max_wr;
	return 0;
}

int daemon_destroy_srq(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	return ended();
}
