#!/usr/bin/env python3
"""Take outcome events from `paidonce events tail` (or any consumer of WITHDRAWAL_EVENTS) into a database of your own, each once.

Events come at least once. So the event id is stored in the transaction of what the event does: a second arrival finds it and does nothing.

    paidonce events tail --all | python3 consume.py events.sqlite
"""
import json
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
database.execute("CREATE TABLE IF NOT EXISTS seen (event_id TEXT PRIMARY KEY)")
database.execute("CREATE TABLE IF NOT EXISTS outcomes (key TEXT PRIMARY KEY, outcome TEXT NOT NULL, amount TEXT NOT NULL)")
applied = skipped = 0
for line in sys.stdin:
    event = json.loads(line)
    with database:  # one transaction: the id and what the event does
        if database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (event["event_id"],)).rowcount == 0:
            skipped += 1
            continue
        if event["type"] in ("authorized", "rejected", "cancelled"):
            database.execute("INSERT INTO outcomes VALUES (?, ?, ?)", (event["key"], event["type"], event["amount"]))
        applied += 1
print(f"applied {applied}, seen before {skipped}")
