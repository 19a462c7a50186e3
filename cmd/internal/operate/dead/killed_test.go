package dead_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// doomedVariable makes the test's program one operator who asks for one act, and is killed at a step of it.
const doomedVariable = "PAIDONCE_TEST_DOOMED_CHILD"

// doomedSpec is what the child is told.
type doomedSpec struct {
	Database, Broker, Token string
	Act                     string
	ID                      uuid.UUID // the plan, the operation or the proposal
	Letter                  uint64
	Digest                  []byte
	Step                    int64 // before which it is killed
}

// fuse counts steps, from when it is lit on, and kills the process before one of them. A step is whatever is there for others once it was taken:
// a commit, a statement that is its own transaction, a publication. Being killed before a step is being killed after the one before.
type fuse struct {
	lit  atomic.Bool
	left atomic.Int64
}

func (f *fuse) step() {
	if f.lit.Load() && f.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// before gives the URL of a door to the database through which commits are steps.
func (f *fuse) before(database string) (string, error) {
	at, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	host := at.Host
	at.Host = listener.Addr().String()
	go func() { // owned by the process, which has one act to do
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", host)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
			go func() { f.pass(client, server); _ = server.Close() }()
		}
	}()
	return at.String(), nil
}

func (f *fuse) pass(from io.Reader, to io.Writer) {
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		for _, step := range []string{"commit\x00", "INSERT INTO leases", "DELETE FROM leases"} {
			if bytes.Contains(buffer[:n], []byte(step)) {
				f.step()
				break
			}
		}
		if _, err2 := to.Write(buffer[:n]); err != nil || err2 != nil {
			return
		}
	}
}

// fused is a publisher whose publications are steps.
type fused struct {
	*queue.Publisher
	fuse *fuse
}

func (p fused) PublishMany(ctx context.Context, ms []queue.Message) []queue.Result {
	p.fuse.step()
	results := p.Publisher.PublishMany(ctx, ms)
	p.fuse.step()
	return results
}

func doomedChild(text string) error {
	var spec doomedSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	ctx, f := context.Background(), &fuse{}
	f.left.Store(spec.Step)
	door, err := f.before(spec.Database)
	if err != nil {
		return err
	}
	nc, err := queue.Connect(spec.Broker, queue.ConnectOptions{Role: queue.RoleOperator})
	if err != nil {
		return err
	}
	letters, err := queue.NewDeadLetters(nc)
	if err != nil {
		return err
	}
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		return err
	}
	l, err := ledger.Open(ctx, door, ledger.Options{MaxConns: 4})
	if err != nil {
		return err
	}
	pool, err := ledger.OpenPool(ctx, door, ledger.Options{MaxConns: 4})
	if err != nil {
		return err
	}
	desk := dead.New(letters, fused{publisher, f}, pool, dead.Options{Lease: 250 * time.Millisecond})
	service := operate.New(l, pool, limits())
	by, err := service.Identify(ctx, spec.Token)
	if err != nil {
		return err
	}
	f.lit.Store(true)
	if spec.Act == "approve" {
		_, err := service.Approve(ctx, by, spec.ID, spec.Digest, "ticket 5")
		return err
	}
	act, err := doomedAct(ctx, spec, service, desk)
	if err != nil {
		return err
	}
	_, err = service.Do(ctx, operate.Request{By: by, Reason: "ticket 5", Act: act})
	return err
}

// doomedAct is what is asked for, by the one who is killed and by the one who comes after.
func doomedAct(ctx context.Context, spec doomedSpec, service *operate.Service, desk *dead.Desk) (operate.Act, error) {
	switch spec.Act {
	case "plan":
		return desk.Freeze(dead.Filter{From: spec.Letter}), nil
	case "discard":
		plan, err := desk.Plan(ctx, spec.ID)
		if err != nil {
			return nil, err
		}
		return desk.DiscardPlan(ctx, plan, "ticket 5")
	case "correct":
		return desk.Correct(ctx, spec.Letter, set("amount", "49.00"))
	case "resolve":
		return service.Resolve(ctx, spec.ID, operate.Decision{Rejected: true, Code: "not_received"}, noRules, "ticket 5", "line 12")
	}
	return nil, fmt.Errorf("%s is no act", spec.Act)
}

