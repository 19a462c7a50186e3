#!/usr/bin/env python3
"""Submit one withdrawal over HTTP. Standard library only.

The key is made once, when the withdrawal is decided, and stored with your own record of it. Everything else may be repeated: this program may
be killed and started again with the same key at any time.

    PAIDONCE_URL=http://127.0.0.1:8470 PAIDONCE_TOKEN_FILE=/run/secrets/wallet python3 withdraw.py KEY < withdrawal.json
"""
import json
import os
import sys
import time
import urllib.error
import urllib.request

UNFINISHED = ("open", "claimed", "parked")


def submit(url, token, key, body, wait=10):
    """One request. Returns status, seconds to wait before the next, and the answer."""
    request = urllib.request.Request(
        url + "/v1/withdrawals", data=body, method="POST",
        headers={"Authorization": "Bearer " + token, "Content-Type": "application/json", "Idempotency-Key": key, "Prefer": f"wait={wait}"})
    try:
        with urllib.request.urlopen(request, timeout=wait + 15) as response:
            return response.status, int(response.headers.get("Retry-After", 1)), json.load(response)
    except urllib.error.HTTPError as refusal:
        return refusal.code, int(refusal.headers.get("Retry-After", 1)), json.load(refusal)


def withdraw(url, token, key, body):
    """Repeats the same request, with the same key and the same body, until there is an outcome or a refusal."""
    while True:
        try:
            status, pause, answer = submit(url, token, key, body)
        except OSError:  # no answer: it may or may not have arrived, so ask again, with the same key
            status, pause, answer = 503, 2, {}
        if status in (200, 201) and answer["state"] not in UNFINISHED:
            return answer
        if status not in (200, 202, 409, 500, 503):  # 400, 401, 413, 422: repeating changes nothing
            raise SystemExit(f"refused: {status} {answer.get('code')} {answer.get('path', '')}")
        if answer.get("state") == "parked":
            raise SystemExit("a person must look: do not send it again under another key")
        time.sleep(pause)


if __name__ == "__main__":
    with open(os.environ["PAIDONCE_TOKEN_FILE"]) as file:
        secret = file.readline().strip()
    outcome = withdraw(os.environ["PAIDONCE_URL"], secret, sys.argv[1], sys.stdin.buffer.read())
    print(outcome["state"], outcome.get("transfer_id") or outcome.get("code"))
