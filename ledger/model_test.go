package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/paidonce/paidonce/ledger"
)

// modelled is what the model knows of one operation: enough to say what each call must answer.
type modelled struct {
	wish       ledger.Wish
	state      ledger.State // "" = unknown to the ledger
	held       bool
	parks      int
	transferID string
	claim      ledger.Claim   // the latest
	stale      []ledger.Claim // lost to somebody else
	sent       bool
	mismatch   bool               // on record: nothing but a person decides beside it
	spoke      map[uuid.UUID]bool // claims whose facts are on record; what they say again is what they said
}

func (op *modelled) keep(r ledger.Record) {
	if len(r.Facts) == 0 || op.spoke[r.Claim.Token] {
		return
	}
	if op.spoke == nil {
		op.spoke = map[uuid.UUID]bool{}
	}
	op.spoke[r.Claim.Token] = true
	op.mismatch = op.mismatch || r.Code == "mismatch"
}

// model drives two workers through the API; a schedule is a list of choices that rapid draws and shrinks.
type model struct {
	*rapid.T
	db      *database
	workers [2]*ledger.Ledger
	ops     []*modelled
	n       int // numbers transfers
}

func (m *model) op() *modelled          { return m.ops[rapid.IntRange(0, len(m.ops)-1).Draw(m.T, "operation")] }
func (m *model) worker() *ledger.Ledger { return m.workers[rapid.IntRange(0, 1).Draw(m.T, "worker")] }

func (m *model) transfer() string {
	m.n++
	return fmt.Sprintf("tr_%d", m.n)
}

func (m *model) claimWish() {
	op := m.op()
	a := m.worker().Claim(context.Background(), []ledger.Wish{op.wish})[0]
	want := map[ledger.State]ledger.Answer{"": ledger.Claimed, ledger.StateOpen: ledger.Scheduled, ledger.StateClaimed: ledger.Busy, ledger.StateParked: ledger.Parked,
		ledger.StateAuthorized: ledger.Finished, ledger.StateRejected: ledger.Finished, ledger.StateCancelled: ledger.Finished}[op.state]
	if op.held {
		want = ledger.Held
	}
	if a.Err != nil || a.Answer != want {
		m.Fatalf("claim from %q: answer %s, err %v; want %s", op.state, a.Answer, a.Err, want)
	}
	if a.Answer == ledger.Claimed {
		op.state, op.claim, op.sent = ledger.StateClaimed, a.Claim, true
	}
	if other := m.worker().Claim(context.Background(), []ledger.Wish{otherAmount(op.wish)})[0]; other.Answer != ledger.Conflict {
		m.Fatalf("another job: answer %s, err %v; want conflict", other.Answer, other.Err)
	}
}

func (m *model) claimDue() {
	if rapid.Bool().Draw(m.T, "time passes") {
		m.db.dueNow()
	}
	work, err := m.worker().ClaimDue(context.Background(), "northbank", rapid.IntRange(1, 4).Draw(m.T, "limit"))
	if err != nil {
		m.Fatal(err)
	}
	for _, w := range work {
		op := m.ops[slices.IndexFunc(m.ops, func(op *modelled) bool { return op.wish.Key == w.Claim.Key })]
		if op.state != w.State || (op.state != ledger.StateOpen && op.state != ledger.StateClaimed) || w.Claim.Fence <= op.claim.Fence || len(w.Attempts) == 0 {
			m.Fatalf("swept %+v while the model says %q under fence %d", w, op.state, op.claim.Fence)
		}
		op.stale = append(op.stale, op.claim)
		op.state, op.held, op.claim = ledger.StateClaimed, false, w.Claim
		answer := m.worker().CommitAttempts(context.Background(), []ledger.Resend{{Claim: w.Claim, Intention: op.wish.Intention}})[0]
		if answer.Answer != ledger.AttemptCommitted {
			m.Fatalf("commit attempt: %+v", answer)
		}
	}
}

func (m *model) record() {
	op := m.op()
	if op.state == "" {
		return
	}
	r := m.drawRecord(op.claim)
	if slices.Contains(op.stale, op.claim) { // overtaken by late news
		m.late(op, m.worker().Record(context.Background(), []ledger.Record{r})[0], r.TransferID)
		op.keep(r)
		return
	}
	got := m.worker().Record(context.Background(), []ledger.Record{r})[0]
	if got.Err != nil {
		m.Fatalf("record from %q: %v", op.state, got.Err)
	}
	if op.state != ledger.StateClaimed { // recorded before: the first record stands
		if got.Answer != ledger.Recorded || got.State != op.state {
			m.Fatalf("second record in %s: %+v, want recorded", op.state, got)
		}
		return
	}
	if r.Next == ledger.StateAuthorized && op.mismatch {
		r.Next = ledger.StateParked
	}
	op.keep(r)
	if got.Answer != ledger.Recorded || got.State != r.Next {
		m.Fatalf("record of the holder: %+v, want %s recorded", got, r.Next)
	}
	op.state, op.held = r.Next, r.Held
	if r.Next == ledger.StateAuthorized {
		op.transferID = r.TransferID
	}
	if r.Next == ledger.StateParked {
		op.parks++
	}
}