func noRules(string) *operate.Rules { return nil }

// doomedCase is one act.
type doomedCase struct {
	act     string
	prepare func(w *world, spec *doomedSpec) // something new to do the act to, with the approval that it needs
	effects string                           // counts what the act has done to $1, the key or the id in question
	of      func(spec doomedSpec) string     // $1
	target  func(spec doomedSpec) string     // in the audit log
	seen    []string                         // effects, lines and outcomes after each kill, in the order of the steps, each once
	after   map[string]string                // by effects at the kill: the outcome for the one who comes after
	more    int                              // effects when it was asked for twice and the first had its own
}

func doomedCases() []doomedCase {
	letterTarget := func(s doomedSpec) string { return fmt.Sprintf("dead letter %d", s.Letter) }
	id := func(s doomedSpec) string { return s.ID.String() }
	return []doomedCase{
		{
			act: "plan", prepare: func(w *world, s *doomedSpec) { s.Letter = w.buryOne(payload(job.NewKey())) },
			// A plan without its letters, or letters without their plan, would be a half one.
			effects: `SELECT count(*) FROM dead_plans p WHERE filter LIKE '%"from":' || $1 || '%'
				AND letters = (SELECT count(*) FROM dead_plan_letters l WHERE l.draft = p.draft)`,
			of: func(s doomedSpec) string { return fmt.Sprint(s.Letter) }, target: func(doomedSpec) string { return "dead letters" },
			seen: []string{"0 effects, no line", "0 effects, begun", "1 effects, begun"}, after: map[string]string{"0": "done", "1": "done"}, more: 2, // a frozen plan is never changed: another one is made
		},
		{
			act: "discard", prepare: (*world).doomedPlan,
			effects: `SELECT count(*) FROM dead_letter_acts a JOIN operations o ON o.key = a.key AND o.code = 'discarded' WHERE act = 'discard' AND plan = (SELECT draft FROM dead_plans WHERE id = $1::uuid)`,
			of:      id, target: id,
			seen: []string{"0 effects, no line", "0 effects, begun", "3 effects, begun"}, after: map[string]string{"0": "done", "3": "no_effect"}, more: 3,
		},
		{
			act: "correct", prepare: (*world).doomedCorrection,
			effects: `SELECT count(*) FROM corrections c JOIN dead_letter_acts a ON a.key = c.new_key JOIN operations o ON o.key = c.old_key AND o.code = 'corrected' WHERE c.sequence = $1::bigint`,
			of:      func(s doomedSpec) string { return fmt.Sprint(s.Letter) }, target: letterTarget,
			seen: []string{"0 effects, no line", "0 effects, begun", "1 effects, begun"}, after: map[string]string{"0": "done", "1": "done", "published": "no_effect"}, more: 1,
		},
		{
			act: "resolve", prepare: (*world).doomedResolution,
			effects: `SELECT count(*) FROM observations b JOIN operations o ON o.id = b.operation_id WHERE b.kind = 'resolution' AND o.state = 'rejected' AND o.key = $1::uuid`,
			of:      id, target: id,
			seen: []string{"0 effects, no line", "0 effects, begun", "1 effects, begun"}, after: map[string]string{"0": "done", "1": "no_effect"}, more: 1,
		},
		{
			act: "approve", prepare: (*world).doomedProposal,
			effects: `SELECT count(*) FROM approvals WHERE proposal_id = $1::uuid`, of: id, target: id,
			seen: []string{"0 effects, no line"}, after: map[string]string{"0": "done"}, more: 1, // all of it is one commit
		},
	}
}

// buryOne stores one letter and gives its sequence.
func (w *world) buryOne(body []byte) uint64 {
	w.t.Helper()
	w.bury(letter{payload: body})
	state, err := w.letters.State(w.t.Context())
	w.must(err)
	return state.Last
}

