/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric's agents against a model: random and mutated subnet management and performance
 * requests by directed routes into a small net. The model is plain arrays and the rules of the
 * specification, written without the core's code: which requests are answered, with what status,
 * and what is read afterwards. Each seed is one net and 200 requests, always the same.
 *
 *   sim_fabric [COUNT] [FIRST]
 */
#include "../unit/fabric/net.h"
#include "fabric_seeds.h"

enum { REQUESTS = 200, SWITCHES = 2, PORTS = 9, BLOCKS = 4 };
enum { GET = 1, SET = 2 };

struct model {
	uint8_t state[NODES][PORTS], physical[NODES][PORTS], mtu[NODES][PORTS];
	uint16_t lid[NODES][PORTS];
	uint16_t pkeys[NODES][PORTS][64];
	uint8_t unicast[SWITCHES][BLOCKS * 64];
	uint16_t multicast[SWITCHES][BLOCKS * 32];
	uint16_t top[SWITCHES];
};

static unsigned int ports_of(uint32_t node)
{
	return node < SWITCHES ? 8 : (node == NODE_H4 ? 2 : 1);
}

/* The other end of a port's cable. */
static bool peer_of(uint32_t node, unsigned int port, uint32_t *peer, unsigned int *peer_port)
{
	for (unsigned int i = 0; i < sizeof net_cables / sizeof net_cables[0]; i++)
		for (int end = 0; end < 2; end++)
			if (net_cables[i].node[end] == node && net_cables[i].port[end] == port) {
				*peer = net_cables[i].node[!end];
				*peer_port = net_cables[i].port[!end];
				return true;
			}
	return false;
}

static void model_begin(struct model *model)
{
	memset(model, 0, sizeof *model);
	memset(model->unicast, 0xff, sizeof model->unicast);
	for (uint32_t node = 0; node < NODES; node++)
		for (unsigned int port = 0; port <= ports_of(node); port++) {
			uint32_t peer;
			unsigned int other;
			bool is_up = !port || peer_of(node, port, &peer, &other);

			model->state[node][port] = is_up ? 2 : 1;
			model->physical[node][port] = is_up ? 5 : 2;
			model->mtu[node][port] = 5;
			model->pkeys[node][port][0] = 0xffff;
		}
}

/* Where a path ends; false: a link on it is down, or a node isn't a switch. */
static bool model_walk(const struct model *model, const char *path, uint32_t *node,
		       unsigned int *port)
{
	*node = NODE_H1;
	*port = 1;
	for (unsigned int i = 0; path[i]; i++) {
		unsigned int out = (unsigned char)path[i];
		uint32_t peer;
		unsigned int other;

		if ((*node >= SWITCHES && (i || out != 1)) || out > 8 ||
		    !peer_of(*node, out, &peer, &other) || model->state[*node][out] < 2 ||
		    model->state[peer][other] < 2)
			return false;
		*node = peer;
		*port = other;
	}
	return true;
}

/* PortInfo ------------------------------------------------------------------------------------- */

static bool link_willing(const struct model *model, uint32_t node, unsigned int port)
{
	return model->physical[node][port] != 1 && model->physical[node][port] != 3;
}

/* A Set with state Down, or with a physical state. */
static void model_down(struct model *model, uint32_t node, unsigned int port, uint8_t physical)
{
	uint32_t peer;
	unsigned int other;
	bool has_peer = peer_of(node, port, &peer, &other);

	model->state[node][port] = 1;
	model->physical[node][port] = physical ? physical : 2;
	if (!has_peer)
		return;
	model->state[peer][other] = 1;
	if (model->physical[peer][other] == 5)
		model->physical[peer][other] = 2;
	if (!link_willing(model, node, port) || !link_willing(model, peer, other))
		return;
	model->state[node][port] = model->state[peer][other] = 2;
	model->physical[node][port] = model->physical[peer][other] = 5;
}

static bool state_allowed(uint8_t is, uint8_t wanted, uint8_t physical)
{
	if (physical > 3 || (physical && wanted > 1))
		return false;
	return wanted < 2 || (wanted == 3 && (is == 2 || is == 3)) ||
	       (wanted == 4 && (is == 3 || is == 4));
}

/* The status that a Set has, and its effect. */
static int model_port_set(struct model *model, uint32_t node, unsigned int port,
			  const uint8_t data[64])
{
	uint8_t wanted = data[32] & 15, physical = data[33] >> 4, mtu = data[36] >> 4;
	uint16_t lid = octets_get16(data + 16);
	bool is_end = node >= SWITCHES || !port;

	if (!state_allowed(model->state[node][port], wanted, physical) || mtu > 5)
		return 0x1c;
	if (is_end && (lid >= 0xc000 || (!lid && model->lid[node][port])))
		return 0x1c;
	if (is_end)
		model->lid[node][port] = lid;
	if (mtu)
		model->mtu[node][port] = mtu;
	if (!port) {
		if (wanted >= 3)
			model->state[node][port] = wanted;
	} else if (wanted == 1 || physical) {
		model_down(model, node, port, physical);
	} else if (wanted) {
		model->state[node][port] = wanted;
	}
	return 0;
}

