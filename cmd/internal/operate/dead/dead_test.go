package dead_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

const notYours = "the route is not this source's"

// mixed buries one letter of every class that there is without deciding anything, and gives their keys by class.
func (w *world) mixed() map[dead.Class]uuid.UUID {
	w.t.Helper()
	keys := map[dead.Class]uuid.UUID{}
	for _, c := range dead.Classes() {
		keys[c] = job.NewKey()
	}
	b := w.work(nil)
	for _, c := range []dead.Class{dead.ClassFinished, dead.ClassConflicting} {
		_, err := w.publish.Publish(w.t.Context(), queue.Message{Source: source, Route: route, Key: keys[c], Payload: payload(keys[c])})
		w.must(err)
	}
	eventually(w.t, "two operations", func() bool { return b.sends(keys[dead.ClassFinished])+b.sends(keys[dead.ClassConflicting]) == 2 })
	w.bury(
		letter{payload: payload(keys[dead.ClassReplayable]), detail: notYours},
		letter{payload: payload(keys[dead.ClassFinished]), detail: notYours},
		letter{payload: payload(keys[dead.ClassConflicting], "49.00", "50.00"), reason: job.ReasonKeyReused},
		letter{payload: payload(keys[dead.ClassMalformed], "49.00", "49.0")},
		letter{payload: payload(keys[dead.ClassUnroutable]), subject: "eur-sct.wallet", reason: job.ReasonUnknownRoute},
		letter{payload: payload(keys[dead.ClassReplayable]), detail: notYours}, // a copy
		letter{payload: []byte("\xff" + canaryName), reason: job.ReasonUndecodable, subject: "Gbp.Wallet." + strings.ReplaceAll(canaryName, " ", "-")},
	)
	return keys
}

func TestE18_ListGroupAndFilterConsumeNothing(t *testing.T) {
	w := newWorld(t, dead.Options{Policy: policy()})
	keys := w.mixed()
	for range 2 {
		all := w.list(dead.Filter{})
		if len(all) != 7 {
			t.Fatalf("%d letters, want 7", len(all))
		}
		for i, l := range all {
			if l.Sequence != uint64(i+1) || l.State != dead.StateNew {
				t.Errorf("letter %d: %+v", i, l)
			}
		}
		if bad := all[3]; bad.Fault != "amount_digits" || bad.Key != keys[dead.ClassMalformed] || bad.Fingerprint.Version != 0 || bad.Amount.Currency != "" {
			t.Errorf("a malformed letter is indexed as %+v", bad)
		}
		if odd := all[6]; odd.Source != "" || odd.Route != "" || odd.Key != uuid.Nil {
			t.Errorf("a letter of a malformed subject is indexed as %+v", odd)
		}
	}
	tests := []struct {
		filter dead.Filter
		want   []uint64
	}{
		{dead.Filter{Reason: "key_reused"}, []uint64{3}},
		{dead.Filter{Detail: notYours}, []uint64{1, 2, 6}},
		{dead.Filter{Route: "eur-sct"}, []uint64{5}},
		{dead.Filter{Source: "wallet", From: 4, To: 6}, []uint64{4, 5, 6}},
		{dead.Filter{Key: keys[dead.ClassReplayable]}, []uint64{1, 6}},
		{dead.Filter{Since: time.Now().Add(time.Hour)}, nil},
		{dead.Filter{Until: time.Now().Add(time.Hour), Reason: "undecodable"}, []uint64{7}},
	}
	for _, test := range tests {
		var got, stream []uint64
		for _, l := range w.list(test.filter) {
			got = append(got, l.Sequence)
		}
		for l, err := range w.desk.ListStream(t.Context(), test.filter, 0) {
			w.must(err)
			stream = append(stream, l.Sequence)
		}
		if !slices.Equal(got, test.want) || !slices.Equal(stream, test.want) {
			t.Errorf("%+v lists %v, by the stream %v, want %v", test.filter, got, stream, test.want)
		}
	}
	byIndex, err := w.desk.Groups(t.Context(), dead.Filter{})
	w.must(err)
	byStream, err := w.desk.GroupsStream(t.Context(), dead.Filter{})
	w.must(err)
	if len(byIndex) != 5 || len(byStream) != 5 || byIndex[0].Detail != notYours || byIndex[0].Count != 3 || byIndex[0].Undecided != 3 ||
		byStream[0].Undecided != -1 || fmt.Sprint(byIndex[0].Amounts) != "[{GBP 14700}]" || fmt.Sprint(byStream[0].Amounts) != "[{GBP 14700}]" {
		t.Errorf("groups %+v\n%+v", byIndex, byStream)
	}
	stream, err := w.js.Stream(t.Context(), queue.StreamDead)
	w.must(err)
	if state := stream.CachedInfo().State; state.Msgs != 7 || state.Consumers != 0 {
		t.Errorf("%d letters and %d consumers, want 7 and 0", state.Msgs, state.Consumers)
	}
	if _, err := w.desk.GroupsStream(t.Context(), dead.Filter{State: dead.StateNew}); !errors.Is(err, dead.ErrNeedsDB) {
		t.Errorf("a state by the stream alone: %v", err)
	}
}

