#!/bin/sh
# Makes keys, certificates and passwords for deploy/compose.yaml under deploy/secrets. Needs Go and openssl. Keeps what is there.
# The partner's own token goes into deploy/secrets/northbank by hand.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets/tls
cd secrets

for name in postgres_superuser postgres_owner postgres_worker postgres_desk postgres_batch; do
  [ -s "$name" ] || openssl rand -hex 24 > "$name"
done

# The bearer token of each source. A rotation puts the new one on a line of its own, and takes the old one away when nobody uses it any more.
for source in wallet; do
  [ -s "$source" ] || openssl rand -hex 24 > "$source"
done

# The token of the person who runs operators' commands here. It is made by `paidonce operators add`, and put here by that person.
[ -e operator_token ] || : > operator_token

# One key pair per NATS user. The seed is a secret of the program; the servers know the public key only.
nk() { (cd ../.. && go run github.com/nats-io/nkeys/nk "$@"); }
: > nkeys.conf.new
for role in publisher_wallet gateway worker operator provisioner system; do
  [ -s "nats_$role" ] || nk -gen user > "nats_$role"
  public=$(cd ../.. && go run github.com/nats-io/nkeys/nk -inkey "deploy/secrets/nats_$role" -pubout)
  printf 'NKEY_%s = "%s"\n' "$(printf %s "$role" | tr a-z A-Z)" "$public" >> nkeys.conf.new
done
mv nkeys.conf.new nkeys.conf

if [ ! -s tls/ca.pem ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=paidonce test CA" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout tls/ca.key -out tls/ca.pem 2> /dev/null
fi
for node in nats-1 nats-2 nats-3; do
  [ -s "tls/$node/server.pem" ] && continue
  mkdir -p "tls/$node"
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$node" -keyout "tls/$node/server.key" -out "tls/$node/server.csr" 2> /dev/null
  printf 'subjectAltName=DNS:%s,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' "$node" > "tls/$node/extensions"
  openssl x509 -req -days 825 -in "tls/$node/server.csr" -CA tls/ca.pem -CAkey tls/ca.key -CAcreateserial \
    -extfile "tls/$node/extensions" -out "tls/$node/server.pem" 2> /dev/null
  cp tls/ca.pem "tls/$node/ca.pem"
  rm "tls/$node/server.csr" "tls/$node/extensions"
done

# Containers read these as users of their own. The directory itself stays closed to everybody else on this machine.
chmod 700 .
find . -type f ! -name ca.key -exec chmod 644 {} +
find . -mindepth 1 -type d -exec chmod 755 {} +
echo "made deploy/secrets; put the partner's token into deploy/secrets/northbank" >&2