func (m *model) drawRecord(c ledger.Claim) ledger.Record {
	switch rapid.IntRange(0, 6).Draw(m.T, "record") {
	case 0:
		id := m.transfer()
		return ledger.Authorize(c, id, authorizedLate(id))
	case 1:
		return ledger.Reject(c, "account_closed", verdict("rejected"))
	case 2:
		return ledger.Cancel(c, "expired")
	case 3:
		return ledger.Park(c, "mismatch", true, verdict("mismatch"))
	case 4:
		return ledger.Hold(c, "over_limit", false, time.Hour, verdict("not_executed"))
	case 5:
		return ledger.Release(c, true)
	}
	return ledger.Schedule(c, true, time.Minute, verdict("unknown"))
}

// staleRecord lets an overtaken holder speak: only Authorized may change anything.
func (m *model) staleRecord() {
	op := m.op()
	if len(op.stale) == 0 {
		return
	}
	r := m.drawRecord(rapid.SampledFrom(op.stale).Draw(m.T, "stale claim"))
	got := m.worker().Record(context.Background(), []ledger.Record{r})[0]
	m.late(op, got, r.TransferID)
	op.keep(r)
}

func (m *model) news() {
	op := m.op()
	if op.state == "" {
		return
	}
	fact, id := verdict("in_flight"), ""
	if rapid.Bool().Draw(m.T, "authorized") {
		id = m.transfer()
		if op.transferID != "" && rapid.Bool().Draw(m.T, "the same") {
			id = op.transferID
		}
		fact = authorizedLate(id)
	}
	m.late(op, m.worker().Append(context.Background(), []ledger.Late{{Key: op.wish.Key, Facts: []ledger.Fact{fact}}})[0], id)
}

func (m *model) late(op *modelled, got ledger.RecordResult, transferID string) {
	want := ledger.Fenced
	switch {
	case transferID == "" || (op.state == ledger.StateAuthorized && transferID == op.transferID):
	case op.state.Finished():
		want = ledger.LateContradicted
	case op.mismatch:
	default:
		want = ledger.LateAuthorized
		op.stale = append(op.stale, op.claim)
		op.state, op.held, op.transferID = ledger.StateAuthorized, false, transferID
	}
	if got.Err != nil || got.Answer != want || got.State != op.state {
		m.Fatalf("late news %q: %+v, want %s in %s", transferID, got, want, op.state)
	}
	if want == ledger.LateContradicted { // it has paused the partner, which another test looks at
		if err := m.db.person().Resume(context.Background(), ledger.ScopePartner, "northbank", "model", "model"); err != nil && !strings.Contains(err.Error(), "not paused") {
			m.Fatal(err)
		}
	}
}

func (m *model) renew() {
	op := m.op()
	if op.state == "" {
		return
	}
	claims := append(slices.Clone(op.stale), op.claim)
	still, err := m.worker().Renew(context.Background(), claims)
	if err != nil {
		m.Fatal(err)
	}
	for i, is := range still {
		if want := i == len(claims)-1 && op.state == ledger.StateClaimed; is != want {
			m.Fatalf("renew %d of %d in %q: %t, want %t", i+1, len(claims), op.state, is, want)
		}
	}
}

