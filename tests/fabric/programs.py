# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of verbs on a fabric share: programs on nodes by `verbena run`, pairs of them, and
a verbs program that does what it is told line by line (verbs_shell.c)."""
import os
import re
import select
import subprocess
import time

from stage import BUILD, PATIENCE, RUNTIME, Failure, require

VERBENA = os.path.join(BUILD, "bin", "verbena")


def environment(fabric):
    result = fabric.environment()
    for name in ("VERBENA_NODE", "VERBENA_SYSFS"):
        result.pop(name, None)
    if RUNTIME:
        result.update(LD_PRELOAD=RUNTIME, ASAN_OPTIONS="detect_leaks=0")
    return result


def spawn(fabric, node, *words, **options):
    """Starts a program on a node."""
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **options}
    child = subprocess.Popen([VERBENA, "run", "--node", node, "--", *words], cwd=fabric.folder,
                             env=environment(fabric), text=True, stdout=subprocess.PIPE, **options)
    fabric.children.append(child)
    return child


def run(fabric, node, *words, code=0):
    """Runs a program on a node; returns what it printed. Any exit code is right if `code` is None."""
    child = spawn(fabric, node, *words)
    out, _ = child.communicate(timeout=PATIENCE)
    require(code is None or child.returncode == code,
            f"{words} on {node}: {child.returncode}\n{out[-2000:]}")
    return out


def verbena(fabric, *words):
    """Runs the command; returns what it printed."""
    done = subprocess.run([VERBENA, *words], env=environment(fabric), timeout=PATIENCE, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    require(not done.returncode, f"verbena {words}: {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def daemon_end(fabric):
    """Ends the daemon that the programs on nodes have started."""
    subprocess.run([VERBENA, "stop", "--force"], env=environment(fabric), check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start(fabric, text, manager="verbena"):
    """Starts a fabric of this topology, and brings it up once from node H1."""
    path = os.path.join(fabric.folder, "test.net")
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    fabric.start(path)
    if manager == "opensm":
        fabric.run("H1", "opensm", "-o", "-f", "log")
    elif manager:
        verbena(fabric, "sm", "--node", "H1", "--once")


def lid(fabric, node):
    return next(one["lid"] for one in fabric.ask(op="topology")["nodes"] if one["name"] == node)


def smp_write(fabric, to, attribute, modifier, *writes):
    """Replaces bytes of an attribute of the node with this LID, as a subnet manager would: offsets,
    each with its bytes."""
    fabric.run("H1", os.path.join(BUILD, "tests", "fabric", "smp_write"), str(to), str(attribute),
               str(modifier), *(one.hex() if isinstance(one, bytes) else str(one)
                                for one in writes))


def table_entry_write(fabric, node, to, number):
    """An entry of a switch's linear forwarding table."""
    smp_write(fabric, lid(fabric, node), 0x19, to // 64, to % 64, bytes([number]))


def pair(fabric, server, client, program, *options, code=0):
    """A server on one node, its client on another, which talk by LID. Returns what the client
    printed, then the server; the server is ended if the client fails, as it shall."""
    first = spawn(fabric, server, program, *options)
    out = ""
    for _ in range(200):
        second = spawn(fabric, client, program, *options, "127.0.0.1")
        out = second.communicate(timeout=PATIENCE)[0]
        if not re.search("[Cc]ouldn't connect|Connection refused", out):
            break
        time.sleep(0.05)
    if code:
        first.kill()
    both = out, first.communicate(timeout=PATIENCE)[0]
    require(second.returncode == code and (code or not first.returncode),
            f"{program} {options} {server} {client}: {first.returncode} {second.returncode}\n"
            + "\n".join(both)[-3000:])
    return both


def pair_by_address(fabric, server, client, server_words, client_words):
    """A server and its client, which connects again while the server doesn't listen yet. Returns
    what both printed, the client first."""
    first = spawn(fabric, server, *server_words)
    out, code = "", 1
    for _ in range(100):
        second = spawn(fabric, client, *client_words)
        out = second.communicate(timeout=PATIENCE)[0]
        code = second.returncode
        if not re.search("REJECTED|UNREACHABLE|event: 8|Connection refused|connect error|reject|rpoll:",
                         out):
            break
        time.sleep(0.1)
    if code:
        first.kill()  # it would wait for another client
    both = out, first.communicate(timeout=PATIENCE)[0]
    require(not code and not first.returncode,
            f"{server_words} on {server}, {client_words} on {client}: {first.returncode} {code}\n"
            + "\n".join(both)[-3000:])
    return both


class Shell:
    """A verbs_shell on a node, or a cm_shell."""

    def __init__(self, fabric, node, program="verbs_shell"):
        self.node = node
        self.child = spawn(fabric, node, os.path.join(BUILD, "tests", "fabric", program),
                           stdin=subprocess.PIPE)
        self.unread = ""
        self.ask("port")  # it has its device now

    def tell(self, *words):
        self.child.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.child.stdin.flush()

    def line(self):
        while "\n" not in self.unread:
            ready, _, _ = select.select([self.child.stdout], [], [], PATIENCE)
            require(ready, f"verbs_shell on {self.node} doesn't answer")
            text = os.read(self.child.stdout.fileno(), 1 << 16).decode()
            if not text:
                raise Failure(f"verbs_shell on {self.node} has ended: {self.unread}")
            self.unread += text
        text, _, self.unread = self.unread.partition("\n")
        # The library's reasons for what fails come by the same pipe.
        return self.line() if text.startswith("verbena[") else text.strip()

    def ask(self, *words):
        self.tell(*words)
        return self.line()

    def facts(self, *words):
        """The answer's NAME=VALUE as a dictionary; numbers as numbers."""
        return facts_of(self.ask(*words))

    def received(self, count, milliseconds=5000):
        """What came, as dictionaries."""
        self.tell("receive", count, milliseconds)
        result = []
        while (text := self.line()) != "end":
            result.append(facts_of(text))
        return result

    def events(self, milliseconds=1000):
        """Names of the events that come until none has come for so long."""
        result = []
        while (text := self.ask("event", milliseconds)) != "none":
            result.append(text)
            milliseconds = 300
        return result

    def pid(self):
        """The program's own; `verbena run` replaces itself by it."""
        return self.child.pid

    def end(self):
        self.child.stdin.close()
        self.child.wait(timeout=PATIENCE)


def facts_of(text):
    result = {}
    for word in text.split():
        name, _, value = word.partition("=")
        try:
            result[name] = int(value, 0)
        except ValueError:
            result[name] = value
    return result


def connect(fabric, one, other, kind="rc", *options):
    """Connects QPs of two shells by LID."""
    shells = one, other
    qpns = [shell.facts("qp", kind)["qpn"] for shell in shells]
    for shell, peer, qpn in (one, other, qpns[1]), (other, one, qpns[0]):
        answer = shell.facts("connect", qpn, lid(fabric, peer.node), *options)
        require(answer == {"error": 0}, f"{shell.node}: {answer}")
