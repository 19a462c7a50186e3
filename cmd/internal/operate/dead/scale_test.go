package dead_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// heap watches how much is held.
type heap struct{ before, most uint64 }

func watch() *heap {
	h := &heap{}
	h.look()
	h.before, h.most = h.most, 0
	return h
}

func (h *heap) look() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.most = max(h.most, m.HeapAlloc)
}

func (h *heap) megabytes() int64 { return (int64(h.most) - int64(h.before)) >> 20 }

// TestScale_LettersInBoundedMemory holds less than the letters' payloads alone would take, also while it reads them.
func TestScale_LettersInBoundedMemory(t *testing.T) { scale(t, 9_000, 14) }

// BenchmarkScale100000 is the same for 100,000 letters, in no more memory, and tells how long it takes until they are listed, from an index that is
// not there yet, and planned. On a quiet machine of two cores that is under ten seconds:
//
//	go test ./cmd/internal/operate/dead -run xxx -bench Scale100000 -benchtime 1x -v
func BenchmarkScale100000(b *testing.B) {
	var listed, planned time.Duration
	for range b.N {
		l, p := scale(b, 102_000, 14)
		listed, planned = listed+l, planned+p
	}
	each := func(d time.Duration) float64 { return d.Seconds() / float64(b.N) }
	b.ReportMetric(each(listed), "s-to-list")
	b.ReportMetric(each(planned), "s-to-plan")
}

// scale indexes, lists, groups, plans and compares so many letters of 2 KB. The broker is a process of its own, so that only what the desk holds
// is counted. Times are told, not judged here.
func scale(t testing.TB, letters int, mostMB int64) (listed, planned time.Duration) {
	t.Helper()
	var h *heap
	w := newWorldOn(t, startProcess(t), dead.Options{Policy: policy(), Progress: func(what string, _, _ int64) {
		if what == "index" { // what is written together is still held then
			h.look()
		}
	}})
	padding := string(make2KB())
	for start := 0; start < letters; start += 3000 {
		part := make([]letter, 3000)
		for i := range part {
			reason := []job.Reason{job.ReasonInvalid, job.ReasonKeyReused, job.ReasonUnknownRoute}[i%3]
			part[i] = letter{payload: payload(job.NewKey(), `"v":1`, padding), reason: reason, detail: fmt.Sprint("cause ", i%3)}
		}
		w.bury(part...)
	}
	h = watch()
	lap := func(what string, n int, start time.Time) {
		h.look()
		t.Logf("%s: %d letters in %s, %d MB held", what, n, time.Since(start).Round(time.Millisecond), h.megabytes())
	}
	start, n := time.Now(), 0
	for _, err := range w.desk.ListStream(t.Context(), dead.Filter{}, 0) {
		w.must(err)
		if n++; n%3_000 == 0 {
			h.look()
		}
	}
	lap("listed by the stream alone", n, start)
	start, n = time.Now(), 0
	for _, err := range w.desk.List(t.Context(), dead.Filter{}, 0) {
		w.must(err)
		if n++; n%3_000 == 0 {
			h.look()
		}
	}
	listed = time.Since(start)
	lap("indexed and listed", n, start)
	start = time.Now()
	groups, err := w.desk.Groups(t.Context(), dead.Filter{})
	w.must(err)
	lap("grouped", letters, start)
	if n != letters || len(groups) != 3 || groups[0].Count != int64(letters/3) {
		t.Errorf("%d letters, groups %+v", n, groups)
	}
	start = time.Now()
	p := w.freeze(dead.Filter{})
	planned = time.Since(start)
	lap("planned", int(p.Letters), start)
	if p.Letters != int64(letters) || len(p.Classes) != 1 || p.Classes[0].Count != int64(letters) {
		t.Errorf("plan %+v", p.Classes)
	}
	start = time.Now()
	act, err := w.desk.Replay(t.Context(), p, 0)
	w.must(err)
	w.must(act.Check(t.Context(), w.olga))
	lap("compared with stream and ledger", letters, start)
	if done, err := w.do(w.olga, act); !errors.Is(err, operate.ErrWaiting) || done.Proposal.Weight.Count != letters {
		t.Errorf("so many letters are replayed by one person: %v", err)
	}
	if h.megabytes() > mostMB {
		t.Errorf("%d MB are held", h.megabytes())
	}
	return listed, planned
}

