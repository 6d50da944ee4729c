# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of verbena-fabric share: a fabric in a directory of its own, its control socket,
programs on its nodes, an SM. All processes are ended by their pid."""
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("VERBENA_BUILD_DIR") or os.path.join(os.path.dirname(
    os.path.abspath(__file__)), "..", "..", "build")
HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "small.net")
PROGRAM = os.path.join(BUILD, "bin", "verbena-fabric")
RUNTIME = os.environ.get("VERBENA_SANITIZER_RUNTIME", "")
PATIENCE = 120  # seconds until something that must happen is taken for something that doesn't
CACHE = "/var/cache/infiniband-diags"
os.environ["PATH"] += ":/usr/sbin:/sbin"


class Failure(Exception):
    """A test failed; the text is for people."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def exchange(connection, data):
    """What a server answers to bytes until it closes the connection; b"": nothing. The server may
    close it before it has read all of them."""
    with connection:
        try:
            connection.sendall(data)
        except OSError:
            pass
        answer = b""
        while True:
            try:
                part = connection.recv(1 << 16)
            except ConnectionError:
                return answer
            if not part:
                return answer
            answer += part


def need(*names):
    """Ends the test as skipped when a program isn't installed."""
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        print(f"skipped: {', '.join(missing)} isn't installed (opensm, infiniband-diags)")
        sys.exit(77)


def can_run(program):
    """Whether the program can load the sanitizer that the libraries need (Debian's sh crashes when
    it is to load the thread sanitizer), and write the cache that it can't do without."""
    if program in ("ibfindnodesusing", "ibidsverify") and not (
            os.access(CACHE if os.path.isdir(CACHE) else os.path.dirname(CACHE), os.W_OK)):
        return False
    with open(shutil.which(program), "rb") as file:
        return "tsan" not in RUNTIME or file.read(2) != b"#!"


def need_shell():
    """Ends the test as skipped when sh can't load the sanitizer (can_run())."""
    if "tsan" in RUNTIME:
        print("skipped: sh, which most cases run, can't load the thread sanitizer")
        sys.exit(77)


def poll_until(condition, text):
    """Waits for what has no event that a script could wait for."""
    end = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        require(time.monotonic() < end, f"after {PATIENCE} s: {text}")
        time.sleep(0.02)


class Fabric:
    """A verbena-fabric, and what runs on it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="verbena-fabric-")
        self.runtime = os.path.join(self.folder, "run")
        os.mkdir(self.runtime, 0o700)
        self.children = []
        self.pid = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        if self.pid:
            self.kill()
        shutil.rmtree(self.folder)

    def environment(self, node=None):
        result = dict(os.environ, VERBENA_RUNTIME_DIR=self.runtime, OSM_CACHE_DIR=self.folder,
                      OSM_TMP_DIR=self.folder)
        if node:
            result.update(VERBENA_NODE=node, LD_LIBRARY_PATH=os.path.join(BUILD, "lib"))
            if RUNTIME:
                result.update(LD_PRELOAD=RUNTIME, ASAN_OPTIONS="detect_leaks=0")
        return result

    def begin(self, *words):
        """Runs verbena-fabric --detach; returns its exit code and what it printed."""
        done = subprocess.run([PROGRAM, "--detach", *words], env=self.environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        if not done.returncode:
            self.pid = self.ask(op="status")["pid"]
        return done.returncode, done.stdout

    def start(self, *words):
        code, text = self.begin(*words)
        require(not code, f"verbena-fabric {' '.join(words)}: {code}\n{text}")

    def alive(self):
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def kill(self, number=signal.SIGKILL):
        if self.alive():
            os.kill(self.pid, number)
        self.await_end()

    def await_end(self):
        """Returns when the process has ended and has given back its lock: its first thread may be
        a zombie before that (the thread sanitizer adds one)."""
        try:
            process = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self.pid = None
            return
        try:
            ended, _, _ = select.select([process], [], [], PATIENCE)
            require(ended, "verbena-fabric still runs")
        finally:
            os.close(process)
        self.pid = None

    def control(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        connection.connect(os.path.join(self.runtime, "fabctl"))
        return connection

    def ask_raw(self, data):
        """What the control socket answers to bytes; b"": nothing."""
        return exchange(self.control(), data)

    def ask(self, **request):
        answer = json.loads(self.ask_raw(json.dumps(request).encode() + b"\n"))
        require(answer.get("ok"), f"{request}: {answer}")
        return answer

    def run(self, node, *words, check=True):
        """Runs a program on a node; returns (exit code, output)."""
        done = subprocess.run(words, cwd=self.folder, env=self.environment(node),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        if check:
            require(not done.returncode,
                    f"`{' '.join(words)}` on {node}: {done.returncode}\n{done.stdout}")
        return done.returncode, done.stdout

    def spawn(self, node, *words):
        child = subprocess.Popen(words, cwd=self.folder, env=self.environment(node),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def log(self, name):
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def manager(self, node, name, *options):
        """Starts OpenSM and waits until the subnet is up."""
        # -d 2: each line is written at once.
        child = self.spawn(node, "opensm", "-d", "2", "-D", "0x43", "-f", name, *options)
        poll_until(lambda: "SUBNET UP" in self.log(name) or child.poll() is not None,
                   f"OpenSM on {node} hasn't brought the subnet up\n{self.log(name)[-2000:]}")
        require(child.poll() is None, f"OpenSM on {node} ended\n{self.log(name)[-2000:]}")
        return child


def main(tests):
    """Runs functions, each with a Fabric; returns the exit code."""
    failed = 0
    for test in tests:
        try:
            with Fabric() as fabric:
                test(fabric)
            print(f"ok    {test.__name__}")
        except (Failure, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            failed += 1
            print(f"FAIL  {test.__name__}: {type(error).__name__}: {error}")
    return 1 if failed else 0
