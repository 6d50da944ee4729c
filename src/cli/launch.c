/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program needs so that it runs on Verbena; see launch.h.
 *
 * Puts the library's directory in front of LD_LIBRARY_PATH, that of our rdma(8) in front of PATH
 * and /usr/sbin at its end, and names the daemon in VERBENA_DAEMON. No state. One thread.
 */
#include "cli/launch.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/cli.h"
#include "cli/locate.h"
#include "cli/newer.h"

/* Whether `directory` is the first of a list with colons. */
static bool list_begins(const char *list, const char *directory)
{
	size_t length = strcspn(list, ":");

	return length == strlen(directory) && !strncmp(list, directory, length);
}

/* Whether it is in the list at all. */
static bool list_has(const char *list, const char *directory)
{
	for (const char *at = list; *at; at += *at == ':') {
		if (list_begins(at, directory))
			return true;
		at += strcspn(at, ":");
	}
	return false;
}

/* Puts `directory` in front of the list `variable`, unless it is first already, or, with
 * `anywhere`, is in the list at all. `absent`: the list of a variable that isn't set; NULL: none.
 * Returns 0 or -errno. */
static int list_prepend(const char *variable, const char *directory, bool anywhere,
			const char *absent)
{
	const char *old = env_get(variable);
	char *list;
	int result;

	if (!old || (!*old && absent))
		old = absent ? absent : "";
	if (anywhere ? list_has(old, directory) : list_begins(old, directory))
		return 0;
	if (asprintf(&list, *old ? "%s:%s" : "%s", directory, old) < 0)
		return -ENOMEM;
	result = setenv(variable, list, 1) ? -errno : 0;
	free(list);
	return result;
}

/* Where execvp() looks without PATH. */
#define PATH_DEFAULT "/bin:/usr/bin"

/*
 * Appends `directory` to PATH unless it is there. infiniband-diags and OpenSM are in /usr/sbin,
 * which an ordinary user's PATH often lacks, and need no root on a virtual fabric.
 */
static int path_append(const char *directory)
{
	const char *old = env_get("PATH");
	char *list;
	int result;

	if (!old)
		old = PATH_DEFAULT;
	if (list_has(old, directory))
		return 0;
	if (asprintf(&list, "%s:%s", old, directory) < 0)
		return -ENOMEM;
	result = setenv("PATH", list, 1) ? -errno : 0;
	free(list);
	return result;
}

/* Puts our library's directory first. A system of a later release gets a copy in front of it, for
 * the programs that find it now, and for those that `verbena run` starts from them. */
static int library_path_set(const char *library_dir)
{
	const char *old = env_get("LD_LIBRARY_PATH");
	char newer[PATH_MAX];

	if (old && list_has(old, library_dir) && newer_directory_is_first(old))
		return 0;
	int served = newer_release_serve(library_dir, newer);
	int error = list_prepend("LD_LIBRARY_PATH", library_dir, false, NULL);

	return !error && served > 0 ? list_prepend("LD_LIBRARY_PATH", newer, false, NULL) : error;
}

int launch_environment(void)
{
	struct location location;
	int error = location_find(NULL, &location);

	if (error) {
		cli_error("cannot find libibverbs.so.1 and verbenad beside this command: %s; is "
			  "the build or "
			  "the installation complete?",
			  strerror(-error));
		return error;
	}
	/* The dynamic loader has no way to quote these two. */
	if (strpbrk(location.library_dir, ":;")) {
		cli_error("our library is in %s, but a directory with `:` or `;` in its name "
			  "cannot be "
			  "in LD_LIBRARY_PATH; move it",
			  location.library_dir);
		return -EINVAL;
	}
	error = library_path_set(location.library_dir);
	/* A directory whose name PATH can't contain, or that isn't there, is left out: only rdma(8)
	 * is missed then. */
	if (!error && location.program_dir[0] && !strchr(location.program_dir, ':'))
		error = list_prepend("PATH", location.program_dir, true, PATH_DEFAULT);
	if (!error)
		error = path_append("/usr/sbin");
	/*
	 * Many programs (UCX, and MPI over it) register tens of megabytes at their start, more than
	 * an ordinary user may lock by default. Verbena locks no memory, so by default the limit
	 * isn't enforced; a user who wants an adapter's behaviour sets the variable.
	 */
	if (!error && (setenv("VERBENA_DAEMON", location.daemon, 0) != 0 ||
		       setenv("VERBENA_MEMLOCK", "off", 0) != 0))
		error = -errno;
	if (error)
		cli_error("cannot set the environment: %s", strerror(-error));
	return error;
}

static void obstacle_warn(const char *path)
{
	switch (program_examine(path)) {
	case PROGRAM_STATIC:
		cli_error("warning: %s is statically linked, so it keeps the verbs library that it "
			  "was "
			  "built with, if any",
			  path);
		break;
	case PROGRAM_PRIVILEGED:
		cli_error("warning: %s gains privileges when it starts (set-ID bit or file "
			  "capabilities), so the loader ignores LD_LIBRARY_PATH and it will not "
			  "use Verbena",
			  path);
		break;
	case PROGRAM_FOREIGN:
		cli_error("warning: %s is for another kind of processor than our library, so it "
			  "cannot "
			  "load it",
			  path);
		break;
	case PROGRAM_FINE:
		break;
	}
}

/* The package of Debian and Ubuntu that has a program of the RDMA world; NULL: not known. */
static const char *program_package(const char *name)
{
	static const struct {
		const char *pattern, *package;
	} packages[] = {
		{"ib_*_bw", "perftest"},
		{"ib_*_lat", "perftest"},
		{"ibv_*", "ibverbs-utils"},
		{"opensm", "opensm"},
		{"osmtest", "opensm"},
		{"ibdiagnet", "ibutils"},
		{"rping", "rdmacm-utils"},
		{"ucmatose", "rdmacm-utils"},
		{"mckey", "rdmacm-utils"},
		{"udaddy", "rdmacm-utils"},
		{"rstream", "rdmacm-utils"},
		{"cmtime", "rdmacm-utils"},
		{"ucx_*", "ucx-utils"},
		{"fi_*", "libfabric-bin"},
		{"qperf", "qperf"},
		{"fio", "fio"},
		{"ibsim", "ibsim-utils"},
		{"ib*", "infiniband-diags"},
		{"smp*", "infiniband-diags"},
		{"perfquery", "infiniband-diags"},
		{"sminfo", "infiniband-diags"},
		{"saquery", "infiniband-diags"},
	};

	for (size_t i = 0; i < sizeof(packages) / sizeof(packages[0]); i++)
		if (!fnmatch(packages[i].pattern, name, 0))
			return packages[i].package;
	return NULL;
}

int launch_failed(const char *name, int error)
{
	if (error == ENOENT) {
		const char *package = program_package(name);

		cli_error("cannot run %s: there is no such program%s%s", name,
			  package ? "; Debian and Ubuntu have it in the package " : "",
			  package ? package : "");
		return CLI_NOT_FOUND;
	}
	cli_error("cannot run %s: %s", name,
		  error == EACCES ? "it is not an executable file" : strerror(error));
	return CLI_NOT_EXECUTABLE;
}

int launch_program(const char *name, char path[PATH_MAX])
{
	int error = program_find(name, path);

	if (error)
		return launch_failed(name, -error);
	obstacle_warn(path);
	return CLI_OK;
}
