#!/bin/sh
# iperf3 from rank 1 to rank 0, for as many seconds as the first argument says.
#     rocelab run zone-small --on srv1-1 --on srv3-1 -- sh iperf.sh 10
server=${SERVERS%% *}
if [ "$RANK" = 0 ]; then
    exec iperf3 -s -1 >/dev/null
fi
until iperf3 -c "$server" -t "${1-10}" -i 0.5 -f m --forceflush; do
    sleep 0.2 # it does not listen yet
done
