package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// errNotHeld means that the run was judged, and lost.
var errNotHeld = errors.New("it did not hold")

// exitCode says how a run ended, by the exit codes that all programs here share.
func exitCode(err error, out io.Writer) int {
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(out, "devstack: interrupted")
		return 130
	}
	if !errors.Is(err, errNotHeld) { // it has been told in full
		_, _ = fmt.Fprintln(out, "devstack:", err)
	}
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// run does everything. Data (the last line) goes to out, everything else to log.
func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	if isChild, err := runChild(ctx, args); isChild {
		return err
	}
	o, err := parseOptions(args, log)
	if err != nil {
		return err
	}
	say := newProgress(log)
	s, err := startServices(ctx, o, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	say.line("ready")
	judged, err := prove(ctx, o, s, say)
	if err != nil {
		return err
	}
	if !o.once {
		say.line("%s", guide(s))
		_, _ = fmt.Fprintln(out, judged)
		return keepRunning(ctx, s)
	}
	_, _ = fmt.Fprintln(out, judged)
	if !judged.Held() {
		return errNotHeld
	}
	return nil
}

// prove publishes, kills, waits and judges.
func prove(ctx context.Context, o options, s *services, say *progress) (*proof.Judgement, error) {
	broker, err := s.roles.Witness(s.nats.URL())
	if err != nil {
		return nil, err
	}
	w, err := proof.Open(ctx, proof.Places{
		LedgerURL: s.urls.Superuser, BrokerURL: broker, Routes: []string{route}, BankURLs: []string{s.bank.ControlURL},
	})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	op, err := openOperator(ctx, s)
	if err != nil {
		return nil, err
	}
	defer op.close()
	before, err := w.Standing(ctx)
	if err != nil {
		return nil, err
	}
	m, err := proof.NewMixture([]proof.Lane{{Source: source, Route: route}}, o.jobs, o.seed, time.Now())
	if err != nil {
		return nil, err
	}
	say.expect(len(m.Messages))
	say.line("publish %d jobs, and %d repeated, conflicting and malformed messages", o.jobs, len(m.Messages)-o.jobs)
	var all proof.Publication
	publishing, stop := context.WithCancel(ctx)
	published := make(chan error, 1)
	var publisher sync.WaitGroup
	publisher.Go(func() {
		var err error
		all, err = publish(publishing, s, m, say)
		published <- err
	})
	defer publisher.Wait()
	defer stop()
	watcher := &watcher{services: s, witnesses: w, operator: op, say: say, kills: newKillPlan(o), before: before}
	if err := watcher.watch(ctx, o.wait, published); err != nil {
		return nil, err
	}
	ev, err := w.Collect(ctx, all)
	if err != nil {
		return nil, err
	}
	j := proof.Judge(all, ev)
	for _, violation := range j.Violations {
		say.line("BREACH: %s", violation)
	}
	if len(j.Unfinished) > 0 {
		return j, tellLeftOver(ctx, w, say, len(j.Unfinished))
	}
	return j, nil
}

func tellLeftOver(ctx context.Context, w *proof.Witnesses, say *progress, n int) error {
	const most = 10
	lines, err := w.LeftOver(ctx, most)
	if err != nil {
		return err
	}
	say.line("%d operations are not finished:", n)
	for _, line := range lines {
		say.line("  %s", line)
	}
	return nil
}

// patience is how long a run may stand still: longer than every delay between two tries that it can come to.
const patience = 2 * time.Minute

// watcher follows a run to its end.
type watcher struct {
	services  *services
	witnesses *proof.Witnesses
	operator  *operator
	say       *progress
	kills     *killPlan

	before   proof.Standing // an earlier run in the same directory may have left something
	last     proof.Standing
	moved    time.Time
	attended time.Time
	calm     int
}

// watch shows progress, kills the worker on the way and plays the operator, until nothing more happens by itself. What is not
// finished when it stands still, or when the longest wait is over, is the judge's business.
func (w *watcher) watch(ctx context.Context, wait time.Duration, published <-chan error) error {
	deadline := time.After(wait)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	w.moved = time.Now()
	for {
		select {
		case err := <-published:
			if err != nil {
				return err
			}
			published = nil
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			w.say.line("waited %s, and not everything is finished", wait)
			return nil
		case <-tick.C:
		}
		over, err := w.step(ctx, published == nil)
		if over || err != nil {
			return err
		}
	}
}

