package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// measurement is one run of one part.
type measurement struct {
	Part      string  `json:"part"`
	Contender string  `json:"contender"`
	Variant   string  `json:"variant,omitzero"` // a rate, a latency of the bank
	Jobs      int     `json:"jobs"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"ops_per_second,omitzero"`

	WorkerUS   float64 `json:"worker_us_per_op,omitzero"`
	PostgresUS float64 `json:"postgres_us_per_op,omitzero"`
	NATSUS     float64 `json:"nats_us_per_op,omitzero"`
	BankUS     float64 `json:"bank_us_per_op,omitzero"`

	Commits  float64 `json:"commits_per_op,omitzero"`
	WALBytes float64 `json:"wal_bytes_per_op,omitzero"`
	HOTShare float64 `json:"hot_share,omitzero"`

	P50MS float64 `json:"p50_ms,omitzero"`
	P95MS float64 `json:"p95_ms,omitzero"`
	P99MS float64 `json:"p99_ms,omitzero"`
	MaxMS float64 `json:"max_ms,omitzero"`

	InFlight    float64 `json:"calls_in_flight,omitzero"`
	KBPerCall   float64 `json:"rss_kb_per_call,omitzero"`
	SecondCalls int64   `json:"second_calls"`
}

// totalUS is what one operation costs all processes together.
func (m *measurement) totalUS() float64 { return m.WorkerUS + m.PostgresUS + m.NATSUS + m.BankUS }

// byCPU is what the machine's cores could do at that cost if they did nothing else: a figure that others on the machine hardly touch.
func (m *measurement) byCPU() float64 {
	if m.totalUS() == 0 {
		return 0
	}
	return float64(runtime.NumCPU()) * 1e6 / m.totalUS()
}

func newMeasurement(part, contender, variant string, jobs int, from, to usage) measurement {
	used, n := to.cpu.minus(from.cpu), float64(jobs)
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / n }
	took := to.at.Sub(from.at).Seconds()
	return measurement{
		Part: part, Contender: contender, Variant: variant, Jobs: jobs, Seconds: took, PerSecond: n / took,
		WorkerUS: each(used.worker), PostgresUS: each(used.postgres), NATSUS: each(used.nats), BankUS: each(used.bank),
		Commits: float64(to.xids-from.xids) / n, WALBytes: float64(to.wal-from.wal) / n,
	}
}

// work is one contender at work on a stage.
type work struct {
	c      contender
	s      *stage
	worker *child
	done   int // outcomes so far
}

// begin opens a stage and gets the worker warm.
func (b *bench) begin(ctx context.Context, name string, latency time.Duration, inFlight int, routes ...string) (_ *work, err error) {
	w := &work{c: contenderOf(name)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", name, err), w.end(ctx))
		}
	}()
	if w.s, err = b.openStage(ctx, latency, routes...); err != nil {
		return nil, err
	}
	if err = w.c.prepare(ctx, w.s); err != nil {
		return nil, err
	}
	if w.worker, err = w.c.start(ctx, w.s, inFlight); err != nil {
		return nil, err
	}
	warm, err := makeJobs(max(b.o.warmup/w.c.share, 200), route)
	if err != nil {
		return nil, err
	}
	if err = w.c.enqueue(ctx, w.s, warm); err != nil {
		return nil, err
	}
	w.done = len(warm)
	return w, w.settle(ctx)
}

// settle waits until everything enqueued is recorded and, where the contender publishes events, published.
func (w *work) settle(ctx context.Context) error {
	if err := w.s.awaitRecorded(ctx, w.worker, w.done); err != nil || !w.c.relays {
		return err
	}
	return w.s.await(ctx, w.worker, func() (bool, error) { return w.s.published(ctx) })
}

func (w *work) end(ctx context.Context) error {
	if w.worker != nil {
		w.worker.stop()
	}
	if w.s != nil {
		return w.s.close(context.WithoutCancel(ctx))
	}
	return nil
}

