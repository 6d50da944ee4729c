/* SPDX-License-Identifier: BSD-2-Clause */
/* The configuration file. See config.h. Lines of `key = value`; `#` begins a comment. No state. */
#include "daemon/core/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/quantity.h"
#include "client/rundir.h"
#include "proto/limits.h"

enum { IDLE_MS = 10000, USER_OBJECTS = 1 << 20, ERROR_BYTES = 512 };

void config_init(struct config *config, bool system)
{
	const mode_t mode = system ? 0666 : 0600;
	const struct node_rule rule = {mode, (uid_t)-1, (gid_t)-1};

	*config = (struct config){
		.system = system,
		.idle_ms = system ? -1 : IDLE_MS,
		.memlock = true,
		.wire = true,
		.node = rule,
		.ctl = rule,
		/* One user can't take the slots of all others. */
		.user_processes = system ? LIMIT_SLOTS / 2 : CONFIG_UNLIMITED,
		.user_objects = system ? USER_OBJECTS : CONFIG_UNLIMITED,
	};
	if (system)
		strcpy(config->runtime_dir, RUNDIR_SYSTEM);
}

bool config_is_shared(const struct config *config)
{
	return (config->node.mode | config->ctl.mode) & 077;
}

/* ------------------------------------------------------------------ values */

bool config_idle_parse(const char *text, int64_t *ms)
{
	uint64_t ns;

	if (!strcmp(text, "never") || !strcmp(text, "-1")) {
		*ms = -1;
		return true;
	}
	if (!quantity_time(text, strlen(text), QUANTITY_MS, INT32_MAX * QUANTITY_MS, &ns))
		return false;
	*ms = (int64_t)(ns / QUANTITY_MS);
	return true;
}

/* Each read_*() parses one value. Returns NULL, or what a value must be, as the end of a
 * sentence. */

static const char *read_directory(void *to, const char *text)
{
	if (*text != '/' || strlen(text) > RUNDIR_MAX)
		return "wants an absolute path of at most " RUNDIR_MAX_TEXT " bytes";
	strcpy(to, text);
	return NULL;
}

static const char *read_idle(void *to, const char *text)
{
	return config_idle_parse(text, to) ? NULL
					   : "wants milliseconds, a time such as 30s, or never";
}

static const char *read_switch(void *to, const char *text)
{
	bool on = !strcmp(text, "on");

	if (!on && strcmp(text, "off") != 0)
		return "wants on or off";
	*(bool *)to = on;
	return NULL;
}

static const char *read_mode(void *to, const char *text)
{
	uint64_t mode;

	if (!quantity_octal(text, 0777, &mode))
		return "wants an octal mode from 0 to 0777, for example 0660";
	*(mode_t *)to = (mode_t)mode;
	return NULL;
}

static const char *read_owner(void *to, const char *text)
{
	const struct passwd *user;
	uint64_t number;

	if (quantity_number(text, 0, UINT32_MAX - 1, &number)) {
		*(uid_t *)to = (uid_t)number;
		return NULL;
	}
	user = getpwnam(text);
	if (!user)
		return "wants a user that exists on this machine (see getent passwd), or a number";
	*(uid_t *)to = user->pw_uid;
	return NULL;
}

static const char *read_group(void *to, const char *text)
{
	const struct group *group;
	uint64_t number;

	if (quantity_number(text, 0, UINT32_MAX - 1, &number)) {
		*(gid_t *)to = (gid_t)number;
		return NULL;
	}
	group = getgrnam(text);
	if (!group)
		return "wants a group that exists on this machine (groupadd --system makes one), "
		       "or a number";
	*(gid_t *)to = group->gr_gid;
	return NULL;
}

static const char *read_quota(void *to, const char *text)
{
	uint64_t number = CONFIG_UNLIMITED;

	if (strcmp(text, "unlimited") != 0 && !quantity_number(text, 0, INT32_MAX, &number))
		return "wants a number, or unlimited";
	*(uint32_t *)to = (uint32_t)number;
	return NULL;
}

/* Letters, digits, and punctuation that no program takes for a path or a list separator. */
static bool is_name(const char *text, size_t max)
{
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789_-.@:");

	return length && length < max && !text[length] && text[0] != '.';
}

