#!/bin/sh
# Runs a command where only this machine can be reached, and fails if the command has tried to reach another.
#
# Usage: scripts/no_network.sh COMMAND...
#
# The command gets a network namespace of its own: loopback, and one link that leads nowhere but is the way to everywhere else.
# Three things are counted, and none may happen while it runs:
#   - packets of IPv4 on that link; the only name server is said to be behind it, whatever the machine's own one is;
#   - attempts by IPv6, which has no way out and is refused;
#   - datagrams to ports of this machine where nobody listens, such as those to a name server on loopback.
# What goes through a socket in the file system stays on this machine, and is not seen.
#
# It needs iproute2, and root or the right to make user namespaces. Exit code 77 says that these are missing: nothing was run then.
set -eu
PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "SKIPPED, as nothing can be run without a network here: $*" >&2
    exit 77
}

if [ "${1-}" != --inside ]; then
    command -v ip >/dev/null || skip "iproute2 is not installed"
    command -v unshare >/dev/null || skip "util-linux is not installed"
    set -- --net --mount --fork "$0" --inside "$@"
    [ "$(id -u)" = 0 ] || set -- --user --map-root-user "$@"
    unshare --net --mount true 2>/dev/null || unshare --user --map-root-user --net --mount true 2>/dev/null ||
        skip "this user may make no network namespace"
    exec unshare "$@"
fi
shift

# Both ends lie here. Without IPv6 on them the system sends nothing of its own.
ip link add quiet0 type veth peer name quiet1 2>/dev/null || skip "the system makes no links of the type veth"
for link in quiet0 quiet1; do
    ipv6=/proc/sys/net/ipv6/conf/$link/disable_ipv6
    [ ! -e "$ipv6" ] || echo 1 2>/dev/null >"$ipv6" || skip "$ipv6 cannot be written"
done
ip link set lo up
ip address add 198.51.100.1/24 dev quiet0
ip link set quiet1 up
ip link set quiet0 up
ip route add default via 198.51.100.2
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
echo "nameserver 198.51.100.2" >"$files/resolv.conf"
echo "hosts: files dns" >"$files/nsswitch.conf"
for file in resolv.conf nsswitch.conf; do
    [ ! -e "/etc/$file" ] || mount --bind "$files/$file" "/etc/$file" 2>/dev/null || skip "/etc/$file cannot be replaced"
done

# Of tables in which a line of names is followed by one of numbers.
of_table() {
    awk -v group="$1:" -v name="$2" '$1 == group && at { print $at; exit }
        $1 == group { for (i = 2; i <= NF; i++) if ($i == name) at = i }' /proc/net/snmp
}
of_list() { awk -v name="$1" '$1 == name { n = $2 } END { print n + 0 }' /proc/net/snmp6 2>/dev/null || echo 0; }
packets() { awk '$1 == "quiet0:" { print $11 }' /proc/net/dev; }
refused() { of_list Ip6OutNoRoutes; }
unheard() { echo $(($(of_table Udp NoPorts) + $(of_list Udp6NoPorts))); }

before="$(packets) $(refused) $(unheard)"
code=0
"$@" || code=$?
after="$(packets) $(refused) $(unheard)"
if [ "$after" != "$before" ]; then
    echo "something was to leave this machine while this ran, and nothing may: $*" >&2
    echo "packets by IPv4, attempts by IPv6, datagrams that nobody took: $before before, $after after" >&2
    exit 1
fi
exit "$code"
