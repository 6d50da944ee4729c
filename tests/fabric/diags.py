#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each tool of Debian's infiniband-diags and ibutils, unmodified, with each option that asks the
fabric for something, on two switches with OpenSM. A row is a command on node H2, its exit code, and
what its output must have; docs/fabric.md has the same table in words. Outputs that ibsim has, too,
are compared as a whole in opensm.py."""
import os
import re
import shutil
import sys

from stage import SMALL, can_run, main, need, poll_until, require

READ = [
    ("ibstat", 0, ["State: Active", "Base lid: 4", "SM lid: 1", "Link layer: InfiniBand"]),
    ("ibstat -l", 0, ["^verbena0$"]),
    ("ibstat -p", 0, ["^0x0000000000100003$"]),
    ("ibaddr -g 5", 0, ["GID fe80::10:5"]),
    ("sminfo", 0, ["sm lid 1 sm guid 0x100001.*SMINFO_MASTER"]),
    ("smpquery portinfo 5 1", 0, ["^Lid:\\.+5$", "^LinkState:\\.+Active$", "IsTrapSupported"]),
    ("smpquery portinfo 2 3", 0, ["^LinkState:\\.+Down$", "^LinkWidthActive:\\.+4X$"]),
    ("smpquery -x portinfo 2 7", 0, ["^PhysLinkState:\\.+LinkUp$"]),
    ("smpquery guidinfo 5", 0, ["0: 0x0000000000100005", "32 guids capacity"]),
    ("smpquery mlnxextportinfo 5 1", 255, ["Mellanox ext port info query failed"]),
    ("smpquery -c nodeinfo 2 0,7", 0, ["^Guid:\\.+0x0000000000200001$", "^LocalPort:\\.+7$"]),
    ("smpdump 5 0x11", 0, ["^0101 0101 "]),
    ("ibtracert 4 5", 0, ["\\[7\\] -> switch port {0x0000000000200001}\\[7\\] lid 3-3 \"S2\""]),
    ("ibtracert -f -n 4 6", 0, ["^\\[8\\] "]),
    ("ibtracert -G 0x100003 0x100005", 0, ["To ca .* lid 5-5 \"H3\""]),
    ("ibroute -a 2", 0, ["0x0006 008 "]),
    ("ibroute -n 2", 0, ["0x0006 008"]),
    ("ibroute -G 0x200001", 0, ["switch Lid 3 guid 0x0000000000200001"]),
    ("dump_fts -a", 0, ["guid 0x0000000000200000"]),
    ("dump_mfts", 0, ["0xc000", "guid 0x0000000000200001"]),
    ("iblinkinfo -l", 0, ["\" +S1\" +2 +1\\[.*LinkUp", "Down/ Polling"]),
    ("iblinkinfo -S 0x200000", 0, ["Switch: 0x0000000000200000 S1:"]),
    ("iblinkinfo -G 0x200000", 0, ["Switch: 0x0000000000200000 S1:"]),
    ("iblinkinfo -D 0,1", 0, ["Switch: 0x0000000000200000 S1:"]),
    ("iblinkinfo -p", 0, ["HOQ:18 VL_Stall:7"]),
    ("ibnetdiscover -l", 0, ["\"S1\"", "\"H4\""]),
    ("ibnetdiscover -g", 0, ["Switch\t8"]),
    ("ibnetdiscover -S", 0, ["^Switch\t : 0x0000000000200001"]),
    ("ibnetdiscover -H", 0, ["^Ca\t : 0x0000000000100006"]),
    ("ibnetdiscover -R", 0, []),
    ("ibnetdiscover -s", 0, ["processing NodeInfo|Switch\t8"]),
    ("ibnetdiscover -m", 0, ["Total MADs used: "]),
    ("ibnetdiscover --cache cache", 0, []),
    ("ibnetdiscover --load-cache cache", 0, ["\"H-0000000000100004\"\\[1\\]"]),
    ("ibnetdiscover --diff cache", 0, []),
    ("iblinkinfo --diff cache", 0, []),
    ("ibcacheedit --switchguid 0x200000:0x300000 cache cache2", 0, []),
    ("ibnetdiscover --load-cache cache2 -S", 0, ["0x0000000000300000"]),
    ("ibfindnodesusing -R 0x0000000000200000 7", 0, ["\"S1\" base.*==>>", "^ H3$", "^ H1$"]),
    ("ibidsverify -R", 0, []),
    ("ibqueryerrors", 0, ["6 nodes checked, 0 bad", "20 ports checked, 0 ports"]),
    ("ibqueryerrors --data", 0, ["6 nodes checked, 0 bad"]),
    ("ibqueryerrors --counters", 0, ["PortXmitData == [1-9]"]),
    ("ibqueryerrors -G 0x200000", 0, ["8 ports checked"]),
    ("vendstat -N 2", 255, ["classportinfo query"]),
    ("vendstat -w 2", 255, []),
    ("ibccquery CongestionInfo 5", 0, ["ControlTableCap:\\.+1"]),
    ("ibccquery CongestionKeyInfo 2", 0, ["CC_Key:"]),
    ("ibccquery CongestionLog 2", 0, ["LogType:\\.+1$"]),
    ("ibccquery CongestionLog 5", 0, ["LogType:\\.+2$"]),
    ("ibccquery SwitchCongestionSetting 2", 0, ["Control_Map"]),
    ("ibccquery SwitchPortCongestionSetting 2", 0, ["Valid:\\.+0"]),
    ("ibccquery CACongestionSetting 5", 0, ["Port_Control"]),
    ("ibccquery CongestionControlTable 5", 0, ["CCTI_Limit"]),
    ("ibccquery Timestamp 5", 0, ["Timestamp:"]),
]

# Options of perfquery, and what is special about each.
PERFORMANCE = [
    ("perfquery", 0, ["Port 1|port 1", "PortXmitData:\\.+[1-9]"]),
    ("perfquery -x 5 1", 0, ["PortUnicastXmitPkts:\\.+[1-9]", "PortMulticastXmitPkts:\\.+0"]),
    ("perfquery -X 5 1", 0, ["XmtDataSL0:\\.+[1-9]", "XmtDataSL15:\\.+0"]),
    ("perfquery -S 5 1", 0, ["RcvDataSL0:\\.+[1-9]"]),
    ("perfquery -D 5 1", 0, ["PortInactiveDiscards:\\.+0"]),
    ("perfquery -E 5 1", 0, ["PortDLIDMappingErrors:\\.+0"]),
    ("perfquery -T 5 1", 0, ["SyncHeaderErrorCounter:\\.+0"]),
    ("perfquery --oprcvcounters 5 1", 255, ["cannot query PortOpRcvCounters"]),
    ("perfquery --flowctlcounters 5 1", 0, ["PortXmitFlowPkts:\\.+0"]),
    ("perfquery --vloppackets 5 1", 255, ["cannot query PortVLOpPackets"]),
    ("perfquery --vlopdata 5 1", 255, ["cannot query PortVLOpData"]),
    ("perfquery --vlxmitflowctlerrors 5 1", 0, ["FlowCtlUpdateErrors0:\\.+0"]),
    ("perfquery --vlxmitcounters 5 1", 0, ["PortVLXmitWait0:\\.+0"]),
    ("perfquery --swportvlcong 2 1", 0, ["SWPortVLCongestion0:\\.+0"]),
    ("perfquery --rcvcc 5 1", 0, ["PortPktRcvFECN:\\.+0"]),
    ("perfquery --slrcvfecn 5 1", 0, ["PortSLRcvFECN0:\\.+0"]),
    ("perfquery --slrcvbecn 5 1", 0, ["PortSLRcvBECN0:\\.+0"]),
    ("perfquery --xmitcc 5 1", 0, ["PortXmitTimeCong:\\.+0"]),
    ("perfquery --vlxmittimecc 5 1", 0, ["PortVLXmitTimeCong0:\\.+0"]),
    ("perfquery -c 5 1", 0, ["CounterWidth:\\.+4", "SampleStatus:\\.+0", "Tick:\\.+0xf9"]),
    ("perfquery -a 2", 0, ["port 255", "CapMask: 0x9300"]),
    ("perfquery -x -a 2", 0, ["port 255"]),
    ("perfquery -l 2", 0, ["Lid 2 port 0 "]),
    ("perfquery -a 2 1-3", 0, ["aggregat|port 255|ports? "]),
    ("perfquery -l 2 1,7", 0, ["port 1 ", "port 7 "]),
    ("perfquery -G 0x100005 1", 0, ["Lid 5 port 1"]),
    ("perfquery -e 5 1", 0, ["SymbolErrorCounter:\\.+0"]),
    ("perfquery 2 9", 255, []),
]

RECORDS = [
    ("saquery", 0, ["NodeRecord dump:"], 6),
    ("saquery -N", 0, ["NodeRecord dump:"], 6),
    ("saquery NR 5", 0, ["lid\\.+5$"], 1),
    ("saquery -D", 0, ["^ +6 +\"H4\"$"], 1),
    ("saquery CPI", 0, ["Capability mask 2\\.+0x0000B5E8"], 1),
    ("saquery PIR", 0, ["PortInfoRecord dump:"], 22),
    ("saquery PIR 2/7", 0, ["PortNum\\.+7$"], 1),
    ("saquery PR", 0, ["PathRecord dump:"], 36),
    ("saquery PR --src-to-dst 4:5", 0, ["dlid\\.+5$"], 1),
    ("saquery PR --slid 4 --dlid 6", 0, ["dlid\\.+6$"], 1),
    ("saquery PR --sgid fe80::10:3 --dgid fe80::10:5", 0, ["slid\\.+4$"], 1),
    ("saquery LR", 0, ["LinkRecord dump:"], 12),
    ("saquery LR 2/7", 0, ["ToLID\\.+3$"], 1),
    ("saquery SL2VL", 0, ["SL2VLTableRecord dump:"], 166),
    ("saquery SL2VL 2/7", 0, ["InPort\\.+7$"], 9),
    ("saquery SMIR", 0, ["SMState\\.+3$"], 1),
    ("saquery SWIR", 0, ["SwitchInfoRecord dump:"], 2),
    ("saquery SWIR 3", 0, ["LID\\.+3$"], 1),
    ("saquery LFTR", 0, ["LFT Record dump:"], 2),
    ("saquery LFTR 2", 0, ["LID\\.+2$"], 1),
    ("saquery MFTR", 0, [], 0),
    ("saquery MCMR", 0, ["ff12:401b:ffff::ffff:ffff"], 1),
    ("saquery -g", 0, ["ff12:401b:ffff::ffff:ffff"], 1),
    ("saquery -m", 0, ["ff12:401b:ffff::ffff:ffff"], 1),
    ("saquery SR", 0, [], 0),
    ("saquery IIR", 0, [], 0),
    ("saquery GIR", 0, ["GUIDInfo Record dump:"], 18),
    ("saquery GIR 5", 0, ["GUID 0\\.+0x0000000000100005"], 1),
    ("saquery PKTR", 5, ["SA_ERR_REQ_INVALID"], 1),      # OpenSM wants its SM_Key for these
    ("saquery --smkey 1 PKTR 2/7", 0, ["0xffff 0x0000"], 1),
    ("saquery VLAR", 0, ["VLArbTableRecord dump:"], 88),
    ("saquery VLAR 2/7", 0, ["Port\\.+7$"], 4),
]


def check(fabric, row):
    """What is wrong with a row's output, in lines; "": nothing."""
    command, code, patterns = row[:3]
    got, text = fabric.run("H2", *command.split(), check=False)
    missing = [one for one in patterns if not re.search(one, text, re.M)]
    if len(row) > 3 and patterns and not missing:
        count = len(re.findall(patterns[0], text, re.M))
        if count != row[3]:
            missing.append(f"{patterns[0]}: {count} times, not {row[3]}")
    if got == code and not missing:
        return ""
    return f"`{command}` ended with {got}, expected {code}; lacks {missing}\n{text[-1500:]}\n"


