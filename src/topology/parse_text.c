/* SPDX-License-Identifier: BSD-2-Clause */
/* Pieces of a topology file's line. No state. */
#include <ctype.h>
#include <string.h>

#include "base/quantity.h"
#include "topology/parse.h"

static void slice_advance(struct topology_slice *slice, size_t bytes)
{
	slice->text += bytes;
	slice->bytes -= bytes;
}

void slice_trim(struct topology_slice *slice)
{
	while (slice->bytes && isspace((unsigned char)*slice->text))
		slice_advance(slice, 1);
	while (slice->bytes && isspace((unsigned char)slice->text[slice->bytes - 1]))
		slice->bytes--;
}

bool slice_begins(const struct topology_slice *slice, const char *word)
{
	size_t bytes = strlen(word);

	return slice->bytes >= bytes && !memcmp(slice->text, word, bytes);
}

bool slice_take(struct topology_slice *rest, const char *word)
{
	slice_trim(rest);
	if (!slice_begins(rest, word))
		return false;
	slice_advance(rest, strlen(word));
	return true;
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

bool slice_take_number(struct topology_slice *rest, int base, uint64_t *value)
{
	uint64_t number = 0;
	size_t digits = 0;

	slice_trim(rest);
	if (rest->bytes > 2 && rest->text[0] == '0' && (rest->text[1] | 0x20) == 'x' &&
	    digit_value(rest->text[2]) < 16) {
		base = 16;
		slice_advance(rest, 2);
	}
	while (digits < rest->bytes && digit_value(rest->text[digits]) < base) {
		if (number > (UINT64_MAX - 15) / (unsigned int)base)
			return false;
		number =
			number * (unsigned int)base + (unsigned int)digit_value(rest->text[digits]);
		digits++;
	}
	if (!digits)
		return false;
	slice_advance(rest, digits);
	*value = number;
	return true;
}

bool slice_take_quoted(struct topology_slice *rest, struct topology_slice *text)
{
	const char *end;

	slice_trim(rest);
	if (!rest->bytes || *rest->text != '"')
		return false;
	slice_advance(rest, 1);
	end = memchr(rest->text, '"', rest->bytes);
	if (!end)
		return false;
	*text = (struct topology_slice){rest->text, (size_t)(end - rest->text)};
	slice_advance(rest, text->bytes + 1);
	return true;
}

bool slice_take_word(struct topology_slice *rest, struct topology_slice *word)
{
	slice_trim(rest);
	*word = (struct topology_slice){rest->text, 0};
	while (word->bytes < rest->bytes && !isspace((unsigned char)rest->text[word->bytes]))
		word->bytes++;
	slice_advance(rest, word->bytes);
	return word->bytes != 0;
}

void slice_split_comment(struct topology_slice *line, struct topology_slice *comment)
{
	bool is_quoted = false;

	*comment = (struct topology_slice){"", 0};
	for (size_t i = 0; i < line->bytes; i++) {
		if (line->text[i] == '"')
			is_quoted = !is_quoted;
		if (line->text[i] != '#' || is_quoted)
			continue;
		*comment = (struct topology_slice){line->text + i + 1, line->bytes - i - 1};
		line->bytes = i;
		break;
	}
	slice_trim(line);
	slice_trim(comment);
}

bool topology_delay_parse(uint32_t *delay_ns, const char *text, size_t bytes)
{
	uint64_t ns;

	if (!quantity_time(text, bytes, 0, TOPOLOGY_DELAY_MAX_NS, &ns))
		return false;
	*delay_ns = (uint32_t)ns;
	return true;
}
