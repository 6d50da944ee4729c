/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The effects of steps on memory: messages, views, and the vector clocks by which races are found.
 * See model.h. All state belongs to the current execution, and is reset for each.
 *
 * Plain accesses come from the compiler (__tsan_*), since the source is compiled for the thread
 * sanitizer, whose run time isn't linked.
 */
#include "explore.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 48, LOCKS = 8, MEMORIES = 8, CELLS = 1 << 17, CELL = 4, TRACE = 2000 };

/* What a thread knows: the oldest message of each word that it may still read, and each thread's
 * clock as of the latest step that happens-before. */
struct view {
	uint16_t message[MODEL_WORDS];
	uint16_t clock[MODEL_THREADS];
};

struct message {
	uint64_t value;
	struct view view; /* the view that an acquiring thread joins */
};

struct word {
	volatile uint8_t *at;
	size_t size;
	const char *name;
	unsigned int count;
	struct message message[MESSAGES];
};

struct thread {
	struct view now, acquired /* by relaxed loads, for a fence */, released /* at a fence */;
	uint32_t looked; /* words read since its last yield, as bits */
};

/* Four bytes of memory, with the clocks of their last accesses. */
struct cell {
	uint32_t execution;
	uint16_t plain_write[MODEL_THREADS], plain_read[MODEL_THREADS];
	uint16_t atomic_write[MODEL_THREADS], atomic_read[MODEL_THREADS];
};

static struct {
	struct word word[MODEL_WORDS];
	unsigned int words;
	struct thread thread[MODEL_THREADS];
	struct view ordered; /* what seq_cst operations share */
	struct {
		const volatile void *lock;
		int holder; /* -1: free */
		struct view view;
	} lock[LOCKS];
	unsigned int locks;
	struct {
		uint64_t count;
		struct view view;
	} event[MODEL_EVENTS];
	struct {
		uintptr_t start;
		size_t bytes, first_cell;
	} memory[MEMORIES];
	unsigned int memories;
	size_t cells;
	uint32_t execution;
} m;

static struct cell cells[CELLS];
static struct {
	int thread;
	const struct model_site *site;
	const char *what, *name;
	uint64_t value;
	unsigned int behind; /* how many newer messages there are than the one that was read */
} trace[TRACE];
static unsigned int traced;
static struct model_site *sites;

/* ------------------------------------------------------------------ sites */

/* The first label in the text: a bracket, capitals, a number. */
static bool find_label(const char *text, char out[8])
{
	for (const char *at = text; (at = strchr(at, '[')); at++) {
		size_t n = strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), d;

		d = strspn(at + 1 + n, "0123456789");
		if (n && d && n + d < 8 && at[1 + n + d] == ']') {
			memcpy(out, at + 1, n + d);
			out[n + d] = 0;
			return true;
		}
	}
	return false;
}

static bool ends_statement(const char *line)
{
	size_t n = strcspn(line, "\n");
	const char *comment = strstr(line, "/*");

	if (comment && comment > line && strstr(comment, "*/"))
		n = (size_t)(comment - line);
	while (n && (line[n - 1] == ' ' || line[n - 1] == '\t'))
		n--;
	return !n || strchr(";{}:", line[n - 1]) || (n > 1 && !strncmp(line + n - 2, "*/", 2));
}

/* The operations of an inline function are one site, in however many files it is compiled. */
static bool same_site(const struct model_site *a, const struct model_site *b)
{
	return a->line == b->line && !strcmp(basename(a->file), basename(b->file));
}

/* As tools/check-barriers: the label is in the statement's lines, else in the comment directly
 * above. */
