package dead_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

func set(pairs ...string) dead.Edit {
	e := dead.Edit{Set: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		e.Set[pairs[i]] = pairs[i+1]
	}
	return e
}

func (w *world) correct(sequence uint64, e dead.Edit) *dead.Correct {
	w.t.Helper()
	act, err := w.desk.Correct(w.t.Context(), sequence, e)
	w.must(err)
	return act
}

func (w *world) refusedAs(what string, act operate.Act, says string) {
	w.t.Helper()
	if _, err := w.do(w.olga, act); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), says) {
		w.t.Errorf("%s: %v, want a refusal that says %q", what, err, says)
	}
}

func TestCorrect_IsANewOperationOnceAndClosesTheOldKey(t *testing.T) {
	w := newWorld(t, dead.Options{})
	b := w.work(nil)
	key := job.NewKey()
	w.bury(letter{payload: payload(key, "49.00", "49.0")}, letter{payload: payload(key)}) // the second one came later, and is a dead letter for another reason
	act := w.correct(1, set("amount", "49.00"))
	done, err := w.agreed(act)
	if err != nil || done.Outcome != "done" || !act.Closed {
		t.Fatalf("correct: %+v, %v", done, err)
	}
	eventually(t, "paid under the new key", func() bool { return b.sends(act.Key()) == 1 })
	// Again, by the same and by another call: nothing more, and nobody is asked.
	for range 2 {
		again := w.correct(1, set("amount", "49.00"))
		if again.Key() != act.Key() {
			t.Errorf("the same correction has the key %s, and had %s", again.Key(), act.Key())
		}
		if done, err := w.do(w.oscar, again); err != nil || done.Outcome != "no_effect" {
			t.Errorf("again: %+v, %v", done, err)
		}
	}
	w.refusedAs("another correction", w.correctAnyway(1, set("amount", "50.00")), "was corrected already")

	// Upstream sends the job again under its old key, in good form now.
	before := b.deliveries()
	for _, text := range [][]byte{payload(key), payload(key, "49.00", "51.00")} {
		_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: key, Payload: text})
		w.must(err)
	}
	eventually(t, "both are delivered", func() bool { return b.deliveries() == before+2 })
	eventually(t, "the one that differs is a dead letter", func() bool { return len(w.list(dead.Filter{Reason: "key_reused"})) == 1 })
	if b.sends(key) != 0 || b.sends(act.Key()) != 1 {
		t.Errorf("sent %d times under the old key, %d under the new one", b.sends(key), b.sends(act.Key()))
	}
	var state, code string
	w.one(&state, `SELECT state::text FROM operations WHERE key = $1`, key)
	w.one(&code, `SELECT code FROM operations WHERE key = $1`, key)
	if state != "cancelled" || code != "corrected" {
		t.Errorf("the old key is %s with code %s", state, code)
	}
	var events int
	w.one(&events, `SELECT count(*) FROM outbox x JOIN operations o ON o.id = x.operation_id WHERE o.key = $1 AND x.type = 'cancelled' AND x.code = 'corrected'`, key)
	if events != 1 {
		t.Errorf("%d events say so, want 1", events)
	}
	// No letter of the key is ever replayed.
	p := w.freeze(dead.Filter{})
	if len(p.Classes) != 1 || p.Classes[0].Class != dead.ClassCorrected || p.Classes[0].Count != 3 {
		t.Errorf("classes %+v", p.Classes)
	}
	jobs := len(w.jobs())
	if _, done, err := w.replay(p); err != nil || done.Outcome != "no_effect" || len(w.jobs()) != jobs {
		t.Errorf("replay: %+v, %v", done, err)
	}
	w.refusedAs("a discard", w.discard(1), "was corrected")
}

// correctAnyway makes an act of which Check says what stands in its way.
func (w *world) correctAnyway(sequence uint64, e dead.Edit) operate.Act {
	w.t.Helper()
	act, err := w.desk.Correct(w.t.Context(), sequence, e)
	if err != nil {
		return failing{err}
	}
	return act
}

type failing struct{ err error }

