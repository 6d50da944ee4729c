/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * OFED's calls for XRC (infiniband/xrc.h), on those of verbs.h, so that they are for any device.
 *
 * A domain has the list of the receive queue pairs that this process is registered with: their
 * handles, of which the program knows the numbers only. domain.lock guards the list, and is held
 * while a handle of it is used.
 */
#include <errno.h>
#include <infiniband/xrc.h>
#include <stddef.h>
#include <stdlib.h>

#include "abi/verbs_abi.h"
#include "base/export.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/refused.h"

#define SAME_PLACE(field)                                                \
	_Static_assert(offsetof(struct ibv_xrc_rcv_init_attr, field) ==  \
			       offsetof(struct ibv_qp_init_attr, field), \
		       "old programs, and ibv_query_xrc_rcv_qp(), take the one for the other")
SAME_PLACE(qp_context);
SAME_PLACE(send_cq);
SAME_PLACE(recv_cq);
SAME_PLACE(srq);
SAME_PLACE(cap);
SAME_PLACE(qp_type);
SAME_PLACE(sq_sig_all);
_Static_assert(offsetof(struct ibv_xrc_rcv_init_attr, xrc_domain) ==
		       sizeof(struct ibv_qp_init_attr),
	       "it follows them");

struct domain {
	struct ibv_xrc_domain ibv;
	struct ibv_xrcd *xrcd;
	struct mutex lock;
	struct list registered GUARDED_BY(lock); /* struct registration.node */
};

struct registration {
	struct list node;
	struct ibv_qp *qp;
};

static struct domain *domain_of(struct ibv_xrc_domain *ibv)
{
	return container_of(ibv, struct domain, ibv);
}

/* ------------------------------------------------------------------ domains, SRQs */

EXPORT struct ibv_xrc_domain *ibv_open_xrc_domain(struct ibv_context *context, int fd, int oflag)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflag,
	};
	struct domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return fail_null(ENOMEM);
	domain->xrcd = ibv_open_xrcd(context, &attr);
	if (!domain->xrcd) {
		int err = errno;

		free(domain);
		return fail_null(err);
	}
	domain->ibv.context = context;
	mutex_init(&domain->lock, RANK_XRC_DOMAIN);
	list_init(&domain->registered);
	return &domain->ibv;
}

EXPORT int ibv_close_xrc_domain(struct ibv_xrc_domain *d)
{
	struct domain *domain = d ? domain_of(d) : NULL;

	if (!domain)
		return fail_errno(refused(EINVAL, "ibv_close_xrc_domain: the domain is NULL"));
	int err = ibv_close_xrcd(domain->xrcd); /* EBUSY: handles use it, too */

	if (err)
		return fail_errno(err);
	mutex_destroy(&domain->lock);
	free(domain);
	return 0;
}

EXPORT struct ibv_srq *ibv_create_xrc_srq(struct ibv_pd *pd, struct ibv_xrc_domain *xrc_domain,
					  struct ibv_cq *xrc_cq,
					  struct ibv_srq_init_attr *srq_init_attr)
{
	if (!pd || !xrc_domain || !xrc_cq || !srq_init_attr || xrc_domain->context != pd->context)
		return fail_null(refused(EINVAL, "ibv_create_xrc_srq: an XRC SRQ needs a "
						 "protection domain, an XRC domain of the same "
						 "context, a CQ and attributes"));
	struct ibv_srq_init_attr_ex attr = {
		.srq_context = srq_init_attr->srq_context,
		.attr = srq_init_attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = domain_of(xrc_domain)->xrcd,
		.cq = xrc_cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(pd->context, &attr);

	if (srq)
		srq_init_attr->attr = attr.attr;
	return srq;
}

/* ------------------------------------------------------------------ receive queue pairs */

static struct registration *registration_of(struct domain *domain, uint32_t qpn)
	REQUIRES(domain->lock)
{
	list_for_each(node, &domain->registered) {
		struct registration *r = container_of(node, struct registration, node);

		if (r->qp->qp_num == qpn)
			return r;
	}
	return NULL;
}

/* Enters the handle `qp`, which may be NULL with errno set. 0 or a positive errno. */
static int registration_add(struct domain *domain, struct ibv_qp *qp) REQUIRES(domain->lock)
{
	int err = errno;

	if (!qp)
		return err;
	struct registration *r = malloc(sizeof(*r));

	if (!r) {
		ibv_destroy_qp(qp);
		return ENOMEM;
	}
	r->qp = qp;
	list_add_tail(&domain->registered, &r->node);
	return 0;
}

static struct ibv_qp *rcv_qp_open(struct domain *domain, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn,
		.xrcd = domain->xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return ibv_open_qp(domain->ibv.context, &attr);
}

EXPORT int ibv_create_xrc_rcv_qp(struct ibv_xrc_rcv_init_attr *init_attr, uint32_t *xrc_rcv_qpn)
{
	if (!init_attr || !init_attr->xrc_domain || !xrc_rcv_qpn)
		return fail_errno(refused(EINVAL, "ibv_create_xrc_rcv_qp: an XRC domain "
						  "(xrc_domain) and a place for the number are "
						  "needed"));
	struct domain *domain = domain_of(init_attr->xrc_domain);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = domain->xrcd,
	};

