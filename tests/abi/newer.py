#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""newer.py VERBENA

A made-up release of rdma-core, newer than Verbena, with a private node 66, a public node IBVERBS_1.99 and new
names in both. Programs and a driver library that are linked with it run under `verbena run` as far as they
need what exists: by a copy of our library that is made once, also by several at the same time.
"""
import glob
import os
import subprocess
import sys
import tempfile

import private_nodes
from header_facts import CC, Failure, run

RELEASE = """
void ibv_get_device_list(void) {}
void ibv_brand_new(void) {}
void ibv_resize_cq(void) {}
"""
# What the release has moved from one node to another: a name that exists.
MAP = """
IBVERBS_1.1 {{ global: ibv_get_device_list; }};
IBVERBS_1.99 {{ global: ibv_brand_new; ibv_resize_cq; }} IBVERBS_1.1;
IBVERBS_PRIVATE_66 {{ global: {names} verbs_register_driver_66; ibv_cmd_brand_new; local: *; }};
"""
DRIVER = """
void verbs_register_driver_66(const void *);
{declarations}
extern char ibv_cmd_brand_new[];
void *const used[] = {{ {used}, ibv_cmd_brand_new }};
int driver_starts;
__attribute__((constructor)) static void start(void)
{{ verbs_register_driver_66("nothing of this may be read"); driver_starts++; }}
"""
# Writes which library it got, and what it finds.
PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
extern int driver_starts;
int ibv_query_gid_type(void *, unsigned char, unsigned, int *);
void **ibv_get_device_list(int *);
int ibv_resize_cq(void *, int);
extern _Bool verbs_allow_disassociate_destroy;
int main(void)
{
	Dl_info info;
	void *old = dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", "IBVERBS_PRIVATE_65");
	if (!dladdr((void *)ibv_query_gid_type, &info) || !dladdr((void *)ibv_get_device_list, &info))
		return 2;
	if (old != (void *)ibv_query_gid_type || !dladdr((void *)ibv_resize_cq, &info))
		return 3;
	if (dlsym(RTLD_DEFAULT, "ibv_resize_cq") != (void *)ibv_resize_cq || driver_starts != 1)
		return 4;
	verbs_allow_disassociate_destroy = 1;
	puts(info.dli_fname);
	return 0;
}
"""
# Bound at its first call, which this program doesn't make; with an argument it does.
LAZY = """
void ibv_brand_new(void);
int main(int argc, char **argv) { (void)argv; if (argc > 1) ibv_brand_new(); return 0; }
"""


class Release:
    """The release in a folder, and what is linked with it."""

    def __init__(self, folder):
        self.folder = folder
        names = sorted(name for name in private_nodes.names(65) if "register_driver" not in name)
        data = "verbs_allow_disassociate_destroy"
        functions = [name for name in names if name != data]
        source = self.write("release.c", RELEASE + f"_Bool {data};\n" + "".join(
            f"void {name}(void) {{}}\n"
            for name in functions + ["verbs_register_driver_66", "ibv_cmd_brand_new"]))
        version_map = self.write("release.map", MAP.format(names=" ".join(f"{name};" for name in names)))
        os.mkdir(self.path("system"))
        self.library = self.path("system/libibverbs.so.1")
        run(CC, "-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", f"-Wl,--version-script={version_map}",
            "-o", self.library, source)
        driver = self.write("driver.c", DRIVER.format(
            declarations="".join(f"extern char {name}[];\n" for name in functions),
            used=", ".join(functions)))
        run(CC, "-shared", "-fPIC", "-Wl,-z,now", "-o", self.path("libdriver.so"), driver, self.library)
        # Not a copy of the data, as no driver has one: it uses the library's.
        self.build("program", PROGRAM, "-fPIC", "-Wl,-z,now", "-Wl,--no-as-needed", self.path("libdriver.so"))
        self.build("lazy", LAZY, "-Wl,-z,lazy", "-fno-pie", "-no-pie")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def build(self, name, text, *options):
        run(CC, *options[:1], "-o", self.path(name), self.write(name + ".c", text), *options[1:],
            self.library, "-ldl", "-Wl,-rpath," + self.folder)

    def environment(self, libraries):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("VERBENA")}
        return dict(environment, LD_LIBRARY_PATH=libraries, VERBENA_RUNTIME_DIR=self.path("run"),
                    LC_ALL="C")

    def start(self, *command, libraries=None):
        return subprocess.Popen(command, env=self.environment(libraries or self.path("system")),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def copies(self):
        return sorted(glob.glob(self.path("run/*/*")))


def check(what, *right):
    if not all(right):
        raise Failure(what)


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out.strip(), err.strip()


def main(verbena):
    ours = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(verbena))), "lib")
    command = [verbena, "run", "--no-sysfs"]
    with tempfile.TemporaryDirectory() as folder:
        release = Release(folder)
        program = release.path("program")
        # Our library as it is: the loader's riddle.
        code, _, err = ended(release.start(program, libraries=ours))
        check(f"expected the loader's refusal: {err}", code, "IBVERBS_PRIVATE_66' not found" in err)

        # Several at the same time, none of which finds a part of the copy.
        results = [ended(process) for process in [release.start(*command, program) for _ in range(8)]]
        for code, out, err in results:
            check(f"{code}: {err}", code == 0, os.path.dirname(out).startswith(release.path("run")))
            check(f"not one line: {err}", len(err.splitlines()) == 1, release.library in err,
                  "IBVERBS_PRIVATE_66" in err, "1 new names are missing (ibv_brand_new)" in err)
        check("they differ in the copy", len({out for _, out, _ in results}) == 1)
        check(f"there is more than the copy: {release.copies()}", len(release.copies()) == 1)
        copy = release.copies()[0]
        status = os.stat(copy)
        check("the copy may be written", status.st_uid == os.geteuid(), status.st_mode & 0o777 == 0o444)
        check("the directory is open to others", not os.stat(os.path.dirname(copy)).st_mode & 0o022)

        # It stays as it is for the next one, and for one inside another, which says nothing more.
        code, _, err = ended(release.start(*command, *command, program))
        check(f"nested: {code} {err}", code == 0, len(err.splitlines()) == 1)
        check("the copy was made again", os.stat(copy).st_ino == status.st_ino)

        # A new public name ends a program when it calls it, not before.
        code, _, err = ended(release.start(*command, release.path("lazy")))
        check(f"lazy: {code} {err}", code == 0)
        code, _, err = ended(release.start(*command, release.path("lazy"), "call"))
        check(f"a call of what isn't there: {code} {err}", code, "ibv_brand_new" in err)

        # Another library gets another copy.
        os.utime(release.library)
        check("after an upgrade", ended(release.start(*command, program))[0] == 0,
              len(release.copies()) == 2)
        # A system whose nodes we know gets none, and no line.
        code, out, err = ended(release.start(*command, "true", libraries=ours))
        check(f"a known system: {code} {err}", code == 0, not err, len(release.copies()) == 2)
    print("a release with a node 66: its programs run, and say so in one line")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(sys.argv[1]))
    except Failure as failure:
        sys.exit(str(failure))
