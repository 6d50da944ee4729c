#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""fake_cm.py DIRECTORY

A connection manager for tests of librdmacm alone: serves the node `rdma_cm` (src/proto/cm.h) in a
run-time directory where a verbenad serves the verbs, or none does. It knows one host, reliable
connections and datagrams; it has no network, no time-outs and no limits. It says `ready` when it
listens and ends when its standard input does.

Run without verbenad (FAKE_GUID unset), ids belong to no device.
"""
import array
import ipaddress
import os
import selectors
import socket
import struct
import sys

(CREATE_ID, DESTROY_ID, BIND_IP, RESOLVE_IP, RESOLVE_ROUTE, QUERY_ROUTE, CONNECT, LISTEN, ACCEPT,
 REJECT, DISCONNECT, INIT_QP_ATTR, GET_EVENT, GET_OPTION, SET_OPTION, NOTIFY, JOIN_IP, LEAVE,
 MIGRATE, QUERY, BIND, RESOLVE_ADDR, JOIN) = range(23)
HELLO, CREATE_CHANNEL, DESTROY_CHANNEL = 0x80, 0x81, 0x82
(ADDR_RESOLVED, ADDR_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, REQUEST, RESPONSE, CONNECT_ERROR,
 UNREACHABLE, REJECTED, ESTABLISHED, DISCONNECTED) = range(11)
EINVAL, EADDRINUSE, EADDRNOTAVAIL, EOPNOTSUPP, EBUSY, ENOENT = 22, 98, 99, 95, 16, 2
UD = 4
STORAGE = 128
PARAM = 272  # struct rdma_ucm_conn_param
UD_PARAM = 304


class Refused(Exception):
    """A command's errno."""


def conn_param(data):
    fields = struct.unpack_from("<II256s8B", data)
    return dict(zip(("qp_num", "qkey", "private", "length", "srq", "resources", "depth", "flow",
                     "retry", "rnr", "valid"), fields))


def pack_conn(p, size):
    """What the peer of `p` sees: its resources are our depth."""
    return struct.pack("<II256s8B", p["qp_num"], p["qkey"], p["private"][:p["length"]],
                       max(size, p["length"]), p["srq"], p["depth"], p["resources"], p["flow"],
                       p["retry"], p["rnr"], 1)


class Address:
    def __init__(self, raw):
        self.family, port = struct.unpack_from("<H", raw)[0], struct.unpack_from(">H", raw, 2)[0]
        at, size = (4, 4) if self.family == socket.AF_INET else (8, 16)
        self.port, self.ip = port, bytes(raw[at:at + size])
        self.scope = struct.unpack_from("<I", raw, 24)[0] if size == 16 else 0

    def pack(self):
        if self.family == socket.AF_INET:
            raw = struct.pack("<H", self.family) + struct.pack(">H", self.port) + self.ip + bytes(8)
        else:
            raw = (struct.pack("<H", self.family) + struct.pack(">H", self.port) + bytes(4) +
                   self.ip + struct.pack("<I", self.scope))
        return raw, len(raw)

    def any(self):
        return not any(self.ip)

    def gid(self):
        return self.ip if len(self.ip) == 16 else bytes(10) + b"\xff\xff" + self.ip

    def at(self, port):
        result = Address(self.pack()[0])
        result.port = port
        return result


class Id:
    def __init__(self, process, handle, uid, channel, space, qp_type):
        self.process, self.handle, self.uid, self.channel = process, handle, uid, channel
        self.space, self.qp_type = space, qp_type
        self.src = self.dst = self.peer = self.mine = self.theirs = None
        self.bound = self.listening = False
        self.state, self.reported, self.options = "idle", 0, []


class Process:
    def __init__(self, sock):
        self.sock, self.ids, self.channels, self.next = sock, {}, {}, 1

    def number(self):
        self.next += 1
        return self.next


