/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Driver libraries. See drivers.h. Owns the list of registered drivers: only prepended to, with
 * atomic operations, so that a constructor may register at any time, before anything else is
 * initialised and under any lock. A driver's table lives as long as its library, which is never
 * unloaded.
 */
#include "kverbs/drivers.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/export.h"
#include "base/log.h"
#include "kverbs/provider.h"
#include "kverbs/scan.h"

/* VERBENA_PROVIDER_DIR: CMakeLists.txt */
#define LIBRARY_SUFFIX "-rdmav34.so"

struct driver {
	const struct provider *provider;
	struct driver *next;
};

static struct driver *_Atomic drivers;

EXPORT void verbs_register_driver_34(const struct provider *provider);
EXPORT void verbs_register_driver_34(const struct provider *provider)
{
	struct driver *driver = malloc(sizeof(*driver));

	if (!driver)
		return;
	driver->provider = provider;
	driver->next = atomic_load_explicit(&drivers, memory_order_relaxed);
	/* Publishes the driver: pairs with the acquire in driver_first(). */
	while (!atomic_compare_exchange_weak_explicit(&drivers, &driver->next, driver,
						      memory_order_release, memory_order_relaxed))
		;
}

static const struct driver *driver_first(void)
{
	return atomic_load_explicit(&drivers, memory_order_acquire);
}

unsigned int drivers_count(void)
{
	unsigned int count = 0;

	for (const struct driver *i = driver_first(); i; i = i->next)
		count++;
	return count;
}

/* A driver that knows the id is asked before those that go by names. */
static const struct provider *match_pass(struct found_device *found, bool by_id)
{
	for (const struct driver *i = driver_first(); i; i = i->next) {
		if (!scan_match(found, i->provider))
			continue;
		if (!by_id || (found->match && found->match->kind == PROVIDER_MATCH_DRIVER_ID))
			return i->provider;
	}
	return NULL;
}

const struct provider *drivers_match(struct found_device *found)
{
	const struct provider *provider = found->driver_id ? match_pass(found, true) : NULL;

	return provider ? provider : match_pass(found, false);
}

/* ------------------------------------------------------------------ loading */

/* `name` is that of the configuration: a bare one, or a path without the suffix. */
static bool driver_load(const char *library_dir, const char *name)
{
	char path[PATH_MAX];
	int length = name[0] == '/' ? snprintf(path, sizeof(path), "%s" LIBRARY_SUFFIX, name)
				    : snprintf(path, sizeof(path), "%s/lib%s" LIBRARY_SUFFIX,
					       library_dir, name);

	if (length < 0 || length >= (int)sizeof(path) || (name[0] != '/' && strchr(name, '/')))
		return false;
	if (dlopen(path, RTLD_NOW))
		return true;
	log_warn("a driver library for the kernel's RDMA devices can't be loaded: %s", dlerror());
	return false;
}

/* One line: "driver NAME"; empty ones and comments are skipped. */
static bool line_load(const char *library_dir, char *line)
{
	char *rest, *word = strtok_r(line, " \t\n", &rest);

	if (!word || word[0] == '#')
		return false;
	if (strcmp(word, "driver")) {
		log_warn("unknown word `%s` in the list of driver libraries", word);
		return false;
	}
	word = strtok_r(NULL, " \t\n", &rest);
	return word && driver_load(library_dir, word);
}

static unsigned int file_load(const char *config_dir, const char *file, const char *library_dir)
{
	char text[4096], *rest = text;
	unsigned int loaded = 0;

	if (scan_read(config_dir, file, text, sizeof(text)) < 0)
		return 0;
	for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
		loaded += line_load(library_dir, line);
	return loaded;
}

unsigned int drivers_load_from(const char *config_dir, const char *library_dir)
{
	struct dirent **names;
	unsigned int loaded = 0;
	int count = scandir(config_dir, &names, NULL, alphasort);

	if (count < 0) {
		log_warn("the kernel's RDMA devices have no drivers: %s: %s", config_dir,
			 strerror(errno));
		return 0;
	}
	for (int i = 0; i < count; i++) {
		if (names[i]->d_name[0] != '.')
			loaded += file_load(config_dir, names[i]->d_name, library_dir);
		free(names[i]);
	}
	free(names);
	return loaded;
}

/* RDMAV_DRIVERS, or IBV_DRIVERS: more drivers, separated by colons or semicolons. */
static void load_from_environment(void)
{
	const char *env = env_get("RDMAV_DRIVERS");
	char *copy, *rest;

	if (!env)
		env = env_get("IBV_DRIVERS");
	copy = rest = env ? strdup(env) : NULL;
	for (char *name = strsep(&rest, ":;"); name; name = strsep(&rest, ":;"))
		if (*name)
			driver_load(VERBENA_PROVIDER_DIR, name);
	free(copy);
}

static void load_once(void)
{
	load_from_environment();
	drivers_load_from(scan_default_roots()->config, VERBENA_PROVIDER_DIR);
}

void drivers_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load_once);
}
