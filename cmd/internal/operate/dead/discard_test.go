package dead_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

func (w *world) stateOf(key uuid.UUID) string {
	w.t.Helper()
	var state string
	w.one(&state, `SELECT coalesce((SELECT o.state::text || ' ' || coalesce(o.code, '') FROM operations o WHERE o.key = $1), 'no operation')`, key)
	return state
}

// The job of a letter is in the stream still: a route that is configured later, a limit that is raised, a recovery that rewinds, and it is read again.
func TestDiscard_TheJobIsNeverPaid(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key, planned, contested, undecodable := job.NewKey(), job.NewKey(), job.NewKey(), job.NewKey()
	for _, k := range []uuid.UUID{key, planned} {
		_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: k, Payload: payload(k)})
		w.must(err)
	}
	w.bury(
		letter{payload: payload(key), reason: job.ReasonUnknownRoute}, letter{payload: payload(key)},
		letter{payload: payload(contested)}, letter{payload: payload(contested, "49.00", "50.00")},
		letter{payload: payload(undecodable, "49.00", "49.0"), reason: job.ReasonUnknownRoute},
		letter{payload: payload(planned)},
	)
	act := w.discard(1, 3, 5)
	if _, err := w.do(w.olga, act); err != nil || act.Discarded != 3 || act.Closed != 1 || act.Contested != 1 || act.Unreadable != 1 || act.Doubtful != 0 {
		t.Errorf("%+v, %v", act, err)
	}
	act, err := w.desk.DiscardPlan(t.Context(), w.freeze(dead.Filter{From: 6}), "not wanted")
	w.must(err)
	if _, err := w.do(w.olga, act); err != nil || act.Closed != 1 {
		t.Errorf("by a plan: %+v, %v", act, err)
	}
	for k, want := range map[uuid.UUID]string{key: "cancelled discarded", planned: "cancelled discarded", contested: "no operation", undecodable: "no operation"} {
		if got := w.stateOf(k); got != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
	b := w.work(nil)
	eventually(t, "both jobs are read", func() bool { return b.deliveries() == 2 })
	if b.sends(key)+b.sends(planned) != 0 {
		t.Error("a discarded withdrawal was paid")
	}
	var events int
	w.one(&events, `SELECT count(*) FROM outbox WHERE type = 'cancelled' AND code = 'discarded'`)
	if events != 2 {
		t.Errorf("%d events say so, want 2", events)
	}
	// The copy was decided about with its letter; of the two that contest a key the other one may be replayed.
	for sequence, want := range map[uint64]dead.Class{2: dead.ClassDiscarded, 4: dead.ClassReplayable} {
		if s, err := w.desk.Show(t.Context(), sequence); err != nil || s.Class != want {
			t.Errorf("letter %d is %s, want %s, %v", sequence, s.Class, want, err)
		}
	}
	// Nor does the desk close what nobody has discarded, or what another person has.
	for _, sequence := range []int{1, 4} {
		if _, err := w.pool.Exec(t.Context(), `SELECT close_discarded_key(stream_at, sequence, 1::int2, sha256('x'), 'wallet', 'gbp-fps', 'a', 1, 'GBP')
			FROM dead_letters WHERE sequence = $1`, sequence); err == nil || !strings.Contains(err.Error(), "PO021") {
			t.Errorf("closing the key of letter %d at will: %v", sequence, err)
		}
	}
}

// A replay that is under way is not cancelled by discarding another letter of its key.
func TestDiscard_LeavesAReplayAlone(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key)}, letter{payload: payload(key)})
	if _, done, err := w.replay(w.freeze(dead.Filter{To: 1})); err != nil || done.Outcome != "done" {
		t.Fatalf("%+v, %v", done, err)
	}
	act := w.discard(2)
	if _, err := w.do(w.olga, act); err != nil || act.Discarded != 1 || act.Closed != 0 || act.Contested != 1 {
		t.Errorf("%+v, %v", act, err)
	}
	b := w.work(nil)
	eventually(t, "paid", func() bool { return b.sends(key) == 1 })
}

