/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A topology: the switches, channel adapters and routers of an InfiniBand subnet, their ports, and
 * the cables between them. It comes from a file (ibsim's format, or what `ibnetdiscover` printed of
 * a real cluster), from a generator (generate.h), or from calls here; it can be written again, and
 * drawn (draw.h).
 *
 * Nodes are rows of an array in the order of the file, ports rows of another one: node N's port P
 * is row `first_port` + P, and row `first_port` is port 0 (of an adapter: not used). A cable is two
 * ports that name each other as `peer`. All memory belongs to the topology; names stay where they
 * are until topology_free(). Nothing here reads files but topology_read(). One thread at a time
 * may use a topology.
 */
#ifndef VERBENA_TOPOLOGY_TOPOLOGY_H
#define VERBENA_TOPOLOGY_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TOPOLOGY_NONE UINT32_MAX /* no such row */

#define TOPOLOGY_NODES_MAX 49151u	  /* unicast LIDs */
#define TOPOLOGY_DELAY_MAX_NS 1000000000u /* of a cable */
#define TOPOLOGY_PORTS_MAX 254u		  /* of a node */
#define TOPOLOGY_NAME_MAX 127u		  /* bytes of a name or description */
#define TOPOLOGY_LID_MAX 0xbfffu	  /* unicast */

/* NodeInfo's numbers. */
enum topology_kind { TOPOLOGY_CA = 1, TOPOLOGY_SWITCH = 2, TOPOLOGY_ROUTER = 3 };

/* What one lane carries; 0: the file doesn't say. */
enum topology_speed {
	TOPOLOGY_SDR = 1,
	TOPOLOGY_DDR,
	TOPOLOGY_QDR,
	TOPOLOGY_FDR10,
	TOPOLOGY_FDR,
	TOPOLOGY_EDR,
	TOPOLOGY_HDR,
	TOPOLOGY_NDR,
	TOPOLOGY_XDR,
	TOPOLOGY_SPEEDS,
};

/* An IP address of an end port: in place of IPoIB (`ip=10.0.0.3/8`). */
struct topology_address {
	uint8_t bytes[16]; /* in network order; IPv4: the first four */
	uint8_t prefix;	   /* bits of the network */
	bool is_ipv6;
};

struct topology_port {
	uint64_t guid;	   /* 0: not given */
	uint32_t node;	   /* row */
	uint32_t peer;	   /* row of the port at the other end of the cable; TOPOLOGY_NONE: none */
	uint32_t address;  /* row in `addresses`; TOPOLOGY_NONE: none */
	uint32_t delay_ns; /* of the cable */
	uint32_t line;	   /* of the file; 0: none */
	uint16_t lid;	   /* that the port had in the real cluster; 0: not given */
	uint8_t lmc;
	uint8_t number;
	uint8_t width; /* LinkWidthActive: 1 1x, 2 4x, 4 8x, 8 12x, 16 2x; 0: not given */
	uint8_t speed; /* enum topology_speed; 0: not given */
	uint8_t mtu;   /* 1 to 5: 256 to 4096 bytes; 0: not given */
};

struct topology_node {
	const char *name;	 /* unique */
	const char *description; /* NodeDescription; never NULL: the name when there is none */
	uint64_t guid;		 /* 0: not given */
	uint64_t system_guid;	 /* 0: not given */
	uint32_t vendor_id, device_id;
	uint32_t first_port; /* row of port 0 */
	uint32_t line;	     /* of the file; 0: none */
	uint8_t kind;	     /* enum topology_kind */
	uint8_t ports;	     /* without port 0 */
	bool has_base_port0; /* a switch whose port 0 isn't an enhanced one */
};

struct topology {
	struct topology_node *nodes;
	struct topology_port *ports;
	struct topology_address *addresses;
	uint32_t node_count, port_count, address_count, cable_count;
	const char *title; /* for people: which topology this is; never NULL */
	/* Private: memory of names, and the table that finds nodes by name. */
	uint32_t node_room, port_room, address_room, index_room;
	uint32_t *index;
	struct topology_text *texts;
};

/* What is wrong with a file. Several are collected; `dropped` counts those beyond the room. */
#define TOPOLOGY_REMARKS 20u

struct topology_remark {
	uint32_t line;	 /* 0: the file as a whole */
	bool is_warning; /* the topology can be used */
	char text[240];
};

