# SPDX-License-Identifier: BSD-2-Clause
"""What the end-to-end tests share: programs over Verbena, started, watched and ended by pid.

A Stage is a private run-time directory with the processes that were started in it; its close()
ends them, one by one by their pid, waits until the daemon has left, and removes the directory. A
Suite runs named cases, prints one line for each, and the output's tail of those that fail. Only
Python's standard library. Nothing here is specific to one test.

Environment: VERBENA_BUILD_DIR (the build tree; see build_directory), VERBENA_FULL=1 (the long
matrices), VERBENA_SANITIZER_RUNTIME and VERBENA_SANITIZE (set by ctest), VERBENA_WRAP (words to
put before each program, such as `valgrind -q`).
"""
import ctypes
import functools
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

FULL = os.environ.get("VERBENA_FULL", "") not in ("", "0")
SANITIZE = os.environ.get("VERBENA_SANITIZE", "")
SANITIZER_RUNTIME = os.environ.get("VERBENA_SANITIZER_RUNTIME", "")
WRAP = shlex.split(os.environ.get("VERBENA_WRAP", ""))
# Programs such as ip, tc and tgtd, which an ordinary user's path may lack.
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
# Watched code is several times slower; the waiting is stretched, never the work.
SLOW = 10 if WRAP else {"": 1, "address": 2, "thread": 3}.get(SANITIZE, 3)
# The least time (s) after which something counts as hanging: on a loaded machine a program may wait
# for many seconds for its turn.
LEAST = 120
SKIPPED = 77
TAIL_LINES = 25


class Failure(Exception):
    """A case failed; the text is for people."""


def require(condition, text):
    """Raises Failure(text) unless the condition holds."""
    if not condition:
        raise Failure(text)


def build_directory():
    """VERBENA_BUILD_DIR, else the script's first argument if that is one, else ours."""
    given = os.environ.get("VERBENA_BUILD_DIR")
    if not given and len(sys.argv) > 1 and os.path.exists(f"{sys.argv[1]}/bin/verbena"):
        given = sys.argv[1]
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.abspath(given or os.path.join(here, "..", "..", "build"))


BUILD = build_directory()
VERBENA = os.path.join(BUILD, "bin", "verbena")


def need_programs(*names):
    """Ends the test as skipped when one of Debian's programs is not installed."""
    for name in names:
        if not shutil.which(name):
            print(f"{name} is missing: `make deps` installs it")
            sys.exit(SKIPPED)


# How the report of a sanitizer or of valgrind begins.
FINDING = re.compile(r"^.*(?:ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|"
                     r"Invalid (?:read|write|free)|uninitialised).*$", re.MULTILINE)


def tail(text, lines=TAIL_LINES):
    """The end of some output, indented; of a finding its beginning, where its cause is."""
    found = FINDING.search(text)
    if found:
        kept = text[found.start():].split("\n")[:3 * TAIL_LINES]
    else:
        kept = text.rstrip("\n").split("\n")[-lines:]
    return "\n".join("    | " + line for line in kept) if text.strip() else "    | (no output)"


def pid_alive(pid):
    """Whether the process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def poll_until(condition, seconds, step=0.02):
    """Calls condition() until it is true; the last value when the time is over, which is at least
    LEAST."""
    return seen_within(condition, max(seconds, LEAST), step)


def seen_within(condition, seconds, step=0.02):
    """Likewise, but for something that is expected not to happen for so long."""
    end = time.monotonic() + seconds * SLOW
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)


def port_listened(port, pid="self"):
    """Whether somebody in the process's network namespace listens on the TCP port."""
    wanted = f":{port:04X}"
    for table in (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                for line in file:
                    field = line.split()
                    if len(field) > 3 and field[3] == "0A" and field[1].endswith(wanted):
                        return True
        except OSError:
            pass
    return False


class Ports:
    """Hands out TCP ports that are free now, below the range that the kernel takes itself."""
    FIRST, LAST = 13000, 32000

    def __init__(self):
        self.given = set()
        self.random = random.Random(os.getpid() ^ int(time.time() * 1000))

    def take(self):
        """A port on which nobody listens, never the same twice."""
        for _ in range(1000):
            port = self.random.randrange(self.FIRST, self.LAST)
            if port in self.given:
                continue
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
                try:
                    probe.bind(("::", port))
                except OSError:
                    continue
            self.given.add(port)
            return port
        raise Failure("no free TCP port found")


PORTS = Ports()


LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """Run in a child before it becomes a program: it ends when this script is killed."""
    pr_set_pdeathsig = 1
    LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL)


