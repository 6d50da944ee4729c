/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena cdi`: writes a specification of the Container Device Interface, version 0.5.0, by which
 * podman, docker and containerd give a container an RDMA device (--device verbena.dev/rdma=NAME).
 *
 * Every device brings the libraries, the daemon and the command, each mounted as a file below
 * /usr/local of the container. So the image needs nothing of Verbena's, only a C library that is
 * not older than the host's. The libraries that ours need, besides the C library's own, are found
 * by loading ours into this process. `own` leaves the container to start a daemon of its own; the
 * other names are the devices of the host's daemon, and bring its run-time directory. No state
 * beyond a call. One thread.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/ctl.h"
#include "cli/locate.h"
#include "cli/nodes.h"
#include "client/rundir.h"

#define CDI_VERSION "0.5.0"
#define CDI_KIND "verbena.dev/rdma"
#define CDI_OWN "own"
#define CDI_PREFIX "/usr/local" /* in the container; its bin is in most images' PATH */
#define CDI_LIBRARY_DIR CDI_PREFIX "/lib/verbena"
#define CDI_LIBEXEC_DIR CDI_PREFIX "/libexec/verbena"
#define CDI_RSPRELOAD "rsocket/librspreload.so"

/* ------------------------------------------------------------------ parts of a specification */

/* Adds a file of the host. A symbolic link is followed, because its target has another name in the
 * container. Returns 0 or -errno. */
static int mounts_add_file(json_t *mounts, const char *host, const char *directory,
			   const char *name)
{
	char file[PATH_MAX];

	if (!realpath(host, file))
		return -errno;
	return json_array_append_new(mounts,
				     json_pack("{s:s,s:s++,s:[s,s,s,s]}", "hostPath", file,
					       "containerPath", directory, "/", name, "options",
					       "bind", "ro", "nosuid", "nodev")) < 0
		       ? -ENOMEM
		       : 0;
}

/* Adds a node: /dev/full under another name, as `verbena run` shows it. A runtime without root can
 * make no nodes; it mounts the host's node of the same path instead, which doesn't exist. So the
 * node is a mount for every runtime. All of them allow a container /dev/full and /dev/null. */
static void mount_node(json_t *mounts, const char *inert, const char *name)
{
	json_array_append_new(mounts, json_pack("{s:s,s:s+,s:[s,s,s,s]}", "hostPath", inert,
						"containerPath", "/dev/infiniband/", name,
						"options", "bind", "rw", "nosuid", "noexec"));
}

/* ------------------------------------------------------------------ what every device brings */

struct dependencies {
	json_t *mounts;
	const char *library_dir; /* of our libraries: they are added by name */
	int error;
};

/* Whether the library belongs to the C library, which must be the image's own. */
static bool is_of_libc(const char *name)
{
	static const char *const names[] = {"libc.so.",	  "libm.so.",	  "libpthread.so.",
					    "libdl.so.",  "librt.so.",	  "ld-linux-",
					    "linux-vdso", "libresolv.so."};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

static int dependency_add(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct dependencies *d = arg;
	const char *slash = strrchr(info->dlpi_name, '/');
	size_t ours = strlen(d->library_dir);

	(void)size;
	/* Without a path: this program, or the kernel's page. */
	if (!slash || is_of_libc(slash + 1) ||
	    (!strncmp(info->dlpi_name, d->library_dir, ours) && info->dlpi_name[ours] == '/'))
		return 0;
	d->error = mounts_add_file(d->mounts, info->dlpi_name, CDI_LIBRARY_DIR, slash + 1);
	return d->error;
}

/* Adds what our libraries and programs need. */
static int dependencies_add(json_t *mounts, const struct location *location)
{
	struct dependencies d = {.mounts = mounts, .library_dir = location->library_dir};
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/libibverbs.so.1", location->library_dir);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		cli_error("cannot load %s: %s", path, dlerror());
		return -ENOEXEC;
	}
	dl_iterate_phdr(dependency_add, &d);
	dlclose(library);
	return d.error;
}

/* Whether this is the name by which programs ask for a library: NAME.so.NUMBER. */
static bool is_soname(const char *name)
{
	const char *so = strstr(name, ".so.");

	return so && so[4] && so[4 + strspn(so + 4, "0123456789")] == '\0';
}

/* Adds our libraries. Returns 0 or -errno. */
static int libraries_add(json_t *mounts, const char *library_dir)
{
	DIR *directory = opendir(library_dir);
	char path[PATH_MAX + 256];
	const struct dirent *entry;
	int error = 0;

	if (!directory)
		return -errno;
	while (!error && (entry = readdir(directory))) {
		if (!is_soname(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", library_dir, entry->d_name);
		error = mounts_add_file(mounts, path, CDI_LIBRARY_DIR, entry->d_name);
	}
	closedir(directory);
	snprintf(path, sizeof(path), "%s/" CDI_RSPRELOAD, library_dir);
	if (!error && access(path, R_OK) == 0)
		error = mounts_add_file(mounts, path, CDI_LIBRARY_DIR, CDI_RSPRELOAD);
	return error;
}

static int files_add(json_t *mounts, const struct location *location)
{
	char path[PATH_MAX + 32];
	int error = libraries_add(mounts, location->library_dir);

	if (!error)
		error = mounts_add_file(mounts, location->daemon, CDI_LIBEXEC_DIR, "verbenad");
	if (!error)
		error = mounts_add_file(mounts, "/proc/self/exe", CDI_PREFIX "/bin", "verbena");
	snprintf(path, sizeof(path), "%s/rdma", location->program_dir);
	if (!error && location->program_dir[0] && access(path, X_OK) == 0)
		error = mounts_add_file(mounts, path, CDI_LIBEXEC_DIR "/bin", "rdma");
	return error;
}

/* The edits for every device. NULL after a message. */
static json_t *common_edits(void)
{
	struct location location;
	json_t *mounts = json_array();
	int error = location_find(NULL, &location);

	if (!error)
		error = files_add(mounts, &location);
	if (!error)
		error = dependencies_add(mounts, &location);
	if (error) {
		cli_error("cannot find all parts of Verbena: %s; is the build or the installation "
			  "complete?",
			  strerror(-error));
		json_decref(mounts);
		return NULL;
	}
	return json_pack("{s:[s,s,s],s:o}", "env", "LD_LIBRARY_PATH=" CDI_LIBRARY_DIR,
			 "VERBENA_DAEMON=" CDI_LIBEXEC_DIR "/verbenad", "VERBENA_MEMLOCK=off",
			 "mounts", mounts);
}

/* ------------------------------------------------------------------ devices */

/* Adds the nodes of a device, and that of the connection manager; returns the mounts. */
static json_t *device_nodes_add(json_t *mounts, const char *node)
{
	const char *inert = node_inert_device();

	if (inert) {
		mount_node(mounts, inert, node);
		mount_node(mounts, inert, "rdma_cm");
	}
	return mounts;
}

/* A device of the host's daemon, whose run-time directory the container gets under the name that
 * needs no owner of its own (client/rundir.h). */
static json_t *host_device(const json_t *device, const char *runtime_dir)
{
	json_t *mounts =
		json_pack("[{s:s,s:s,s:[s,s,s,s,s]}]", "hostPath", runtime_dir, "containerPath",
			  RUNDIR_SYSTEM, "options", "rbind", "rw", "nosuid", "nodev", "noexec");

	return json_pack("{s:s,s:{s:[s],s:o}}", "name", ctl_string(device, "name"),
			 "containerEdits", "env", "VERBENA_RUNTIME_DIR=" RUNDIR_SYSTEM, "mounts",
			 device_nodes_add(mounts, ctl_string(device, "node")));
}

/* Whether the name can be a CDI device's. */
static bool is_cdi_name(const char *name)
{
	static const char alphanumeric[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					   "0123456789";
	size_t length = strlen(name);
	const char *at = name;

	if (!length || !strchr(alphanumeric, name[0]) || !strchr(alphanumeric, name[length - 1]))
		return false;
	while (*at && (strchr(alphanumeric, *at) || strchr("_-.:", *at)))
		at++;
	return !*at;
}

static json_t *devices_list(const json_t *status)
{
	json_t *list = json_pack("[{s:s,s:{s:o}}]", "name", CDI_OWN, "containerEdits", "mounts",
				 device_nodes_add(json_array(), "uverbs0"));
	const json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		const char *name = ctl_string(device, "name");

		if (is_cdi_name(name) && strcmp(name, CDI_OWN) != 0)
			json_array_append_new(
				list, host_device(device, ctl_string(status, "runtime_dir")));
		else
			cli_error("warning: the device %s is left out: a name of the Container "
				  "Device Interface begins and ends with a letter or a digit, and "
				  "`" CDI_OWN "` has a meaning here",
				  name);
	}
	return list;
}

/* ------------------------------------------------------------------ output */

/* Writes the file under another name and renames it, so that no runtime reads half of it. Returns 0
 * or -errno. */
static int specification_write(const json_t *specification, const char *path)
{
	char temporary[PATH_MAX];
	int fd, error = 0;

	if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (json_dumpfd(specification, fd, JSON_INDENT(2)) < 0 || write(fd, "\n", 1) != 1 ||
	    fchmod(fd, 0644) < 0 || fsync(fd) < 0 || rename(temporary, path) < 0) {
		error = errno ? -errno : -EIO;
		unlink(temporary);
	}
	close(fd);
	return error;
}

static int specification_put(const json_t *specification, const char *output)
{
	int error;

	if (!output || !strcmp(output, "-"))
		return ctl_print_json(specification);
	error = specification_write(specification, output);
	if (!error)
		return CLI_OK;
	cli_error("cannot write %s: %s", output, strerror(-error));
	return CLI_FAILURE;
}

static int cdi_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},
		{"output", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	const char *output = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
		if (option != 'o')
			return option == 'h' ? cli_help(self) : cli_usage(self);
		output = optarg;
	}
	if (optind < argc)
		return cli_usage(self);

	json_t *status = ctl_ask_starting("status");

	if (!status) {
		cli_error("no daemon can be started, so its devices aren't known; `verbena run "
			  "ibv_devices` says why");
		return CLI_NO_DAEMON;
	}
	json_t *edits = common_edits(), *specification = NULL;
	int code = CLI_FAILURE;

	if (edits)
		specification =
			json_pack("{s:s,s:s,s:o,s:o}", "cdiVersion", CDI_VERSION, "kind", CDI_KIND,
				  "devices", devices_list(status), "containerEdits", edits);
	if (specification)
		code = specification_put(specification, output);
	json_decref(specification);
	json_decref(status);
	return code;
}

const struct cli_command command_cdi = {
	.name = "cdi",
	.summary = "describe the devices to container runtimes",
	.help = "usage: verbena cdi [--output FILE]\n\n"
		"Writes a specification of the Container Device Interface, by which podman,\n"
		"docker and containerd give a container Verbena's libraries, daemon and nodes\n"
		"with --device:\n\n"
		"  " CDI_KIND "=" CDI_OWN "        a daemon of the container's own, which\n"
		"                              reaches other containers and hosts by RoCEv2\n"
		"  " CDI_KIND "=verbena0   the host's daemon; needs the host's network\n\n"
		"  -o, --output FILE   write FILE, for example /etc/cdi/verbena.json;\n"
		"                      -: standard output (the default)\n"
		"  -h, --help          show this\n\n"
		"A daemon is started when there is none.\n",
	.run = cdi_run,
};
