#!/usr/bin/env bash
# Publish one job straight to JetStream, without a client: the protocol is text. In earnest use `nats pub` of nats.io; what matters is the same:
# the subject, the message id, and that nothing counts before the broker's confirmation.
#
#   bash publish.sh 127.0.0.1 4222 wallet gbp-fps KEY job.json      # job.json without v and key, in one object
set -eu
LC_ALL=C # lengths are bytes
host=$1 port=$2 source=$3 route=$4 key=$5 file=$6
payload="{\"v\":1,\"key\":\"$key\",$(sed '1s/^[[:space:]]*{//' "$file")"
# The key alone would let the broker swallow another job under the same key without a word.
id="$source:$key:$(printf %s "$payload" | sha256sum | cut -c1-16)"
headers=$(printf 'NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n.' "$id") headers=${headers%.}
inbox="_INBOX_publisher.$source.$key"

publish() {
  exec 3<>"/dev/tcp/$host/$port" || return 1
  printf 'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\nSUB %s 1\r\nHPUB withdrawals.jobs.%s.%s %s %d %d\r\n%s%s\r\n' \
    "$inbox" "$route" "$source" "$inbox" ${#headers} $((${#headers} + ${#payload})) "$headers" "$payload" >&3
  while IFS= read -r -t 10 line <&3; do
    case $line in
    PING*) printf 'PONG\r\n' >&3 ;;
    "MSG "*) IFS= read -r -t 10 answer <&3 && return 0 ;;
    HMSG* | -ERR*) return 1 ;; # nobody answers, or the broker refuses this connection
    esac
  done
  return 1
}

for _ in $(seq 30); do
  if publish 2>/dev/null; then
    case $answer in
    *'"error"'*) echo "refused: $answer" >&2; exit 1 ;;
    *'"duplicate":true'* | *'"duplicate": true'*) echo "confirmed again" ;;
    *) echo confirmed ;;
    esac
    exit 0
  fi
  sleep 1 # it may or may not be stored: publish the same bytes under the same id again
done
echo "not confirmed: publish it again later, with the same key" >&2
exit 1