def check_all(fabric, rows):
    wrong = "".join(check(fabric, row) for row in rows if can_run(row[0].split()[0]))
    require(not wrong, wrong)


def what_tools_read(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    check_all(fabric, READ)


def counters_of_all_kinds(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    check_all(fabric, PERFORMANCE)
    fabric.ask(op="errors", node="S1", port=7, counter="flow_control", count=1)
    check_all(fabric, [("perfquery --vlxmitflowctlerrors 2 7", 0, ["Errors0:\\.+1"])])
    # Resets: all, errors only, what is not errors, by option.
    fabric.ask(op="errors", node="S1", port=7, counter="symbol", count=5)
    check_all(fabric, [
        ("perfquery 2 7", 0, ["SymbolErrorCounter:\\.+5"]),
        ("perfquery -R 2 7 0xf000", 0, []),
        ("perfquery 2 7", 0, ["SymbolErrorCounter:\\.+5", "PortXmitPkts:\\.+[0-9]$"]),
        ("perfquery -R 2 7 0x0fff", 0, []),
        ("perfquery -r 2 7", 0, ["SymbolErrorCounter:\\.+0"]),
        ("perfquery -x -R 2 7", 0, []),
        ("perfquery -x 2 7", 0, ["PortXmitPkts:\\.+[0-9]$"]),
        ("perfquery -X -R 5 1", 0, []),
        ("perfquery -X 5 1", 0, ["XmtDataSL0:\\.+[1-9][0-9]{0,2}$"]),
        ("perfquery -E -R 5 1", 0, []),
        ("perfquery -D -R 5 1", 0, []),
        ("perfquery -R -a 2", 0, []),
    ])


def records_of_all_types(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    check_all(fabric, RECORDS)


def port_of(fabric, node, number):
    ports = fabric.ask(op="node", node=node)["node"]["ports"]
    return next(port for port in ports if port["port"] == number)


def states_of_ports(fabric):
    fabric.start(SMALL)
    child = fabric.manager("H1", "log")
    child.terminate()  # nobody repairs what follows
    child.wait()

    def change(action, code=0):
        check_all(fabric, [(f"ibportstate 2 7 {action}", code, [])])
        port = port_of(fabric, "S1", 7)
        return port["state"], port["physical"]

    require(change("disable") == ("down", "disabled"), "disable")
    require(port_of(fabric, "S2", 7)["state"] == "down", "the other end isn't down")
    require(change("enable") == ("init", "link-up"), "enable")
    require(change("arm") == ("armed", "link-up"), "arm")
    require(change("active") == ("active", "link-up"), "active")
    require(change("arm", 255) == ("active", "link-up"), "from Active to Armed")
    require(change("reset") == ("init", "link-up"), "reset")
    require(change("down") == ("init", "link-up"), "down")
    require(change("off") == ("down", "disabled"), "off")
    require(change("on") == ("init", "link-up"), "on")
    change("width 1")
    require(port_of(fabric, "S1", 7)["width"] == "4X", "the width changes before the training")
    change("reset")
    require(port_of(fabric, "S1", 7)["width"] == "1X", "the width is another")
    change("width 255")
    change("reset")
    require(port_of(fabric, "S1", 7)["width"] == "4X", "the width is the old one again")
    change("speed 2", 255)
    change("espeed 1", 255)
    change("vls 2")
    change("mtu 4")
    change("arm")
    check_all(fabric, [("ibportstate 2 7 active", 0, []),
                       # S2's end is made Active, too, by its own LID.
                       ("ibportstate 3 7 arm", 0, []), ("ibportstate 3 7 active", 0, []),
                       ("ibportstate 2 7 query", 0, ["Peer PortInfo", "slid 4; dlid 65535; 0,7"]),
                       ("ibportstate 5 1 lid 9", 0, ["^Lid:\\.+9$"]),
                       ("ibportstate -D 0,1,2 1 query", 0, ["CA/RT PortInfo"]),
                       ("ibportstate -D 0,1,3 1 query", 255, [])])


def settings_of_congestion_control(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    check_all(fabric, [
        ("ibccconfig SwitchPortCongestionSetting 2 1 1 1 5 3 7", 0, []),
        ("ibccquery SwitchPortCongestionSetting 2", 0, ["Valid:\\.+1", "Packet_Size:\\.+3"]),
        ("ibccconfig CACongestionSetting 5 0 0x1 1 2 3 0", 0, []),
        ("ibccquery CACongestionSetting 5", 0, ["CCTI_Timer:\\.+1$", "CCTI_Increase:\\.+2$"]),
        ("ibccconfig CongestionControlTable 5 1 0 1:1 2:2", 0, []),
        ("ibccquery CongestionControlTable 5", 0, ["CCTI_Limit:\\.+1", "CCT_Shift:\\.+2"]),
        ("ibccconfig CongestionKeyInfo 5 0x1 0 0 0", 0, []),
        ("ibccconfig CACongestionSetting 5 0 0x1 1 2 3 0", 255, []),
        ("ibccconfig -c 1 CongestionKeyInfo 5 0 0 0 0", 0, []),
    ])


def servers_answer(fabric):
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    fabric.spawn("H4", "ibping", "-S")
    poll_until(lambda: "1 received" in fabric.run("H2", "ibping", "-c", "1", "6", check=False)[1],
               "ibping gets no answer")
    check_all(fabric, [("ibping -c 1 -G 0x100007", 0, ["1 received"]),
                       ("ibping -f -c 500 6", 0, ["500 received, 0% packet loss"])])
    fabric.spawn("H3", "ibsysstat", "-S")
    poll_until(lambda: not fabric.run("H2", "ibsysstat", "5", check=False)[0], "no ibsysstat")
    check_all(fabric, [("ibsysstat 5 ping", 0, ["sysstat ping succeeded"]),
                       ("ibsysstat 5 host", 0, ["."]),
                       ("ibsysstat 5 cpu", 0, ["cpu 0: model"])])


def ibdiagnet_finds_nothing_wrong(fabric):
    if not shutil.which("ibdiagnet") or not can_run("ibdiagnet"):
        print("      (left out: ibutils isn't installed, or can't run here)")
        return
    fabric.start(SMALL)
    fabric.manager("H1", "log")
    folder = os.path.join(fabric.folder, "diagnet")
    _, text = fabric.run("H2", "ibdiagnet", "-o", folder, "-pc", "-P", "all=1", "-lw", "4x", "-ls",
                         "2.5")
    table = re.findall(r"^ +(.*(?:Check|Report)) +(\d+) +(\d+)", text, re.M)
    require(len(table) >= 6, f"no table of results\n{text}")
    require(all(row[1:] == ("0", "0") for row in table), f"errors: {table}\n{text}")
    require("6 nodes (2 Switches & 4 CA-s)" in text, text)
    fabric.ask(op="errors", node="S1", port=7, counter="symbol", count=500)
    _, text = fabric.run("H2", "ibdiagnet", "-o", folder, "-P", "all=1")
    require("symbol_error_counter" in text, f"the errors of S1/7 aren't found\n{text}")
    _, text = fabric.run("H2", "ibdiagpath", "-d", "1,7", "-o", folder, check=False)
    require("To:   lid=0x0003" in text, f"ibdiagpath\n{text}")


if __name__ == "__main__":
    need("opensm", "ibnetdiscover", "smpquery", "saquery", "perfquery", "ibccquery", "ibsysstat")
    sys.exit(main([what_tools_read, counters_of_all_kinds, records_of_all_types, states_of_ports,
                   settings_of_congestion_control, servers_answer,
                   ibdiagnet_finds_nothing_wrong]))
