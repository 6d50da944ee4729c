/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers, sizes and times as people write them: see quantity.h. Owns nothing; any thread. */
#include "base/quantity.h"

#include <string.h>

/* Part of a text that is yet to be parsed. */
struct unread {
	const char *at;
	const char *end;
};

static int quantity_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 16;
}

/* Takes all digits of `base` that come next. False: there is none, or the number exceeds 64 bits.
 */
static bool unread_digits(struct unread *unread, unsigned int base, uint64_t *number)
{
	const char *begin = unread->at;
	uint64_t value = 0;

	for (; unread->at < unread->end; unread->at++) {
		unsigned int digit = (unsigned int)quantity_digit(*unread->at);

		if (digit >= base)
			break;
		if (__builtin_mul_overflow(value, base, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return false;
	}
	*number = value;
	return unread->at > begin;
}

static bool unread_take(struct unread *unread, const char *word)
{
	size_t length = strlen(word);

	if ((size_t)(unread->end - unread->at) < length || memcmp(unread->at, word, length) != 0)
		return false;
	unread->at += length;
	return true;
}

static struct unread unread_text(const char *text)
{
	return (struct unread){text, text + strlen(text)};
}

bool quantity_number(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
	struct unread unread = unread_text(text);
	unsigned int base = unread_take(&unread, "0x") || unread_take(&unread, "0X") ? 16 : 10;
	uint64_t value;

	if (!unread_digits(&unread, base, &value) || *unread.at || value < least || value > most)
		return false;
	*number = value;
	return true;
}

bool quantity_number32(const char *text, uint32_t least, uint32_t most, uint32_t *number)
{
	uint64_t value;

	if (!quantity_number(text, least, most, &value))
		return false;
	*number = (uint32_t)value;
	return true;
}

bool quantity_octal(const char *text, uint64_t most, uint64_t *number)
{
	struct unread unread = unread_text(text);
	uint64_t value;

	if (!unread_digits(&unread, 8, &value) || *unread.at || value > most)
		return false;
	*number = value;
	return true;
}

bool quantity_size(const char *text, uint64_t least, uint64_t most, uint64_t *bytes)
{
	static const char letters[] = "KMGTkmgt";
	struct unread unread = unread_text(text);
	const char *letter;
	uint64_t value;

	if (!unread_digits(&unread, 10, &value))
		return false;
	letter = *unread.at ? strchr(letters, *unread.at) : NULL;
	if (letter) {
		unread.at++;
		unread_take(&unread, "iB");
		if (__builtin_mul_overflow(value, 1ull << (10 * ((letter - letters) % 4 + 1)),
					   &value))
			return false;
	}
	if (*unread.at || value < least || value > most)
		return false;
	*bytes = value;
	return true;
}

/* The nanoseconds of the unit that is all that is left of the text; 0: it is none. */
static uint64_t unit_ns(struct unread unread, uint64_t usual)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"ns", 1},
		     {"us", 1000},
		     {"ms", 1000000},
		     {"s", QUANTITY_S},
		     {"min", 60 * QUANTITY_S},
		     {"h", 3600 * QUANTITY_S}};

	if (unread.at == unread.end)
		return usual;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		struct unread rest = unread;

		if (unread_take(&rest, units[i].name) && rest.at == rest.end)
			return units[i].ns;
	}
	return 0;
}

/* Takes what comes after a point as a fraction of `unit`, rounded. No digits: the result is false.
 */
static bool unread_decimals(struct unread *unread, double unit, double *part)
{
	const char *begin = unread->at;

	for (*part = 0; unread->at < unread->end && quantity_digit(*unread->at) < 10;
	     unread->at++) {
		unit /= 10;
		*part += quantity_digit(*unread->at) * unit;
	}
	return unread->at > begin;
}

bool quantity_time(const char *text, size_t length, uint64_t usual, uint64_t most_ns, uint64_t *ns)
{
	struct unread unread = {text, text + length};
	uint64_t whole, unit;
	double part = 0;

	if (!unread_digits(&unread, 10, &whole))
		return false;
	if (unread_take(&unread, ".") && !unread_decimals(&unread, 1, &part))
		return false;
	unit = unit_ns(unread, usual);
	if (!unit || __builtin_mul_overflow(whole, unit, &whole) ||
	    __builtin_add_overflow(whole, (uint64_t)(part * (double)unit + 0.5), &whole) ||
	    whole > most_ns)
		return false;
	*ns = whole;
	return true;
}

bool quantity_fraction(const char *text, double most, double *fraction)
{
	struct unread unread = unread_text(text);
	double part = 0;
	uint64_t whole;

	if (!unread_digits(&unread, 10, &whole))
		return false;
	if (unread_take(&unread, ".") && !unread_decimals(&unread, 1, &part))
		return false;
	if (*unread.at || (double)whole + part > most)
		return false;
	*fraction = (double)whole + part;
	return true;
}

size_t quantity_dimensions(const char *text, uint32_t least, uint32_t most, uint32_t *sizes,
			   size_t room)
{
	struct unread unread = unread_text(text);
	uint32_t found[8];
	uint64_t value;
	size_t count = 0;

	do {
		if (count == room || count == sizeof(found) / sizeof(found[0]) ||
		    !unread_digits(&unread, 10, &value) || value < least || value > most)
			return 0;
		found[count++] = (uint32_t)value;
	} while (unread_take(&unread, "x"));
	if (*unread.at)
		return 0;
	memcpy(sizes, found, count * sizeof(found[0]));
	return count;
}
