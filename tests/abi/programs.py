#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""programs.py OUR-INCLUDE OUR-LIBRARY DEBIAN-INCLUDE DEBIAN-LIBRARY

Programs do not care which headers they were compiled with: caller.c, as C99 and as C++11, without
warnings, with our headers and with Debian's, linked with our library and with Debian's. All
variants import the same symbols, start on both libraries and say the same. Then every library of
Debian that is a driver, or brings driver functions, resolves next to our libibverbs.so.1.

Environment: VERBENA_BUILD_DIR, VERBENA_SANITIZER_RUNTIME (see cmake/VerbenaTest.cmake); without a
built verbenad, programs start on our library but may find no device. Exit code 77: Debian's
development package is not installed.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from header_facts import CC, Failure, run

HERE = os.path.dirname(os.path.abspath(__file__))
CXX = os.environ.get("CXX", "c++")
LANGUAGES = {
    "C99": (CC, "-x", "c", "-std=c99"),
    "C++11": (CXX, "-x", "c++", "-std=c++11"),
}


def environment(work, library_directory):
    """For a program on the library of this directory; a daemon of its own, soon gone."""
    result = dict(os.environ, LD_LIBRARY_PATH=library_directory, VERBENA_IDLE_MS="500",
                  VERBENA_RUNTIME_DIR=os.path.join(work, "run"), LD_BIND_NOW="1")
    daemon = daemon_path()
    if daemon:
        result["VERBENA_DAEMON"] = daemon
    if os.environ.get("VERBENA_SANITIZER_RUNTIME"):
        result["LD_PRELOAD"] = os.environ["VERBENA_SANITIZER_RUNTIME"]
    return result


def daemon_path():
    path = os.path.join(os.environ.get("VERBENA_BUILD_DIR", ""), "bin", "verbenad")
    return path if os.access(path, os.X_OK) else None


def imports(program):
    """Versioned symbols of libibverbs that the program needs."""
    text = run("readelf", "--dyn-syms", "-W", program)
    return sorted(re.findall(r"UND (\S+@IBVERBS_\S+)", text))


def build(work, language, headers, include, libraries):
    """Compiles once, links with each library; the programs' paths by library."""
    name = f"{language}-{headers}"
    objects = os.path.join(work, name + ".o")
    run(*LANGUAGES[language], "-O2", "-Wall", "-Wextra", "-Werror", "-I" + include, "-c",
        os.path.join(HERE, "caller.c"), "-o", objects)
    programs = {}
    for library, path in libraries.items():
        programs[library] = os.path.join(work, f"{name}-linked-with-{library}")
        # What the library itself needs is found at run time.
        run(LANGUAGES[language][0], objects, path, "-Wl,--allow-shlib-undefined", "-o",
            programs[library])
    return programs


def start(program, library, path, work):
    """The program's output on a library that lies at this path."""
    done = subprocess.run([program], capture_output=True, text=True, timeout=60,
                          env=environment(work, os.path.dirname(path)))
    if done.returncode:
        raise Failure(f"{os.path.basename(program)} fails on {library}'s library with "
                      f"{done.returncode}; its last words:\n{done.stdout[-300:]}{done.stderr}")
    return done.stdout


def check_programs(work, includes, libraries):
    """All variants; returns how many there were."""
    variants = {}
    for language in LANGUAGES:
        if not shutil.which(LANGUAGES[language][0]):
            print(f"{language} is left out: there is no compiler")
            continue
        for headers, include in includes.items():
            for library, program in build(work, language, headers, include, libraries).items():
                variants[f"{language}, {headers} headers, linked with {library} library"] = program
    names = list(variants)
    reference = variants[names[0]]
    for name in names[1:]:
        if imports(variants[name]) != imports(reference):
            odd = set(imports(variants[name])) ^ set(imports(reference))
            raise Failure(f"Imports differ between ({names[0]}) and ({name}): {sorted(odd)}")
    for library, path in libraries.items():
        expected = start(reference, library, path, work)
        if library == "our" and daemon_path() and "no device" in expected:
            raise Failure("On our library the program finds no device, although verbenad is built.")
        for name in names[1:]:
            said = start(variants[name], library, path, work)
            if said != expected:
                raise Failure(f"On {library} library, ({name}) says\n{said}\nand ({names[0]})\n"
                              f"{expected}")
    compare_names(reference, libraries, work)
    return len(variants)


def compare_names(program, libraries, work):
    """The strings and rates that the program prints first are those of Debian's library."""
    said = [start(program, library, path, work).splitlines()
            for library, path in libraries.items()]
    for our, their in zip(*said):
        if re.match(r"no device|device ", our) or re.match(r"no device|device ", their):
            break
        # What Debian's library may not know yet: an event that came with 65.
        if our.replace("Device link speed change", "unknown") == their:
            continue
        if our != their:
            raise Failure(f"Our library says `{our}` where Debian's says `{their}`.")


def check_drivers(directory, our_library):
    """Debian's driver libraries find all symbols in our library."""
    files = sorted(glob.glob(os.path.join(directory, "libibverbs", "*.so")))
    files += [path for name in ("libmlx4.so.1", "libmlx5.so.1", "libefa.so.1", "libmana.so.1")
              if os.path.exists(path := os.path.join(directory, name))]
    for path in files:
        done = subprocess.run(
            ["ldd", "-r", path], capture_output=True, text=True, timeout=60,
            env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(our_library)))
        text = done.stdout + done.stderr
        if os.path.dirname(our_library) + "/libibverbs.so.1" not in text:
            raise Failure(f"{path} did not load our libibverbs.so.1:\n{text}")
        # A sanitized library leaves its run time's symbols open here.
        wrong = [line for line in text.splitlines()
                 if re.search(r"undefined symbol|not found|not defined", line)
                 and not re.search(r"__(asan|ubsan|tsan|sanitizer)", line)]
        if wrong:
            raise Failure(f"{path} does not resolve next to our library: {wrong[0].strip()}")
    return len(files)


def main(our_include, our_library, their_include, their_library):
    if not os.path.exists(os.path.join(their_include, "infiniband/verbs.h")):
        print(f"skipped: {their_include}/infiniband/verbs.h is missing (package libibverbs-dev)")
        return 77
    with tempfile.TemporaryDirectory(prefix="verbena-abi-") as work:
        try:
            variants = check_programs(work, {"our": our_include, "Debian's": their_include},
                                      {"our": our_library, "Debian's": their_library})
            drivers = check_drivers(os.path.dirname(their_library), our_library)
        except Failure as failure:
            print(failure)
            return 1
    print(f"{variants} programs and {drivers} driver libraries agree"
          + ("" if daemon_path() else " (without a device: verbenad is not built)"))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