static void resolve(struct model_site *site)
{
	static char lines[3000][256];
	static const char *read_last;
	static int count;
	const char *path = strstr(site->file, "src/");
	char full[512];

	site->resolved = true;
	if (!path)
		return;
	if (site->file != read_last) {
		snprintf(full, sizeof(full), "%s/%s", WEAK_SOURCE_DIR, path);
		FILE *f = fopen(full, "r");

		if (!f) {
			fprintf(stderr, "weak: can't read %s: %m\n", full);
			abort();
		}
		for (count = 0; count < 2999 && fgets(lines[count + 1], 256, f);)
			count++;
		fclose(f);
		read_last = site->file;
	}
	int first = site->line, last = site->line;

	while (first > 1 && !ends_statement(lines[first - 1]))
		first--;
	while (last < count && !ends_statement(lines[last]))
		last++;
	bool found = false;

	for (int i = first; i <= last && !found; i++)
		found = find_label(lines[i], site->label);
	int above = first - 1;

	if (!found && above > 0 && strstr(lines[above], "*/")) {
		while (above > 1 && !strstr(lines[above], "/*"))
			above--;
		const char *begin = lines[above] + strspn(lines[above], " \t");

		for (int i = above; !strncmp(begin, "/*", 2) && i < first && !found; i++)
			found = find_label(lines[i], site->label);
	}
	for (struct model_site *known = sites; found && known; known = known->next)
		found = !same_site(known, site);
	if (found) {
		site->next = sites;
		sites = site;
	}
}

struct model_site *model_sites(void)
{
	return sites;
}

/* The memory order of the site in this run. */
static int order_of(struct model_site *site, int order)
{
	if (!site->resolved && order != memory_order_relaxed) {
		site->is_seq_cst = order == memory_order_seq_cst;
		resolve(site);
	}
	if (!model_weakened || !same_site(site, model_weakened))
		return order;
	return model_weakening == MODEL_RELAXED ? memory_order_relaxed : memory_order_acq_rel;
}

static bool acquires(int order)
{
	return order != memory_order_relaxed && order != memory_order_release;
}

static bool releases(int order)
{
	return order == memory_order_release || order == memory_order_acq_rel ||
	       order == memory_order_seq_cst;
}

/* ------------------------------------------------------------------ setup */

void model_reset(void)
{
	uint32_t execution = m.execution + 1;

	for (unsigned int i = 0; i < m.words; i++)
		m.word[i].count = 0;
	m.words = m.locks = m.memories = 0;
	m.cells = 0;
	memset(m.thread, 0, sizeof(m.thread));
	memset(&m.ordered, 0, sizeof(m.ordered));
	memset(m.event, 0, sizeof(m.event));
	for (int t = 0; t < MODEL_THREADS; t++)
		m.thread[t].now.clock[t] = 1;
	m.execution = execution;
	traced = 0;
}

static uint64_t read_word(const volatile void *word, size_t size)
{
	uint64_t value = 0;

	memcpy(&value, (const void *)word, size);
	return value;
}

void model_word(volatile void *word, size_t size, const char *name)
{
	if (m.words == MODEL_WORDS)
		abort();
	struct word *w = &m.word[m.words++];

	w->at = word;
	w->size = size;
	w->name = name;
	w->count = 1;
	w->message[0].value = read_word(word, size);
	memset(&w->message[0].view, 0, sizeof(w->message[0].view));
}

void model_memory(const volatile void *start, size_t bytes)
{
	size_t count = bytes / CELL + 2;

	if (m.memories == MEMORIES || m.cells + count > CELLS)
		abort();
	m.memory[m.memories].start = (uintptr_t)start & ~(uintptr_t)(CELL - 1);
	m.memory[m.memories].bytes = count * CELL;
	m.memory[m.memories++].first_cell = m.cells;
	m.cells += count;
}

static struct word *find(const volatile void *at)
{
	for (unsigned int i = 0; i < m.words; i++)
		if (m.word[i].at == at)
			return &m.word[i];
	return NULL;
}

/* ------------------------------------------------------------------ races */