func (failing) Name() string                                          { return "correct" }
func (failing) Role() operate.Role                                    { return operate.RoleOperator }
func (failing) Target() string                                        { return "x" }
func (f failing) Content() ([]byte, error)                            { return nil, f.err }
func (failing) Weight() operate.Weight                                { return operate.Weight{} }
func (failing) Run(context.Context, operate.Operator) (string, error) { panic("never") }

func (w *world) discard(sequences ...uint64) *dead.Discard {
	w.t.Helper()
	act, err := w.desk.DiscardLetters(w.t.Context(), sequences, "not wanted")
	w.must(err)
	return act
}

func TestCorrect_WhatMayNotBeCorrected(t *testing.T) {
	w := newWorld(t, dead.Options{Allowed: func(j *job.Job) *job.Fault {
		if j.Route != route {
			return &job.Fault{Reason: job.ReasonInvalid, Code: "route_not_allowed"}
		}
		return nil
	}})
	b := w.work(nil)
	keys := []uuid.UUID{job.NewKey(), job.NewKey(), job.NewKey(), job.NewKey()}
	for _, k := range keys[:2] {
		_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: k, Payload: payload(k)})
		w.must(err)
	}
	eventually(t, "two operations", func() bool { return b.sends(keys[0])+b.sends(keys[1]) == 2 })
	same := payload(uuid.Nil, `"key":"`+uuid.Nil.String()+`",`, "")
	w.bury(
		letter{payload: payload(keys[0])},                  // 1: paid
		letter{payload: payload(keys[1], "49.00", "49.0")}, // 2: malformed, and its key is paid
		letter{payload: payload(keys[2])},                  // 3: discarded
		letter{payload: payload(keys[3])},                  // 4: replayed
		letter{payload: same}, letter{payload: same},       // 5, 6: without a key, and sent twice
		letter{payload: payload(keys[1], "49.00", "70.00")},  // 7: conflicts with what is paid: may be corrected
		letter{payload: []byte("{"), subject: "gbp-fps.A.B"}, // 8: of nobody
	)
	_, err := w.do(w.olga, w.discard(3))
	w.must(err)
	_, _, err = w.replay(w.freeze(dead.Filter{From: 4, To: 4}))
	w.must(err)
	w.refusedAs("paid", w.correct(1, set("amount", "48.00")), "has an outcome")
	w.refusedAs("malformed, and its key is paid", w.correct(2, set("amount", "48.00")), "operation already")
	w.refusedAs("discarded", w.correct(3, set("amount", "48.00")), "was discarded")
	w.refusedAs("replayed", w.correct(4, set("amount", "48.00")), "was replayed")
	w.refusedAs("discarding what was replayed", w.discard(4), "was replayed")

	// After a recovery, long ago, every key that tells no time may be one that was sent. What has no key was not.
	w.forge(`UPDATE ledger_identity SET doubt_before = now() - interval '1 day', lost_since = now() - interval '1 day'`)
	if err := w.correct(5, set("amount", "49.00")).Check(t.Context(), w.olga); err != nil {
		t.Errorf("without a key, after a recovery: %v", err)
	}
	w.forge(`UPDATE ledger_identity SET doubt_before = '-infinity', lost_since = NULL`)
	first := w.correct(5, set("amount", "49.00"))
	if _, err := w.agreed(first); err != nil || first.Closed || first.OldKey() != uuid.Nil {
		t.Errorf("without a key: closed %t, %v", first.Closed, err)
	}
	w.refusedAs("the same bytes in another letter", w.correct(6, set("amount", "49.00")), "corrected already by letter 5 under key "+first.Key().String())
	conflicting := w.correct(7, set("amount", "70.00", "reference", "another one"))
	if _, err := w.agreed(conflicting); err != nil || conflicting.Closed {
		t.Errorf("conflicting: closed %t, %v", conflicting.Closed, err)
	}
	eventually(t, "both are paid", func() bool { return b.sends(first.Key()) == 1 && b.sends(conflicting.Key()) == 1 })

	for what, e := range map[string]dead.Edit{
		"of nobody":         {Payload: payload(uuid.Nil)},
		"nothing to change": {}, "an unknown member": set("v", "2"), "metadata without a name": set("metadata.", "2"),
		"two ways at once": {Payload: payload(uuid.Nil), Set: map[string]string{"amount": "1.00"}}, "no JSON": {Payload: []byte("{" + canaryName)},
	} {
		sequence := uint64(3)
		if what == "of nobody" {
			sequence = 8
		}
		if _, err := w.desk.Correct(t.Context(), sequence, e); err == nil || strings.Contains(err.Error(), canaryName) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var fault *job.Fault
	if _, err := w.desk.Correct(t.Context(), 3, set("beneficiary.iban", "GB00BUKB20201555555555")); !errors.As(err, &fault) || fault.Code != "iban_check_digits" {
		t.Errorf("a correction that is no job: %v", err)
	}
	if _, err := w.desk.Correct(t.Context(), 3, dead.Edit{Route: "eur-sct"}); !errors.As(err, &fault) || fault.Code != "route_not_allowed" {
		t.Errorf("a correction against the policy: %v", err)
	}
}