	mutex_take(&domain->lock);
	struct ibv_qp *qp = ibv_create_qp_ex(domain->ibv.context, &attr);
	int err = registration_add(domain, qp);

	if (!err)
		*xrc_rcv_qpn = qp->qp_num;
	mutex_give(&domain->lock);
	return fail_errno(err);
}

/* Either changes or, with `init`, reads the queue pair; by a handle for this call if the process
 * isn't registered. */
static int with_rcv_qp(struct domain *domain, uint32_t qpn, struct ibv_qp_attr *attr, int mask,
		       struct ibv_qp_init_attr *init)
{
	mutex_take(&domain->lock);
	const struct registration *r = registration_of(domain, qpn);
	struct ibv_qp *opened = r ? NULL : rcv_qp_open(domain, qpn), *qp = r ? r->qp : opened;
	int err = qp ? 0 : errno;

	if (qp)
		err = init ? ibv_query_qp(qp, attr, mask, init) : ibv_modify_qp(qp, attr, mask);
	mutex_give(&domain->lock);
	if (opened)
		ibv_destroy_qp(opened);
	return fail_errno(err);
}

EXPORT int ibv_modify_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num,
				 struct ibv_qp_attr *attr, int attr_mask)
{
	if (!xrc_domain || !attr)
		return fail_errno(refused(EINVAL, "ibv_modify_xrc_rcv_qp: an XRC domain and "
						  "attributes are needed"));
	return with_rcv_qp(domain_of(xrc_domain), xrc_qp_num, attr, attr_mask, NULL);
}

EXPORT int ibv_query_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num,
				struct ibv_qp_attr *attr, int attr_mask,
				struct ibv_xrc_rcv_init_attr *init_attr)
{
	struct ibv_qp_init_attr init = {0};

	if (!xrc_domain || !attr || !init_attr)
		return fail_errno(refused(EINVAL, "ibv_query_xrc_rcv_qp: an XRC domain and places "
						  "for both attributes are needed"));
	int err = with_rcv_qp(domain_of(xrc_domain), xrc_qp_num, attr, attr_mask, &init);

	if (!err)
		*init_attr = (struct ibv_xrc_rcv_init_attr){
			.qp_type = init.qp_type,
			.cap = init.cap,
			.xrc_domain = xrc_domain,
		};
	return err;
}

EXPORT int ibv_reg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num)
{
	struct domain *domain = xrc_domain ? domain_of(xrc_domain) : NULL;
	int err = 0;

	if (!domain)
		return fail_errno(refused(EINVAL, "ibv_reg_xrc_rcv_qp: the domain is NULL"));
	mutex_take(&domain->lock);
	if (!registration_of(domain, xrc_qp_num))
		err = registration_add(domain, rcv_qp_open(domain, xrc_qp_num));
	mutex_give(&domain->lock);
	return fail_errno(err);
}

EXPORT int ibv_unreg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num)
{
	struct domain *domain = xrc_domain ? domain_of(xrc_domain) : NULL;

	if (!domain)
		return fail_errno(refused(EINVAL, "ibv_unreg_xrc_rcv_qp: the domain is NULL"));
	mutex_take(&domain->lock);
	struct registration *r = registration_of(domain, xrc_qp_num);

	if (r)
		list_del(&r->node);
	mutex_give(&domain->lock);
	if (!r)
		return fail_errno(refused(EINVAL,
					  "ibv_unreg_xrc_rcv_qp: this process isn't registered "
					  "with receive queue pair 0x%x in this domain",
					  xrc_qp_num));
	int err = ibv_destroy_qp(r->qp); /* waits for events, so without the lock */

	if (err) {
		mutex_take(&domain->lock);
		list_add_tail(&domain->registered, &r->node);
		mutex_give(&domain->lock);
		return fail_errno(err);
	}
	free(r);
	return 0;
}
