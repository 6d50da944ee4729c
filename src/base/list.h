/* SPDX-License-Identifier: BSD-2-Clause */
/* Intrusive doubly linked lists. A node that is in no list points to itself. */
#ifndef VERBENA_BASE_LIST_H
#define VERBENA_BASE_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_del(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/*
 * For lists of which a forked child needs the nodes (base/fork.h): after each store the nodes can
 * be followed forwards. The child calls list_mend() before it uses the list otherwise.
 */
static inline void list_add_tail_whole(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	atomic_signal_fence(memory_order_seq_cst);
	head->prev->next = node;
	atomic_signal_fence(memory_order_seq_cst);
	head->prev = node;
}

static inline void list_del_whole(struct list *node)
{
	node->prev->next = node->next;
	atomic_signal_fence(memory_order_seq_cst);
	node->next->prev = node->prev;
	atomic_signal_fence(memory_order_seq_cst);
	list_init(node);
}

static inline void list_mend(struct list *head)
{
	struct list *node = head;

	do {
		node->next->prev = node;
		node = node->next;
	} while (node != head);
}

/* Removes and returns the first node; NULL: the list is empty. */
static inline struct list *list_pop(struct list *head)
{
	struct list *node = head->next;

	if (node == head)
		return NULL;
	list_del(node);
	return node;
}

/* The loop's body may remove `node` from the list. */
#define list_for_each(node, head)                                                         \
	for (struct list *node = (head)->next, *node##_next = node->next; node != (head); \
	     node = node##_next, node##_next = node->next)

#endif
