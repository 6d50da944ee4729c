/* SPDX-License-Identifier: BSD-2-Clause */
/* See counters.h. */
#include "hca/process/counters.h"

#include "hca/process/hca.h"
#include "hca/verbs/qp.h"

/* Each group has the order of the structure that it is copied from. */
#define SAME(place, group, other) \
	_Static_assert((int)(PUB_##place) - (int)(PUB_##group) == (int)(other), #place)
SAME(SENT_BYTES, SENT_PACKETS, NET_SENT_BYTES);
SAME(SENT_REFUSED, SENT_PACKETS, NET_SENT_REFUSED);
SAME(SENT_NO_ROOM, SENT_PACKETS, NET_SENT_NO_ROOM);
SAME(SENT_ERROR, SENT_PACKETS, NET_SENT_ERROR);
SAME(CAME_BYTES, CAME_PACKETS, NET_CAME_BYTES);
SAME(CAME_BAD_ICRC, CAME_PACKETS, NET_CAME_BAD_ICRC);
SAME(CAME_TOO_SHORT, CAME_PACKETS, NET_CAME_MALFORMED + PACKET_TOO_SHORT - 1);
SAME(CAME_TOO_LONG, CAME_PACKETS, NET_CAME_MALFORMED + PACKET_TOO_LONG - 1);
SAME(CAME_BAD_VERSION, CAME_PACKETS, NET_CAME_MALFORMED + PACKET_BAD_VERSION - 1);
SAME(CAME_BAD_OPCODE, CAME_PACKETS, NET_CAME_MALFORMED + PACKET_BAD_OPCODE - 1);
SAME(CAME_BAD_PAYLOAD, CAME_PACKETS, NET_CAME_MALFORMED + PACKET_BAD_PAYLOAD - 1);
SAME(DROP_HOST, DROP_QPN, ROCE_DROP_HOST - ROCE_DROP_QPN);
SAME(DROP_PKEY, DROP_QPN, ROCE_DROP_PKEY - ROCE_DROP_QPN);
SAME(DROP_QKEY, DROP_QPN, ROCE_DROP_QKEY - ROCE_DROP_QPN);
SAME(DROP_TRANSPORT, DROP_QPN, ROCE_DROP_TRANSPORT - ROCE_DROP_QPN);
SAME(DROP_STATE, DROP_QPN, ROCE_DROP_STATE - ROCE_DROP_QPN);
SAME(DROP_STALE, DROP_QPN, ROCE_DROP_STALE - ROCE_DROP_QPN);
SAME(DROP_NO_RECEIVE, DROP_QPN, ROCE_DROP_NO_RECEIVE - ROCE_DROP_QPN);
SAME(DROP_SHORT_RECEIVE, DROP_QPN, ROCE_DROP_SHORT_RECEIVE - ROCE_DROP_QPN);

void counters_attach(struct hca *hca)
{
	if (!hca->roce)
		return;
	hca->roce->tx.published = &hca->pub->counters.value[PUB_SENT_PACKETS];
	hca->roce->rx.published = &hca->pub->counters.value[PUB_CAME_PACKETS];
}

void counters_leave(struct hca *hca)
{
	if (!hca->roce)
		return;
	hca->roce->tx.published = NULL;
	hca->roce->rx.published = NULL;
}

/* Atomic, since other QPs add to the same place at the same time. */
static void counter_add(struct roce_qp *w, enum pub_counter place, uint64_t now, uint64_t *before)
	REQUIRES(w->qp->lock)
{
	if (now != *before)
		pub_count_rare(&w->qp->hca->pub->counters, place, now - *before);
	*before = now;
}

void counters_transport_slow(struct roce_qp *w, uint64_t rare)
{
	const struct tp_counters *c = tp_counters(roce_tp(w));
	struct tp_counters *before = &w->counted;

	counter_add(w, PUB_TP_RESENT, c->resent, &before->resent);
	counter_add(w, PUB_TP_TIMEOUTS, c->timeouts, &before->timeouts);
	counter_add(w, PUB_TP_SEQUENCE_NAKS, c->sequence_naks, &before->sequence_naks);
	counter_add(w, PUB_TP_RNR_NAKS, c->rnr_naks, &before->rnr_naks);
	counter_add(w, PUB_TP_RNR_NAKS_SENT, c->rnr_naks_sent, &before->rnr_naks_sent);
	counter_add(w, PUB_TP_OUT_OF_SEQUENCE, c->out_of_sequence, &before->out_of_sequence);
	counter_add(w, PUB_TP_KEPT, c->kept, &before->kept);
	counter_add(w, PUB_TP_DUPLICATES, c->duplicates, &before->duplicates);
	counter_add(w, PUB_TP_CREDIT_WAITS, c->credit_waits, &before->credit_waits);
	counter_add(w, PUB_TP_CONGESTED, c->congested, &before->congested);
	w->counted_sum = rare;
}
