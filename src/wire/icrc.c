/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ICRC by CRC-32 (crc32.h). No state but a cache of constants that every thread computes alike.
 *
 * What is covered, and counts as ones where routers may change it:
 *   8 bytes of ones (they stand where InfiniBand has its local route header)
 *   IPv4: TOS, TTL and checksum as ones; everything else as it is, the identification too
 *   IPv6: traffic class, flow label and hop limit as ones
 *   UDP:  checksum as ones
 *   BTH:  byte 4 (FECN, BECN) as ones
 *   the rest up to the ICRC itself
 * All of it was compared with what two kernel rxe peers send (tests/unit/wire/golden).
 *
 * The identification from the ICRC. A CRC is linear: two messages of one length whose difference
 * (exclusive or) is d have CRCs whose difference is that of d run through a register that begins
 * with 0 and isn't complemented. Let d be 0 but for the two bytes of the identification, with n
 * bytes after them. As polynomials over GF(2), modulo the CRC's polynomial P, the difference of the
 * CRCs is
 *     d(x) * x^32 * x^8n
 * The ICRC in the packet against the one that the packet would have with identification 0 gives the
 * left side; x has an inverse modulo P, so multiplying by x^-(32 + 8n) gives back d. Any 32 bits of
 * difference come back as some d of 32 bits, but a wrong identification explains them only if d
 * fits into the 16 bits that the identification has.
 */
#include "wire/icrc.h"

#include <endian.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cpu.h"
#include "wire/crc32.h"
#include "wire/ip.h"
#include "wire/packet.h"

enum {
	ONES = 8,
	AFTER_ID = IP_V4_HEADER - 6 + UDP_HEADER, /* bytes from IPv4's identification to BTH */
};

/* ------------------------------------------------------------------ the CRC */

uint32_t icrc_begin(const struct icrc_path *path, size_t size, uint16_t id)
{
	const struct ip_fields ip = {
		.source = path->source,
		.destination = path->destination,
		.flow_label = 0xfffff,
		.id = id,
		.traffic_class = 0xff,
		.hop_limit = 0xff,
	};
	uint8_t head[ONES + IP_HEADER_MAX + UDP_HEADER];
	uint8_t *to = head + ONES;

	memset(head, 0xff, ONES);
	to = ip_write(to, &ip, size);
	if (ip_is_v4(path->destination))
		memset(head + ONES + 10, 0xff, 2); /* the checksum */
	to = udp_write(to, path->source_port, path->destination_port, size);
	memset(to - 2, 0xff, 2); /* UDP's */
	return crc32_update(0, head, to - head);
}

/* ------------------------------------------------------------------ the masked byte */

/*
 * Polynomials of degree below 32 in a word, bit-reversed: bit 31 is the coefficient of x^0.
 * Multiplying by x shifts right; where x^32 appears, POLYNOMIAL replaces it.
 */
enum { POLYNOMIAL = (int)0xedb88320 };

/* Divides by x. A polynomial with a coefficient of x^0 becomes divisible by adding P, which is 0
 * modulo P and has one, too. */
static uint32_t divide_by_x(uint32_t a)
{
	uint32_t carry = a >> 31;

	return (a ^ ((uint32_t)POLYNOMIAL & -carry)) << 1 | carry;
}

/*
 * What a CRC must begin with, beside what it begins with anyway, to come out as if BTH's byte 4,
 * which is `there`, were ones. A change of a byte changes the CRC as the same change of the
 * register does before that byte, and that is the change before BTH times x^32, since four bytes
 * are between. So the packet needs neither a masked copy nor a second piece, and ISA-L takes 8 ns
 * for each piece, however short it is.
 */
static uint32_t masked_byte(uint8_t there)
{
	enum { OF_ZERO = 0x0f6a70d9 }; /* of byte 0, as nearly all packets have it */
	uint32_t change = there ^ 0xff;

	if (likely(!there))
		return OF_ZERO;
	for (int i = 0; i < 32; i++)
		change = divide_by_x(change);
	return change;
}

uint32_t icrc_packet(uint32_t begun, const uint8_t *packet, size_t size)
{
	return crc32_update(begun ^ masked_byte(packet[4]), packet, size - WIRE_ICRC);
}