// What may have been sent under a claim that a failover lost is not called cancelled, and gets no second payment under another key.
func TestDoubt_IsNeitherClosedNorCorrected(t *testing.T) {
	for what, c := range map[string]struct {
		detail, forge string
	}{
		"an older job":           {"", `UPDATE ledger_identity SET doubt_before = now() - interval '30 min'`},
		"a warning":              {"no consumer covers the subject; it may have been sent: ask", `SELECT 1`},
		"evidence for that key":  {"", `INSERT INTO strays (key, claim_token, n, kind, verdict) SELECT key, gen_random_uuid(), 0, 'verdict', 'authorized' FROM dead_letters`},
		"a ledger that moved":    {"", `UPDATE ledger_identity SET timeline = 0`},
		"a key of an older time": {"young", `UPDATE ledger_identity SET doubt_before = '2026-11-01'; UPDATE dead_letters SET key = '01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11'`},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, dead.Options{})
			key := uuid.New()
			w.bury(letter{payload: payload(key), detail: c.detail})
			w.list(dead.Filter{})
			w.forge(c.forge)
			if _, err := w.do(w.olga, w.correct(1, set("amount", "48.00"))); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), "may have been sent") {
				t.Errorf("a correction: %v", err)
			}
			act := w.discard(1)
			if _, err := w.do(w.olga, act); err != nil || act.Discarded != 1 || act.Closed != 0 || act.Doubtful != 1 {
				t.Errorf("a discard: %+v, %v", act, err)
			}
			if got := w.stateOf(key); got != "no operation" {
				t.Errorf("its key is %s", got)
			}
		})
	}
}

// By hand, an operator closes no key but that of a letter, as the letter says, and not without the line of the audit log.
func TestDiscard_ClosesTheKeyOfALetterOnly(t *testing.T) {
	w := newWorld(t, dead.Options{})
	victim, key := job.NewKey(), job.NewKey() // the first is on its way
	w.bury(letter{payload: payload(key)})
	w.list(dead.Filter{})
	const (
		discarded = `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, key, reason) `
		line      = `INSERT INTO audit (by, act, target, reason, digest) VALUES ('olga', 'discard', 'dead letter 1', 'x', sha256('x'))`
		closed    = `SELECT close_discarded_key(stream_at, sequence, 1::int2, sha256('x'), 'wallet', 'gbp-fps', 'a', %s, 'GBP') FROM dead_letter_acts`
	)
	byKey := discarded + `SELECT stream_at, sequence, 'discard', 'olga', key, 'x' FROM dead_letters`
	for what, statements := range map[string][]string{
		"a letter that is not there": {line, discarded + `VALUES ('2020-01-01Z', 424242, 'discard', 'olga', '` + victim.String() + `', 'x')`},
		"another key":                {line, discarded + `SELECT stream_at, sequence, 'discard', 'olga', '` + victim.String() + `', 'x' FROM dead_letters`},
		"no line":                    {byKey, fmt.Sprintf(closed, "4900")},
		"another amount":             {line, byKey, fmt.Sprintf(closed, "1")},
	} {
		if err := w.byHand(statements...); err == nil || !strings.Contains(err.Error(), "PO021") {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.must(w.byHand(line, byKey, fmt.Sprintf(closed, "4900")))
	if got := w.stateOf(key); got != "cancelled discarded" {
		t.Errorf("the letter's own key is %q", got)
	}
	if got := w.stateOf(victim); got != "no operation" {
		t.Errorf("the other key is %q", got)
	}
}

// byHand runs statements in one transaction of the desk's login, with olga's token.
func (w *world) byHand(statements ...string) error {
	return pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) error {
		if err := w.olga.Present(w.t.Context(), tx); err != nil {
			return err
		}
		for _, sql := range statements {
			if _, err := tx.Exec(w.t.Context(), sql); err != nil {
				return err
			}
		}
		return nil
	})
}
