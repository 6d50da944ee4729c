/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a link while the library is busy: its memory is freed although the program makes no
 * further call. See rig.h.
 *
 * The engine thread tries the lock that it needs for this, and retries. Here the lock is busy as
 * often as the test wants: the test's pthread_mutex_trylock() is linked before libc's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

/* More than the engine thread's passes after the program has stopped polling. */
enum { REFUSALS = 50 };

static _Atomic int refuse;

__attribute__((visibility("default"))) int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	static int (*real)(pthread_mutex_t *);

	if (refuse > 0) {
		refuse--;
		return EBUSY;
	}
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
	return real(mutex);
}

static bool has_link(struct rig *rig)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	bool found = false;

	CHECK(rig, maps);
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "memfd:verbena-link") != NULL;
	fclose(maps);
	return found;
}

static void reap_late(struct rig *rig)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	struct end end;

	end_pair(&end, rig, NULL);
	OK(rig, end_recv(&end, 1, 0, 64));
	rig_sync(rig);
	OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 64, 0));
	wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
	CHECK(rig, has_link(rig));
	if (rig->role == RIG_A)
		refuse = REFUSALS;
	rig_sync(rig);
	if (rig->role == RIG_B)
		_exit(0);
	while (has_link(rig)) {
		CHECK(rig, !patience_over(&patience));
		usleep(1000);
	}
	CHECK_EQ(rig, refuse, 0);
	end_close(&end);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {{"reap_late", reap_late}, {NULL, NULL}};

	rig_main(argc, argv, tests);
}