static bool is_taken(const struct config *config, const char *name, const char *ifname)
{
	for (uint32_t i = 0; i < config->device_count; i++) {
		const struct config_device *device = &config->device[i];

		if (!strcmp(device->name, name))
			return true;
		for (uint32_t k = 0; ifname && k < device->count; k++)
			if (!strcmp(device->ifname[k], ifname))
				return true;
	}
	return false;
}

static const char *read_device(void *to, const char *text)
{
	struct config *config = to;
	struct config_device device = {0};
	char words[512], *rest = words, *word;

	if (config->device_count == CONFIG_DEVICES)
		return "may be there 16 times";
	if (snprintf(words, sizeof(words), "%s", text) >= (int)sizeof(words))
		return "wants fewer interfaces";
	word = strsep(&rest, " \t");
	if (!is_name(word, sizeof(device.name)) || is_taken(config, word, NULL))
		return "wants a name that no other device has (letters, digits, _ and -), then the "
		       "interfaces";
	strcpy(device.name, word);
	while ((word = strsep(&rest, " \t"))) {
		if (!*word)
			continue;
		if (device.count == CONFIG_INTERFACES || !is_name(word, IF_NAMESIZE) ||
		    is_taken(config, "", word))
			return "wants names of at most 8 interfaces that no other device has";
		strcpy(device.ifname[device.count++], word);
	}
	if (!device.count)
		return "wants a name and at least one interface, for example verbena0 eth0";
	config->device[config->device_count++] = device;
	return NULL;
}

static const struct key {
	const char *name;
	const char *(*read)(void *to, const char *text);
	size_t at;
} keys[] = {
	{"runtime-dir", read_directory, offsetof(struct config, runtime_dir)},
	{"idle-ms", read_idle, offsetof(struct config, idle_ms)},
	{"memlock", read_switch, offsetof(struct config, memlock)},
	{"wire", read_switch, offsetof(struct config, wire)},
	{"node-mode", read_mode, offsetof(struct config, node.mode)},
	{"node-owner", read_owner, offsetof(struct config, node.owner)},
	{"node-group", read_group, offsetof(struct config, node.group)},
	{"ctl-mode", read_mode, offsetof(struct config, ctl.mode)},
	{"ctl-owner", read_owner, offsetof(struct config, ctl.owner)},
	{"ctl-group", read_group, offsetof(struct config, ctl.group)},
	{"device", read_device, 0},
	{"user-processes", read_quota, offsetof(struct config, user_processes)},
	{"user-objects", read_quota, offsetof(struct config, user_objects)},
};

enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

/* ------------------------------------------------------------------ lines */

struct decoder {
	struct config *config;
	const char *name;
	unsigned int line;
	unsigned int seen[KEYS]; /* the line where the key was set; 0: not yet */
	char *error;
	size_t size;
};

