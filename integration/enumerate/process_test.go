package enumerate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
)

const (
	partnerID = "northbank"
	routeName = "gbp-fps"
	source    = "wallet"
	lease     = time.Minute
	timeout   = 20 * time.Second
	slowly    = 26 * time.Second // of a call that outlasts a third of the lease, where the partner's timeout allows that
	tick      = time.Millisecond // of one step

	parkedAgain = time.Minute
)

var errKilled = errors.New("killed")

// crossing is one call of a worker that stands at an interface until the scheduler lets it go on.
type crossing struct {
	proc  *process
	kind  string // claim, claim_due, attempt, send, record, renew, look_up, look_at_parked, append, pause, settle
	fence int32  // of the claim it belongs to; 0 = none
	apply func() // what the far side does
	fail  func(error)
	to    bankclient.Prepared // of send and look_up
	send  func(act)
	hold  func() // of send: not a byte leaves
	ask   func(find)
	token uuid.UUID // of record
	slow  bool      // of send and look_up: it took long
	done  chan struct{}
	at    time.Time // since when it stands here
	order int
}

// process is one worker process: a real worker.Worker whose every interface leads to the scheduler.
type process struct {
	host   *host
	index  int
	worker *worker.Worker
	stop   context.CancelFunc
	ended  chan error
	died   chan struct{}

	mu      sync.Mutex // of what follows
	dead    bool
	acting  uuid.UUID // the claim that was granted or committed to last: what goes to the bank next is its
	sweeper chan int  // the sweep waits for slots here
	pending []*crossing
	arrived int
}

// host keeps processes over many runs of one bubble, since making a worker costs more than running it.
type host struct {
	world  atomic.Pointer[world] // of the run under way
	sc     *scenario
	mutant mutant
	procs  [2]*process
	start  time.Time
}

// process gives the live process of a place, making it if needed.
func (h *host) process(i int) *process {
	if p := h.procs[i]; p != nil {
		return p
	}
	p := &process{host: h, index: i, ended: make(chan error, 1), died: make(chan struct{})}
	var led worker.Ledger = ledgerPort{p}
	var partner worker.Bank = bankPort{p}
	if h.mutant.ledger != nil {
		led = h.mutant.ledger(led)
	}
	if h.mutant.bank != nil {
		partner = h.mutant.bank(partner)
	}
	skew := time.Duration(i) * 5 * time.Hour // clocks of workers may be wrong
	opts := worker.Options{Lease: lease, Committers: 4, BatchSize: 4, SweepBatch: 4, SweepEvery: tick / 4, ParkedEvery: h.sc.parkedEvery, ParkedAgain: parkedAgain,
		Routes:  map[string]worker.Route{routeName: {Partner: partnerID, Currencies: []string{"GBP"}}},
		Sources: map[string]worker.Source{source: {Routes: []string{routeName}}},
		Clock:   func() time.Duration { return time.Since(h.start) + skew }, Rand: func() float64 { return 0 }}
	if h.mutant.options != nil {
		h.mutant.options(&opts)
	}
	w, err := worker.New(led, []worker.Partner{{Bank: partner, Gate: gatePort{p}, LookUps: h.sc.lookUps}}, opts)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.worker, p.stop = w, stop
	go func() { p.ended <- w.Run(ctx) }()
	h.procs[i] = p
	<-time.After(tick)
	return p
}

// kill is SIGKILL: nothing that the process does from now on has an effect. Its goroutines run out on errors.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	pending := p.pending
	p.pending = nil
	p.mu.Unlock()
	close(p.died)
	for _, c := range pending {
		c.fail(errKilled)
		close(c.done)
	}
	p.worker.Cut()
	p.stop()
	<-p.ended
	p.host.procs[p.index] = nil
}

// cross waits until the scheduler decided. A dead process gets nothing done.
func (p *process) cross(c *crossing) {
	c.proc, c.done, c.at = p, make(chan struct{}), time.Now()
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		c.fail(errKilled)
		return
	}
	p.arrived++
	c.order = p.arrived
	p.pending = append(p.pending, c)
	p.mu.Unlock()
	<-c.done
}

// goOn notes the claim under which the process acts from now on.
func (p *process) goOn(token uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acting = token
}