class Process:
    """A program whose output goes to two files."""

    def __init__(self, stage, command, **options):
        self.command = command
        self.path = os.path.join(stage.directory, f"out.{stage.serial()}")
        self.started = time.monotonic()
        with open(self.path, "wb") as out, open(self.path + ".err", "wb") as err:
            self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=err, preexec_fn=die_with_parent, **options)
        self.pid = self.popen.pid

    def output(self):
        """What it has printed so far; what went to standard error comes last."""
        text = ""
        for path in (self.path, self.path + ".err"):
            with open(path, "rb") as file:
                part = file.read().decode(errors="replace")
            text += ("\n" if text and part and not text.endswith("\n") else "") + part
        return text

    def running(self):
        """Whether it has not ended yet."""
        return self.popen.poll() is None

    def kill(self, number=signal.SIGKILL):
        """Signals it by its pid; no harm when it has ended."""
        if self.running():
            os.kill(self.pid, number)

    def wait(self, seconds):
        """Its exit status; Failure when it still runs after so many seconds, or after LEAST, if that
        is longer (it is ended then). 0: don't wait."""
        try:
            return self.popen.wait(max(LEAST, seconds) if seconds else 0)
        except subprocess.TimeoutExpired:
            where = self.stacks()
            self.kill()
            self.popen.wait()
            raise Failure(f"{self.title()} still runs after {time.monotonic() - self.started:.1f} "
                          f"s{where}\n{tail(self.output())}") from None

    def stacks(self):
        """Where its threads are in the kernel, which tells a spinning program from a waiting one."""
        lines = []
        try:
            for task in sorted(os.listdir(f"/proc/{self.pid}/task"), key=int):
                with open(f"/proc/{self.pid}/task/{task}/stat", encoding="ascii") as file:
                    state = file.read().rsplit(")", 1)[1].split()[0]
                with open(f"/proc/{self.pid}/task/{task}/wchan", encoding="ascii") as file:
                    lines.append(f"{state}:{file.read() or '-'}")
        except OSError:
            pass
        return f" (threads {', '.join(lines)})" if lines else ""

    def title(self):
        """The command for people: without `verbena run`."""
        words = self.command
        if len(words) > 2 and words[0] == VERBENA and words[1] == "run":
            words = words[3:] if words[2] == "--" else words[2:]
        return "`" + " ".join(words) + "`"

    def expect(self, seconds, status=0):
        """Waits and requires the exit status; returns the output."""
        got = self.wait(seconds)
        text = self.output()
        require(got == status, f"{self.title()} ended with {got}, not {status}\n{tail(text)}")
        return text


def sanitizer_environment(environment):
    """What an unmodified program needs to load a sanitized library, with less to complain about:
    its own leaks, and what its signal handlers call, are not ours to report."""
    more = {"ASAN_OPTIONS": "detect_leaks=0",
            "TSAN_OPTIONS": "report_signal_unsafe=0:report_thread_leaks=0"}
    given = {name: environment.get(name, "") for name in more}
    return {"LD_PRELOAD": SANITIZER_RUNTIME,
            **{name: f"{given[name]}:{words}".strip(":") for name, words in more.items()}}


def preloads(environment):
    """The libraries that the program preloads, and then those of all programs (tests/suite-on)."""
    names = [environment.get("LD_PRELOAD", ""), os.environ.get("LD_PRELOAD", "")]
    return {"LD_PRELOAD": ":".join(dict.fromkeys(filter(None, names)))} if any(names) else {}


# How long an idle daemon stays at most for what its connection manager owes other hosts: 16 answer
# timeouts of 4.6 s.
CM_STAY = 75


