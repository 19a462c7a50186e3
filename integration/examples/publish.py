#!/usr/bin/env python3
"""Publish one job straight to JetStream, without a client library: the protocol is text. In earnest use one of the clients of nats.io; what
matters is the same: the subject, the message id, and that nothing counts before the broker's confirmation.

    python3 publish.py 127.0.0.1:4222 wallet gbp-fps KEY < job.json      # job.json without v and key
"""
import hashlib
import json
import socket
import sys
import time


def publish(address, source, route, key, job):
    payload = json.dumps({"v": 1, "key": key, **job}, separators=(",", ":"), ensure_ascii=False).encode()
    subject = f"withdrawals.jobs.{route}.{source}"
    inbox = f"_INBOX_publisher.{source}.{key}"
    # The key alone would let the broker swallow another job under the same key without a word.
    message_id = f"{source}:{key}:{hashlib.sha256(payload).hexdigest()[:16]}"
    headers = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n".encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        stream = connection.makefile("rwb")
        stream.readline()  # INFO
        stream.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n')
        stream.write(f"SUB {inbox} 1\r\n".encode())
        stream.write(f"HPUB {subject} {inbox} {len(headers)} {len(headers) + len(payload)}\r\n".encode() + headers + payload + b"\r\n")
        stream.flush()
        while True:
            line = stream.readline()
            if line.startswith(b"PING"):
                stream.write(b"PONG\r\n")
                stream.flush()
            elif line.startswith(b"MSG "):
                answer = json.loads(stream.read(int(line.split()[-1])))
                if "error" in answer:
                    raise SystemExit(f"refused: {answer['error']}")
                return answer  # stream, seq, and duplicate: the broker had it already
            elif not line or line.startswith((b"HMSG", b"-ERR")):
                raise OSError("no confirmation")


if __name__ == "__main__":
    job = json.load(sys.stdin)
    for attempt in range(30):
        try:
            print("confirmed" + (" again" if publish(*sys.argv[1:5], job).get("duplicate") else ""))
            break
        except OSError:  # it may or may not be stored: publish the same bytes under the same id again
            time.sleep(1)
    else:
        raise SystemExit("not confirmed: publish it again later, with the same key")