func TestPlan_TellsEachClassAndReplaysOnlyOne(t *testing.T) {
	w := newWorld(t, dead.Options{Policy: policy()})
	keys := w.mixed()
	p := w.freeze(dead.Filter{})
	got := map[dead.Class]int64{}
	for _, c := range p.Classes {
		got[c.Class] = c.Count
	}
	want := map[dead.Class]int64{dead.ClassReplayable: 1, dead.ClassFinished: 1, dead.ClassConflicting: 1, dead.ClassMalformed: 2, dead.ClassUnroutable: 1,
		dead.ClassDuplicate: 1}
	if fmt.Sprint(got) != fmt.Sprint(want) || p.Letters != 7 {
		t.Errorf("classes %v, want %v", got, want)
	}
	if all := w.list(dead.Filter{State: dead.StatePlanned}); len(all) != 7 {
		t.Errorf("%d are planned, want 7", len(all))
	}
	act, done, err := w.replay(p)
	w.must(err)
	if done.Outcome != "done" || act.Tally.Published != 1 || act.Tally.Left != 0 {
		t.Errorf("replay: %s, %+v", done.Outcome, act.Tally)
	}
	jobs := w.jobs()
	last := jobs[len(jobs)-1]
	if len(jobs) != 3 || last.Header.Get("Nats-Msg-Id") != keys[dead.ClassReplayable].String()+":r1" || last.Header.Get("Paidonce-Replays") != "1" ||
		last.Subject != "withdrawals.jobs.gbp-fps.wallet" || string(last.Data) != string(payload(keys[dead.ClassReplayable])) {
		t.Errorf("%d jobs, the last one %v on %s", len(jobs), last.Header, last.Subject)
	}
	// Again, and again planned: no second effect.
	if act, done, err = w.replay(p); err != nil || done.Outcome != "no_effect" || act.Tally.Before != 1 {
		t.Errorf("again: %s, %+v, %v", done.Outcome, act.Tally, err)
	}
	if _, done, err = w.replay(w.freeze(dead.Filter{})); err != nil || done.Outcome != "no_effect" {
		t.Errorf("planned again: %s, %v", done.Outcome, err)
	}
	if n := len(w.jobs()); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
	if s, err := w.desk.Show(t.Context(), 1); err != nil || s.State != dead.StateReplayed || s.Class != dead.ClassReplayed || s.Letters != 2 || len(s.Acts) != 2 {
		t.Errorf("show: %+v, %v", s, err)
	}
	if _, err := w.desk.Plan(t.Context(), uuid.New()); !errors.Is(err, dead.ErrNoPlan) {
		t.Errorf("no plan: %v", err)
	}
	if _, err := w.do(w.olga, w.desk.Freeze(dead.Filter{Reason: "nobody"})); !errors.Is(err, dead.ErrNothing) {
		t.Errorf("an empty plan: %v", err)
	}
	for l, err := range w.service.Audit(t.Context(), operate.AuditFilter{Act: "plan", Limit: 1}) {
		if w.must(err); l.Outcome != "refused" || l.Detail != "nothing_selected" {
			t.Errorf("the log of an empty plan: %+v", l)
		}
	}
}