// drain freezes the worker, enqueues, lets it go, and measures until all is done.
func (w *work) drain(ctx context.Context, part, variant string, jobs []made, during func() error) (measurement, error) {
	w.worker.Signal(syscall.SIGSTOP)
	if err := w.c.enqueue(ctx, w.s, jobs); err != nil {
		return measurement{}, err
	}
	from, err := w.s.usage(ctx, w.worker)
	if err != nil {
		return measurement{}, err
	}
	w.worker.Signal(syscall.SIGCONT)
	from.at = time.Now()
	w.done += len(jobs)
	if during != nil {
		if err := during(); err != nil {
			return measurement{}, err
		}
	}
	if err := w.settle(ctx); err != nil {
		return measurement{}, err
	}
	to, err := w.s.usage(ctx, w.worker)
	if err != nil {
		return measurement{}, err
	}
	return newMeasurement(part, w.c.name, variant, len(jobs), from, to), nil
}

// finish stops the worker and verifies the run.
func (w *work) finish(ctx context.Context, m *measurement) (err error) {
	w.worker.stop()
	if m.HOTShare, err = hotShare(ctx, w.s.admin); err != nil {
		return err
	}
	m.SecondCalls, err = w.s.verify(ctx, w.done, w.c.relays)
	return err
}

// drainRound measures throughput and cost of one contender at a bank without latency.
func (b *bench) drainRound(ctx context.Context, r *report, name string) (err error) {
	inFlight := b.o.inFlight
	if name != namePaidonce && name != nameAgainst {
		inFlight = 64 // more helps none of the others
	}
	w, err := b.begin(ctx, name, 0, inFlight, route)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end(ctx)) }()
	jobs, err := makeJobs(max(b.o.jobs/w.c.share, 100), route)
	if err != nil {
		return err
	}
	stopProfile := func() error { return nil }
	m, err := w.drain(ctx, partDrain, "", jobs, func() (err error) {
		if name == namePaidonce && b.o.profileDir != "" {
			stopProfile, err = b.profile(ctx, w.worker)
		}
		return err
	})
	if err = errors.Join(err, stopProfile()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := w.finish(ctx, &m); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.say("%s: %.0f/s, %.1f us of worker, %.1f us of postgres", name, m.PerSecond, m.WorkerUS, m.PostgresUS)
	return r.add(m)
}

// latencyRound publishes at a steady rate and measures from the broker's word that it has the job to the commit of its record.
func (b *bench) latencyRound(ctx context.Context, r *report) error {
	for _, perSecond := range []int{500, 5000} {
		for _, name := range []string{namePaidonce, nameAgainst, nameNaive} {
			if !slices.Contains(b.o.contenders, name) || name == nameNaive && perSecond > 500 {
				continue // the naive worker cannot keep up with 5,000/s
			}
			if err := b.latency(ctx, r, name, perSecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) latency(ctx context.Context, r *report, name string, perSecond int) (err error) {
	w, err := b.begin(ctx, name, 0, b.o.inFlight, route)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end(ctx)) }()
	jobs, err := makeJobs(perSecond*b.o.seconds, route)
	if err != nil {
		return err
	}
	before := w.done
	from, err := w.s.usage(ctx, w.worker)
	if err != nil {
		return err
	}
	if err := w.s.publishAt(ctx, jobs, perSecond); err != nil {
		return err
	}
	w.done += len(jobs)
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("%s at %d/s: %w", name, perSecond, err)
	}
	to, err := w.s.usage(ctx, w.worker)
	if err != nil {
		return err
	}
	m := newMeasurement(partLatency, name, fmt.Sprintf("%d/s", perSecond), len(jobs), from, to)
	if err := w.s.latencies(ctx, before+perSecond/2, &m); err != nil {
		return err
	}
	if err := w.finish(ctx, &m); err != nil {
		return fmt.Errorf("%s at %d/s: %w", name, perSecond, err)
	}
	b.say("%s at %d/s: p50 %.2f ms, p99 %.2f ms, max %.0f ms", name, perSecond, m.P50MS, m.P99MS, m.MaxMS)
	return r.add(m)
}

// latencies reads how long each operation took, the first ones left out.
func (s *stage) latencies(ctx context.Context, skip int, m *measurement) error {
	err := s.admin.QueryRow(ctx, `
		WITH took AS (SELECT extract(epoch FROM pg_xact_commit_timestamp(o.xmin) - p.published_at) * 1000 AS ms
		                FROM observations o JOIN payloads p USING (operation_id) WHERE o.operation_id > $1)
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.95) WITHIN GROUP (ORDER BY ms),
		       percentile_cont(0.99) WITHIN GROUP (ORDER BY ms), max(ms) FROM took`, skip).Scan(&m.P50MS, &m.P95MS, &m.P99MS, &m.MaxMS)
	if err != nil {
		return fmt.Errorf("read latencies: %w", err)
	}
	return nil
}