class Manager:
    def __init__(self):
        self.guid = int(os.environ.get("FAKE_GUID", "0"), 16)
        # index:GID,...
        table = (entry.split("=") for entry in os.environ.get("FAKE_GIDS", "").split(",") if entry)
        self.gids = {socket.inet_pton(socket.AF_INET6, gid): int(index) for index, gid in table}
        self.ports, self.next_port = {}, 32768

    # -------------------------------------------------------------- helpers

    def event(self, ident, number, status=0, param=b"", handle=None, uid=None):
        if not (ident.uid if uid is None else uid):
            return
        packet = struct.pack("<QIIi", ident.uid if uid is None else uid, handle or ident.handle,
                             number, status) + param.ljust(UD_PARAM, b"\0") + bytes(12)
        packet = packet.ljust((len(packet) + 7) // 8 * 8, b"\0")
        ident.process.channels[ident.channel][0].send(packet)
        ident.reported += 1

    def get(self, process, handle):
        if handle not in process.ids:
            raise Refused(ENOENT)
        return process.ids[handle]

    def bind(self, ident, address):
        port = address.port
        while not port or (port, ident.space) in self.ports:
            if port:
                raise Refused(EADDRINUSE)
            self.next_port += 1
            if (self.next_port, ident.space) not in self.ports:
                port = self.next_port
        self.ports[port, ident.space] = ident
        ident.src, ident.bound = address.at(port), True

    def local(self, gid):
        """The table's index of an address; what isn't in it is loopback, which any index reaches."""
        return self.gids.get(gid, next((index for other, index in self.gids.items()
                                        if (other[:12] == gid[:12])), 0))

    def end(self, ident):
        if ident.bound and self.ports.get((ident.src.port, ident.space)) is ident:
            del self.ports[ident.src.port, ident.space]
        peer, ident.peer = ident.peer, None
        ident.process.ids.pop(ident.handle, None)
        if peer:
            peer.peer = None
            if peer.state == "connected":
                self.event(peer, DISCONNECTED)
            elif peer.state in ("connecting", "accepted"):
                self.event(peer, REJECTED, 28)
            peer.state = "over"

    def leave(self, process):
        for ident in list(process.ids.values()):
            self.end(ident)
        for mine, theirs in process.channels.values():
            mine.close()
            theirs.close()

    # -------------------------------------------------------------- commands: (response, fd)

    def run(self, process, command, body):
        name = {HELLO: "hello", CREATE_CHANNEL: "create_channel", DESTROY_CHANNEL: "destroy_channel",
                CREATE_ID: "create_id", DESTROY_ID: "destroy_id", BIND: "bind_id",
                RESOLVE_ADDR: "resolve_addr", RESOLVE_ROUTE: "resolve_route", LISTEN: "listen",
                CONNECT: "connect", ACCEPT: "accept", REJECT: "reject", DISCONNECT: "disconnect",
                INIT_QP_ATTR: "init_qp_attr", QUERY: "query", MIGRATE: "migrate",
                SET_OPTION: "set_option"}.get(command)
        if not name:
            raise Refused(EOPNOTSUPP)
        return getattr(self, name)(process, body)

    def hello(self, process, body):
        return b""

    def create_channel(self, process, body):
        theirs, mine = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handle = process.number()
        mine.setblocking(False)
        process.channels[handle] = mine, theirs
        return struct.pack("<II", handle, 0), theirs.fileno()

    def destroy_channel(self, process, body):
        handle, = struct.unpack_from("<I", body)
        if any(i.channel == handle for i in process.ids.values()):
            raise Refused(EBUSY)
        for end in process.channels.pop(handle):
            end.close()
        return b""

    def create_id(self, process, body):
        uid, _, space, qp_type, channel = struct.unpack_from("<QQHBI", body)
        handle = process.number()
        process.ids[handle] = Id(process, handle, uid, channel, space, qp_type)
        return struct.pack("<I", handle)

    def requeue(self, ident, target):
        """Takes the id's events out of its channel's queue; puts them into another one's."""
        mine, theirs = ident.process.channels[ident.channel]
        theirs.setblocking(False)
        packets = []
        try:
            while True:
                packets.append(theirs.recv(4096))
        except BlockingIOError:
            theirs.setblocking(True)
        for packet in packets:
            uid, handle = struct.unpack_from("<QI", packet)
            if uid != ident.uid:
                mine.send(packet)
            elif target:
                ident.process.channels[target][0].send(packet)
            else:
                ident.reported -= 1

    def destroy_id(self, process, body):
        ident = self.get(process, struct.unpack_from("<QI", body)[1])
        self.requeue(ident, None)
        self.end(ident)
        return struct.pack("<I", ident.reported)

    def migrate(self, process, body):
        _, handle, channel = struct.unpack_from("<QII", body)
        ident = self.get(process, handle)
        self.requeue(ident, channel)
        ident.channel = channel
        return struct.pack("<I", ident.reported)

    def set_option(self, process, body):
        _, handle, level, name, length = struct.unpack_from("<QIIII", body)
        self.get(process, handle).options.append((level, name, body[24:24 + length]))
        return b""

    def bind_id(self, process, body):
        handle, size, _ = struct.unpack_from("<IHH", body)
        self.bind(self.get(process, handle), Address(body[8:8 + size]))
        return b""

    def resolve_addr(self, process, body):
        handle, _, src, dst, _ = struct.unpack_from("<IIHHI", body)
        ident = self.get(process, handle)
        ident.dst = Address(body[16 + STORAGE:][:dst])
        if not ident.bound:
            self.bind(ident, Address(body[16:][:src]) if src else ident.dst.at(0))
        if ident.src.any():
            ident.src = ident.dst.at(ident.src.port)
        self.event(ident, ADDR_RESOLVED)
        return b""

    def resolve_route(self, process, body):
        self.event(self.get(process, struct.unpack_from("<I", body)[0]), ROUTE_RESOLVED)
        return b""

    def listen(self, process, body):
        ident = self.get(process, struct.unpack_from("<I", body)[0])
        if not ident.bound:
            self.bind(ident, Address(struct.pack("<H", socket.AF_INET).ljust(16, b"\0")))
        ident.listening = True
        return b""

    def connect(self, process, body):
        param, handle = conn_param(body), struct.unpack_from("<I", body, PARAM)[0]
        ident = self.get(process, handle)
        if param["length"] > (180 if ident.qp_type == UD else 56):
            raise Refused(EINVAL)
        listener = self.ports.get((ident.dst.port, ident.space))
        ident.mine, ident.state = param, "connecting"
        if not listener or not listener.listening:
            self.event(ident, REJECTED, 8)
            return b""
        peer = Id(listener.process, listener.process.number(), 0, listener.channel, ident.space,
                  ident.qp_type)
        listener.process.ids[peer.handle] = peer
        peer.src, peer.dst, peer.theirs, peer.state = ident.dst, ident.src, param, "requested"
        peer.peer, ident.peer = ident, peer
        data = (self.pack_ud(peer, param, 180) if ident.qp_type == UD else pack_conn(param, 56))
        self.event(listener, REQUEST, 0, data, handle=peer.handle)
        return b""

    def accept(self, process, body):
        uid, param = struct.unpack_from("<Q", body)[0], conn_param(body[8:])
        ident = self.get(process, struct.unpack_from("<I", body, 8 + PARAM)[0])
        peer = ident.peer
        if not peer:
            raise Refused(EINVAL)
        ident.uid = uid
        if not param["valid"]:
            ident.state = peer.state = "connected"
            self.event(peer, ESTABLISHED)
            return b""
        if param["length"] > (136 if ident.qp_type == UD else 196):
            raise Refused(EINVAL)
        ident.mine, peer.theirs = param, param
        if ident.qp_type == UD:
            ident.state = peer.state = "over"
            self.event(peer, ESTABLISHED, 0, self.pack_ud(peer, param, 136))
        else:
            ident.state = "accepted"
            self.event(peer, RESPONSE, 0, pack_conn(param, 196))
        return b""

    def reject(self, process, body):
        handle, length, reason = struct.unpack_from("<IBB", body)
        ident = self.get(process, handle)
        peer, ident.peer = ident.peer, None
        if not peer:
            raise Refused(EINVAL)
        peer.peer, peer.state = None, "over"
        param = {"qp_num": 0, "qkey": 0, "private": body[8:8 + length], "length": length, "srq": 0,
                 "resources": 0, "depth": 0, "flow": 0, "retry": 0, "rnr": 0}
        self.event(peer, REJECTED, reason or 28, pack_conn(param, 148))
        return b""

    def disconnect(self, process, body):
        ident = self.get(process, struct.unpack_from("<I", body)[0])
        if ident.state not in ("connected", "disconnected"):
            raise Refused(EINVAL)
        peer = ident.peer
        for each in (ident, peer):
            if each and each.state == "connected":
                each.state = "disconnected"
                self.event(each, DISCONNECTED)
        return b""

    def query(self, process, body):
        _, handle, option = struct.unpack_from("<QII", body)
        ident = self.get(process, handle)
        if option == 1:
            return self.path(ident)
        src, dst = ((a.pack() if a else (b"", 0)) for a in (ident.src, ident.dst))
        guid = self.guid if ident.src and not ident.src.any() else 0
        if option == 2:
            src, dst = ((struct.pack("<HHI", 27, 0xffff, 0) + (a.gid() if a else bytes(16)), 48)
                        for a in (ident.src, ident.dst))
        return (struct.pack(">Q", guid) + struct.pack("<BBHHH", 1, 0, 0xffff, src[1], dst[1]) +
                src[0].ljust(STORAGE, b"\0") + dst[0].ljust(STORAGE, b"\0") + bytes(8))

    def path(self, ident):
        record = (bytes(8) + ident.dst.gid() + ident.src.gid() + bytes(4) +
                  struct.pack(">IBBHHBBBB", 64, 0, 0x81, 0xffff, 0, 0x83, 0x83, 0x92, 0) + bytes(6))
        return struct.pack("<II", 1, 0) + struct.pack("<II", 0x33, 0) + record

    def handle_vector(self, ident):
        gid = ident.dst.gid()
        return struct.pack("<16sIBBBBHBBBBBB", gid, 0, self.local(ident.src.gid()), 64, 0, 0, 0, 0,
                           0, 0, 1, 1, 0)

    def pack_ud(self, ident, param, size):
        return (struct.pack("<II", param["qp_num"], 0x01234567) + self.handle_vector(ident) +
                param["private"][:param["length"]].ljust(256, b"\0") +
                bytes([max(size, param["length"])]))

    def init_qp_attr(self, process, body):
        _, handle, state = struct.unpack_from("<QII", body)
        ident = self.get(process, handle)
        STATE, ACCESS, PKEY, PORT, QKEY, AV, MTU, TIMEOUT, RETRY, RNR, RQ, ATOM, TIMER, SQ, DEST, QPN = (
            1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 1 << 15, 1 << 16, 1 << 17, 1 << 20)
        if ident.qp_type == UD:
            mask = {1: STATE | PKEY | PORT | QKEY}.get(state, STATE)
        else:
            mask = {1: STATE | PKEY | PORT | ACCESS,
                    2: STATE | AV | MTU | QPN | RQ | DEST | TIMER,
                    3: STATE | TIMEOUT | RETRY | RNR | SQ | ATOM}[state]
        vector = self.handle_vector(ident) if ident.dst else bytes(32)
        theirs, mine = ident.theirs or {}, ident.mine or {}
        resources = min(theirs.get("depth", 0), 16)
        depth = min(theirs.get("resources", 0), 16)
        return (struct.pack("<10I", mask, state, 0, 3, 0, 0x01234567 if ident.qp_type == UD else 0,
                            100, 100, theirs.get("qp_num", 0), 0xf) + vector + bytes(32) +
                bytes(20) + bytes(4) +
                struct.pack("<11B", 0, 0, depth, resources, 0, 1, 14, 7,
                            theirs.get("rnr", 7), 0, 0) + bytes(5))


def answer(manager, process, packet):
    command, _, _ = struct.unpack_from("<IHH", packet)
    try:
        result = manager.run(process, command, packet[8:])
    except Refused as refused:
        process.sock.send(struct.pack("<iI", -refused.args[0], 0))
        return
    fd = None
    if isinstance(result, tuple):
        result, fd = result
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd else []
    process.sock.sendmsg([struct.pack("<iI", 0, 0) + result], ancillary)


def main(directory):
    path = os.path.join(directory, "rdma_cm")
    os.makedirs(directory, 0o700, exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    manager, selector, processes = Manager(), selectors.DefaultSelector(), {}
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                if not os.read(0, 4096):
                    os.unlink(path)
                    return
            elif key.fileobj is listener:
                sock = listener.accept()[0]
                processes[sock] = Process(sock)
                selector.register(sock, selectors.EVENT_READ)
            else:
                sock = key.fileobj
                try:
                    packet = sock.recv(4096)
                except ConnectionError:
                    packet = b""
                if packet:
                    answer(manager, processes[sock], packet)
                else:
                    selector.unregister(sock)
                    manager.leave(processes.pop(sock))
                    sock.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