void icrc_write(uint32_t begun, uint8_t *packet, size_t size)
{
	uint32_t icrc = htole32(icrc_packet(begun, packet, size));

	memcpy(packet + size - WIRE_ICRC, &icrc, sizeof(icrc));
}

/* ------------------------------------------------------------------ the identification */

static uint32_t crc_multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (int i = 31; i >= 0; i--) { /* Horner's rule, from the coefficient of x^31 */
		product = product >> 1 ^ ((uint32_t)POLYNOMIAL & -(product & 1));
		product ^= b & -(a >> (31 - i) & 1);
	}
	return product;
}

/* x^-(32 + 8n). */
static uint32_t power_back(uint32_t n)
{
	uint32_t result = 1u << 31, square = 1u << 31; /* x^0 */

	for (int i = 0; i < 8; i++)
		square = divide_by_x(square);
	for (n += 4; n; n >>= 1) {
		if (n & 1)
			result = crc_multiply(result, square);
		square = crc_multiply(square, square);
	}
	return result;
}

/* The same, cached for the sizes that packets have. Every thread computes the same value, so races
 * between stores are harmless; 0 marks an empty place, because no inverse is 0. */
static uint32_t power_back_kept(size_t size)
{
	static _Atomic uint32_t kept[WIRE_PACKET_MAX + 1];
	uint32_t n = AFTER_ID + size - WIRE_ICRC;

	if (size > WIRE_PACKET_MAX)
		return power_back(n);

	uint32_t power = atomic_load_explicit(&kept[size], memory_order_relaxed);

	if (!power) {
		power = power_back(n);
		atomic_store_explicit(&kept[size], power, memory_order_relaxed);
	}
	return power;
}

/* Whether some identification explains that the ICRC differs by `difference` from that for
 * identification 0. */
static bool find_id(uint32_t difference, size_t size, uint16_t *id)
{
	uint32_t d = crc_multiply(difference, power_back_kept(size));

	/* d(x) has the last transmitted bit of the identification at x^0, thus in bit 31: the bytes
	 * of the identification, each least significant bit first, are the word's upper two. */
	if (d & 0xffff)
		return false;
	*id = (d >> 16 & 0xff) << 8 | d >> 24;
	return true;
}

bool icrc_matches(const struct icrc_path *path, const uint8_t *packet, size_t size, uint16_t *id)
{
	return icrc_matches_begun(path, icrc_begin(path, size, 0), packet, size, id);
}

bool icrc_matches_begun(const struct icrc_path *path, uint32_t begun, const uint8_t *packet,
			size_t size, uint16_t *id)
{
	uint32_t there;

	memcpy(&there, packet + size - WIRE_ICRC, sizeof(there));

	uint32_t difference = le32toh(there) ^ icrc_packet(begun, packet, size);

	*id = 0;
	if (!difference)
		return true;
	return ip_is_v4(path->destination) && find_id(difference, size, id);
}

/* ------------------------------------------------------------------ Soft-RoCE's FLUSH */

void icrc_double(uint8_t *packet, size_t size)
{
	uint8_t *at = packet + size - WIRE_ICRC;
	uint32_t icrc;

	memcpy(&icrc, at, sizeof(icrc));
	icrc = htole32(crc32_update(le32toh(icrc), packet, size - WIRE_ICRC));
	memcpy(at, &icrc, sizeof(icrc));
}

/* The CRC before these bytes, of the CRC after them: the register runs backwards. */
static uint32_t crc_before(uint32_t crc, const uint8_t *bytes, size_t size)
{
	crc = ~crc;
	while (size--) {
		for (int bit = 0; bit < 8; bit++)
			crc = divide_by_x(crc);
		crc ^= bytes[size];
	}
	return ~crc;
}

bool icrc_matches_doubled(const struct icrc_path *path, const uint8_t *packet, size_t size,
			  uint16_t *id)
{
	uint8_t single[WIRE_FLUSH];
	uint32_t icrc;

	if (size != sizeof(single))
		return false;
	memcpy(single, packet, size);
	memcpy(&icrc, packet + size - WIRE_ICRC, sizeof(icrc));
	icrc = htole32(crc_before(le32toh(icrc), packet, size - WIRE_ICRC));
	memcpy(single + size - WIRE_ICRC, &icrc, sizeof(icrc));
	return icrc_matches(path, single, size, id);
}
