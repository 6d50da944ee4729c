/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests that wait for their response: one outstanding on a port, sent again when nothing came
 * within the timeout. The kernel (or what stands for it) reports the timeout as a message, so each
 * attempt is a send without retries.
 */
#include <infiniband/umad.h>

#include "ibmad/ibmad.h"

#include "base/export.h"

#include <errno.h>
#include <string.h>

/* A MAD behind its umad header; umad_size() is 64 (56 with a kernel before P_Key indices). */
#define PACKET_BYTES (64 + IB_MAD_SIZE)

/* Responders that redirect a request on to one another end here. */
#define REDIRECTIONS_MAX 16

EXPORT int ibdebug;

static int shows_errors;
static int default_timeout = MAD_DEF_TIMEOUT_MS;
static int default_retries = MAD_DEF_RETRIES;

/* Where madrpc_save_mad() wants a copy of the next request; NULL: nowhere. */
static void *saved_mad;
static int saved_mad_size;

/* An error that the program may expect; it is reported where the program asked for it. */
#define REPORT(...)                          \
	do {                                 \
		if (shows_errors || ibdebug) \
			IBWARN(__VA_ARGS__); \
	} while (0)

EXPORT void madrpc_show_errors(int set)
{
	shows_errors = set;
}

EXPORT void madrpc_save_mad(void *madbuf, int len)
{
	saved_mad = madbuf;
	saved_mad_size = len;
}

EXPORT int madrpc_set_retries(int retries)
{
	if (retries > 0)
		default_retries = retries;
	return default_retries;
}

EXPORT int madrpc_set_timeout(int timeout)
{
	default_timeout = timeout;
	return 0;
}

EXPORT void mad_rpc_set_retries(struct ibmad_port *port, int retries)
{
	port->retries = retries;
}

EXPORT void mad_rpc_set_timeout(struct ibmad_port *port, int timeout)
{
	port->timeout = timeout;
}

EXPORT int mad_get_timeout(const struct ibmad_port *srcport, int override_ms)
{
	if (override_ms)
		return override_ms;
	return srcport->timeout ? srcport->timeout : default_timeout;
}

EXPORT int mad_get_retries(const struct ibmad_port *srcport)
{
	return srcport->retries ? srcport->retries : default_retries;
}

/* The half of the transaction id that stays as the program chose it. */
static uint32_t packet_tid(void *umad)
{
	return (uint32_t)mad_get_field64(umad_get_mad(umad), 0, IB_MAD_TRID_F);
}

/* Takes a message that is longer than one MAD from the port, so that the next one can be read. */
static int long_message_take(int fd, int length, uint32_t *tid)
{
	void *umad = umad_alloc(1, umad_size() + length);
	int result = -1;

	if (umad && umad_recv(fd, umad, &length, 0) >= 0) {
		*tid = packet_tid(umad);
		result = 0;
	}
	umad_free(umad);
	return result;
}

/* Waits for the response with this id. Returns 0, or an errno. */
static int response_wait(int fd, void *response, uint32_t tid, int timeout)
{
	for (;;) {
		int length = IB_MAD_SIZE;
		uint32_t other;

		if (umad_recv(fd, response, &length, timeout) >= 0) {
			if (ibdebug > 2)
				umad_addr_dump(umad_get_mad_addr(response));
			if (ibdebug > 1)
				xdump(stderr, "rcv buf\n", umad_get_mad(response), IB_MAD_SIZE);
			if (packet_tid(response) == tid)
				return 0;
			continue;
		}
		if (errno != ENOSPC || long_message_take(fd, length, &other) < 0)
			return errno ? errno : EIO;
		if (other == tid)
			return ENOSPC;
	}
}

/*
 * Sends a request and waits for its response, as often as the port says.
 * Returns 0 or an errno; ETIMEDOUT: no answer came.
 */
static int request_exchange(const struct ibmad_port *port, int agent, void *request, void *response,
			    int timeout)
{
	int attempts = mad_get_retries(port);
	uint32_t tid = packet_tid(request);

	if (ibdebug > 1)
		xdump(stderr, "send buf\n", request, umad_size() + IB_MAD_SIZE);
	if (saved_mad) {
		memcpy(saved_mad, umad_get_mad(request),
		       saved_mad_size < IB_MAD_SIZE ? saved_mad_size : IB_MAD_SIZE);
		saved_mad = NULL;
	}
	if (attempts <= 0) {
		REPORT("%d attempts are none", attempts);
		return EINVAL;
	}
	for (int attempt = 0; attempt < attempts; attempt++) {
		int error;

		if (attempt)
			REPORT("retry %d (timeout %d ms)", attempt, timeout);
		if (umad_send(port->fd, agent, request, IB_MAD_SIZE, timeout, 0) < 0) {
			IBWARN("send failed; %s", strerror(errno));
			return errno ? errno : EIO;
		}
		error = response_wait(port->fd, response, tid, timeout);
		if (error) {
			IBWARN("recv failed: %s", strerror(error));
			return error;
		}
		/* ENOMEM comes with the response: what is missing is only the sender's state. */
		if (!umad_status(response) || umad_status(response) == ENOMEM)
			return 0;
	}
	REPORT("timeout after %d retries, %d ms", attempts, timeout * attempts);
	return ETIMEDOUT;
}

/* Reports the errno to a caller that has room for it. */
static void rpc_set_error(ib_rpc_t *rpc, int error)
{
	if ((rpc->mgtclass & IB_MAD_RPC_VERSION_MASK) == IB_MAD_RPC_VERSION1)
		((ib_rpc_v1_t *)(void *)rpc)->error = error;
}

