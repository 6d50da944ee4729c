#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""rsockets in use: datagrams, and programs that don't know of them, by librspreload.so.

VERBENA_FULL=1 takes more of everything.

usage: rsockets.py [--wire] [GROUP...] [WORD...]
Runs the groups (see GROUPS; without any: all), and of their cases those whose name has a WORD.
--wire: all messages and data as RoCEv2 packets, in a network namespace of the test's own.
The group `hosts` is two network namespaces with a cable that loses packets.
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

from lib import (BUILD, FULL, PORTS, SANITIZE, SLOW, Stage, Suite, chosen, need_programs, poll_until,
                 port_listened, require, seen_within, tail)
from network import Host, TwoHosts, own_network
from rdmacm import MIB, pair, preloaded

# ---------------------------------------------------------------------------- datagrams


class Endless(Exception):
    """See udpong()."""


def udpong_once(stage, *options, address="127.0.0.1", at=None):
    """Its server runs for ever; a one-way test loses some, as datagrams may be."""
    port = PORTS.take()
    one = stage.start("udpong", "-b", address, "-p", port, *options)
    try:
        client = (at or stage).start("udpong", "-s", address, "-p", port, *options)
        if not seen_within(lambda: client.popen.poll() is not None, 20):
            client.kill()
            raise Endless()
        text = client.expect(10 * SLOW)
    finally:
        one.kill()
        one.wait(5)
    row = re.search(r"^\S+ +\S+ +([\d.]+)(k?) ", text, re.MULTILINE)
    require(row and float(row[1]) > 0, f"no datagram arrived\n{tail(text)}")


def udpong(*arguments, **options):
    """A reply that comes after 1 ms is too late for udpong's client: it has sent again, takes the
    second reply for the next one's, and goes on to send with that one's number, for ever. On a busy
    machine, or when a datagram is lost, that happens: then once more."""
    for left in range(7, -1, -1):
        try:
            udpong_once(*arguments, **options)
            return
        except Endless:
            require(left, "udpong's client never ends")


def calls(suite, stage):
    program = os.path.join(BUILD, "tests", "e2e", "rsock_calls")
    suite.case("each call", stage.run, program, plain=True)


def datagrams(suite, stage):
    for mode in ("b", "n", "a"):
        for size in (64, 1000, 1536):
            suite.case(f"udpong -T {mode}, {size} B, echoed", udpong, stage, "-T", mode, "-T", "e",
                       "-S", size, "-C", 100)
    suite.case("udpong, one way", udpong, stage, "-S", 512, "-C", 500)
    suite.case("udpong over IPv6", udpong, stage, "-T", "b", "-T", "e", "-S", 512, "-C", 100,
               address="::1")
    if FULL:
        suite.case("udpong, all sizes", udpong, stage)


# ---------------------------------------------------------------------------- programs

ECHO_ASYNCIO = """
import asyncio, sys
async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()
asyncio.run(main())
"""

# Edge-triggered: reads and writes until there is no more, and is told only of what is new.
ECHO_EDGES = """
import select, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
listener.setblocking(False)
poller = select.epoll()
poller.register(listener, select.EPOLLIN)
pending, peers = {}, {}
def serve(fd):
    peer = peers[fd]
    try:
        while data := peer.recv(30000):
            pending[fd] += data
        ended = True
    except BlockingIOError:
        ended = False
    try:
        while pending[fd]:
            sent = peer.send(pending[fd])
            pending[fd] = pending[fd][sent:]
    except BlockingIOError:
        pass
    if ended and not pending[fd]:
        poller.unregister(fd)
        del peers[fd]
        peer.close()
while True:
    for fd, event in poller.poll():
        if fd != listener.fileno():
            serve(fd)
            continue
        peer, _ = listener.accept()
        peer.setblocking(False)
        peers[peer.fileno()], pending[peer.fileno()] = peer, b""
        poller.register(peer, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
"""