// Two letters ask for different things under one key, and neither became an operation: a person decides, by discarding one.
func TestPlan_TwoPaymentsUnderOneKeyWaitForAPerson(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key)}, letter{payload: payload(key, "49.00", "50.00")})
	if p := w.freeze(dead.Filter{}); p.Classes[0].Class != dead.ClassConflicting || p.Classes[0].Count != 2 {
		t.Fatalf("classes %+v", p.Classes)
	}
	act, err := w.desk.DiscardLetters(t.Context(), []uint64{2}, "the customer corrected it")
	w.must(err)
	_, err = w.do(w.olga, act)
	w.must(err)
	p := w.freeze(dead.Filter{})
	if p.Classes[0].Class != dead.ClassReplayable || p.Classes[0].Count != 1 || p.Classes[1].Class != dead.ClassDiscarded {
		t.Errorf("classes %+v", p.Classes)
	}
}

func TestE10_ReplayInsideTheWindowIsDelivered(t *testing.T) {
	w := newWorld(t, dead.Options{})
	refuse := true
	b := w.work(func(job.Job) bool { return refuse })
	key := job.NewKey()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m := queue.Message{Source: source, Route: route, Key: key, Payload: payload(key), TraceParent: trace}
	_, err := w.publish.Publish(t.Context(), m)
	w.must(err)
	eventually(t, "a dead letter", func() bool { return len(w.list(dead.Filter{})) == 1 })
	b.mu.Lock()
	refuse = false
	b.mu.Unlock()
	_, done, err := w.replay(w.freeze(dead.Filter{}))
	if err != nil || done.Outcome != "done" {
		t.Fatalf("replay: %v, %v", done, err)
	}
	eventually(t, "paid", func() bool { return b.sends(key) == 1 })
	if got := w.jobs()[1].Header.Get("traceparent"); got != trace {
		t.Errorf("traceparent %q", got)
	}
	// F7: an operation that came by a replay tells its outcome once.
	var events int
	w.one(&events, `SELECT count(*) FROM outbox WHERE type = 'authorized'`)
	if events != 1 {
		t.Errorf("%d events, want 1", events)
	}
	// F2: a replay of what was paid meanwhile goes through the same claim.
	r, err := w.publish.Replay(t.Context(), m, 2)
	w.must(err)
	eventually(t, "delivered again", func() bool { return b.deliveries() == 3 })
	w.one(&events, `SELECT count(*) FROM outbox WHERE type = 'authorized'`)
	if b.sends(key) != 1 || events != 1 || r.Duplicate {
		t.Errorf("sent %d times, %d events", b.sends(key), events)
	}
}

// A database that was restored to an earlier hour may have lost that a letter was replayed and paid. Its replay is as old as its job, so that the
// partner is asked before anything is sent.
func TestD_ReplayAfterAFailoverIsInDoubt(t *testing.T) {
	w := newWorld(t, dead.Options{})
	old, young := uuid.New(), uuid.New() // of version 4: such a key does not tell its age
	w.bury(letter{payload: payload(old)})
	w.forge(`UPDATE ledger_identity SET doubt_before = now() - interval '30 min'`)
	b := w.work(nil)
	_, done, err := w.replay(w.freeze(dead.Filter{}))
	if err != nil || done.Outcome != "done" {
		t.Fatalf("replay: %v, %v", done, err)
	}
	_, err = w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: young, Payload: payload(young)})
	w.must(err)
	eventually(t, "the young one is paid", func() bool { return b.sends(young) == 1 })
	eventually(t, "the old one is on record", func() bool {
		var n int
		w.one(&n, `SELECT count(*) FROM operations WHERE in_doubt AND state = 'open'`)
		return n == 1
	})
	if b.sends(old) != 0 {
		t.Error("it was sent without asking")
	}
}