/* One request and its response; both buffers have PACKET_BYTES. Returns the MAD, or NULL. */
static void *rpc_exchange(const struct ibmad_port *port, ib_rpc_t *rpc, ib_portid_t *dport,
			  ib_rmpp_hdr_t *rmpp, void *data, void *response)
{
	char request[PACKET_BYTES] = {0};
	int error;

	rpc_set_error(rpc, 0);
	if (mad_build_pkt(request, rpc, dport, rmpp, data) < 0) {
		rpc_set_error(rpc, errno);
		return NULL;
	}
	error = request_exchange(port, port->class_agents[rpc->mgtclass & 0xff], request, response,
				 mad_get_timeout(port, rpc->timeout));
	if (error) {
		IBWARN("no response; dport (%s)", portid2str(dport));
		rpc_set_error(rpc, error);
		errno = error;
		return NULL;
	}
	return umad_get_mad(response);
}

/* Takes the new destination from the ClassPortInfo of a response that redirects. */
static bool destination_redirect(ib_portid_t *dport, void *mad)
{
	int lid = mad_get_field(mad, IB_SMP_DATA_OFFS, IB_CPI_REDIRECT_LID_F);

	if (!lid) {
		IBWARN("redirection to a GID isn't supported");
		return false;
	}
	dport->lid = lid;
	dport->qp = mad_get_field(mad, IB_SMP_DATA_OFFS, IB_CPI_REDIRECT_QP_F);
	dport->qkey = mad_get_field(mad, IB_SMP_DATA_OFFS, IB_CPI_REDIRECT_QKEY_F);
	dport->sl = mad_get_field(mad, IB_SMP_DATA_OFFS, IB_CPI_REDIRECT_SL_F);
	TRACE("redirected to lid %d, qp 0x%x, qkey 0x%x, sl 0x%x", lid, dport->qp, dport->qkey,
	      dport->sl);
	return true;
}

/* A response whose status isn't 0 is a failure with EIO. */
static bool status_is_ok(int status, ib_portid_t *dport)
{
	if (!status)
		return true;
	REPORT("MAD completed with error status 0x%x; dport (%s)", status, portid2str(dport));
	errno = EIO;
	return false;
}

EXPORT void *mad_rpc(const struct ibmad_port *srcport, ib_rpc_t *rpc, ib_portid_t *dport,
		     void *payload, void *rcvdata)
{
	char response[PACKET_BYTES];
	void *mad;
	int redirections = 0;

	do {
		mad = rpc_exchange(srcport, rpc, dport, NULL, payload, response);
		if (!mad)
			return NULL;
		/* Without bit 15, which a directed route's response has set. */
		rpc->rstatus = mad_get_field(mad, 0, IB_DRSMP_STATUS_F);
	} while (rpc->rstatus == IB_MAD_STS_REDIRECT && redirections++ < REDIRECTIONS_MAX &&
		 destination_redirect(dport, mad));

	if (!status_is_ok(rpc->rstatus, dport))
		return NULL;
	if (rcvdata)
		memcpy(rcvdata, (char *)mad + rpc->dataoffs, rpc->datasz);
	return rcvdata;
}

/* The RMPP header of a response. Returns false if its version is unknown. */
static bool rmpp_decode(void *mad, ib_rmpp_hdr_t *rmpp)
{
	rmpp->flags = mad_get_field(mad, 0, IB_SA_RMPP_FLAGS_F);
	if ((rmpp->flags & (IB_RMPP_FLAG_ACTIVE | IB_RMPP_FLAG_FIRST)) &&
	    mad_get_field(mad, 0, IB_SA_RMPP_VERS_F) != 1) {
		IBWARN("bad rmpp version");
		return false;
	}
	rmpp->type = mad_get_field(mad, 0, IB_SA_RMPP_TYPE_F);
	rmpp->status = mad_get_field(mad, 0, IB_SA_RMPP_STATUS_F);
	rmpp->d1.u = mad_get_field(mad, 0, IB_SA_RMPP_D1_F);
	rmpp->d2.u = mad_get_field(mad, 0, IB_SA_RMPP_D2_F);
	return true;
}

EXPORT void *mad_rpc_rmpp(const struct ibmad_port *srcport, ib_rpc_t *rpc, ib_portid_t *dport,
			  ib_rmpp_hdr_t *rmpp, void *data)
{
	char response[PACKET_BYTES];
	void *mad = rpc_exchange(srcport, rpc, dport, rmpp, data, response);

	if (!mad || !status_is_ok(mad_get_field(mad, 0, IB_MAD_STATUS_F), dport))
		return NULL;
	if (rmpp && !rmpp_decode(mad, rmpp))
		return NULL;
	if (data)
		memcpy(data, (char *)mad + rpc->dataoffs, rpc->datasz);
	rpc->recsz = mad_get_field(mad, 0, IB_SA_ATTROFFS_F);
	return data;
}

EXPORT void *madrpc(ib_rpc_t *rpc, ib_portid_t *dport, void *payload, void *rcvdata)
{
	return mad_rpc(&default_port, rpc, dport, payload, rcvdata);
}

EXPORT void *madrpc_rmpp(ib_rpc_t *rpc, ib_portid_t *dport, ib_rmpp_hdr_t *rmpp, void *data)
{
	return mad_rpc_rmpp(&default_port, rpc, dport, rmpp, data);
}