// step looks once at everything, and says whether the run is over.
func (w *watcher) step(ctx context.Context, published bool) (bool, error) {
	now, err := w.witnesses.Standing(ctx)
	if err != nil {
		return false, err
	}
	w.say.standing(now)
	if now != w.last {
		w.last, w.moved = now, time.Now()
	}
	if w.kills.due(now.Finished() - w.before.Finished()) {
		w.say.killed()
		return false, w.services.worker.kill()
	}
	if err := errors.Join(w.services.worker.check(), w.services.gateway.check()); err != nil {
		return false, err
	}
	if time.Since(w.attended) > 250*time.Millisecond {
		w.attended = time.Now()
		if resumed, err := w.operator.attend(ctx); err != nil {
			return false, err
		} else if resumed {
			w.say.line("the bank said that our float was empty, and the worker paused it: filled up and resumed")
		}
	}
	if time.Since(w.moved) > patience {
		w.say.line("nothing has moved for %s", patience)
		return true, nil
	}
	// Ledger, broker and bank are asked one after the other: only two calm answers in a row are calm.
	if w.calm++; !published || !w.kills.empty() || !now.Done() {
		w.calm = 0
	}
	return w.calm >= 2, nil
}

// publish publishes the mixture as its source would.
func publish(ctx context.Context, s *services, m *proof.Mixture, say *progress) (proof.Publication, error) {
	nc, err := s.connect(queue.RolePublisher, source)
	if err != nil {
		return proof.Publication{}, err
	}
	defer nc.Close()
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		return proof.Publication{}, err
	}
	return proof.Publish(ctx, publisher, m, say.published)
}

// killPlan is at how many finished operations the worker is killed: spread over the run, at random places.
type killPlan struct{ at []int }

func newKillPlan(o options) *killPlan {
	random := rand.New(rand.NewPCG(o.seed, 2))
	p := &killPlan{}
	for i := range o.kills {
		// Up to 85 %: behind that, operations that wait for their next look-up would often be all that is left.
		share := 0.85 * (float64(i) + random.Float64()) / float64(o.kills)
		p.at = append(p.at, int(share*float64(o.jobs)))
	}
	return p
}

func (p *killPlan) due(finished int) bool {
	if len(p.at) == 0 || finished < p.at[0] {
		return false
	}
	p.at = p.at[1:]
	return true
}

func (p *killPlan) empty() bool { return len(p.at) == 0 }

// keepRunning waits for Ctrl-C, which is how this is meant to end.
func keepRunning(ctx context.Context, s *services) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.worker.done():
		return s.worker.ended()
	case <-s.gateway.done():
		return s.gateway.ended()
	}
}

func guide(s *services) string {
	return fmt.Sprintf(`it keeps running. In another terminal:

  publish   go run ./cmd/paidonce enqueue --config %[12]s --source %[6]s --route %[7]s --debtor-account cust-4471 \
              --amount 49.00 --currency GBP --name 'A N Example' --iban GB33BUKB20201555555555
  by HTTP   curl -s http://%[9]s/v1/withdrawals -H "Authorization: Bearer $(cat %[10]s)" \
              -H 'Idempotency-Key: %[11]s' -H 'Prefer: wait=10' -H 'Content-Type: application/json' \
              -d '{"route":"%[7]s","debtor_account":"cust-4471","amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}'
            (run it again: the same answer, nothing paid twice; http://%[9]s/openapi.json describes it)

  by file   go run ./cmd/paidonce batch submit integration/testdata/batch/good/payroll.csv --config %[13]s --source %[6]s --route %[7]s \
              --run 2026-11-payroll --reason 'salaries of November'

  look      go run ./cmd/paidonce ops list --config %[1]s
            go run ./cmd/paidonce dead list --config %[14]s
            curl -s %[2]s/oracle/summary            (the bank's own book)
            curl -s http://%[3]s/metrics
            tail -f %[4]s
            PGPASSWORD=$(cat %[8]s) psql -h 127.0.0.1 -p %[5]d -U paidonce_worker paidonce
  stop      Ctrl-C
`, s.config, s.bank.ControlURL, s.worker.health, s.worker.log.Name(), s.postgres.Port(), source, route, filepath.Join(s.dir, passwordName),
		s.door, filepath.Join(s.dir, sourceTokenName), job.NewKey(), s.wallet, filepath.Join(s.dir, asks+".batch.yaml"), filepath.Join(s.dir, asks+".yaml"))
}