// What is asked for member by member and as a whole is one correction.
func TestCorrect_EditsAreExact(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key, "49.00", "49.0", `"v":1`, `"v":1,"metadata":{"ticket":"1"},"not_after":"2027-01-01T00:00:00Z"`)},
		letter{payload: payload(job.NewKey()), subject: "old-route.wallet", reason: job.ReasonUnknownRoute})
	parts := w.correct(1, dead.Edit{Set: map[string]string{"amount": "49.00", "metadata.ticket": "2", "beneficiary.name": "B"}, Unset: []string{"not_after", "reference"}})
	whole := w.correct(1, dead.Edit{Payload: payload(uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"), canaryName, "B", `,"reference":"`+canaryRef+`"`, "",
		`"v":1`, `"v":1,"metadata":{"ticket":"2"}`)})
	one, err := parts.Content()
	w.must(err)
	two, err := whole.Content()
	w.must(err)
	if !bytes.Equal(one, two) || parts.Key() != whole.Key() || parts.Key() == key || parts.Key().Version() != 8 {
		t.Errorf("contents differ:\n%s\n%s", one, two)
	}
	if other := w.correct(1, set("amount", "49.01")); other.Key() == parts.Key() {
		t.Error("another correction has the same key")
	}
	if moved := w.correct(2, dead.Edit{Route: route}); fmt.Sprint(moved.Changed()) != "[route]" {
		t.Errorf("changed %v", moved.Changed())
	}
	if named := w.correct(2, dead.Edit{Route: route, Set: map[string]string{"beneficiary.name": "C", "amount": "3.00"}}); fmt.Sprint(named.Changed()) != "[amount route beneficiary.name]" {
		t.Errorf("changed %v", named.Changed())
	}
}

// A worker that takes the job under its old key at the same moment: one of the two is paid.
func TestCorrect_ARaceForTheOldKeyPaysOnce(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key)})
	act := w.correct(1, set("amount", "48.00"))
	done, err := w.do(w.olga, act)
	if !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	_, err = w.service.Approve(t.Context(), w.ada, done.Proposal.ID, done.Proposal.Digest, "yes")
	w.must(err)
	b := w.work(nil)
	_, err = w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: key, Payload: payload(key)})
	w.must(err)
	eventually(t, "paid under the old key", func() bool { return b.sends(key) == 1 })
	if _, err := w.do(w.olga, unchecked{act}); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), "became an operation") {
		t.Errorf("the correction ran: %v", err)
	}
	var corrections int
	w.one(&corrections, `SELECT (SELECT count(*) FROM corrections) + (SELECT count(*) FROM dead_letter_acts)`)
	if corrections != 0 || b.sends(act.Key()) != 0 {
		t.Errorf("%d rows of a correction that is none", corrections)
	}
}

// proposed has another person agree to an act that is not run yet.
func (w *world) proposed(act operate.Act) {
	w.t.Helper()
	done, err := w.do(w.olga, act)
	if !errors.Is(err, operate.ErrWaiting) {
		w.t.Fatalf("%s: %v, want to wait for another person", act.Name(), err)
	}
	_, err = w.service.Approve(w.t.Context(), w.ada, done.Proposal.ID, done.Proposal.Digest, "yes")
	w.must(err)
}