func TestF5_FailReplayFailReplay(t *testing.T) {
	w := newWorld(t, dead.Options{})
	b := w.work(func(job.Job) bool { return true })
	key := job.NewKey()
	_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: key, Payload: payload(key)})
	w.must(err)
	for n := 1; n <= 2; n++ {
		eventually(t, "in the dead letters again", func() bool { return len(w.list(dead.Filter{})) == n })
		p := w.freeze(dead.Filter{})
		if p.Classes[0].Class != dead.ClassReplayable || p.Classes[0].Count != 1 {
			t.Fatalf("round %d: classes %+v", n, p.Classes)
		}
		_, _, err := w.replay(p)
		w.must(err)
	}
	eventually(t, "three letters", func() bool { return len(w.list(dead.Filter{})) == 3 })
	s, err := w.desk.Show(t.Context(), 3)
	w.must(err)
	if s.Replays != 2 || s.State != dead.StateNew || s.Letters != 3 {
		t.Errorf("replays %d, state %s, %d letters of the key", s.Replays, s.State, s.Letters)
	}
	if alone, err := w.desk.ShowStream(t.Context(), 3); err != nil || alone.Replays != 2 || alone.Known {
		t.Errorf("by the stream alone: %+v, %v", alone, err)
	}
	if b.sends(key) != 0 {
		t.Error("a refused job was sent")
	}
}

// An older letter of a key is not replayed beside the newest one.
func TestF5_OnlyTheNewestLetterOfAKeyIsReplayed(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key)}, letter{payload: payload(key)})
	_, _, err := w.replay(w.freeze(dead.Filter{}))
	w.must(err)
	p := w.freeze(dead.Filter{}) // the replay is in the queue
	if fmt.Sprint(p.Classes) != fmt.Sprint([]dead.ClassSum{
		{Class: dead.ClassDuplicate, Count: 1, Amounts: []dead.Sum{{Currency: "GBP", Minor: 4900}}},
		{Class: dead.ClassReplayed, Count: 1, Amounts: []dead.Sum{{Currency: "GBP", Minor: 4900}}},
	}) {
		t.Errorf("classes %+v", p.Classes)
	}
	if n := len(w.jobs()); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestReplay_AChangedSelectionIsRefused(t *testing.T) {
	w := newWorld(t, dead.Options{})
	first, second := job.NewKey(), job.NewKey()
	w.bury(letter{payload: payload(first)}, letter{payload: payload(second)})
	refused := func(what string, p *dead.Plan) {
		t.Helper()
		if _, _, err := w.replay(p); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), "make a new") {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
		if n := len(w.jobs()); n > 1 {
			t.Errorf("%s: %d jobs", what, n)
		}
	}
	became := w.freeze(dead.Filter{})
	b := w.work(nil)
	_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: first, Payload: payload(first)})
	w.must(err)
	eventually(t, "paid", func() bool { return b.sends(first) == 1 })
	refused("one became an operation", became)

	discarded := w.freeze(dead.Filter{From: 2})
	act, err := w.desk.DiscardLetters(t.Context(), []uint64{2}, "not wanted")
	w.must(err)
	_, err = w.do(w.oscar, act)
	w.must(err)
	refused("one was discarded", discarded)

	w.bury(letter{payload: payload(job.NewKey())})
	expired := dead.New(w.letters, w.publish, w.pool, dead.Options{PlanTTL: time.Millisecond}).Freeze(dead.Filter{From: 3})
	_, err = w.do(w.olga, expired)
	w.must(err)
	refused("nobody began it in time", expired.Plan)

	gone := w.freeze(dead.Filter{From: 3})
	stream, err := w.js.Stream(t.Context(), queue.StreamDead)
	w.must(err)
	w.must(stream.DeleteMsg(t.Context(), 3))
	refused("one is gone", gone)

	w.must(w.js.DeleteStream(t.Context(), queue.StreamDead))
	topology, err := queue.NewTopology(queue.TopologyOptions{Routes: []string{route}})
	w.must(err)
	w.must(queue.Provision(t.Context(), w.nc, queue.Topology{Streams: topology.Streams}))
	w.bury(letter{payload: payload(job.NewKey())}, letter{payload: payload(job.NewKey())}, letter{payload: payload(job.NewKey())})
	refused("the stream was made again", gone)
	if all := w.list(dead.Filter{}); len(all) != 3 || all[1].State != dead.StateNew {
		t.Errorf("letters of the new stream: %+v", all)
	}
}