@functools.lru_cache(maxsize=None)
def mount_spaces():
    """Whether this user may have a mount namespace: not so in a chroot."""
    words = ["unshare", "-m" if os.geteuid() == 0 else "-Um", "true"]
    return subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Stage:
    """A private run-time directory and what runs in it."""
    host = "127.0.0.1"  # how the client of a pair names the server
    gid = 0             # the index of the GIDs that a pair uses

    def __init__(self, idle_ms=500, **environment):
        self.directory = tempfile.mkdtemp(prefix="verbena-e2e-")
        self.runtime = os.path.join(self.directory, "run")
        os.mkdir(self.runtime, 0o700)
        self.processes = []
        self.count = 0
        self.environment = dict(os.environ)
        self.environment.pop("VERBENA_DAEMON", None)
        self.environment.update(VERBENA_RUNTIME_DIR=self.runtime, VERBENA_IDLE_MS=str(idle_ms),
                                VERBENA_CONFIG="")  # the user's own configuration isn't read
        if not mount_spaces():  # `verbena run` would say so each time
            self.environment["VERBENA_SYSFS"] = "off"
        self.environment.update(environment)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def serial(self):
        """A number for the next file's name."""
        self.count += 1
        return self.count

    def start(self, *command, plain=False, preload=True, **options):
        """Starts a program over Verbena (plain: as it is); returns its Process.

        preload=False: the command brings a sanitizer's run time into the program by itself.
        """
        words = [str(word) for word in command]
        environment = dict(self.environment)
        environment.update(options.pop("environment", {}))
        environment.update(preloads(environment))
        if not plain:
            words = [VERBENA, "run", "--"] + WRAP + words
        if SANITIZER_RUNTIME:
            environment.update(sanitizer_environment(environment))
            if not preload:
                del environment["LD_PRELOAD"]
        process = Process(self, words, env=environment, **options)
        self.processes.append(process)
        return process

    def run(self, *command, seconds=20, status=0, **options):
        """Runs a program to its end; returns its output."""
        return self.start(*command, **options).expect(seconds * SLOW, status)

    def pair(self, server, client, port, seconds=20):
        """Starts a server, waits until it listens, starts the client, waits for both to succeed.

        Returns both outputs. With port None the programs find each other by other means.
        """
        return self.finish_pair(*self.start_pair(server, client, port, seconds), seconds)

    def start_pair(self, server, client, port, seconds=20, at=None):
        """The first half of pair(): returns both Processes. `at`: the Stage of the client."""
        one = self.start(*server)
        if port is not None:
            poll_until(lambda: not one.running() or port_listened(port, one.pid), seconds)
            if not one.running():
                raise Failure(f"the server ended before it listened: {one.title()} gave "
                              f"{one.popen.returncode}\n{tail(one.output())}")
        return one, (at or self).start(*client)

    def finish_pair(self, one, two, seconds=20):
        """The second half of pair(). Once an end has failed, the other has no reason to end."""
        end = time.monotonic() + max(seconds, LEAST) * SLOW
        while time.monotonic() < end:
            statuses = (one.popen.poll(), two.popen.poll())
            if None not in statuses:
                break
            if any(statuses):
                end = min(end, time.monotonic() + 2)
            time.sleep(0.01)
        problems, fine = [], []
        for process in (two, one):
            try:
                process.expect(0)
                fine.append(process)
            except Failure as failure:
                problems.append(str(failure))
        if problems:
            problems += [f"  its peer printed\n{tail(other.output(), 8)}" for other in fine]
            raise Failure("\n".join(problems))
        return one.output(), two.output()

    def status(self):
        """The daemon's answer to `verbena status --json`, or None when there is no daemon."""
        done = subprocess.run([VERBENA, "status", "--json"], env=self.environment, timeout=LEAST,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode != 0:
            return None
        return json.loads(done.stdout)

    def resources(self):
        """What `verbena resources --json` says; None when there is no daemon."""
        done = subprocess.run([VERBENA, "resources", "--json"], env=self.environment, timeout=20,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return None if done.returncode else json.loads(done.stdout)

    def clients(self):
        """The daemon's clients; none when there is no daemon."""
        status = self.status()
        return status["clients"] if status else []

    def expect_no_clients(self, seconds=5):
        """Failure unless the daemon soon has nothing of anybody."""
        poll_until(lambda: not self.clients(), seconds)
        left = self.clients()
        require(not left, f"the daemon still has clients: {json.dumps(left)}\n{self.log_tail()}")

    def daemons(self):
        """The pids of this directory's daemons."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                if os.path.basename(os.readlink(f"/proc/{name}/exe").split(" ")[0]) != "verbenad":
                    continue
                with open(f"/proc/{name}/environ", "rb") as file:
                    variables = file.read().split(b"\0")
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            here = self.runtime.encode()
            if (here in words or b"VERBENA_RUNTIME_DIR=" + here in variables) \
                    and pid_alive(int(name)):
                found.append(int(name))
        return found

    def servers(self):
        """The pids of the processes that `verbena run` left to answer for this directory's
        programs' counters."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/comm", encoding="ascii") as file:
                    if file.read().strip() != "verbena-counts":
                        continue
                with open(f"/proc/{name}/environ", "rb") as file:
                    if self.runtime.encode() in file.read():
                        found.append(int(name))
            except OSError:
                continue
        return found

    def log(self):
        """What the daemon has logged."""
        try:
            with open(os.path.join(self.runtime, "log"), encoding="utf-8",
                      errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def log_tail(self):
        """The end of the daemon's log, for a report."""
        log = self.log()
        return f"  the daemon's log:\n{tail(log, 10)}" if log.strip() else "  (daemon's log empty)"

    def close(self):
        """Ends everything that was started, then waits for the daemon to leave; returns trouble.

        A daemon that does not leave when idle is ended by its pid, and named in the answer.
        """
        trouble = None
        for process in self.processes:
            if process.running():
                process.kill(signal.SIGCONT)
                process.kill()
        for process in self.processes:
            process.popen.wait()
        idle = int(self.environment["VERBENA_IDLE_MS"]) / 1000
        if not poll_until(lambda: not self.daemons(), idle + 3 + CM_STAY):
            trouble = f"verbenad {self.daemons()} did not leave when idle\n{self.log_tail()}"
            for pid in self.daemons():
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)
        return trouble


def enter_namespace(kind=None):
    """Starts this script again in a network namespace of its own, as root there, with loopback.

    `kind`: a kind of interface that can be made there. Returns only inside (None), or why not.
    """
    inside = "VERBENA_TEST_NAMESPACE"
    if inside in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=20)
        return None
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "unshare or ip is missing: `make deps` installs them"
    command = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    trial = ["ip", "link", "add", "trial", "type", kind] if kind else ["ip", "link", "show", "lo"]
    done = subprocess.run([*command, *trial], check=False, capture_output=True, text=True,
                          timeout=20)
    if done.returncode:
        return f"no network namespace with {kind or 'lo'} can be made: {done.stderr.strip()}"
    os.environ[inside] = "1"
    os.execvp("unshare", [*command, sys.executable, *sys.argv])
    return "unshare can't be started"


@functools.lru_cache(maxsize=None)
def device_mtu():
    """The device's MTU in bytes, the largest message of a UD QP: it goes by the host's card."""
    with Stage() as stage:
        return int(re.search(r"active_mtu:\s*(\d+)", stage.run("ibv_devinfo")).group(1))


def chosen(groups, usual=None, words=None):
    """What a command line names: the groups of cases (or the usual ones, or all), and the cases."""
    words = sys.argv[1:] if words is None else words
    return ([word for word in words if word in groups] or list(usual or groups),
            [word for word in words if word not in groups])


class Suite:
    """Named cases of one test program, run in order."""

    def __init__(self, name, give_up=6, only=None):
        self.name = name
        self.give_up = give_up
        self.passed = 0
        self.failed = []
        given = sys.argv[1:] if only is None else only
        self.only = [word for word in given if not os.path.isdir(word)]
        self.started = time.monotonic()

    def case(self, name, function, *arguments, **options):
        """Runs one case unless the command line names others; raises nothing."""
        if self.only and not any(word in name for word in self.only):
            return
        if len(self.failed) >= self.give_up:
            return
        began = time.monotonic()
        try:
            function(*arguments, **options)
        except Exception as failure:  # one that isn't Failure is a fault of the test itself
            what = failure if isinstance(failure, Failure) else traceback.format_exc()
            self.failed.append(name)
            print(f"FAIL  {name} ({time.monotonic() - began:.1f} s): {what}", flush=True)
            return
        self.passed += 1
        print(f"ok    {name} ({time.monotonic() - began:.1f} s)", flush=True)

    def stage_closed(self, stage):
        """Closes a stage as a case of its own: nothing may be left of it."""
        def leave():
            stage.expect_no_clients()
            trouble = stage.close()
            require(not trouble, trouble)
        try:
            self.case("nothing left behind", leave)
        finally:
            if os.path.isdir(stage.directory):
                stage.close()

    def end(self):
        """Prints the summary and leaves with the right status."""
        took = time.monotonic() - self.started
        if len(self.failed) >= self.give_up:
            print(f"{self.name}: gave up after {self.give_up} failures")
        print(f"{self.name}: {self.passed} passed, {len(self.failed)} failed in {took:.1f} s")
        sys.exit(1 if self.failed else 0)