struct topology_report {
	uint32_t count, dropped, errors;
	/* While an included file is read: its name, and the line there. */
	const char *file;
	uint32_t file_line;
	struct topology_remark remarks[TOPOLOGY_REMARKS];
};

/* An empty topology; topology_free() leaves one, too. */
void topology_init(struct topology *topology);
void topology_free(struct topology *topology);

/* Reading and writing -------------------------------------------------------------------------- */

/*
 * Reads a topology from text, which needn't end with a zero byte. `topology` is overwritten, and is
 * empty after an error. `title` is used if the text has none. Returns 0; -EINVAL: the report has
 * an error at least; -ENOMEM. A text can't include files: topology_read() can.
 */
int topology_parse(struct topology *topology, const char *text, size_t bytes, const char *title,
		   struct topology_report *report);

/* The same of a file ("-": standard input); a negative errno if it can't be read. */
int topology_read(struct topology *topology, const char *path, struct topology_report *report);

/* Writes ibsim's format, which topology_parse() reads again. Errors stay with `out`. */
void topology_write(const struct topology *topology, FILE *out);

/* Building ------------------------------------------------------------------------------------- */

/* Adds a node, copies the texts (`description` NULL: the name). `*node` is its row. Returns 0,
 * -EEXIST: the name is taken, -EINVAL: ports or name, -ENOSPC: TOPOLOGY_NODES_MAX, -ENOMEM. */
int topology_add_node(struct topology *topology, enum topology_kind kind, const char *name,
		      const char *description, unsigned int ports, uint32_t *node);

/* Joins two ports, given as rows. -EBUSY: one of them has a cable. */
int topology_connect(struct topology *topology, uint32_t a, uint32_t b);

/* Copies a text into the topology's memory, so that it lives as long. NULL: no memory. */
const char *topology_text_copy(struct topology *topology, const char *text, size_t bytes);

/* Gives an end port an IP address. */
int topology_set_address(struct topology *topology, uint32_t port,
			 const struct topology_address *address);

/* Gives consecutive addresses of a network ("10.0.0.0/8": from 10.0.0.1) to port 1 of each adapter
 * that has none. -EINVAL: no such network, or too few addresses. */
int topology_number_adapters(struct topology *topology, const char *network);

/* Asking --------------------------------------------------------------------------------------- */

/* The row of the node of that name, or with that description if one node only has it, or with the
 * GUID that is written "0x..."; TOPOLOGY_NONE. */
uint32_t topology_find(const struct topology *topology, const char *name);

/* The row of a node's port, or TOPOLOGY_NONE. */
uint32_t topology_port(const struct topology *topology, uint32_t node, unsigned int number);

/* A speed as PortInfo has it: LinkSpeedActive (1 SDR, 2 DDR, 4 QDR; faster ones: QDR),
 * LinkSpeedExtActive (1 FDR, 2 EDR, 4 HDR, 8 NDR; XDR: NDR) and LinkSpeedExtActive2 (1 XDR). */
unsigned int topology_speed_basic(enum topology_speed speed);
unsigned int topology_speed_extended(enum topology_speed speed);
unsigned int topology_speed_extended2(enum topology_speed speed);
/* The speed of that name, and the width of that many lanes ("4x", also "4X"); 0: there is none. */
enum topology_speed topology_speed_find(const char *name);
unsigned int topology_width_find(const char *text);
const char *topology_speed_name(enum topology_speed speed); /* "HDR"; "" if not given */
unsigned int topology_lanes(unsigned int width);	    /* 2 (4x): 4; 0 if not given */

/* "10.0.0.3/8"; `text` has TOPOLOGY_ADDRESS_BYTES. */
#define TOPOLOGY_ADDRESS_BYTES 64
const char *topology_address_text(char *text, const struct topology_address *address);

/* Whether these bytes are printable UTF-8 without quotation marks: then they can be a name. */
bool topology_text_is_name(const char *text, size_t bytes);

/* "200ns", "1.5us", "2ms" as nanoseconds, at most a second. False: it is no time. */
bool topology_delay_parse(uint32_t *delay_ns, const char *text, size_t bytes);

/* 256 to 4096 bytes as 1 to 5; 0: no such MTU. */
unsigned int topology_mtu_code(unsigned long bytes);

#endif
