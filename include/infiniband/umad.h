/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libibumad: sending and receiving management datagrams (MADs). A port is opened as a descriptor;
 * agents are registered on it, one for each class; a MAD travels behind a struct ib_user_mad.
 *
 * The interface is that of rdma-core 44. Functions return 0 or a negative errno, if their comment
 * says nothing else.
 */
#ifndef _UMAD_H
#define _UMAD_H

#include <arpa/inet.h>
#include <endian.h>
#include <linux/types.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef __be16 __attribute__((deprecated)) be16_t;
typedef __be32 __attribute__((deprecated)) be32_t;
typedef __be64 __attribute__((deprecated)) be64_t;

/* A GID in a structure of the wire. It is aligned to 4 only, other than union ibv_gid. */
union umad_gid {
	uint8_t raw[16];
	__be16 raw_be16[8];
	struct {
		__be64 subnet_prefix;
		__be64 interface_id;
	} global;
} __attribute__((aligned(4))) __attribute__((packed));

#define UMAD_MAX_DEVICES 32
#define UMAD_ANY_PORT 0

/* Where a MAD comes from or goes to. */
typedef struct ib_mad_addr {
	__be32 qpn;
	__be32 qkey;
	__be16 lid;
	uint8_t sl;
	uint8_t path_bits;
	uint8_t grh_present; /* boolean: what follows, up to flow_label, is used */
	uint8_t gid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	union {
		uint8_t gid[16];
		union umad_gid ib_gid;
	};
	__be32 flow_label;
	uint16_t pkey_index; /* in host order */
	uint8_t reserved[6];
} ib_mad_addr_t;

typedef struct ib_user_mad {
	uint32_t agent_id;
	uint32_t status; /* received: 0, or an errno; ETIMEDOUT: no answer came */
	uint32_t timeout_ms;
	uint32_t retries;
	uint32_t length; /* received: of this header and the MAD */
	ib_mad_addr_t addr;
	uint8_t data[0];
} ib_user_mad_t;

/* What the library and Linux agree about. */
#define IB_UMAD_ABI_VERSION 5
#define IB_UMAD_ABI_DIR "/sys/class/infiniband_mad"
#define IB_UMAD_ABI_FILE "abi_version"
#define IB_IOCTL_MAGIC 0x1b
#define IB_USER_MAD_REGISTER_AGENT _IOWR(IB_IOCTL_MAGIC, 1, struct ib_user_mad_reg_req)
#define IB_USER_MAD_UNREGISTER_AGENT _IOW(IB_IOCTL_MAGIC, 2, uint32_t)
#define IB_USER_MAD_ENABLE_PKEY _IO(IB_IOCTL_MAGIC, 3)
#define IB_USER_MAD_REGISTER_AGENT2 _IOWR(IB_IOCTL_MAGIC, 4, struct ib_user_mad_reg_req2)

#define UMAD_CA_NAME_LEN 20
#define UMAD_CA_MAX_PORTS 10 /* numbers 0 to 9 */
#define UMAD_CA_MAX_AGENTS 32
#define UMAD_MAX_PORTS 64

/* Where Linux shows devices. */
#define SYS_INFINIBAND "/sys/class/infiniband"
#define SYS_INFINIBAND_MAD "/sys/class/infiniband_mad"
#define SYS_IB_MAD_PORT "port"
#define SYS_IB_MAD_DEV "ibdev"
#define SYS_CA_PORTS_DIR "ports"
#define SYS_NODE_TYPE "node_type"
#define SYS_CA_FW_VERS "fw_ver"
#define SYS_CA_HW_VERS "hw_rev"
#define SYS_CA_TYPE "hca_type"
#define SYS_CA_NODE_GUID "node_guid"
#define SYS_CA_SYS_GUID "sys_image_guid"
#define SYS_PORT_LMC "lid_mask_count"
#define SYS_PORT_SMLID "sm_lid"
#define SYS_PORT_SMSL "sm_sl"
#define SYS_PORT_LID "lid"
#define SYS_PORT_STATE "state"
#define SYS_PORT_PHY_STATE "phys_state"
#define SYS_PORT_CAPMASK "cap_mask"
#define SYS_PORT_RATE "rate"
#define SYS_PORT_GUID "port_guid"
#define SYS_PORT_GID "gids/0"
#define SYS_PORT_LINK_LAYER "link_layer"

typedef struct umad_port {
	char ca_name[UMAD_CA_NAME_LEN];
	int portnum;
	unsigned base_lid;
	unsigned lmc;
	unsigned sm_lid;
	unsigned sm_sl;
	unsigned state;	     /* 1 Down, 2 Initialize, 3 Armed, 4 Active */
	unsigned phys_state; /* 5 LinkUp */
	unsigned rate;	     /* Gb/s */
	__be32 capmask;
	__be64 gid_prefix;
	__be64 port_guid;
	unsigned pkeys_size;
	uint16_t *pkeys; /* in host order; umad_release_port() frees them */
	char link_layer[UMAD_CA_NAME_LEN];
} umad_port_t;