func make2KB() []byte {
	text := []byte(`"v":1,"metadata":{`)
	for i := range 4 {
		text = fmt.Appendf(text, `"m%d":"%0480d",`, i, i)
	}
	return append(text[:len(text)-1], '}')
}

func TestReindex_GivesTheSameIndex(t *testing.T) {
	w := newWorld(t, dead.Options{Policy: policy()})
	w.mixed()
	w.list(dead.Filter{})
	_, err := w.do(w.olga, w.discard(2))
	w.must(err)
	sum := func() (s string) {
		w.one(&s, `SELECT md5(string_agg(l::text, E'\n' ORDER BY sequence)) FROM dead_letters l`)
		return s
	}
	before := sum()
	for _, spoil := range []string{
		`DELETE FROM dead_letters`, `UPDATE dead_letters SET reason = 'x', amount_minor = 1, currency = 'XXX', detail = 'y'`,
		`DELETE FROM dead_letters WHERE sequence IN (1, 4, 7)`,
		`INSERT INTO dead_letters SELECT stream_at, 99, at, first_seen, job_sequence, deliveries, replays, bytes, sha256, reason, detail, source, route, fault, key,
			fingerprint_version, fingerprint, amount_minor, currency FROM dead_letters WHERE sequence = 1`,
	} {
		if _, err := w.pool.Exec(t.Context(), spoil); err != nil {
			t.Fatal(err)
		}
		done, err := w.desk.Reindex(t.Context())
		if err != nil || done.Letters != 7 || sum() != before {
			t.Errorf("after %s: %+v, %v, the same %t", spoil, done, err, sum() == before)
		}
	}
	stream, err := w.js.Stream(t.Context(), queue.StreamDead)
	w.must(err)
	w.must(stream.DeleteMsg(t.Context(), 3))
	w.must(stream.DeleteMsg(t.Context(), 7))
	if done, err := w.desk.Reindex(t.Context()); err != nil || done.Letters != 5 || done.Gone != 2 {
		t.Errorf("with two gone: %+v, %v", done, err)
	}
	if all := w.list(dead.Filter{State: dead.StateDiscarded}); len(all) != 1 || all[0].Sequence != 2 {
		t.Errorf("what was done is lost: %+v", all)
	}
}

func TestDiscard_KeepsTheLetterAndTheReason(t *testing.T) {
	w := newWorld(t, dead.Options{})
	var keys []uuid.UUID
	var letters []letter
	for i := range 120 {
		keys = append(keys, job.NewKey())
		letters = append(letters, letter{payload: payload(keys[i]), detail: fmt.Sprint("cause ", i%2)})
	}
	w.bury(letters...)
	single := w.discard(1, 3, 3)
	done, err := w.do(w.olga, single)
	if err != nil || single.Discarded != 2 || done.Outcome != "done" {
		t.Errorf("discard: %+v, %v", done, err)
	}
	again := w.discard(1, 3)
	if done, err := w.do(w.oscar, again); err != nil || done.Outcome != "no_effect" || again.Discarded != 0 {
		t.Errorf("again: %+v, %v", done, err)
	}
	s, err := w.desk.Show(t.Context(), 1)
	w.must(err)
	if s.State != dead.StateDiscarded || len(s.Acts) != 1 || s.Acts[0].Reason != "not wanted" || s.Acts[0].By != "olga" {
		t.Errorf("show %+v", s)
	}
	// More than one person may decide alone: a second one agrees.
	act, err := w.desk.DiscardPlan(t.Context(), w.freeze(dead.Filter{}), "the customer withdrew them")
	w.must(err)
	if done, err := w.agreed(act); err != nil || done.Outcome != "done" || act.Discarded != 118 {
		t.Errorf("by a plan: %+v, %v, %d", done, err, act.Discarded)
	}
	stream, err := w.js.Stream(t.Context(), queue.StreamDead)
	w.must(err)
	if n := stream.CachedInfo().State.Msgs; n != 120 || len(w.jobs()) != 0 {
		t.Errorf("%d letters, %d jobs", n, len(w.jobs()))
	}
	p := w.freeze(dead.Filter{})
	if _, done, err := w.replay(p); err != nil || done.Outcome != "no_effect" || p.Classes[0].Class != dead.ClassDiscarded {
		t.Errorf("a replay of what was discarded: %+v, %v", done, err)
	}
	if _, err := w.desk.DiscardLetters(t.Context(), []uint64{999}, "x"); !errors.Is(err, queue.ErrNoDeadLetter) {
		t.Errorf("a letter that is none: %v", err)
	}
}

