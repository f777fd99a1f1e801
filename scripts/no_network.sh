#!/bin/sh
# Runs a command where only this machine can be reached, and fails if the command has tried to reach another.
#
# Usage: scripts/no_network.sh COMMAND...
#
# The command gets a network namespace of its own: loopback, and one link that leads nowhere but is the way to everywhere else.
# Whatever it wants to send, a look-up of a name included, shows in that link's counters. It needs root and iproute2; exit code
# 77 says that they are missing, and then nothing was run.
set -eu
PATH=$PATH:/usr/sbin:/sbin

space=cactus-quiet-$$
link=cq$$
[ "$(id -u)" = 0 ] && command -v ip >/dev/null || exit 77
ip netns add "$space" 2>/dev/null || exit 77
trap 'ip netns delete "$space"' EXIT
inside() { ip netns exec "$space" "$@"; }
if ! ip link add "${link}a" type veth peer name "${link}b" netns "$space" 2>/dev/null; then
    exit 77
fi
# Packets of the system's own are none of the command's.
sysctl -qw "net.ipv6.conf.${link}a.disable_ipv6=1" 2>/dev/null || true
inside sysctl -qw net.ipv6.conf.all.disable_ipv6=1 2>/dev/null || true
inside sysctl -qw net.ipv6.conf.lo.disable_ipv6=0 2>/dev/null || true
inside ip link set lo up
inside ip address add 198.51.100.1/24 dev "${link}b"
inside ip link set "${link}b" up
ip link set "${link}a" up
inside ip route add default via 198.51.100.2

sent() { inside cat "/sys/class/net/${link}b/statistics/tx_packets"; }
before=$(sent)
code=0
inside "$@" || code=$?
after=$(sent)
if [ "$after" != "$before" ]; then
    echo "$((after - before)) packets were to leave this machine while this ran, and none may: $*" >&2
    exit 1
fi
exit "$code"