typedef struct umad_ca {
	char ca_name[UMAD_CA_NAME_LEN];
	unsigned node_type; /* 1 channel adapter, 2 switch, 3 router */
	int numports;
	char fw_ver[20];
	char ca_type[40];
	char hw_ver[20];
	__be64 node_guid;
	__be64 system_guid;
	umad_port_t *ports[UMAD_CA_MAX_PORTS]; /* by number; NULL: no such port */
} umad_ca_t;

/*
 * The two devices of one port: subnet management (SMI, QP 0) by one, all else (GSI, QP 1) by the
 * other; mostly they are the same. An empty name: there is none.
 */
struct umad_ca_pair {
	char smi_name[UMAD_CA_NAME_LEN];
	uint32_t smi_preferred_port;
	char gsi_name[UMAD_CA_NAME_LEN];
	uint32_t gsi_preferred_port;
};

struct umad_device_node {
	struct umad_device_node *next;
	const char *ca_name;
};

int umad_init(void);
int umad_done(void);

/* Devices. The first two return how many they wrote. */
int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max);
int umad_get_ca_portguids(const char *ca_name, __be64 *portguids, int max);
int umad_get_ca(const char *ca_name, umad_ca_t *ca);
int umad_release_ca(umad_ca_t *ca);
int umad_get_port(const char *ca_name, int portnum, umad_port_t *port);
int umad_release_port(umad_port_t *port);
int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max);
int umad_sort_ca_device_list(struct umad_device_node **head, size_t size);
struct umad_device_node *umad_get_ca_device_list(void);
void umad_free_ca_device_list(struct umad_device_node *head);

/* A port, by a descriptor that can be polled. */
int umad_open_port(const char *ca_name, int portnum);
int umad_open_smi_port(const char *ca_name, int portnum);
int umad_close_port(int portid);
int umad_get_fd(int portid);

/* The header of a MAD in a buffer. umad_set_grh_net() is declared only, as in rdma-core. */
void *umad_get_mad(void *umad);
size_t umad_size(void);
int umad_status(void *umad);
ib_mad_addr_t *umad_get_mad_addr(void *umad);
int umad_set_grh_net(void *umad, void *mad_addr);
int umad_set_grh(void *umad, void *mad_addr);
int umad_set_addr_net(void *umad, __be16 dlid, __be32 dqp, int sl, __be32 qkey);
int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey);
int umad_set_pkey(void *umad, int pkey_index);
int umad_get_pkey(void *umad);

/*
 * A timeout of umad_send() makes the request fail, with a message of status ETIMEDOUT, when no
 * response came to any of its 1 + `retries` copies. umad_recv() returns the agent; a negative
 * timeout is none. `length` is of the MAD alone.
 */
int umad_send(int portid, int agentid, void *umad, int length, int timeout_ms, int retries);
int umad_recv(int portid, void *umad, int *length, int timeout_ms);
int umad_poll(int portid, int timeout_ms);

/* Agents. The first two return the agent, or -EPERM. */
int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
		  long method_mask[16 / sizeof(long)]);
int umad_register_oui(int portid, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3],
		      long method_mask[16 / sizeof(long)]);
int umad_unregister(int portid, int agentid);

enum {
	UMAD_USER_RMPP = (1 << 0) /* the program itself does RMPP */
};

struct umad_reg_attr {
	uint8_t mgmt_class;
	uint8_t mgmt_class_version;
	uint32_t flags;
	uint64_t method_mask[2];
	uint32_t oui;
	uint8_t rmpp_version;
};

/* Returns 0 or a positive errno. EINVAL for unknown flags: attr->flags then has the known ones. */
int umad_register2(int port_fd, struct umad_reg_attr *attr, uint32_t *agent_id);

/* Messages on standard error: returns the level, after it was set to a `level` of 0 or more. */
int umad_debug(int level);
void umad_addr_dump(ib_mad_addr_t *addr);
void umad_dump(void *umad);

/*
 * Pairs of devices (since rdma-core 56), with the preferred ports 0; returns how many. The second
 * finds the pair that a device belongs to (NULL: the first) with its preferred ports, and returns
 * 0 or a negative errno.
 */
int umad_get_smi_gsi_pairs(struct umad_ca_pair cas[], size_t max);
int umad_get_smi_gsi_pair_by_ca_name(const char *devname, uint8_t portnum,
				     struct umad_ca_pair *ca_pair, unsigned enforce_smi);

/* Buffers: `size` bytes each, the header included. */
static inline void *umad_alloc(int num, size_t size)
{
	return calloc(num, size);
}

static inline void umad_free(void *umad)
{
	free(umad);
}

#ifndef ntohll
static inline __attribute__((deprecated)) uint64_t ntohll(uint64_t x)
{
	return be64toh(x);
}
#define ntohll ntohll
#endif
#ifndef htonll
static inline __attribute__((deprecated)) uint64_t htonll(uint64_t x)
{
	return htobe64(x);
}
#define htonll htonll
#endif

#ifdef __cplusplus
}
#endif

#endif /* _UMAD_H */