static struct cell *cell_of(uintptr_t at)
{
	for (unsigned int i = 0; i < m.memories; i++) {
		if (at - m.memory[i].start >= m.memory[i].bytes)
			continue;
		struct cell *c = &cells[m.memory[i].first_cell + (at - m.memory[i].start) / CELL];

		if (c->execution != m.execution) {
			memset(c, 0, sizeof(*c));
			c->execution = m.execution;
		}
		return c;
	}
	return NULL;
}

static bool ordered_after(const uint16_t *accesses, int thread)
{
	for (int t = 0; t < MODEL_THREADS; t++)
		if (t != thread && accesses[t] > m.thread[thread].now.clock[t])
			return false;
	return true;
}

static void touch(const volatile void *at, size_t bytes, bool is_write, bool is_atomic,
		  const void *caller)
{
	int t = explore_thread;
	uintptr_t first = (uintptr_t)at & ~(uintptr_t)(CELL - 1), end = (uintptr_t)at + bytes;

	if (t < 0 || !bytes)
		return;
	for (uintptr_t a = first; a < end; a += CELL) {
		struct cell *c = cell_of(a);

		if (!c)
			continue;
		if (!ordered_after(c->plain_write, t) ||
		    (is_write && !ordered_after(c->plain_read, t)) ||
		    (!is_atomic && !ordered_after(c->atomic_write, t)) ||
		    (!is_atomic && is_write && !ordered_after(c->atomic_read, t)))
			model_fail("data race: thread %d %s %zu bytes at %p (code at %p)", t,
				   is_write ? "writes" : "reads", bytes, (const void *)at, caller);
		uint16_t *own = is_atomic ? (is_write ? c->atomic_write : c->atomic_read)
					  : (is_write ? c->plain_write : c->plain_read);

		own[t] = m.thread[t].now.clock[t];
	}
}

#define PLAIN(name, bytes, is_write)                                                    \
	void name(void *at);                                                            \
	void name(void *at)                                                             \
	{                                                                               \
		if (explore_thread >= 0)                                                \
			touch(at, bytes, is_write, false, __builtin_return_address(0)); \
	}
PLAIN(__tsan_read1, 1, false)
PLAIN(__tsan_read2, 2, false)
PLAIN(__tsan_read4, 4, false)
PLAIN(__tsan_read8, 8, false)
PLAIN(__tsan_read16, 16, false)
PLAIN(__tsan_write1, 1, true)
PLAIN(__tsan_write2, 2, true)
PLAIN(__tsan_write4, 4, true)
PLAIN(__tsan_write8, 8, true)
PLAIN(__tsan_write16, 16, true)
PLAIN(__tsan_unaligned_read2, 2, false)
PLAIN(__tsan_unaligned_read4, 4, false)
PLAIN(__tsan_unaligned_read8, 8, false)
PLAIN(__tsan_unaligned_read16, 16, false)
PLAIN(__tsan_unaligned_write2, 2, true)
PLAIN(__tsan_unaligned_write4, 4, true)
PLAIN(__tsan_unaligned_write8, 8, true)
PLAIN(__tsan_unaligned_write16, 16, true)

void __tsan_read_range(void *at, size_t bytes);
void __tsan_read_range(void *at, size_t bytes)
{
	touch(at, bytes, false, false, __builtin_return_address(0));
}