// A source that sent a malformed job twice has two letters. Both corrections are agreed to, and both have passed Check, when they run.
func TestCorrect_TwoLettersOfOneWithdrawalPayOnce(t *testing.T) {
	keyed, unkeyed := payload(job.NewKey(), "49.00", "49.0"), payload(uuid.Nil, `"key":"`+uuid.Nil.String()+`",`, "")
	for what, text := range map[string][]byte{"with a key": keyed, "without a key": unkeyed} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, dead.Options{})
			w.bury(letter{payload: text}, letter{payload: text})
			acts := []*dead.Correct{w.correct(1, set("amount", "49.00")), w.correct(2, set("amount", "49.00"))}
			for _, act := range acts {
				w.proposed(act)
			}
			var group sync.WaitGroup
			failures := make([]error, len(acts))
			for i, act := range acts {
				group.Go(func() { _, failures[i] = w.do(w.olga, unchecked{act}) })
			}
			group.Wait()
			first := slices.Index(failures, nil)
			if first < 0 {
				t.Fatal(failures)
			}
			says := fmt.Sprintf("corrected already by letter %d under key %s", first+1, acts[first].Key())
			if err := failures[1-first]; !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), says) {
				t.Errorf("the second one: %v, want a refusal that says %q", err, says)
			}
			if jobs := w.jobs(); len(jobs) != 1 {
				t.Errorf("%d jobs were published, want 1", len(jobs))
			}
		})
	}
}

// During an upgrade the operation under the old key may carry a fingerprint that this program cannot compare.
func TestCorrect_AnotherVersionOfTheFingerprintIsRefused(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key)})
	act := w.correct(1, set("amount", "48.00"))
	w.proposed(act)
	b := w.work(nil)
	_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: key, Payload: payload(key)})
	w.must(err)
	eventually(t, "paid under the old key", func() bool { return b.sends(key) == 1 })
	w.forge(`UPDATE operations SET fingerprint_version = 99, fingerprint = sha256('another way to count')`)
	if _, err := w.do(w.olga, unchecked{act}); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), "another version") {
		t.Errorf("the correction ran: %v", err)
	}
	if jobs := w.jobs(); len(jobs) != 1 {
		t.Errorf("%d jobs, want the first one alone", len(jobs))
	}
}

// Whoever shares the login cannot write in another person's name.
func TestGuards_ActsTakeTheTokenOfTheirOperator(t *testing.T) {
	w := newWorld(t, dead.Options{})
	w.bury(letter{payload: payload(job.NewKey())})
	w.freeze(dead.Filter{})
	for what, sql := range map[string]string{
		"a discard": `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, key, reason) SELECT stream_at, sequence, 'discard', 'olga', key, 'x' FROM dead_letters`,
		"a plan": `INSERT INTO dead_plans (id, draft, digest, at, expires_at, by, stream_at, filter, letters)
			SELECT gen_random_uuid(), gen_random_uuid(), digest, at, expires_at, 'olga', stream_at, filter, letters FROM dead_plans`,
	} {
		for by, present := range map[string]operate.Operator{"nobody": {}, "another": w.oscar, "an approver": w.ada} {
			err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
				if err := present.Present(t.Context(), tx); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), sql)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "PO011") {
				t.Errorf("%s in olga's name by %s: %v", what, by, err)
			}
		}
	}
	if _, err := w.do(w.olga, w.discard(1)); err != nil {
		t.Errorf("by herself: %v", err)
	}
}

// unchecked is a correction that has passed Check: what happens in the moment after it.
type unchecked struct{ *dead.Correct }

func (unchecked) Check(context.Context, operate.Operator) error { return nil }

