# SPDX-License-Identifier: BSD-2-Clause
"""Reads the debugging information (DWARF 4) of a linked 64-bit ELF file into a tree of entries.

Knows just the forms that `gcc -gdwarf-4 -gstrict-dwarf` writes for C, and says so when it meets
another. Written here because the Python standard library has no reader and the textual output of
readelf differs between versions.
"""
import struct

TAGS = {
    0x01: "array", 0x02: "class", 0x04: "enumeration", 0x05: "parameter", 0x0B: "block",
    0x0D: "member", 0x0F: "pointer", 0x11: "unit", 0x13: "structure", 0x15: "subroutine",
    0x16: "typedef", 0x17: "union", 0x18: "unspecified", 0x21: "subrange", 0x24: "base",
    0x26: "const", 0x28: "enumerator", 0x2E: "subprogram", 0x34: "variable", 0x35: "volatile",
    0x37: "restrict",
}
ATTRIBUTES = {
    0x03: "name", 0x0B: "size", 0x0D: "bit_size", 0x0C: "bit_offset", 0x1C: "const_value",
    0x2F: "upper_bound", 0x37: "count", 0x38: "offset", 0x3C: "declaration", 0x3E: "encoding",
    0x49: "type", 0x6B: "data_bit_offset",
}
SIGNED_FORMS = {0x0B: "<b", 0x05: "<h", 0x06: "<i", 0x07: "<q"}


class Entry:
    """One debugging information entry: a tag, attributes by name, children in order."""

    def __init__(self, offset, tag):
        self.offset = offset
        self.tag = tag
        self.attributes = {}
        self.children = []

    def get(self, name, default=None):
        return self.attributes.get(name, default)


class Reader:
    """A position in a section."""

    def __init__(self, data, at=0):
        self.data = data
        self.at = at

    def take(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def skip(self, count):
        self.at += count

    def uleb(self):
        value = shift = 0
        while True:
            byte = self.take("<B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def sleb(self):
        value = shift = 0
        while True:
            byte = self.take("<B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if byte & 0x40 else value

    def string(self):
        end = self.data.index(b"\0", self.at)
        value = self.data[self.at:end].decode()
        self.at = end + 1
        return value


def sections_of(path):
    """The contents of an ELF file's sections by name."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a little-endian 64-bit ELF file")
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    name_table = headers[names][4]
    result = {}
    for name, _, _, _, offset, length in headers:
        key = Reader(data, name_table + name).string()
        result[key] = data[offset:offset + length]
    return result


def abbreviations_at(data, offset):
    reader = Reader(data, offset)
    table = {}
    while True:
        code = reader.uleb()
        if code == 0:
            return table
        tag = reader.uleb()
        has_children = reader.take("<B")
        pairs = []
        while True:
            pair = reader.uleb(), reader.uleb()
            if pair == (0, 0):
                break
            pairs.append(pair)
        table[code] = tag, has_children, pairs


def read_form(reader, form, strings, unit):
    """One attribute's value; numbers come out unsigned."""
    if form == 0x01:  # address
        return reader.take("<Q")
    fixed = {0x0B: "<B", 0x05: "<H", 0x06: "<I", 0x07: "<Q", 0x0C: "<B", 0x17: "<I"}
    if form in fixed:
        return reader.take(fixed[form])
    if form == 0x08:  # string in place
        return reader.string()
    if form == 0x0E:  # offset of a string
        return Reader(strings, reader.take("<I")).string()
    if form == 0x0D:
        return reader.sleb()
    if form == 0x0F:
        return reader.uleb()
    if form == 0x13:  # reference inside the unit
        return unit + reader.take("<I")
    if form == 0x19:  # flag that is always set
        return 1
    if form in (0x18, 0x09):  # location expression, block
        length = reader.uleb()
        reader.skip(length)
        return None
    if form == 0x0A:
        reader.skip(reader.take("<B"))
        return None
    raise ValueError(f"DWARF form 0x{form:x} is unknown to this reader")


def read_entries(path):
    """All entries of the file by offset; the units' entries hold the rest as descendants."""
    sections = sections_of(path)
    info, strings = sections[".debug_info"], sections.get(".debug_str", b"")
    entries = {}
    at = 0
    while at < len(info):
        reader = Reader(info, at)
        end = at + 4 + reader.take("<I")
        version = reader.take("<H")
        if version != 4:
            raise ValueError(f"DWARF version {version} instead of 4")
        table = abbreviations_at(sections[".debug_abbrev"], reader.take("<I"))
        reader.skip(1)
        stack = []
        while reader.at < end:
            offset = reader.at
            code = reader.uleb()
            if code == 0:
                if stack:
                    stack.pop()
                continue
            tag, has_children, pairs = table[code]
            entry = Entry(offset, TAGS.get(tag, f"tag 0x{tag:x}"))
            for attribute, form in pairs:
                start = reader.at
                value = read_form(reader, form, strings, at)
                # An enumerator's value in a fixed form has the width of its type; keep the sign.
                if attribute == 0x1C and form in SIGNED_FORMS:
                    entry.attributes["signed_value"] = Reader(info, start).take(SIGNED_FORMS[form])
                entry.attributes[ATTRIBUTES.get(attribute, attribute)] = value
            entries[offset] = entry
            if stack:
                stack[-1].children.append(entry)
            if has_children:
                stack.append(entry)
        at = end
    return entries
