/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of fields (field_table.c), and a field by its number (fields.c). Constant data. */
#ifndef VERBENA_IBMAD_FIELDS_H
#define VERBENA_IBMAD_FIELDS_H

#include <infiniband/mad.h>

#include <stdint.h>

struct field {
	const char *name;
	uint16_t first_bit; /* as in the specification: from the attribute's first, highest bit */
	uint16_t bits;	    /* 0: the number names no field */
	ib_mad_dump_fn *dump;
};

extern const struct field field_table[IB_FIELD_LAST_];

/* The field's row; a row without bits for IB_NO_FIELD, ends of ranges and numbers out of range. */
const struct field *field_find(int number);

/* Bytes that a value of the field takes when it is written as text. */
static inline int field_bytes(const struct field *field)
{
	return (field->bits + 7) / 8;
}

#endif
