#!/bin/sh
# Submit one withdrawal with curl, as often as it takes, with the same key and the same body.
#
#   PAIDONCE_URL=http://127.0.0.1:8470 PAIDONCE_TOKEN_FILE=/run/secrets/wallet ./withdraw.sh KEY withdrawal.json
set -eu
key=$1
body=$2
answer=$(mktemp)
headers=$(mktemp)
trap 'rm -f "$answer" "$headers"' EXIT
# The token goes through a file: arguments of a process are visible to others.
printf 'Authorization: Bearer %s\n' "$(head -n 1 "$PAIDONCE_TOKEN_FILE")" >"$headers"

while :; do
  # No answer counts as 000: it may or may not have arrived, so ask again, with the same key.
  status=$(curl --silent --max-time 30 --output "$answer" --write-out '%{http_code}' -H @"$headers" -H 'Content-Type: application/json' \
    -H "Idempotency-Key: $key" -H 'Prefer: wait=10' --data-binary @"$body" "$PAIDONCE_URL/v1/withdrawals") || status=000
  case $status in
  201) echo authorized; exit 0 ;;
  200) sed -n 's/.*"state":"\([a-z]*\)".*/\1/p' "$answer"; exit 0 ;;
  202 | 409 | 500 | 503 | 000) sleep 1 ;;
  *) echo "refused: $status $(sed -n 's/.*"code":"\([a-z_]*\)".*/\1/p' "$answer")" >&2; exit 1 ;;
  esac
done