func (p *process) actsUnder() uuid.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acting
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// waiting lists the crossings of all processes in a fixed order.
func (h *host) waiting() []*crossing {
	var all []*crossing
	for _, p := range h.procs {
		if p == nil {
			continue
		}
		p.mu.Lock()
		slices.SortFunc(p.pending, func(a, b *crossing) int {
			return cmp.Or(cmp.Compare(a.fence, b.fence), cmp.Compare(a.kind, b.kind), cmp.Compare(a.order, b.order))
		})
		all = append(all, p.pending...)
		p.mu.Unlock()
	}
	return all
}

func (c *crossing) leave() {
	p := c.proc
	p.mu.Lock()
	p.pending = slices.DeleteFunc(p.pending, func(o *crossing) bool { return o == c })
	p.mu.Unlock()
	close(c.done)
}

type ledgerPort struct{ p *process }

func one[T, R any](in []T, answer func(T) R) []R {
	out := make([]R, len(in))
	for i := range in {
		out[i] = answer(in[i])
	}
	return out
}

func (l ledgerPort) Claim(_ context.Context, wishes []ledger.Wish) (answers []ledger.ClaimAnswer) {
	l.p.cross(&crossing{kind: "claim", apply: func() {
		answers = one(wishes, func(w ledger.Wish) ledger.ClaimAnswer { return l.p.host.world.Load().claim(l.p, w) })
	}, fail: func(err error) {
		answers = slices.Repeat([]ledger.ClaimAnswer{{Err: err}}, len(wishes))
	}})
	return answers
}

func (l ledgerPort) ClaimDue(_ context.Context, partner string, limit int) (works []ledger.Work, err error) {
	l.p.cross(&crossing{kind: "claim_due", apply: func() { works = l.p.host.world.Load().claimDue(l.p, partner, limit) },
		fail: func(failed error) { works, err = nil, failed }})
	return works, err
}

func (l ledgerPort) CommitAttempts(_ context.Context, resends []ledger.Resend) (results []ledger.AttemptResult) {
	decided := time.Now()
	l.p.cross(&crossing{kind: "attempt", fence: resends[0].Claim.Fence, apply: func() {
		results = one(resends, func(r ledger.Resend) ledger.AttemptResult {
			return l.p.host.world.Load().commitAttempt(l.p, r, decided)
		})
	}, fail: func(err error) { results = slices.Repeat([]ledger.AttemptResult{{Err: err}}, len(resends)) }})
	return results
}

func (l ledgerPort) Record(_ context.Context, records []ledger.Record) (results []ledger.RecordResult) {
	w := l.p.host.world.Load()
	c := &crossing{kind: "record", fence: records[0].Claim.Fence, token: records[0].Claim.Token, apply: func() {
		results = one(records, w.record)
	}, fail: func(err error) { results = slices.Repeat([]ledger.RecordResult{{Err: err}}, len(records)) }}
	l.p.cross(c)
	return results
}

func (l ledgerPort) Renew(_ context.Context, claims []ledger.Claim) (still []bool, err error) {
	w := l.p.host.world.Load()
	if w == nil || !w.sc.renews {
		return nil, errAway
	}
	l.p.cross(&crossing{kind: "renew", fence: claims[0].Fence, apply: func() { still = one(claims, w.renew) }, fail: func(failed error) { still, err = nil, failed }})
	return still, err
}

// LookAtParked is no step where there is nothing to see: it changes nothing then.
func (l ledgerPort) LookAtParked(_ context.Context, partner string, limit int) (works []ledger.Work, err error) {
	w := l.p.host.world.Load()
	if w == nil {
		return nil, errAway
	}
	w.mu.Lock()
	nothing := len(w.led.due(partner, true)) == 0
	w.mu.Unlock()
	if nothing {
		return nil, nil
	}
	l.p.cross(&crossing{kind: "look_at_parked", apply: func() { works = w.lookAtParked(l.p, partner, limit) },
		fail: func(failed error) { works, err = nil, failed }})
	return works, err
}

func (l ledgerPort) Append(_ context.Context, lates []ledger.Late) (results []ledger.RecordResult) {
	l.p.cross(&crossing{kind: "append", apply: func() { results = one(lates, l.p.host.world.Load().append) },
		fail: func(err error) { results = slices.Repeat([]ledger.RecordResult{{Err: err}}, len(lates)) }})
	return results
}