// A replay of more than one person may decide alone waits, and goes on under one approval when it was interrupted.
func TestReplay_ManyWaitForAnotherPerson(t *testing.T) {
	w := newWorld(t, dead.Options{Chunk: 50})
	var keys []uuid.UUID
	var letters []letter
	for i := range 150 {
		keys = append(keys, job.NewKey())
		letters = append(letters, letter{payload: payload(keys[i])})
	}
	w.bury(letters...)
	p := w.freeze(dead.Filter{})
	act, err := w.desk.Replay(t.Context(), p, 0)
	w.must(err)
	done, err := w.do(w.olga, act)
	if !errors.Is(err, operate.ErrWaiting) || len(w.jobs()) != 0 {
		t.Fatalf("%v, %d jobs", err, len(w.jobs()))
	}
	_, err = w.service.Approve(t.Context(), w.ada, done.Proposal.ID, done.Proposal.Digest, "looked at the groups")
	w.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	interrupted, err := dead.New(w.letters, w.publish, w.pool, dead.Options{Chunk: 50, Progress: func(what string, _, _ int64) {
		if what == "replay" {
			cancel()
		}
	}}).Replay(ctx, p, 0)
	w.must(err)
	if _, err := w.service.Do(ctx, operate.Request{By: w.olga, Reason: "ticket 5", Act: interrupted}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	act, done, err = w.replay(p)
	if err != nil || done.Outcome != "done" || act.Tally.Before != 50 || act.Tally.Published != 100 {
		t.Errorf("gone on with: %+v, %+v, %v", done, act.Tally, err)
	}
	if _, done, err = w.replay(p); err != nil || done.Outcome != "no_effect" {
		t.Errorf("again: %+v, %v", done, err)
	}
	w.eachOnce(keys)
}

// A broker that lost the end of its stream gives the same sequences out again: the index follows by itself.
func TestSync_FollowsAStreamThatLostItsEnd(t *testing.T) {
	w := newWorld(t, dead.Options{})
	w.bury(letter{payload: payload(job.NewKey())}, letter{payload: payload(job.NewKey())})
	w.list(dead.Filter{})
	w.forge(`UPDATE dead_letters SET sha256 = sha256('another'), reason = 'another' WHERE sequence = 2`)
	if all := w.list(dead.Filter{Reason: "another"}); len(all) != 0 {
		t.Errorf("the last letter is still %+v", all)
	}
	w.forge(`INSERT INTO dead_letters SELECT stream_at, 5, at, first_seen, job_sequence, deliveries, replays, bytes, sha256, reason, detail, source, route, fault,
		key, fingerprint_version, fingerprint, amount_minor, currency FROM dead_letters WHERE sequence = 1`)
	if all := w.list(dead.Filter{}); len(all) != 2 {
		t.Errorf("%d letters, want 2", len(all))
	}
}
