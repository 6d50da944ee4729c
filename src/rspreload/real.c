/* SPDX-License-Identifier: BSD-2-Clause */
/* The C library's functions that this library replaces. See preload.h. */
#include <dlfcn.h>
#include <string.h>

#include "rspreload/preload.h"

struct real real;

static void real_find(void *place, const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	memcpy(place, &function, sizeof(function));
}

static void find_all(void)
{
#define FIND(name) real_find(&real.name, #name)
	FIND(socket);
	FIND(bind);
	FIND(listen);
	FIND(accept4);
	FIND(connect);
	FIND(recv);
	FIND(recvfrom);
	FIND(recvmsg);
	FIND(read);
	FIND(readv);
	FIND(send);
	FIND(sendto);
	FIND(sendmsg);
	FIND(write);
	FIND(writev);
	FIND(poll);
	FIND(select);
	FIND(epoll_ctl);
	FIND(epoll_wait);
	FIND(epoll_pwait);
	FIND(epoll_pwait2);
	FIND(ppoll);
	FIND(pselect);
	FIND(shutdown);
	FIND(close);
	FIND(getpeername);
	FIND(getsockname);
	FIND(setsockopt);
	FIND(getsockopt);
	FIND(fcntl);
	FIND(ioctl);
	FIND(dup);
	FIND(dup2);
	FIND(dup3);
	FIND(sendfile);
	FIND(splice);
#undef FIND
}

void real_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_all);
}