// violations are rows that break an invariant, by the words of the package's doc.
const violations = `
WITH o AS (SELECT id, key, state, fence, in_doubt, first_sent_at, transfer_id, partner, partner_key, contradicted_at FROM operations WHERE key = ANY($1))
SELECT 'I12 due rows: ' || o.state || ' ' || count(d) FROM o LEFT JOIN due d ON d.operation_id = o.id GROUP BY o.id, o.state
 HAVING count(d) <> (o.state IN ('open', 'claimed', 'parked'))::int
UNION ALL SELECT 'I12 due parked: ' || o.state FROM o JOIN due d ON d.operation_id = o.id WHERE d.parked <> (o.state = 'parked')
UNION ALL SELECT 'I2 authorized without attempt' FROM o WHERE o.state = 'authorized' AND NOT EXISTS (SELECT FROM attempts a WHERE a.operation_id = o.id)
UNION ALL SELECT 'I3 in doubt in ' || o.state FROM o WHERE o.in_doubt AND o.state NOT IN ('open', 'claimed', 'parked')
UNION ALL SELECT 'I3 claimed and attempted, not in doubt' FROM o JOIN attempts a ON a.operation_id = o.id AND a.fence = o.fence WHERE o.state = 'claimed' AND NOT o.in_doubt
UNION ALL SELECT 'I6 unbalanced' FROM o JOIN entries e ON e.operation_id = o.id GROUP BY o.id, e.event, e.currency HAVING sum(e.amount_minor) <> 0
UNION ALL SELECT 'I6 entries of ' || o.state || ': ' || count(e) FROM o LEFT JOIN entries e ON e.operation_id = o.id GROUP BY o.id, o.state
 HAVING count(e) <> CASE WHEN o.state = 'authorized' THEN 2 ELSE 0 END
UNION ALL SELECT 'I7 partner keys' FROM o JOIN attempts a ON a.operation_id = o.id GROUP BY o.id HAVING count(DISTINCT a.partner_key) > 1
UNION ALL SELECT 'I8 bodies' FROM o JOIN attempts a ON a.operation_id = o.id GROUP BY o.id HAVING count(DISTINCT a.body_sha256) > 1
UNION ALL SELECT 'I5 fence below an attempt' FROM o JOIN attempts a ON a.operation_id = o.id WHERE a.fence > o.fence
UNION ALL SELECT 'I11 outcome events of ' || o.state || ': ' || count(x) FROM o LEFT JOIN outbox x ON x.operation_id = o.id AND x.type = ANY('{authorized,rejected,cancelled}')
 GROUP BY o.id, o.state HAVING count(x) <> (o.state IN ('authorized', 'rejected', 'cancelled'))::int OR (count(x) = 1 AND min(x.type::text) <> o.state::text)
UNION ALL SELECT 'I11 contradictions' FROM o LEFT JOIN outbox x ON x.operation_id = o.id AND x.type = 'contradicted' GROUP BY o.id, o.contradicted_at
 HAVING count(x) <> (o.contradicted_at IS NOT NULL)::int
UNION ALL SELECT 'I10 payload' FROM o WHERE NOT EXISTS (SELECT FROM payloads p WHERE p.operation_id = o.id)`

func (m *model) check() {
	var keys []uuid.UUID
	for _, op := range m.ops {
		keys = append(keys, op.wish.Key)
		if op.state == "" {
			continue
		}
		e, err := m.db.Explain(context.Background(), op.wish.Key)
		if err != nil {
			m.Fatal(err)
		}
		if e.State != op.state || (e.HeldReason != "") != op.held || e.TransferID != op.transferID {
			m.Fatalf("explained %+v, the model says %q, held %t, transfer %q", e.Summary, op.state, op.held, op.transferID)
		}
		if parks := len(slices.DeleteFunc(e.Unpublished, func(kind string) bool { return kind != "parked" })); parks != op.parks {
			m.Fatalf("%d parked events, want %d", parks, op.parks)
		}
	}
	rows, err := m.db.conn.Query(context.Background(), violations, keys)
	if err != nil {
		m.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var what string
		if err := rows.Scan(&what); err != nil {
			m.Fatal(err)
		}
		m.Errorf("invariant broken: %s", what)
	}
	if err := rows.Err(); err != nil {
		m.Fatal(err)
	}
}

// TestInvariants_RandomSchedulesOfTwoWorkers: a failure prints the schedule and how to replay it (-rapid.failfile, -rapid.seed).
func TestInvariants_RandomSchedulesOfTwoWorkers(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	other := db.another(ledger.Options{})
	rapid.Check(t, func(rt *rapid.T) {
		db.exec(`DELETE FROM pauses`) // what an earlier schedule left; its sweeps are over
		db.exec(`DELETE FROM due`)
		m := &model{T: rt, db: db, workers: [2]*ledger.Ledger{db.Ledger, other}}
		for _, w := range newWishes(rapid.IntRange(1, 3).Draw(rt, "operations")) {
			m.ops = append(m.ops, &modelled{wish: w})
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim":        func(*rapid.T) { m.claimWish() },
			"sweep":        func(*rapid.T) { m.claimDue() },
			"record":       func(*rapid.T) { m.record() },
			"stale record": func(*rapid.T) { m.staleRecord() },
			"news":         func(*rapid.T) { m.news() },
			"renew":        func(*rapid.T) { m.renew() },
		})
		m.check()
	})
}