/* What the model says of a request ------------------------------------------------------------- */

struct asked {
	uint8_t method;
	uint16_t attribute;
	uint32_t modifier;
	uint8_t data[64];
	uint32_t node;	   /* where it ends */
	unsigned int port; /* by which it came */
};

static int expect_port_info(struct model *model, const struct asked *asked, uint8_t expected[64])
{
	unsigned int number = asked->modifier & 0xff;
	int status = 0;

	if (!number && asked->node >= SWITCHES)
		number = asked->port;
	if (number > ports_of(asked->node))
		return 0x1c;
	if (asked->method == SET)
		status = model_port_set(model, asked->node, number, asked->data);
	octets_put16(expected + 16, model->lid[asked->node][number]);
	expected[32] = model->state[asked->node][number];
	expected[33] = (uint8_t)(model->physical[asked->node][number] << 4);
	expected[36] = (uint8_t)(model->mtu[asked->node][number] << 4);
	return status;
}

static int expect_pkeys(struct model *model, const struct asked *asked, uint8_t expected[64])
{
	unsigned int number = asked->node < SWITCHES ? asked->modifier >> 16 : asked->port;
	unsigned int block = asked->modifier & 0xffff;

	if (number > ports_of(asked->node) || block > 1)
		return 0x1c;
	for (unsigned int i = 0; i < 32; i++) {
		uint16_t *entry = &model->pkeys[asked->node][number][block * 32 + i];

		if (asked->method == SET)
			*entry = octets_get16(asked->data + 2 * i);
		octets_put16(expected + 2 * i, *entry);
	}
	return 0;
}

static int expect_unicast(struct model *model, const struct asked *asked, uint8_t expected[64])
{
	if (asked->node >= SWITCHES)
		return 0x0c;
	if (asked->modifier >= 768)
		return 0x1c;
	if (asked->method == SET)
		memcpy(model->unicast[asked->node] + 64 * asked->modifier, asked->data, 64);
	memcpy(expected, model->unicast[asked->node] + 64 * asked->modifier, 64);
	return 0;
}

static int expect_multicast(struct model *model, const struct asked *asked, uint8_t expected[64])
{
	unsigned int block = asked->modifier & 0x1ff;

	if (asked->node >= SWITCHES)
		return 0x0c;
	if (block >= 32 || asked->modifier >> 28)
		return 0x1c;
	for (unsigned int i = 0; i < 32; i++) {
		uint16_t *entry = &model->multicast[asked->node][32 * block + i];

		if (asked->method == SET)
			*entry = octets_get16(asked->data + 2 * i);
		octets_put16(expected + 2 * i, *entry);
	}
	return 0;
}

static int expect_switch(struct model *model, const struct asked *asked, uint8_t expected[64])
{
	uint16_t top = octets_get16(asked->data + 6);
	int status = 0;

	if (asked->node >= SWITCHES)
		return 0x0c;
	if (asked->method == SET && top >= 49152)
		status = 0x1c;
	else if (asked->method == SET)
		model->top[asked->node] = top;
	octets_put16(expected + 6, model->top[asked->node]);
	return status;
}

/* The octets of the answer that the model knows. */
static void mask_make(uint16_t attribute, uint8_t mask[64])
{
	memset(mask, attribute == 0x16 || attribute == 0x19 || attribute == 0x1b ? 0xff : 0, 64);
	if (attribute == 0x15) {
		mask[16] = mask[17] = 0xff;
		mask[32] = 0x0f;
		mask[33] = mask[36] = 0xf0;
	} else if (attribute == 0x12) {
		mask[6] = mask[7] = 0xff;
	}
}

static int expect_any(struct model *model, const struct asked *asked, uint8_t expected[64])
{
	memset(expected, 0, 64);
	switch (asked->attribute) {
	case 0x10:
	case 0x11:
		return asked->method == GET ? 0 : 0x0c;
	case 0x12:
		return expect_switch(model, asked, expected);
	case 0x15:
		return expect_port_info(model, asked, expected);
	case 0x16:
		return expect_pkeys(model, asked, expected);
	case 0x19:
		return expect_unicast(model, asked, expected);
	case 0x1b:
		return expect_multicast(model, asked, expected);
	default:
		return 0x0c;
	}
}

/* Requests ------------------------------------------------------------------------------------- */

static void path_roll(char path[8])
{
	static const char *const usual[] = {"",	      "\1",	 "\1\7",    "\1\10",  "\1\2",
					    "\1\7\1", "\1\10\2", "\1\7\10", "\1\7\2", "\1\7\10\2"};

	strcpy(path, usual[dice_roll(sizeof usual / sizeof usual[0])]);
	if (dice_roll(8) || !*path)
		return;
	path[dice_roll((uint32_t)strlen(path))] = (char)(1 + dice_roll(12));
}