func (l ledgerPort) Gauges(context.Context) (ledger.Gauges, error) { return ledger.Gauges{}, errAway }

func (l ledgerPort) Pause(_ context.Context, scope ledger.Scope, name, reason, _ string) (err error) {
	l.p.cross(&crossing{kind: "pause", apply: func() { l.p.host.world.Load().pause(scope, name, reason) }, fail: func(failed error) { err = failed }})
	return err
}

type bankPort struct{ p *process }

func (b bankPort) ID() string                  { return partnerID }
func (b bankPort) CredentialID() string        { return "2026-11" }
func (b bankPort) Timeout() time.Duration      { return cmp.Or(b.p.host.sc.timeout, timeout) }
func (b bankPort) Profile() bankclient.Profile { return b.p.host.sc.profile }

func (b bankPort) Prepare(key uuid.UUID, epoch int16, t bankclient.Transfer) (bankclient.Prepared, error) {
	return b.PrepareAs(1, key, epoch, t)
}

func (b bankPort) PrepareAs(renderer int16, key uuid.UUID, epoch int16, t bankclient.Transfer) (bankclient.Prepared, error) {
	pk := bankclient.PartnerKey(key, partnerID, "create", epoch).String()
	body := []byte(t.Amount + t.Currency + t.Reference + pk)
	return bankclient.Prepared{PartnerID: partnerID, CredentialID: "2026-11", Endpoint: "POST https://bank.example/v1/transfers", Renderer: renderer,
		Body: body, BodySHA256: sha256.Sum256(body), PartnerKey: pk, EndToEndID: "E2E", Transfer: t}, nil
}

func (b bankPort) Send(_ context.Context, pr bankclient.Prepared) (said bankclient.Result) {
	stood, token := time.Now(), b.p.actsUnder()
	b.p.cross(&crossing{kind: "send", to: pr, send: func(a act) { said = b.p.host.world.Load().send(pr, a, token, stood) },
		hold: func() { said = b.p.host.world.Load().unsent(token) }, fail: func(error) {}})
	return said
}

func (b bankPort) LookUp(_ context.Context, pr bankclient.Prepared) (found bankclient.Finding) {
	token := b.p.actsUnder()
	b.p.cross(&crossing{kind: "look_up", to: pr, ask: func(f find) { found = b.p.host.world.Load().lookUp(pr, f, token) }, fail: func(error) {}})
	return found
}

type gatePort struct{ p *process }

// Acquire of the sweep waits for the scheduler; of a look at parked operations it does not.
func (g gatePort) Acquire(ctx context.Context, most int) (int, error) {
	if most == 1 {
		return 1, nil
	}
	slots := make(chan int)
	g.p.mu.Lock()
	g.p.sweeper = slots
	g.p.mu.Unlock()
	select {
	case n := <-slots:
		return n, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (g gatePort) Release(int)                    {}
func (g gatePort) Take(ctx context.Context) error { return ctx.Err() }
func (g gatePort) Report(bankclient.Result)       {}

// sweep lets the sweep of a process go once; it comes to stand at claim_due.
func (p *process) sweep() bool {
	p.mu.Lock()
	slots := p.sweeper
	p.sweeper = nil
	p.mu.Unlock()
	if slots == nil {
		return false
	}
	slots <- 1
	return true
}

// delivery is one arrival of the message.
type delivery struct {
	p       *process
	payload []byte
	origin  job.Origin
	settled string // done, retry, dead:<reason>
	again   bool   // it was delivered once more
}

func (d *delivery) Origin() job.Origin { return d.origin }
func (d *delivery) Payload() []byte    { return d.payload }

func (d *delivery) Done()               { d.settle("done") }
func (d *delivery) Retry(time.Duration) { d.settle("retry") }

func (d *delivery) Dead(reason job.Reason, _ string) { d.settle("dead:" + string(reason)) }

func (d *delivery) settle(how string) {
	d.p.cross(&crossing{kind: "settle", apply: func() { d.p.host.world.Load().settle(d, how) }, fail: func(error) {}})
}