func (w *world) doomedPlan(s *doomedSpec) {
	for range 3 {
		s.Letter = w.buryOne(payload(job.NewKey()))
	}
	s.ID = w.freeze(dead.Filter{From: s.Letter - 2}).ID
}

func (w *world) doomedCorrection(s *doomedSpec) {
	s.Letter = w.buryOne(payload(job.NewKey(), "49.00", "49.0"))
	w.approved(w.correct(s.Letter, set("amount", "49.00")))
}

func (w *world) doomedResolution(s *doomedSpec) {
	s.ID = w.parked()
	act, err := doomedAct(w.t.Context(), *s, w.service, w.desk)
	w.must(err)
	w.approved(act)
}

func (w *world) doomedProposal(s *doomedSpec) {
	act, err := w.service.Resolve(w.t.Context(), w.parked(), operate.Decision{Rejected: true, Code: "not_received"}, noRules, "ticket 5", "line 12")
	w.must(err)
	p := w.waiting(act)
	s.ID, s.Digest = p.ID, p.Digest
}

// parked leaves one operation as a worker does that cannot find out.
func (w *world) parked() uuid.UUID {
	w.t.Helper()
	key := job.NewKey()
	claim := w.ledger.Claim(w.t.Context(), []ledger.Wish{{
		Key: key, Fingerprint: ledger.Fingerprint{Version: 1, Sum: sha256.Sum256(key[:])}, Source: source, Route: route, DebtorAccount: "cust-1",
		Amount: money.Amount{Minor: 4900, Currency: "GBP"}, PublishedAt: time.Now(), Payload: []byte(`{}`),
		Intention: ledger.Intention{Partner: "northbank", Credential: "1", Endpoint: "POST /", Renderer: 1, PartnerKey: key.String(), EndToEndID: "e"},
	}})[0]
	record := ledger.Park(claim.Claim, "in_doubt", true, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown"})
	if result := w.ledger.Record(w.t.Context(), []ledger.Record{record})[0]; result.Answer != ledger.Recorded {
		w.t.Fatalf("%+v", result)
	}
	return key
}

func (w *world) waiting(act operate.Act) *operate.Proposal {
	w.t.Helper()
	done, err := w.do(w.olga, act)
	if !errors.Is(err, operate.ErrWaiting) {
		w.t.Fatalf("%s: %v, want to wait for another person", act.Name(), err)
	}
	return done.Proposal
}

func (w *world) approved(act operate.Act) {
	w.t.Helper()
	p := w.waiting(act)
	_, err := w.service.Approve(w.t.Context(), w.ada, p.ID, p.Digest, "compared")
	w.must(err)
}

// TestKilled_AtEveryStepOfEveryAct: an operator's program is killed before each step of each act. The audit log had the act before it had an effect,
// and whoever asks for the same again finishes it: nothing has a second effect. Of a replay it is TestReplay_KilledInTheMiddleGoesOn.
func TestKilled_AtEveryStepOfEveryAct(t *testing.T) {
	for _, c := range doomedCases() {
		t.Run(c.act, func(t *testing.T) {
			w := newWorld(t, dead.Options{Lease: 250 * time.Millisecond})
			l, err := ledger.Open(t.Context(), w.urls.Desk, ledger.Options{MaxConns: 2})
			w.must(err)
			t.Cleanup(l.Close)
			w.service = operate.New(l, w.pool, limits())
			var seen []string
			for step := int64(1); ; step++ {
				spec := doomedSpec{Database: w.urls.Desk, Broker: w.natsURL, Token: w.token, Act: c.act, Step: step}
				if c.act == "approve" {
					spec.Token = w.agrees
				}
				c.prepare(w, &spec)
				since := w.lastLine()
				if !w.killed(spec) {
					break
				}
				if now := w.halfDone(c, spec, since); !slices.Contains(seen, now) {
					seen = append(seen, now)
				}
				w.goneOn(c, spec)
				if t.Failed() {
					t.Fatalf("it was killed before step %d", step)
				}
			}
			if !slices.Equal(seen, c.seen) {
				t.Errorf("after the kills there was %q, want %q", seen, c.seen)
			}
		})
	}
}

// killed runs the child and reports whether it was killed; false: it did it all.
func (w *world) killed(spec doomedSpec) bool {
	w.t.Helper()
	raw, err := json.Marshal(spec)
	w.must(err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), doomedVariable+"="+string(raw))
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if err == nil {
		return false
	}
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		w.t.Fatalf("%s, step %d: the child ended with %v: %s", spec.Act, spec.Step, err, out)
	}
	return true
}

