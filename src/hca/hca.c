/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's HCA: making it (attach to the daemon, published table, self link, engine thread)
 * and leaving it behind in a forked child. Owns the one struct hca; `instance` changes under
 * `instance_lock`, and in the child of a fork, where only one thread exists.
 */
#include "hca/hca.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "hca/engine.h"
#include "hca/link.h"

static struct hca *instance;
static pthread_mutex_t instance_lock = PTHREAD_MUTEX_INITIALIZER;

/* The published table: a sealed memory file, mapped here for writing. Returns its descriptor. */
static int table_make(struct pub **out)
{
	int fd = memfd_create("verbena-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	struct pub *pub = MAP_FAILED;

	if (ftruncate(fd, PUB_SIZE) == 0)
		pub = mmap(NULL, PUB_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			   0);
	if (pub == MAP_FAILED ||
	    fcntl(fd, F_ADD_SEALS,
		  F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		int err = -errno;

		if (pub != MAP_FAILED)
			munmap(pub, PUB_SIZE);
		close(fd);
		return err;
	}
	pub->header.magic = PUB_MAGIC;
	pub->header.version = PUB_VERSION;
	if (getrandom(&pub->header.probe, sizeof(pub->header.probe), 0) < 0)
		pub->header.probe = (uintptr_t)pub ^ getpid();
	pub->header.probe_addr = (uintptr_t)&pub->header.probe;
	atomic_store(&pub->header.asleep, 1);
	*out = pub;
	return fd;
}

static int hca_attach(struct hca *hca)
{
	struct proto_attach_resp resp;
	int fd = table_make(&hca->pub);

	if (fd < 0)
		return fd;
	hca->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int err = hca->doorbell < 0 ? -errno : 0;

	if (!err)
		err = daemon_attach(&hca->conn, fd, hca->doorbell, &resp, &hca->event_fd);
	close(fd);
	if (err)
		return err;
	hca->slot = resp.slot;
	hca->cookie = resp.cookie;
	hca->pub->header.slot = resp.slot;
	return 0;
}

static void hca_free(struct hca *hca)
{
	if (hca->pub)
		munmap(hca->pub, PUB_SIZE);
	if (hca->doorbell >= 0)
		close(hca->doorbell);
	free(hca->qps);
	free(hca);
}

static struct hca *hca_make(void)
{
	struct hca *hca = calloc(1, sizeof(*hca));

	if (!hca)
		return NULL;
	pthread_mutex_init(&hca->lock, NULL);
	list_init(&hca->contexts);
	list_init(&hca->links);
	list_init(&hca->acks);
	list_init(&hca->rnr);
	list_init(&hca->active);
	hca->doorbell = -1;
	hca->event_fd = -1;
	hca->qps = calloc(LIMIT_QPS_PER_SLOT, sizeof(*hca->qps));
	int err = hca->qps ? hca_attach(hca) : -ENOMEM;

	if (!err) {
		err = link_make_self(hca);
		if (!err)
			err = engine_start(hca);
		if (err)
			daemon_close(&hca->conn);
	}
	if (err) {
		log_error("can't attach to verbenad: %s", strerror(-err));
		hca_free(hca);
		errno = -err;
		return NULL;
	}
	return hca;
}

/*
 * A forked child owns none of the parent's objects: its HCA is left behind (the structures stay,
 * so that pointers to them don't dangle, but no thread drives them), and the descriptors that keep
 * the parent alive in the daemon's eyes are closed. A device opened in the child gets a new HCA.
 */
static void after_fork_in_child(void)
{
	pthread_mutex_init(&instance_lock, NULL);
	if (!instance)
		return;
	close(instance->conn.fd);
	close(instance->event_fd);
	instance = NULL;
}

struct hca *hca_get(void)
{
	static bool registered;

	pthread_mutex_lock(&instance_lock);
	if (!instance)
		instance = hca_make();
	if (instance && !registered)
		registered = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
	struct hca *hca = instance;

	pthread_mutex_unlock(&instance_lock);
	return hca;
}
