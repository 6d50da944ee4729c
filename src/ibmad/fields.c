/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading and writing fields in a MAD.
 *
 * A MAD is a sequence of 32-bit words in big-endian order. Fields of up to 32 bits are found by
 * counting bits from the least significant bit of each word: bit k is bit k % 32 of word k / 32,
 * and byte i of that count is byte i ^ 3 of the buffer. A field that lies in two words continues
 * at the least significant bit of the second. `base_offs` is added in that count, too, which
 * matters only where it isn't a multiple of 4. Fields of 64 bits and byte arrays are simply bytes.
 */
#include "ibmad/fields.h"

#include "base/export.h"

#include <endian.h>
#include <string.h>

static const struct field no_field = {.name = ""};

const struct field *field_find(int number)
{
	if (number <= IB_NO_FIELD || number >= IB_FIELD_LAST_ || !field_table[number].bits)
		return &no_field;
	return &field_table[number];
}

/* Where the field begins when bits are counted from each word's least significant one. */
static unsigned field_low_bit(const struct field *field)
{
	unsigned within = field->first_bit % 32;

	if (within + field->bits > 32)
		return field->first_bit;
	return field->first_bit - within + (32 - within - field->bits);
}

/* The part of a field that lies in one byte. */
struct piece {
	size_t byte;	/* in the buffer */
	unsigned shift; /* of its lowest bit */
	unsigned bits;
};

/* The piece that begins `done` bits behind the field's lowest bit. */
static struct piece piece_at(const struct field *field, int base_offs, unsigned done)
{
	size_t bit = 8 * (size_t)base_offs + field_low_bit(field) + done;
	unsigned shift = bit % 8;
	unsigned left = field->bits - done;

	return (struct piece){
		.byte = (bit / 8) ^ 3,
		.shift = shift,
		.bits = left < 8 - shift ? left : 8 - shift,
	};
}

EXPORT uint32_t mad_get_field(void *buf, int base_offs, enum MAD_FIELDS field)
{
	const struct field *row = field_find(field);
	const uint8_t *bytes = buf;
	uint32_t value = 0;

	for (unsigned done = 0; done < row->bits && done < 32;) {
		struct piece piece = piece_at(row, base_offs, done);
		uint32_t part = (bytes[piece.byte] >> piece.shift) & ((1u << piece.bits) - 1);

		value |= part << done;
		done += piece.bits;
	}
	return value;
}

EXPORT void mad_set_field(void *buf, int base_offs, enum MAD_FIELDS field, uint32_t val)
{
	const struct field *row = field_find(field);
	uint8_t *bytes = buf;

	for (unsigned done = 0; done < row->bits;) {
		struct piece piece = piece_at(row, base_offs, done);
		uint8_t mask = ((1u << piece.bits) - 1) << piece.shift;
		uint32_t rest = done < 32 ? val >> done : 0;

		bytes[piece.byte] = (bytes[piece.byte] & ~mask) | ((rest << piece.shift) & mask);
		done += piece.bits;
	}
}

EXPORT uint64_t mad_get_field64(void *buf, int base_offs, enum MAD_FIELDS field)
{
	uint64_t value;

	memcpy(&value, (char *)buf + base_offs + field_find(field)->first_bit / 8, sizeof value);
	return be64toh(value);
}

EXPORT void mad_set_field64(void *buf, int base_offs, enum MAD_FIELDS field, uint64_t val)
{
	uint64_t value = htobe64(val);

	memcpy((char *)buf + base_offs + field_find(field)->first_bit / 8, &value, sizeof value);
}

EXPORT void mad_set_array(void *buf, int base_offs, enum MAD_FIELDS field, void *val)
{
	const struct field *row = field_find(field);

	memcpy((char *)buf + base_offs + row->first_bit / 8, val, row->bits / 8);
}

EXPORT void mad_get_array(void *buf, int base_offs, enum MAD_FIELDS field, void *val)
{
	const struct field *row = field_find(field);

	memcpy(val, (char *)buf + base_offs + row->first_bit / 8, row->bits / 8);
}

EXPORT void mad_decode_field(uint8_t *buf, enum MAD_FIELDS field, void *val)
{
	const struct field *row = field_find(field);

	if (field == IB_NO_FIELD) {
		memcpy(val, buf, sizeof(int));
	} else if (row->bits <= 32) {
		uint32_t value = mad_get_field(buf, 0, field);

		memcpy(val, &value, sizeof value);
	} else if (row->bits == 64) {
		uint64_t value = mad_get_field64(buf, 0, field);

		memcpy(val, &value, sizeof value);
	} else {
		mad_get_array(buf, 0, field, val);
	}
}

EXPORT void mad_encode_field(uint8_t *buf, enum MAD_FIELDS field, void *val)
{
	const struct field *row = field_find(field);

	if (field == IB_NO_FIELD) {
		memcpy(buf, val, sizeof(int));
	} else if (row->bits <= 32) {
		uint32_t value;

		memcpy(&value, val, sizeof value);
		mad_set_field(buf, 0, field, value);
	} else if (row->bits == 64) {
		uint64_t value;

		memcpy(&value, val, sizeof value);
		mad_set_field64(buf, 0, field, value);
	} else {
		mad_set_array(buf, 0, field, val);
	}
}

EXPORT const char *mad_field_name(enum MAD_FIELDS field)
{
	return field_find(field)->name;
}

EXPORT char *mad_dump_val(enum MAD_FIELDS field, char *buf, int bufsz, void *val)
{
	const struct field *row = field_find(field);

	if (field <= IB_NO_FIELD || field >= IB_FIELD_LAST_)
		return NULL;
	if (bufsz <= 0)
		return buf;
	buf[0] = 0;
	if (row->dump)
		row->dump(buf, bufsz, val, field_bytes(row));
	buf[bufsz - 1] = 0;
	return buf;
}

/* The column at which a value begins behind its field's name, a colon and dots. */
#define VALUE_COLUMN 33

/* Writes "name:.....value". NULL: there is no room for name and dots. */
static char *line_dump(const char *name, enum MAD_FIELDS field, char *buf, int bufsz, void *val)
{
	static const char dots[] = "................................";
	size_t length = strlen(name);
	const char *fill = dots + (length < sizeof dots ? length : sizeof dots - 1);
	int used;

	if (bufsz < VALUE_COLUMN)
		return NULL;
	used = snprintf(buf, bufsz, "%s:%s", name, fill);
	if (used < bufsz)
		mad_dump_val(field, buf + used, bufsz - used, val);
	return buf;
}

EXPORT char *mad_dump_field(enum MAD_FIELDS field, char *buf, int bufsz, void *val)
{
	if (field <= IB_NO_FIELD || field >= IB_FIELD_LAST_)
		return NULL;
	return line_dump(field_find(field)->name, field, buf, bufsz, val);
}

EXPORT int mad_print_field(enum MAD_FIELDS field, const char *name, void *val)
{
	char line[512];

	if (field <= IB_NO_FIELD || field >= IB_FIELD_LAST_)
		return -1;
	line_dump(name ? name : field_find(field)->name, field, line, sizeof line, val);
	return printf("%s\n", line);
}
