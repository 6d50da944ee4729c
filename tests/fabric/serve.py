#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""`verbena fabric show --serve`: the page and its picture, at a port and at a socket, and clients
that send what no browser does."""
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

from stage import BUILD, PATIENCE, SMALL, exchange, main, poll_until, require

VERBENA = os.path.join(BUILD, "bin", "verbena")


class Server:
    """A `verbena fabric show --serve`."""

    def __init__(self, fabric, where):
        self.child = subprocess.Popen([VERBENA, "fabric", "show", "--serve", where],
                                      env=fabric.environment(), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, text=True)
        fabric.children.append(self.child)
        self.where = self.child.stdout.readline().strip()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", self.where)
        self.port = int(found[1]) if found else None

    def connect(self):
        if self.port:
            return socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        connection.connect(self.where)
        return connection

    def raw(self, data):
        """What the server answers to bytes."""
        return exchange(self.connect(), data)

    def get(self, path, method="GET", host=None):
        """(status, head, body)"""
        host = host or (f"127.0.0.1:{self.port}" if self.port else "localhost")
        answer = self.raw(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else 0, head.decode(), body.decode()

    def end(self):
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(PATIENCE)


def picture(server, query=""):
    status, head, body = server.get("/picture.svg" + query)
    require(status == 200 and "image/svg+xml" in head, f"{query}: {status}\n{body[:200]}")
    return xml.fromstring(body), body


def the_page_follows_the_fabric(fabric):
    fabric.start(SMALL)
    server = Server(fabric, "0")
    status, head, page = server.get("/")
    require(status == 200 and "picture.svg" in page, page[:300])
    # Nothing but the page's own script runs, and nothing is taken from elsewhere.
    nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", head)[1]
    require(page.count("<script") == page.count(f'<script nonce="{nonce}">') == 1, "scripts")
    require("default-src 'none'" in head and "nosniff" in head and "http://www.w3.org" in page and
            not re.search(r"(src|href)=", page), head)
    require(nonce not in server.get("/")[1], "a nonce was used twice")
    # All cables wait for a manager; then one is cut.
    _, text = picture(server)
    require(text.count('class="l i" data-a') == 5, text[:3000])
    fabric.ask(op="link", node="S1", port=1, action="down")
    poll_until(lambda: 'class="l x" data-a' in picture(server)[1], "the cut link isn't shown")
    # Management traffic is traffic, which is shown while it lasts.
    fabric.spawn("H1", os.path.join(BUILD, "bin", "verbena-sm"), "--quiet")
    fabric.ask(op="link", node="S1", port=1, action="up")
    poll_until(lambda: fabric.ask(op="status")["links_active"] == 6, "the subnet isn't up")
    def busy():
        fabric.run("H2", "smpquery", "nodeinfo", "-D", "0,1")
        return re.search(r'class="l t[1-4]" data-a', picture(server)[1])
    poll_until(busy, "no link has traffic")

    def idle():
        time.sleep(1)
        return not re.search(r'class="l t[1-4]" data-a', picture(server)[1])
    poll_until(idle, "traffic that has ended is still shown")
    require(server.get("/", "HEAD")[2] == "", "HEAD has a body")
    fabric.ask(op="down")
    fabric.await_end()
    time.sleep(1)
    require(server.get("/picture.svg")[0] == 502, "without a fabric")
    fabric.start(SMALL)
    time.sleep(1)
    picture(server)
    require(server.end() == 0, "the exit code")


def a_route_is_highlighted(fabric):
    fabric.start(SMALL)
    fabric.spawn("H1", os.path.join(BUILD, "bin", "verbena-sm"), "--quiet")
    poll_until(lambda: fabric.ask(op="status")["links_active"] == 6, "the subnet isn't up")
    path = os.path.join(fabric.folder, "socket")
    server = Server(fabric, path)
    require(server.where == path and os.stat(path).st_mode & 0o777 == 0o600, "the socket")
    _, text = picture(server, "?from=H1&to=H3")
    require(len(re.findall(r'class="l r[^"]*" data-a', text)) == 3, "the route has three cables")
    _, text = picture(server, "?from=H1&to=%48%32")
    require(len(re.findall(r'class="l r[^"]*" data-a', text)) == 2, "the route has two cables")
    # Names that are no node, and such that are no names.
    _, text = picture(server, "?from=H1&to=%3Cscript%3E")
    require("<script" not in text and not re.search(r'class="l r[^"]*" data-a', text), text)
    for query in ("?from=H1", "?from=%zz&to=H1", "?from=%00&to=H1", "?from=%ff%fe&to=H1",
                  "?from=" + "x" * 2000 + "&to=H1", "?to=%"):
        status, _, _ = server.get("/picture.svg" + query)
        require(status == 400, f"{query[:30]}: {status}")
    require(server.end() == 0 and not os.path.exists(path), "the socket is left")


def hostile_clients_are_refused(fabric):
    fabric.start(SMALL)
    server = Server(fabric, "0")
    host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    wanted = {
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n": 421,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1.example.org\r\n\r\n": 421,
        b"GET / HTTP/1.1\r\n\r\n": 421,
        b"POST / HTTP/1.1\r\n" + host + b"\r\nx=1": 405,
        b"GET /../../etc/passwd HTTP/1.1\r\n" + host + b"\r\n": 404,
        b"GET //picture.svg HTTP/1.1\r\n" + host + b"\r\n": 404,
        b"GET http://127.0.0.1/ HTTP/1.1\r\n" + host + b"\r\n": 400,
        b"GET / HTTP/2.0\r\n" + host + b"\r\n": 400,
        b"GET /\x01 HTTP/1.1\r\n" + host + b"\r\n": 400,
        b"GET\r\n" + host + b"\r\n": 400,
        b"\r\n\r\n": 400,
        b"\0" * 100: 400,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 3000: 431,
        b"\xff" * 9000: 431,
    }
    for data, status in wanted.items():
        answer = server.raw(data)
        # Where more comes than is read, the answer may be lost with the connection.
        if answer or len(data) < 8192:
            require(answer.startswith(f"HTTP/1.1 {status} ".encode()),
                    f"{data[:60]}: {answer[:80]}")
    # Silent ones take all places, and lose them to those that ask.
    silent = [server.connect() for _ in range(40)]
    silent[3].sendall(b"GET / HT")
    silent[30].sendall(b"GET / HT")
    for _ in range(3):
        require(server.get("/")[0] == 200, "silent clients keep others out")
    ready, _, _ = select.select(silent, [], [], PATIENCE)
    require(ready, "silent clients are kept")
    for connection in silent:
        connection.close()
    # One that reads nothing.
    lazy = server.connect()
    lazy.sendall(b"GET / HTTP/1.1\r\n" + host + b"\r\n")
    require(server.get("/picture.svg")[0] == 200, "a client that doesn't read holds up others")
    lazy.close()
    require(server.end() == 0, "the exit code")


def what_cannot_be_served(fabric):
    def serve(*words):
        done = subprocess.run([VERBENA, "fabric", "show", *words], env=fabric.environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout

    require(serve("--serve", "0")[0] == 3, "no fabric")
    fabric.start(SMALL)
    for where in ("65536", "nonsense", "-1", "/nowhere/socket", "/" + "x" * 200):
        code, text = serve("--serve", where)
        wanted = 1 if where.startswith("/") else 2
        require(code == wanted and where in text, f"{where}: {code} {text}")
    require(serve("--serve", "0", "--svg", "x")[0] == 2, "two ways at once")
    # A file that isn't a socket stays; a socket at which no program listens doesn't hinder.
    path = os.path.join(fabric.folder, "file")
    with open(path, "w", encoding="ascii") as file:
        file.write("x")
    require(serve("--serve", path)[0] == 1 and os.path.getsize(path) == 1, "the file")
    stale = os.path.join(fabric.folder, "stale")
    with socket.socket(socket.AF_UNIX) as unused:
        unused.bind(stale)
    server = Server(fabric, stale)
    require(server.get("/")[0] == 200, "a stale socket")
    require(serve("--serve", stale)[0] == 1 and server.get("/")[0] == 200, "a socket in use")
    server.end()


if __name__ == "__main__":
    sys.exit(main([the_page_follows_the_fabric, a_route_is_highlighted,
                   hostile_clients_are_refused, what_cannot_be_served]))