// What became an operation after the plan was compared is not published.
func TestReplay_ALetterThatChangesDuringTheRunIsSkipped(t *testing.T) {
	w := newWorld(t, dead.Options{})
	first, second := job.NewKey(), job.NewKey()
	w.bury(letter{payload: payload(first)}, letter{payload: payload(second)})
	act, err := w.desk.Replay(t.Context(), w.freeze(dead.Filter{}), 0)
	w.must(err)
	b := w.work(nil)
	_, err = w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: first, Payload: payload(first)})
	w.must(err)
	eventually(t, "paid", func() bool { return b.sends(first) == 1 })
	outcome, err := act.Run(t.Context(), w.olga) // past Check: as if it had come after it
	if err != nil || outcome != "partial" || act.Tally.Published != 1 || act.Tally.Changed != 1 || len(w.jobs()) != 2 {
		t.Errorf("%s, %+v, %v", outcome, act.Tally, err)
	}
	eventually(t, "the other one is paid", func() bool { return b.sends(second) == 1 })
}

// Whoever changes the rows of a plan behind the guards is found out by its id.
func TestReplay_AForgedPlanIsRefused(t *testing.T) {
	w := newWorld(t, dead.Options{})
	w.bury(letter{payload: payload(job.NewKey())}, letter{payload: payload(job.NewKey(), "49.00", "49.0")})
	p := w.freeze(dead.Filter{})
	if _, err := w.pool.Exec(t.Context(), `UPDATE dead_plan_letters SET class = 'replayable'`); err == nil {
		t.Error("the desk's role changes a plan")
	}
	w.forge(`UPDATE dead_plan_letters SET class = 'replayable' WHERE sequence = 2`)
	if _, err := w.desk.Plan(t.Context(), p.ID); !errors.Is(err, operate.ErrRefused) {
		t.Errorf("a forged plan: %v", err)
	}
}

// A job that comes again after the broker's duplicate window, its letter stored and its termination lost, is a second letter: the plan counts it, and
// its money, as a duplicate of the first, and one of them is paid. Two of what is no job are corrected once.
func TestPlan_TheSameJobBuriedTwiceIsOneWithdrawal(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key, broken := job.NewKey(), payload(job.NewKey(), "49.00", "49.0")
	for range 2 { // with the same sequence of the job
		w.bury(letter{payload: payload(key)})
	}
	for range 2 {
		w.bury(letter{payload: broken})
	}
	p := w.freeze(dead.Filter{})
	got := fmt.Sprint(p.Classes)
	if want := "[{replayable 1 [{GBP 4900}] 0} {malformed 2 [] 2} {duplicate 1 [{GBP 4900}] 0}]"; got != want {
		t.Errorf("classes %s, want %s", got, want)
	}
	act, done, err := w.replay(p)
	w.must(err)
	if done.Outcome != "done" || act.Tally.Published != 1 {
		t.Errorf("replay: %+v, %+v", done, act.Tally)
	}
	// While its replay is under way, and after it, nobody replays the other one.
	if act, done, err = w.replay(w.freeze(dead.Filter{From: 2, To: 2})); err != nil || done.Outcome != "no_effect" || act.Tally.Published != 0 {
		t.Errorf("the other one: %+v, %+v, %v", done, act.Tally, err)
	}
	w.eachOnce([]uuid.UUID{key})
	if p := w.freeze(dead.Filter{From: 2, To: 2}); len(p.Classes) != 1 || p.Classes[0].Class != dead.ClassFinished {
		t.Errorf("once it is paid: %+v", p.Classes)
	}
	if _, err := w.agreed(w.correct(3, set("amount", "49.00"))); err != nil {
		t.Error(err)
	}
	w.refusedAs("the twin", w.correct(4, set("amount", "49.00")), "corrected")
}