// The database itself keeps to four eyes and to one decision, whatever program writes.
func TestGuards_TheDeskItselfCannotDoMore(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key)}, letter{payload: payload(job.NewKey(), "49.00", "49.0")})
	w.list(dead.Filter{})
	_, err := w.agreed(w.correct(2, set("amount", "49.00")))
	w.must(err)
	_, err = w.do(w.olga, w.discard(1))
	w.must(err)
	var stream any
	w.must(w.pool.QueryRow(t.Context(), `SELECT stream_at FROM dead_letters WHERE sequence = 1`).Scan(&stream))
	args := pgx.NamedArgs{"stream": stream, "key": key}
	for what, sql := range map[string]string{
		"a correction that nobody approved": `INSERT INTO corrections (new_key, stream_at, sequence, old_sha256, payload_sha256, source, route, amount_minor, currency, by)
			VALUES (gen_random_uuid(), @stream, 1, sha256('a'), sha256('b'), 'wallet', 'gbp-fps', 1, 'GBP', 'olga')`,
		"a second decision": `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, plan, key, replay_n) VALUES (@stream, 1, 'replay', 'olga', gen_random_uuid(), @key, 1)`,
		"a replay of a key that was replaced": `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, plan, key, replay_n)
			SELECT @stream, 9, 'replay', 'olga', gen_random_uuid(), old_key, 1 FROM corrections`,
		"a result without a decision": `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, job_sequence, duplicate) VALUES (@stream, 9, 'published', 'olga', 1, false)`,
		"closing a key at will":       `SELECT close_corrected_key(@key, 1::int2, sha256('x'), 'wallet', 'gbp-fps', 'a', 1, 'GBP')`,
		"changing an act":             `UPDATE dead_letter_acts SET reason = 'x'`,
		"erasing acts":                `DELETE FROM dead_letter_acts`,
		"erasing corrections":         `DELETE FROM corrections`,
		"erasing plans":               `DELETE FROM dead_plans`,
		"making an operation":         `INSERT INTO operations (key) VALUES (@key)`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql, args); err == nil {
			t.Errorf("the desk's role may do: %s", what)
		}
	}
}

// mute is a broker that does not answer: what it was given is published, or is not.
type mute struct {
	*queue.Publisher
	publishes bool
}

func (m mute) PublishMany(ctx context.Context, ms []queue.Message) []queue.Result {
	if m.publishes {
		m.Publisher.PublishMany(ctx, ms)
	}
	return []queue.Result{{Err: queue.ErrUnconfirmed}}
}

// A correction that ends between its record and its job is somebody's: it is planned, and whoever asks for the same again finishes it.
func TestCorrect_RecordedAndNotPublishedIsPlanned(t *testing.T) {
	w := newWorld(t, dead.Options{})
	w.bury(letter{payload: payload(job.NewKey(), "49.00", "49.0")}, letter{payload: payload(job.NewKey(), "49.00", "49.0")})
	var keys []uuid.UUID
	for i, publishes := range []bool{false, true} {
		act, err := dead.New(w.letters, mute{w.publish, publishes}, w.pool, dead.Options{}).Correct(t.Context(), uint64(i+1), set("amount", "49.00")) //nolint:gosec // small
		w.must(err)
		if _, err := w.agreed(act); !errors.Is(err, queue.ErrUnconfirmed) {
			t.Fatalf("correct: %v", err)
		}
		keys = append(keys, act.Key())
	}
	b := w.work(nil)
	eventually(t, "the published one is paid", func() bool { return b.sends(keys[1]) == 1 })
	if all := w.list(dead.Filter{State: dead.StatePlanned}); len(all) != 1 || all[0].Sequence != 1 {
		t.Errorf("planned: %+v", all)
	}
	if groups, err := w.desk.Groups(t.Context(), dead.Filter{}); err != nil || groups[0].Count != 2 || groups[0].Undecided != 1 {
		t.Errorf("groups: %+v, %v", groups, err)
	}
	w.forge(`UPDATE proposals SET at = now() - interval '2 days', expires_at = now() - interval '1 day'`)
	for i, key := range keys {
		act := w.correct(uint64(i+1), set("amount", "49.00")) //nolint:gosec // small
		if done, err := w.do(w.oscar, act); err != nil || done.Outcome != "done" || act.Key() != key {
			t.Errorf("again: %+v, %v", done, err)
		}
	}
	eventually(t, "both are paid", func() bool { return b.sends(keys[0]) == 1 })
	if all := w.list(dead.Filter{State: dead.StateCorrected}); len(all) != 2 || b.sends(keys[1]) != 1 {
		t.Errorf("corrected: %+v; the second one was sent %d times", all, b.sends(keys[1]))
	}
}
