#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs a program whose system calls are filtered as a container's runtime filters them (seccomp).

usage: forbid.py ERRNO CALL[,CALL...] COMMAND...     such as: forbid.py EPERM memfd_create ls

A call that is forbidden fails with this errno, in the program and in all that it starts.
`unshare` forbids new namespaces by clone() and clone3(), too, as runtimes do (clone3, whose flags a
filter can't see, always fails with ENOSYS then: the C library uses clone instead).
"""
import ctypes
import errno
import os
import platform
import struct
import sys

# Numbers of system calls: x86_64, aarch64.
CALLS = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "setns": (308, 268),
    "unshare": (272, 97),
}
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
NEW_NAMESPACES = 0x7E020000  # the flags CLONE_NEW* of clone(2)

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data


def supported():
    """Whether this machine's numbers are known."""
    return platform.machine() in ARCHITECTURES


def instruction(code, value, if_true=0, if_false=0):
    """One of the filter's (struct sock_filter)."""
    return struct.pack("HBBI", code, if_true, if_false, value)


def program(calls, number):
    """The filter's instructions."""
    column, architecture = ARCHITECTURES[platform.machine()]
    answers = {name: number for name in calls}
    if "unshare" in calls:
        answers["clone3"] = errno.ENOSYS
    parts = [instruction(LOAD, ARCHITECTURE), instruction(EQUAL, architecture, 1, 0),
             instruction(RETURN, ALLOW), instruction(LOAD, NUMBER)]
    for name, answer in answers.items():
        parts += [instruction(EQUAL, CALLS[name][column], 0, 1), instruction(RETURN, FAIL | answer)]
    if "unshare" in calls:
        parts += [instruction(EQUAL, CALLS["clone"][column], 0, 3),
                  instruction(LOAD, FIRST_ARGUMENT), instruction(ANY_BIT, NEW_NAMESPACES, 0, 1),
                  instruction(RETURN, FAIL | number)]
    return parts + [instruction(RETURN, ALLOW)]


def forbid(calls, number):
    """Installs the filter in this process."""
    parts = program(calls, number)
    code = ctypes.create_string_buffer(b"".join(parts))
    described = struct.pack("HxxxxxxP", len(parts), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
            libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter can be installed")


def main():
    """Filters, then becomes the program."""
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    forbid(sys.argv[2].split(","), getattr(errno, sys.argv[1]))
    os.execvp(sys.argv[3], sys.argv[3:])


if __name__ == "__main__":
    main()