/* A PortInfo whose fields are zero but for those that the model knows. */
static void port_info_roll(uint8_t data[64])
{
	memset(data, 0, 64);
	octets_put16(data + 16, (uint16_t)(dice_roll(8) ? 1 + dice_roll(200) : dice_roll(65536)));
	octets_put16(data + 18, 1);
	data[32] = (uint8_t)dice_roll(6);
	data[33] = (uint8_t)(dice_roll(4) ? 0 : dice_roll(6) << 4);
	data[36] = (uint8_t)(dice_roll(7) << 4);
}

static void asked_roll(struct asked *asked)
{
	static const uint16_t attributes[] = {0x10, 0x11, 0x12, 0x15, 0x15, 0x15,
					      0x16, 0x19, 0x1b, 0x31, 0x1a, 0xff00};

	asked->method = dice_roll(2) ? GET : SET;
	asked->attribute = attributes[dice_roll(sizeof attributes / sizeof attributes[0])];
	asked->modifier = dice_roll(10);
	for (int i = 0; i < 64; i++)
		asked->data[i] = (uint8_t)dice_roll(256);
	if (asked->attribute == 0x15)
		port_info_roll(asked->data);
	if (asked->attribute == 0x16)
		asked->modifier = dice_roll(10) << 16 | dice_roll(3);
	if (asked->attribute == 0x19)
		asked->modifier = dice_roll(8) ? dice_roll(BLOCKS) : 766 + 2 * dice_roll(1000);
	if (asked->attribute == 0x19 && asked->modifier >= BLOCKS && asked->modifier < 768)
		asked->modifier = 768;
	if (asked->attribute == 0x1b)
		asked->modifier = dice_roll(8) ? dice_roll(BLOCKS)
					       : dice_roll(16) << 28 | (32 + dice_roll(400));
}

static bool answer_check(const struct net *net, const struct asked *asked, int status,
			 const uint8_t expected[64])
{
	uint8_t mask[64];

	if (octets_get16(net->mad + 4) != (0x8000 | status) || net->mad[3] != 0x81 ||
	    octets_get16(net->mad + 16) != asked->attribute ||
	    octets_get32(net->mad + 20) != asked->modifier)
		return false;
	if (status == 0x0c || (status && asked->method == GET) ||
	    (status && asked->attribute != 0x15 && asked->attribute != 0x12))
		return true;
	if (status && asked->attribute == 0x15 && (asked->modifier & 0xff) > ports_of(asked->node))
		return true;
	mask_make(asked->attribute, mask);
	for (int i = 0; i < 64; i++)
		if ((net->mad[64 + i] ^ expected[i]) & mask[i])
			return false;
	return true;
}

static bool request_run(struct net *net, struct model *model)
{
	struct asked asked;
	uint8_t expected[64];
	char path[8];
	bool answers;
	int status = -1, got;

	path_roll(path);
	asked_roll(&asked);
	answers = model_walk(model, path, &asked.node, &asked.port);
	if (answers)
		status = expect_any(model, &asked, expected);
	/* A Set may end the link by which it came, and the answer with it. */
	if (answers && asked.method == SET && !model_walk(model, path, &asked.node, &asked.port))
		answers = false;
	got = net_ask(net, path, asked.method, asked.attribute, asked.modifier, asked.data);
	if (answers ? got >= 0 && answer_check(net, &asked, status, expected) : got < 0)
		return true;
	printf("method %d attribute 0x%x modifier 0x%x path of %zu hops to node %u: answered %d, "
	       "model %d\n",
	       asked.method, asked.attribute, asked.modifier, strlen(path), asked.node, got,
	       answers ? status : -1);
	return false;
}

/* Any bytes at all: only what crashes is wrong. Nothing that the model has may change by them, so
 * they come last. */
static void noise_run(struct net *net)
{
	for (int i = 0; i < 100; i++) {
		uint8_t mad[256];
		uint32_t node = dice_roll(NODES);

		smp_make(mad, (uint8_t)dice_roll(4), (uint16_t)(0x10 + dice_roll(36)),
			 dice_roll(4) ? dice_roll(300) : dice_roll(UINT32_MAX),
			 (uint8_t)(dice_roll(2) ? 255 : dice_roll(64)), mad);
		for (uint32_t n = dice_roll(20); n; n--)
			mad[dice_roll(256)] = (uint8_t)dice_roll(256);
		if (dice_roll(3) == 0)
			mad[1] = dice_roll(2) ? 0x04 : 0x21;
		net_send(net, node, node >= SWITCHES, (uint16_t)dice_roll(12), dice_roll(2), mad,
			 1000 + (uint64_t)i);
		fabric_expire(&net->fabric, 1000 + (uint64_t)i);
	}
}

static bool seed_run(uint64_t seed)
{
	struct model model;
	struct net *net = net_create();
	struct fabric again;
	bool is_right = true;

	dice_seed(seed);
	model_begin(&model);
	for (int i = 0; i < REQUESTS && is_right; i++)
		is_right = request_run(net, &model);
	if (is_right && dice_roll(2))
		net_configure(net);
	noise_run(net);
	is_right &= !fabric_open(&again, &net_functions, net, net->memory, net->bytes);
	net_free(net);
	return is_right;
}

int main(int argc, char **argv)
{
	return seeds_run(argc, argv, seed_run);
}