static int config_reject(const struct decoder *d, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int config_reject(const struct decoder *d, const char *format, ...)
{
	int n = snprintf(d->error, d->size, "%s:%u: ", d->name, d->line);
	va_list args;

	va_start(args, format);
	if (n > 0 && (size_t)n < d->size)
		vsnprintf(d->error + n, d->size - (size_t)n, format, args);
	va_end(args);
	return -EINVAL;
}

/* Strips the blanks at both ends. */
static char *text_trim(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = 0;
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

static const struct key *key_find(const char *name)
{
	for (size_t i = 0; i < KEYS; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static int decode_line(struct decoder *d, char *line)
{
	line[strcspn(line, "#")] = 0;
	line = text_trim(line);
	if (!*line)
		return 0;
	char *value = strchr(line, '=');

	if (!value)
		return config_reject(d, "\"%s\" is not a line of the form key = value", line);
	*value++ = 0;
	line = text_trim(line);
	value = text_trim(value);
	const struct key *key = key_find(line);

	if (!key)
		return config_reject(d, "there is no key \"%s\"; verbenad.conf(5) lists them",
				     line);
	unsigned int *seen = &d->seen[key - keys];

	if (*seen && key->read != read_device) /* there may be several devices */
		return config_reject(d, "%s is set in line %u already; remove one of the two", line,
				     *seen);
	*seen = d->line;
	const char *wants = key->read((char *)d->config + key->at, value);

	return wants ? config_reject(d, "%s %s, not \"%s\"", line, wants, value) : 0;
}

int config_decode(struct config *config, FILE *file, const char *name, char *error, size_t size)
{
	struct decoder d = {.config = config, .name = name, .error = error, .size = size};
	char *line = NULL;
	size_t room = 0;
	int err = 0;
	ssize_t n;

	while (!err && (n = getline(&line, &room, file)) >= 0) {
		d.line++;
		err = strlen(line) == (size_t)n
			      ? decode_line(&d, line)
			      : config_reject(&d, "there is a zero byte in this line");
	}
	if (!err && ferror(file))
		err = config_reject(&d, "can't be read on: %s", strerror(errno));
	free(line);
	return err;
}

/* The file's access rights must be strict: a user who may write the file decides which users may
 * open the nodes. */
static int config_check_file(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		log_error("%s is not a file", path);
		return -EINVAL;
	}
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022)) {
		log_error("%s may be changed by others (owner %u, mode %04o): chown it to root and "
			  "chmod go-w it",
			  path, (unsigned int)st.st_uid, (unsigned int)st.st_mode & 07777);
		return -EPERM;
	}
	return 0;
}

int config_read(struct config *config, const char *path)
{
	char error[ERROR_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0) {
		int err = -errno;

		if (err != -ENOENT)
			log_error("can't read %s: %s", path, strerror(-err));
		return err;
	}
	int err = config_check_file(fd, path);
	FILE *file = err ? NULL : fdopen(fd, "r");

	if (!file) {
		close(fd);
		return err ? err : -ENOMEM;
	}
	err = config_decode(config, file, path, error, sizeof(error));
	fclose(file);
	if (err)
		log_error("%s", error);
	return err;
}

/* ------------------------------------------------------------------ which file */

/* Whether there is a file, and this user may have written it. HOME can be another user's, which
 * this one may not even search: with sudo, or in a container with another user than its image has.
 */
static bool is_users_own(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		if (errno != ENOENT)
			log_info("%s isn't read: %s", path, strerror(errno));
		return false;
	}
	if (st.st_uid == 0 || st.st_uid == geteuid())
		return true;
	log_warn("%s isn't read, because it belongs to user %u", path, (unsigned int)st.st_uid);
	return false;
}

/*
 * Writes the path of the user's own file; empty: none. *must: the user has named it, so it must
 * exist. Variables are ignored for a daemon with rights that its caller lacks. Returns 0 or
 * -EINVAL.
 */
static int users_file_find(char path[PATH_MAX], bool *must)
{
	const char *named = env_get("VERBENA_CONFIG"), *folder = env_get("XDG_CONFIG_HOME");
	const char *home = env_get("HOME");
	int length = 0;

	path[0] = 0;
	*must = named && *named;
	if (named && *named && *named != '/') {
		log_error("VERBENA_CONFIG=%s is no absolute path, and a daemon's directory is /",
			  named);
		return -EINVAL;
	}
	if (named)
		length = snprintf(path, PATH_MAX, "%s", named);
	else if (folder && *folder == '/')
		length = snprintf(path, PATH_MAX, "%s/" CONFIG_USER_FILE, folder);
	else if (home && *home == '/')
		length = snprintf(path, PATH_MAX, "%s/.config/" CONFIG_USER_FILE, home);
	if (length >= PATH_MAX || (!*must && path[0] && !is_users_own(path)))
		path[0] = 0;
	return 0;
}

int config_load(struct config *config, bool system, const char *option)
{
	char path[PATH_MAX];
	bool must = option;
	int err = 0;

	config_init(config, system);
	if (option || system)
		snprintf(path, sizeof(path), "%s", option ? option : CONFIG_FILE);
	else
		err = users_file_find(path, &must);
	if (err || !path[0])
		return err;
	err = config_read(config, path);
	if (err == -ENOENT && !must)
		return 0;
	if (err == -ENOENT)
		log_error("can't read %s: there is no such file", path);
	if (!err)
		strcpy(config->file, path);
	return err;
}