void __tsan_write_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes)
{
	touch(at, bytes, true, false, __builtin_return_address(0));
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void *model_memcpy(void *to, const void *from, size_t bytes)
{
	touch(from, bytes, false, false, __builtin_return_address(0));
	touch(to, bytes, true, false, __builtin_return_address(0));
	return memcpy(to, from, bytes);
}

void *model_memset(void *to, int value, size_t bytes)
{
	touch(to, bytes, true, false, __builtin_return_address(0));
	return memset(to, value, bytes);
}

/* ------------------------------------------------------------------ views */

static void join(struct view *to, const struct view *from)
{
	for (unsigned int i = 0; i < m.words; i++)
		if (to->message[i] < from->message[i])
			to->message[i] = from->message[i];
	for (int t = 0; t < MODEL_THREADS; t++)
		if (to->clock[t] < from->clock[t])
			to->clock[t] = from->clock[t];
}

static struct thread *self(void)
{
	return &m.thread[explore_thread];
}

/* Later steps aren't part of what was released. */
static void tick(void)
{
	self()->now.clock[explore_thread]++;
}

static void note(const struct model_site *site, const char *what, const char *name, uint64_t value,
		 unsigned int behind)
{
	if (traced == TRACE)
		return;
	trace[traced].thread = explore_thread;
	trace[traced].site = site;
	trace[traced].what = what;
	trace[traced].name = name;
	trace[traced].value = value;
	trace[traced++].behind = behind;
}

void model_trace_print(void)
{
	for (unsigned int i = 0; i < traced; i++) {
		const struct model_site *s = trace[i].site;
		const char *file = s ? strrchr(s->file, '/') : NULL;

		printf("  thread %d: %-8s %s = 0x%llx", trace[i].thread, trace[i].what,
		       trace[i].name, (unsigned long long)trace[i].value);
		if (trace[i].behind)
			printf(" (%u older than the newest)", trace[i].behind);
		if (s)
			printf("  %s:%d%s%s", file ? file + 1 : s->file, s->line,
			       s->label[0] ? " " : "", s->label);
		printf("\n");
	}
}

/* ------------------------------------------------------------------ operations */

static void store_native(volatile void *word, size_t size, uint64_t value)
{
	memcpy((void *)word, &value, size);
}

static void read_message(struct word *w, unsigned int at, int order)
{
	struct thread *t = self();
	unsigned int i = (unsigned int)(w - m.word);

	if (t->now.message[i] < at)
		t->now.message[i] = (uint16_t)at;
	t->looked |= 1u << i;
	join(acquires(order) ? &t->now : &t->acquired, &w->message[at].view);
	if (order == memory_order_seq_cst && m.ordered.message[i] < at)
		m.ordered.message[i] = (uint16_t)at;
}

/* The oldest message that a load may return. */
static unsigned int oldest(const struct word *w, int order)
{
	unsigned int i = (unsigned int)(w - m.word), at = self()->now.message[i];

	if (order == memory_order_seq_cst && m.ordered.message[i] > at)
		at = m.ordered.message[i];
	return at;
}

static void add_message(struct word *w, uint64_t value, int order, const struct view *from)
{
	struct thread *t = self();
	unsigned int i = (unsigned int)(w - m.word), at = w->count;

	if (at == MESSAGES)
		model_fail("more stores to %s than this is made for", w->name);
	w->count++;
	t->now.message[i] = (uint16_t)at;
	struct message *message = &w->message[at];

	message->value = value;
	message->view = releases(order) ? t->now : t->released;
	message->view.message[i] = (uint16_t)at;
	if (from)
		join(&message->view, from);
	if (order == memory_order_seq_cst)
		m.ordered.message[i] = (uint16_t)at;
	store_native(w->at, w->size, value);
	tick();
}

uint64_t model_load(struct model_site *site, const volatile void *word, size_t size, int order)
{
	struct word *w = explore_thread >= 0 ? find(word) : NULL;

	if (!w)
		return read_word(word, size);
	order = order_of(site, order);
	explore_step((struct step){STEP_LOAD, word, order == memory_order_seq_cst});
	touch(word, size, false, true, __builtin_return_address(0));
	unsigned int behind = explore_choose(w->count - oldest(w, order));
	unsigned int at = w->count - 1 - behind;

	read_message(w, at, order);
	note(site, "load", w->name, w->message[at].value, behind);
	return w->message[at].value;
}

void model_store(struct model_site *site, volatile void *word, size_t size, uint64_t value,
		 int order)
{
	struct word *w = explore_thread >= 0 ? find(word) : NULL;

	if (!w) {
		store_native(word, size, value);
		return;
	}
	order = order_of(site, order);
	explore_step((struct step){STEP_STORE, word, order == memory_order_seq_cst});
	touch(word, size, true, true, __builtin_return_address(0));
	note(site, "store", w->name, value, 0);
	add_message(w, value, order, NULL);
}

static uint64_t apply(enum model_operation operation, uint64_t old, uint64_t value)
{
	switch (operation) {
	case MODEL_EXCHANGE:
		return value;
	case MODEL_ADD:
		return old + value;
	case MODEL_SUB:
		return old - value;
	case MODEL_OR:
		return old | value;
	case MODEL_AND:
		return old & value;
	}
	abort();
}

static void modify(struct word *w, uint64_t value, int order)
{
	unsigned int last = w->count - 1;
	struct view before = w->message[last].view;

	read_message(w, last, order);
	add_message(w, value, order, &before);
}

uint64_t model_rmw(struct model_site *site, volatile void *word, size_t size,
		   enum model_operation operation, uint64_t value, int order)
{
	struct word *w = explore_thread >= 0 ? find(word) : NULL;
	uint64_t mask = size == 8 ? UINT64_MAX : (1ull << 8 * size) - 1, old;

	if (!w) {
		old = read_word(word, size);
		store_native(word, size, apply(operation, old, value));
		return old;
	}
	order = order_of(site, order);
	explore_step((struct step){STEP_STORE, word, order == memory_order_seq_cst});
	touch(word, size, true, true, __builtin_return_address(0));
	old = w->message[w->count - 1].value;
	note(site, "modify", w->name, apply(operation, old, value) & mask, 0);
	modify(w, apply(operation, old, value) & mask, order);
	return old;
}

/* A failure reads any message that the thread may see and that differs. */
bool model_cas(struct model_site *site, volatile void *word, size_t size, void *expected,
	       uint64_t value, int order)
{
	struct word *w = explore_thread >= 0 ? find(word) : NULL;
	uint64_t want = read_word(expected, size);

	if (!w) {
		uint64_t old = read_word(word, size);

		if (old == want)
			store_native(word, size, value);
		else
			memcpy(expected, &old, size);
		return old == want;
	}
	order = order_of(site, order);
	explore_step((struct step){STEP_STORE, word, order == memory_order_seq_cst});
	touch(word, size, true, true, __builtin_return_address(0));
	unsigned int possible[MESSAGES], count = 0, last = w->count - 1;

	for (unsigned int at = last + 1; at-- > oldest(w, order);)
		if (at == last || w->message[at].value != want)
			possible[count++] = at;
	unsigned int at = possible[explore_choose(count)];
	uint64_t old = w->message[at].value;

	if (old == want) {
		note(site, "swap", w->name, value, 0);
		modify(w, value, order);
		return true;
	}
	note(site, "no swap", w->name, old, last - at);
	read_message(w, at, order);
	memcpy(expected, &old, size);
	return false;
}

void model_fence(struct model_site *site, int order)
{
	if (explore_thread < 0)
		return;
	order = order_of(site, order);
	if (order == memory_order_relaxed)
		return;
	explore_step((struct step){STEP_FENCE, NULL, order == memory_order_seq_cst});
	struct thread *t = self();

	note(site, "fence", "", 0, 0);
	if (acquires(order))
		join(&t->now, &t->acquired);
	if (order == memory_order_seq_cst) {
		join(&t->now, &m.ordered);
		m.ordered = t->now;
	}
	if (releases(order))
		t->released = t->now;
	tick();
}

static void barrier_in(struct thread *t)
{
	join(&t->now, &t->acquired);
	join(&t->now, &m.ordered);
	m.ordered = t->now;
	t->released = t->now;
}

void model_barrier_everywhere(void)
{
	if (explore_thread < 0)
		return;
	explore_step((struct step){STEP_BARRIER, NULL, true});
	note(NULL, "barrier", "everywhere", 0, 0);
	/* First what each thread has stored, then to each what all have. */
	for (int pass = 0; pass < 2; pass++)
		for (int t = 0; t < MODEL_THREADS; t++)
			barrier_in(&m.thread[t]);
	/* What a thread does from here on isn't among what the others have seen. */
	for (int t = 0; t < MODEL_THREADS; t++)
		m.thread[t].now.clock[t]++;
}

/* Operations that the source writes as plain accesses to an _Atomic object. */
#define IMPLICIT(bits, type)                                                          \
	type __tsan_atomic##bits##_load(const volatile type *word, int order);        \
	type __tsan_atomic##bits##_load(const volatile type *word, int order)         \
	{                                                                             \
		return (type)model_load(&implicit, word, sizeof(*word), order);       \
	}                                                                             \
	void __tsan_atomic##bits##_store(volatile type *word, type value, int order); \
	void __tsan_atomic##bits##_store(volatile type *word, type value, int order)  \
	{                                                                             \
		model_store(&implicit, word, sizeof(*word), value, order);            \
	}
static struct model_site implicit = {.file = "-", .resolved = true};
IMPLICIT(8, uint8_t)
IMPLICIT(16, uint16_t)
IMPLICIT(32, uint32_t)
IMPLICIT(64, uint64_t)

/* ------------------------------------------------------------------ locks, events, waiting */

static unsigned int lock_index(const volatile void *lock)
{
	for (unsigned int i = 0; i < m.locks; i++)
		if (m.lock[i].lock == lock)
			return i;
	if (m.locks == LOCKS)
		abort();
	m.lock[m.locks].lock = lock;
	m.lock[m.locks].holder = -1;
	memset(&m.lock[m.locks].view, 0, sizeof(m.lock[0].view));
	return m.locks++;
}

void model_lock(const volatile void *lock)
{
	if (explore_thread < 0)
		return;
	explore_step((struct step){STEP_LOCK, lock, false});
	unsigned int i = lock_index(lock);

	m.lock[i].holder = explore_thread;
	join(&self()->now, &m.lock[i].view);
}

/* A lock that is held is waited for: a thread that goes on without it would have no effect. */
bool model_trylock(const volatile void *lock)
{
	model_lock(lock);
	return true;
}

void model_unlock(const volatile void *lock)
{
	if (explore_thread < 0)
		return;
	unsigned int i = lock_index(lock);

	join(&m.lock[i].view, &self()->now);
	m.lock[i].holder = -1;
	tick();
}

void model_event_set(unsigned int event)
{
	if (explore_thread < 0)
		return;
	explore_step((struct step){STEP_EVENT_SET, &m.event[event], false});
	note(NULL, "ring", "doorbell", event, 0);
	m.event[event].count++;
	join(&m.event[event].view, &self()->now);
	tick();
}

void model_event_wait(unsigned int event)
{
	explore_step((struct step){STEP_EVENT_WAIT, &m.event[event], false});
	note(NULL, "woken", "doorbell", event, 0);
	m.event[event].count = 0;
	join(&self()->now, &m.event[event].view);
}

void model_yield(void)
{
	if (explore_thread < 0)
		return;
	explore_step((struct step){STEP_YIELD, NULL, false});
	struct thread *t = self();

	for (unsigned int i = 0; i < m.words; i++)
		if (t->looked & 1u << i)
			t->now.message[i] = (uint16_t)(m.word[i].count - 1);
	t->looked = 0;
}

static bool something_new(const struct thread *t)
{
	for (unsigned int i = 0; i < m.words; i++)
		if (t->looked & 1u << i && t->now.message[i] < m.word[i].count - 1)
			return true;
	return !t->looked;
}

bool model_enabled(int thread, const struct step *step)
{
	switch (step->kind) {
	case STEP_LOCK:
		return m.lock[lock_index(step->what)].holder < 0;
	case STEP_EVENT_WAIT:
		for (unsigned int i = 0; i < MODEL_EVENTS; i++)
			if (step->what == &m.event[i])
				return m.event[i].count > 0;
		abort();
	case STEP_YIELD:
		return something_new(&m.thread[thread]);
	default:
		return true;
	}
}