ECHO_FORKS = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
socketserver.ForkingTCPServer.allow_reuse_address = True
socketserver.ForkingTCPServer((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""

# Connections at once, each with data of its own that must come back; then none may be TCP's.
CLIENTS = """
import os, socket, sys, threading
address, port, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
failed = []
def run():
    try:
        peer = socket.create_connection((address, port))
        data, got = os.urandom(size), b""
        sender = threading.Thread(target=peer.sendall, args=(data,))
        sender.start()
        while len(got) < size:
            part = peer.recv(65536)
            assert part, "the connection ended"
            got += part
        sender.join()
        assert got == data, "other data"
        everybody.wait()
        with open("/proc/net/tcp") as file:
            ends = [line.split()[1:4] for line in file.readlines()[1:]]
        assert not [end for end in ends if end[2] == "01" and end[1].endswith(f":{port:04X}")], "TCP"
        everybody.wait()
        peer.close()
    except Exception as problem:
        failed.append(repr(problem))
        everybody.abort()
everybody = threading.Barrier(count)
threads = [threading.Thread(target=run) for _ in range(count)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(failed[0] if failed else 0)
"""

EARLY = re.compile(r"ConnectionRefused|Connection refused|Failed to connect|unable to connect|"
                   r"Couldn't connect|rpoll: ", re.IGNORECASE)


def answers(stage):
    """Waits until another host has a daemon: before, nobody there even refuses a connection."""
    require(not isinstance(stage, Host) or poll_until(lambda: stage.status() is not None, 20 * SLOW),
            "the server's host has no daemon")


def served(stage, server, client, seconds=20):
    """A client's output; one that comes before the server listens comes again."""
    answers(stage)
    end = time.monotonic() + seconds * SLOW
    while True:
        process = client()
        status, text = process.wait(max(0.1, end - time.monotonic())), process.output()
        # iperf3 says it with status 0.
        if not (EARLY.search(text) and server.running() and time.monotonic() < end):
            break
        time.sleep(0.05)
    require(status == 0, f"{process.title()} ended with {status}\n{tail(text)}\n  its server "
                         f"printed\n{tail(server.output())}")
    return text


def ended(server):
    server.kill()
    server.wait(5)


def echo(stage, program, count, size, at=None, address="127.0.0.1", **options):
    port = PORTS.take()
    server = preloaded(stage, "python3", "-c", program, address, port, **options)
    served(stage, server, lambda: preloaded(at or stage, "python3", "-c", CLIENTS, address, port, count,
                                     size, **options))
    require(options or not port_listened(port), "the server listens on a TCP port")
    ended(server)


def written(stage, name, size):
    path = os.path.join(stage.directory, name)
    data = os.urandom(size)
    with open(path, "wb") as file:
        file.write(data)
    return path, data


def redis(stage, at=None, address="127.0.0.1"):
    """Values go in and come out as they were; redis-benchmark gets through."""
    port = PORTS.take()
    client = at or stage
    server = preloaded(stage, "redis-server", "--port", port, "--bind", address, "--save", "",
                       "--dir", stage.directory, "--protected-mode", "no")
    path, data = written(client, "value", 200000)
    data = data.hex()
    with open(path, "w", encoding="ascii") as file:
        file.write(data)
    base = ("redis-cli", "-h", address, "-p", port)
    served(stage, server, lambda: preloaded(client, "sh", "-c", 'f=$1; shift; exec "$@" < "$f"', "sh",
                                     path, *base, "-x", "set", "key"))
    got = preloaded(client, *base, "get", "key").expect(20 * SLOW)
    require(got.strip() == data, f"the value came back as {len(got)} other bytes")
    text = preloaded(client, "redis-benchmark", "-h", address, "-p", port, "-n",
                     20000 if FULL else 1000, "-c", 20, "-t", "set,get,lpush,lrange_100",
                     "-q").expect(60 * SLOW)
    require(text.count("requests per second") >= 4, f"not all of its tests\n{tail(text)}")
    require(not port_listened(port), "the server listens on a TCP port")
    ended(server)


# A user namespace may have no other user than root, as whom nginx would serve.
NGINX = """
user root; daemon off; master_process off; pid %(dir)s/pid; error_log %(dir)s/error.log;
events { worker_connections 64; }
http {
  access_log off; sendfile on; client_max_body_size 100m;
  client_body_temp_path %(dir)s/1; proxy_temp_path %(dir)s/2; fastcgi_temp_path %(dir)s/3;
  uwsgi_temp_path %(dir)s/4; scgi_temp_path %(dir)s/5;
  server { listen %(address)s:%(port)d; root %(dir)s; }
}
"""


def nginx(stage, at=None, address="127.0.0.1"):
    """A server that epoll tells of edges, and that sends files; two transfers at once."""
    port = PORTS.take()
    client = at or stage
    directory = os.path.join(stage.directory, "nginx")
    os.mkdir(directory)
    with open(os.path.join(directory, "conf"), "w", encoding="ascii") as file:
        file.write(NGINX % {"dir": directory, "port": port, "address": address})
    source, data = written(stage, "nginx/source", 2 * MIB)
    server = preloaded(stage, "nginx", "-c", os.path.join(directory, "conf"), "-p", directory)
    targets = [os.path.join(client.directory, f"got.{i}") for i in range(2)]
    words = [word for target in targets
             for word in ("-o", target, f"http://{address}:{port}/{os.path.basename(source)}")]
    served(stage, server, lambda: preloaded(client, "curl", "-s", "-S", "--parallel", *words))
    for target in targets:
        with open(target, "rb") as file:
            require(file.read() == data, "curl got something else")
    require(not port_listened(port), "the server listens on a TCP port")
    ended(server)
    shutil.rmtree(directory)


def iperf3(stage, *options, at=None, address="127.0.0.1"):
    port = PORTS.take()
    server = preloaded(stage, "iperf3", "-s", "-B", address, "-p", port)
    size = 64 * MIB if FULL else 16 * MIB
    text = served(stage, server, lambda: preloaded(at or stage, "iperf3", "-c", address, "-p", port, "-n",
                                            size, "-J", *options), seconds=40)
    # What it says of TCP's counters, which aren't there, comes after that.
    end = json.JSONDecoder().raw_decode(text)[0]["end"]
    sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
    # Its server stops reading when it hears that all is sent.
    require(sent >= size and received > size * 3 // 4, f"{sent} bytes sent, {received} received")
    require(not port_listened(port), "the server listens on a TCP port")
    ended(server)


def programs(suite, stage):
    suite.case("an asyncio server, 10 connections", echo, stage, ECHO_ASYNCIO, 10, 300000)
    suite.case("a server of edges, 10 connections", echo, stage, ECHO_EDGES, 10, 300000)
    if SANITIZE:
        print("      Debian's servers are left out: they bring allocators of their own")
        return
    suite.case("redis", redis, stage)
    suite.case("nginx, curl", nginx, stage)
    suite.case("iperf3", iperf3, stage)
    suite.case("iperf3, backwards, 3 streams", iperf3, stage, "-R", "-P", 3)


# ---------------------------------------------------------------------------- children

def rstream_forks(stage):
    port = PORTS.take()
    safe = {"environment": {"RDMAV_FORK_SAFE": "1"}}
    words = ("rstream", "-p", port, "-T", "f", "-T", "v", "-S", 4096, "-C", 10, "-I", 10)
    server = preloaded(stage, *words, **safe)
    text = served(stage, server, lambda: preloaded(stage, *words, "-s", "127.0.0.1", **safe))
    require(re.search(r"^\S+ +4k +", text, re.MULTILINE), f"no result row\n{tail(text)}")
    ended(server)


def is_user_here(uid):
    """Whether this user namespace has the user."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= uid < first + count for first, _, count in ranges)


def squatted(stage):
    """Another user has taken a name that can be foreseen, in a folder of all, and holds its lock."""
    name = f"/dev/shm/verbena-rsocket-fork.{os.geteuid()}"
    script = 'umask 0; exec 9>"$1" && flock -x 9 && echo held && exec sleep 1000'
    with contextlib.suppress(FileNotFoundError):
        if os.stat(name).st_uid == os.geteuid():
            os.unlink(name)  # an earlier version's
    squatter = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                 "bash", "-c", script, "squatter", name], stdout=subprocess.PIPE)
    try:
        require(squatter.stdout.readline() == b"held\n", f"{name} isn't held")
        echo(stage, ECHO_FORKS, 1, 100000, environment={"RDMAV_FORK_SAFE": "1"})
    finally:
        squatter.kill()
        squatter.wait()
        with contextlib.suppress(FileNotFoundError):  # the same test over another carrier was there
            os.unlink(name)


def forks(suite, stage):
    safe = {"environment": {"RDMAV_FORK_SAFE": "1"}}
    suite.case("a server that forks", echo, stage, ECHO_FORKS, 1, 300000, **safe)
    suite.case("a server that forks, 5 connections", echo, stage, ECHO_FORKS, 5, 100000, **safe)
    another = os.geteuid() == 0 and is_user_here(65534)
    if another and os.environ.get("VERBENA_CARRIER") != "wire":
        suite.case("names that another user has taken", squatted, stage)
    if not SANITIZE:
        suite.case("rstream -T f", rstream_forks, stage)


# ---------------------------------------------------------------------------- two hosts

def rstream_apart(hosts, *options):
    port = PORTS.take()
    address = hosts.server.addresses["ipv4"]
    pair(hosts.server, ("rstream", "-p", port, *options),
         ("rstream", "-s", address, "-p", port, *options), seconds=60, at=hosts.client)


def between(suite, stage):
    """Loss delays, it changes nothing."""
    del stage
    hosts = TwoHosts("--no-offloads", relay=True)
    there = {"at": hosts.client, "address": hosts.server.addresses["ipv4"]}
    for loss in ("0", "1%"):
        hosts.relay.tell(f"loss {loss}")
        suite.case(f"rstream between hosts, loss {loss}", rstream_apart, hosts, "-T", "b", "-T", "v",
                   "-S", 65536, "-C", 10, "-I", 10)
        suite.case(f"udpong between hosts, loss {loss}", udpong, hosts.server, "-T", "b", "-T", "e",
                   "-S", 512, "-C", 50, **there)
        suite.case(f"an asyncio server between hosts, loss {loss}", echo, hosts.server,
                   ECHO_ASYNCIO, 5, 200000, **there)
        if not SANITIZE:
            suite.case(f"redis between hosts, loss {loss}", redis, hosts.server, **there)
            suite.case(f"nginx, curl between hosts, loss {loss}", nginx, hosts.server, **there)
            suite.case(f"iperf3 between hosts, loss {loss}", iperf3, hosts.server, **there)
    require(hosts.relay.happened("lost") or suite.only, "the cable lost nothing")
    hosts.relay.tell("loss 0")
    suite.stage_closed(hosts)



GROUPS = {"calls": calls, "datagrams": datagrams, "programs": programs, "forks": forks,
          "hosts": between}


def main():
    need_programs("rstream", "udpong", "redis-server", "redis-cli", "redis-benchmark", "nginx",
                  "iperf3", "curl", "ip")
    words = sys.argv[1:]
    environment = {}
    if "--wire" in words:
        words.remove("--wire")
        own_network()
        environment["VERBENA_CARRIER"] = "wire"
    groups, cases = chosen(GROUPS, words=words)
    suite = Suite("rsockets", only=cases)
    stage = Stage(**environment)
    try:
        for name in groups:
            GROUPS[name](suite, stage)
    finally:
        suite.stage_closed(stage)
    suite.end()


if __name__ == "__main__":
    main()
