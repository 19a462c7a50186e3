package enumerate

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

// What a failover without the last transactions does to rows, and to the ids and fences that are issued after it.

// loseClaim claims one operation for the sweep, perhaps commits its attempt, and takes all of it back, as if a standby had been promoted that never
// had it. Whoever got the claim does not know.
func (w *twins) loseClaim(ctx context.Context, wish ledger.Wish) {
	before := w.model.snapshot().ops[wish.Key]
	if before == nil || before.state.Finished() || before.state == ledger.StateParked {
		return
	}
	w.dueNow(true)
	before = w.model.snapshot().ops[wish.Key]
	var operation, due []byte
	err := w.owner.QueryRow(ctx, `SELECT to_jsonb(o), to_jsonb(d) FROM operations o JOIN due d ON d.operation_id = o.id WHERE o.key = $1`, wish.Key).Scan(&operation, &due)
	if err != nil {
		w.t.Fatal(err)
	}
	w.sweepBoth(ctx)
	if len(w.wrong) > 0 || w.model.ops[wish.Key].fence == before.fence {
		return
	}
	kind, claim := "lose a claim", w.claims[len(w.claims)-1]
	for _, c := range w.claims {
		if c.real.Key == wish.Key {
			claim = c
		}
	}
	if w.rand.IntN(2) == 0 {
		kind += " and its attempt"
		w.attemptBoth(ctx, claim)
	}
	w.made(kind)
	w.lost = append(w.lost, claim)
	w.model.ops[wish.Key] = before
	w.untriggered(ctx, func(do func(string, ...any)) {
		do(`DELETE FROM attempts WHERE operation_id = $1 AND claim_token = $2`, claim.real.OperationID, claim.real.Token)
		do(`DELETE FROM operations WHERE id = $1`, claim.real.OperationID)
		do(`INSERT INTO operations OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(NULL::operations, $1)).*`, operation)
		do(`DELETE FROM due WHERE operation_id = $1`, claim.real.OperationID)
		do(`INSERT INTO due SELECT (jsonb_populate_record(NULL::due, $1)).*`, due)
	})
	w.calls = append(w.calls, kind)
}

// loseOperation takes back the latest operation altogether: the next one gets its id.
func (w *twins) loseOperation() {
	ctx := context.Background()
	for key, r := range w.model.ops {
		if r.id != w.model.nextID {
			continue
		}
		var id int64
		if err := w.owner.QueryRow(ctx, `SELECT id FROM operations WHERE key = $1`, key).Scan(&id); err != nil {
			w.t.Fatal(err)
		}
		w.made("lose an operation")
		w.touch()
		delete(w.model.ops, key)
		w.model.nextID--
		w.untriggered(ctx, func(do func(string, ...any)) {
			do(`DELETE FROM operations WHERE id = $1`, id)
			for _, table := range []string{"due", "payloads", "attempts", "observations", "entries", "outbox", "stops"} {
				do(`DELETE FROM `+table+` WHERE operation_id = $1`, id)
			}
			do(`SELECT setval(pg_get_serial_sequence('operations', 'id'), $1, false)`, id)
		})
		w.calls = append(w.calls, "lose an operation")
		return
	}
}

// untriggered changes rows as no program may: the triggers are off.
func (w *twins) untriggered(ctx context.Context, change func(do func(string, ...any))) {
	err := pgx.BeginFunc(ctx, w.owner, func(tx pgx.Tx) (failed error) {
		do := func(sql string, args ...any) {
			if failed == nil {
				_, failed = tx.Exec(ctx, sql, args...)
			}
		}
		do(`SET LOCAL session_replication_role = replica`)
		change(do)
		return failed
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
