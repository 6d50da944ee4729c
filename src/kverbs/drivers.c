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
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/export.h"
#include "base/log.h"
#include "kverbs/provider.h"
#include "kverbs/release.h"
#include "kverbs/scan.h"

/* VERBENA_PROVIDER_DIR: CMakeLists.txt */

/* Which nodes' drivers there may be: one rdma-core has one of them. The newest comes first. */
static const char *const library_suffixes[] = {"-rdmav65.so", "-rdmav64.so", "-rdmav59.so",
					       "-rdmav57.so", "-rdmav34.so"};

struct driver {
	const struct provider *provider;
	enum driver_release release; /* RELEASE_59 stands for 59 to 63 */
	struct driver *next;
};

static struct driver *_Atomic drivers;

static void driver_register(const struct provider *provider, enum driver_release release)
{
	struct driver *driver = malloc(sizeof(*driver));

	if (!driver)
		return;
	driver->provider = provider;
	driver->release = release;
	driver->next = atomic_load_explicit(&drivers, memory_order_relaxed);
	/* Publishes the driver: pairs with the acquire in driver_first(). */
	while (!atomic_compare_exchange_weak_explicit(&drivers, &driver->next, driver,
						      memory_order_release, memory_order_relaxed))
		;
}

/* What a driver's constructor calls: the function's name is that of its release. */
#define REGISTERING(node, release)                                                 \
	EXPORT void verbs_register_driver_##node(const struct provider *provider); \
	EXPORT void verbs_register_driver_##node(const struct provider *provider)  \
	{                                                                          \
		driver_register(provider, release);                                \
	}

REGISTERING(34, RELEASE_44)
REGISTERING(57, RELEASE_57)
REGISTERING(59, RELEASE_59)
REGISTERING(64, RELEASE_64)
REGISTERING(65, RELEASE_65)

/* What a driver of a release that isn't known calls: cli/newer.c has why. Drivers have it under
 * names of functions of any kind, so it fails as most of them do, and takes nothing. */
EXPORT int verbena_unknown_release(void);
EXPORT int verbena_unknown_release(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
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
static const struct driver *match_pass(struct found_device *found, bool by_id)
{
	for (const struct driver *i = driver_first(); i; i = i->next) {
		if (!scan_match(found, i->provider))
			continue;
		if (!by_id || (found->match && found->match->kind == PROVIDER_MATCH_DRIVER_ID))
			return i;
	}
	return NULL;
}

const struct provider *drivers_match(struct found_device *found, enum driver_release *release)
{
	const struct driver *driver = found->driver_id ? match_pass(found, true) : NULL;

	if (!driver)
		driver = match_pass(found, false);
	if (!driver)
		return NULL;
	*release = driver->release == RELEASE_59 ? release_of_node_59() : driver->release;
	if (*release != RELEASE_UNKNOWN)
		return driver->provider;
	log_warn("the driver library of %s is of rdma-core 59 to 63, and which of them can't be "
		 "seen without its libibverbs.so.1 in %s/..: the device isn't listed",
		 found->name, VERBENA_PROVIDER_DIR);
	return NULL;
}

/* ------------------------------------------------------------------ loading */

/* A driver's file. `name` is that of the configuration: a bare one, or a path without suffix. */
static bool driver_path(char path[PATH_MAX], const char *library_dir, const char *name,
			const char *suffix)
{
	int length = name[0] == '/'
			     ? snprintf(path, PATH_MAX, "%s%s", name, suffix)
			     : snprintf(path, PATH_MAX, "%s/lib%s%s", library_dir, name, suffix);

	return length >= 0 && length < PATH_MAX;
}

/* Says why none of the files is there: for each driver, unless there is one of a later release,
 * which says it for all. */
static void driver_missing(const char *library_dir, const char *name)
{
	static atomic_bool said;
	char pattern[PATH_MAX];
	glob_t files;

	if (!driver_path(pattern, library_dir, name, "-rdmav*.so"))
		return;
	if (glob(pattern, GLOB_NOSORT, NULL, &files)) {
		log_warn("a driver library for the kernel's RDMA devices is missing: %s", pattern);
		return;
	}
	if (!atomic_exchange(&said, true))
		log_warn("the driver libraries of this system (%s) are of a release of rdma-core "
			 "that isn't known here: they aren't loaded, and the kernel's devices "
			 "aren't listed",
			 files.gl_pathv[0]);
	globfree(&files);
}

static bool driver_load(const char *library_dir, const char *name)
{
	char path[PATH_MAX];

	if (name[0] != '/' && strchr(name, '/'))
		return false;
	for (unsigned int i = 0; i < sizeof(library_suffixes) / sizeof(char *); i++) {
		if (!driver_path(path, library_dir, name, library_suffixes[i]) ||
		    access(path, F_OK))
			continue;
		if (dlopen(path, RTLD_NOW))
			return true;
		log_warn("a driver library for the kernel's RDMA devices can't be loaded: %s",
			 dlerror());
		return false;
	}
	driver_missing(library_dir, name);
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