// slowRound drains against banks that take their time.
func (b *bench) slowRound(ctx context.Context, r *report) error {
	for _, at := range []struct {
		latency  time.Duration
		inFlight int
	}{{50 * time.Millisecond, 1024}, {500 * time.Millisecond, 4096}} {
		if err := b.slow(ctx, r, at.latency, at.inFlight); err != nil {
			return fmt.Errorf("bank of %s: %w", at.latency, err)
		}
	}
	return nil
}

func (b *bench) slow(ctx context.Context, r *report, latency time.Duration, inFlight int) (err error) {
	w, err := b.begin(ctx, namePaidonce, 0, inFlight, route)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end(ctx)) }()
	idle, err := memory(w.worker.PID())
	if err != nil {
		return err
	}
	if err := w.s.bank.setLatency(ctx, latency); err != nil {
		return err
	}
	jobs, err := makeJobs(b.o.jobs, route)
	if err != nil {
		return err
	}
	var peak int64
	watching, unwatch := context.WithCancel(ctx)
	watched := make(chan struct{})
	m, err := w.drain(ctx, partSlow, latency.String(), jobs, func() error {
		go func() {
			defer close(watched)
			for watching.Err() == nil {
				now, err := memory(w.worker.PID())
				if err != nil {
					return // it has ended, which others notice
				}
				peak = max(peak, now)
				select {
				case <-watching.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		return nil
	})
	unwatch()
	if err != nil {
		return err
	}
	<-watched
	// While a backlog lasts, every slot is held by a delivery: its call is under way, or about to be, or being recorded.
	m.InFlight = float64(min(inFlight, len(jobs)))
	m.KBPerCall = float64(peak-idle) / 1024 / m.InFlight
	if err := w.finish(ctx, &m); err != nil {
		return err
	}
	b.say("bank of %s: %.0f/s, %.0f kB per call, %d second calls", latency, m.PerSecond, m.KBPerCall, m.SecondCalls)
	return r.add(m)
}

// isolationRound measures one partner beside another that works, and beside one that times out.
func (b *bench) isolationRound(ctx context.Context, r *report) error {
	for _, variant := range []string{"alone", "beside a dead partner"} {
		if err := b.isolation(ctx, r, variant); err != nil {
			return fmt.Errorf("%s: %w", variant, err)
		}
	}
	return nil
}

func (b *bench) isolation(ctx context.Context, r *report, variant string) (err error) {
	w, err := b.begin(ctx, namePaidonce, 0, b.o.inFlight, route, otherRoute)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end(ctx)) }()
	jobs, err := makeJobs(b.o.jobs, route)
	if err != nil {
		return err
	}
	if variant != "alone" {
		if err := w.s.other.setLatency(ctx, time.Minute); err != nil {
			return err
		}
		doomed, err := makeJobs(max(b.o.jobs/10, 2*b.o.inFlight), otherRoute)
		if err != nil {
			return err
		}
		if err := w.s.publish(ctx, doomed); err != nil {
			return err
		}
	}
	w.worker.Signal(syscall.SIGSTOP)
	if err := w.s.publish(ctx, jobs); err != nil {
		return err
	}
	from, err := w.s.usage(ctx, w.worker)
	if err != nil {
		return err
	}
	w.worker.Signal(syscall.SIGCONT)
	from.at = time.Now()
	w.done += len(jobs)
	if err := w.s.awaitRecorded(ctx, w.worker, w.done); err != nil {
		return err
	}
	to, err := w.s.usage(ctx, w.worker)
	if err != nil {
		return err
	}
	m := newMeasurement(partIsolation, namePaidonce, variant, len(jobs), from, to)
	disagreeing, err := w.s.disagreeing(ctx)
	if err != nil {
		return err
	}
	if disagreeing > 0 {
		return fmt.Errorf("bank and ledger tell %d transfers differently", disagreeing)
	}
	b.say("%s: %.0f/s", variant, m.PerSecond)
	return r.add(m)
}