func (w *world) lastLine() (id int64) {
	w.t.Helper()
	w.one(&id, `SELECT coalesce(max(id), 0) FROM audit`)
	return id
}

func (w *world) doomedEffects(c doomedCase, spec doomedSpec) (n int) {
	w.t.Helper()
	w.one(&n, c.effects, c.of(spec))
	return n
}

// halfDone tells what the killed one has left, as the log has it.
func (w *world) halfDone(c doomedCase, spec doomedSpec, since int64) string {
	w.t.Helper()
	line := "no line"
	for l, err := range w.service.Audit(w.t.Context(), operate.AuditFilter{Act: c.act, Target: c.target(spec)}) {
		w.must(err)
		if l.ID > since {
			if line != "no line" {
				w.t.Errorf("%s: more than one line of one run", c.act)
			}
			line = l.Outcome
		}
	}
	n := w.doomedEffects(c, spec)
	if n > 0 && line == "no line" {
		w.t.Errorf("%s: %d effects that no line of the audit log tells of", c.act, n)
	}
	return fmt.Sprintf("%d effects, %s", n, line)
}

// goneOn has somebody else ask for the same.
func (w *world) goneOn(c doomedCase, spec doomedSpec) {
	w.t.Helper()
	before := fmt.Sprint(w.doomedEffects(c, spec))
	done := operate.Done{Outcome: "done"}
	var err error
	if spec.Act == "approve" {
		_, err = w.service.Approve(w.t.Context(), w.ada, spec.ID, spec.Digest, "ticket 5")
	} else {
		eventually(w.t, "gone on with", func() bool { // the killed one's lease runs out
			act, err2 := doomedAct(w.t.Context(), spec, w.service, w.desk)
			w.must(err2)
			done, err = w.do(w.oscar, act)
			return err == nil || !strings.Contains(err.Error(), "not run twice")
		})
	}
	if n := w.doomedEffects(c, spec); err != nil || n != c.more && (n != 1 || before != "0") {
		w.t.Errorf("%s: gone on with %+v, %v: %d effects, want %d", c.act, done, err, n, c.more)
	}
	want := c.after[before]
	if spec.Act == "correct" {
		want = w.published(spec, want, c.after["published"])
	}
	if done.Outcome != want {
		w.t.Errorf("%s: gone on with outcome %s, want %s", c.act, done.Outcome, want)
	}
}

// published asserts that a correction is one job and one record of it. What was on record as published before has nothing left to do.
func (w *world) published(spec doomedSpec, unpublished, published string) string {
	w.t.Helper()
	var key uuid.UUID
	w.one(&key, `SELECT new_key FROM corrections WHERE sequence = $1`, spec.Letter)
	jobs := 0
	for _, raw := range w.jobs() {
		if bytes.Contains(raw.Data, []byte(key.String())) {
			jobs++
		}
	}
	var recorded int
	var by string
	w.one(&recorded, `SELECT count(*) FROM dead_letter_acts WHERE act = 'published' AND sequence = $1`, spec.Letter)
	w.one(&by, `SELECT by FROM dead_letter_acts WHERE act = 'published' AND sequence = $1`, spec.Letter)
	if jobs != 1 || recorded != 1 {
		w.t.Errorf("the correction is %d jobs, and on record as published %d times", jobs, recorded)
	}
	if by == "olga" {
		return published
	}
	return unpublished
}

// doomedMain is for TestMain.
func doomedMain() (is bool) {
	text := os.Getenv(doomedVariable)
	if text == "" {
		return false
	}
	if err := doomedChild(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}
