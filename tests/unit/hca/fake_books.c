/* SPDX-License-Identifier: BSD-2-Clause */
/* Fake books, for tests of objects without a daemon. */
#include "abi/verbs_abi.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"

void books_enter(struct hca *hca)
{
	(void)hca;
}

void books_leave(struct hca *hca)
{
	(void)hca;
}

void books_add(struct context *context, enum held_kind kind, struct list *held)
{
	(void)context, (void)kind, (void)held;
}

void books_drop(struct context *context, struct list *held)
{
	(void)context, (void)held;
}

/* No context is released while its objects exist. */
void share_end_released(struct open_context *open)
{
	(void)open;
}

/* No datagram is sent: only the carrier that an address handle selects is checked. */
const struct datagram_carrier datagram_local = {.name = "local"};
const struct datagram_carrier datagram_roce = {.name = "roce"};
const struct datagram_carrier datagram_group = {.name = "group"};
