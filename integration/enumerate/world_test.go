package enumerate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// scenario bounds one tree of choices.
type scenario struct {
	name        string
	profile     bankclient.Profile
	lookUps     []time.Duration
	places      []int         // which process each delivery of the first round goes to
	faults      int           // how many things go wrong in one run; 0 = two
	steps       int           // after so many, nothing more is chosen: the run is driven to its end
	acts        []act         // what the bank may do; nil = everything that a true one may
	calmLedger  bool          // no lost replies
	renews      bool          // leases are renewed, and calls may outlast a third of one
	timeout     time.Duration // of calls; 0 = as elsewhere
	stops       bool          // a batch run may be cancelled
	failover    bool          // a standby without the last write may be promoted
	notAfter    time.Duration
	parkedEvery time.Duration
}

// driven is how many steps an undisturbed run may take to its end.
const driven = 400

// world is one run: one operation, two processes, a ledger, a bank.
type world struct {
	sc   *scenario
	host *host
	gen  *Gen
	mu   sync.Mutex // the ledger and the bank are also met by timers of the workers
	led  *memory
	bank *bank

	start      time.Time
	key        uuid.UUID
	payload    []byte
	deliveries []*delivery
	frozen     [2]bool
	faultsLeft int
	steps      int
	log        []string
	wakes      map[uuid.UUID]time.Time // when a record is tried again, by claim token
	tries      map[uuid.UUID]int
	standby    *memory
	failedOver bool
	pausedStep int
	mover      int // the process that went last
	truth      truths
}

func (h *host) run(gen *Gen) *world {
	w := &world{sc: h.sc, host: h, gen: gen, start: time.Now(), key: uuid.MustParse("0198c5a0-0000-7000-8000-000000000001"),
		faultsLeft: h.sc.faults, wakes: map[uuid.UUID]time.Time{}, tries: map[uuid.UUID]int{}}
	w.led = newMemory(lease, time.Now)
	w.led.broken = h.mutant.switches
	w.bank = &bank{profile: h.sc.profile, now: time.Now, kept: map[string]*kept{}}
	order := job.Job{Key: w.key, Source: source, Route: routeName, DebtorAccount: "cust-4471", Amount: money.Amount{Minor: 4900, Currency: "GBP"},
		Beneficiary: job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"}, Reference: "Withdrawal 88104"}
	if h.sc.notAfter > 0 {
		order.NotAfter = w.start.Add(h.sc.notAfter)
	}
	var err error
	if w.payload, err = job.Encode(order); err != nil {
		panic(err)
	}
	h.world.Store(w)
	h.process(0)
	h.process(1)
	for _, place := range h.sc.places {
		w.deliver(place)
	}
	w.play()
	w.replay()
	w.judgeEnd()
	h.world.Store(nil)
	return w
}

// replay: the message once more after the end, when the payload of what has an outcome is purged. Nothing may come of it.
func (w *world) replay() {
	r := w.row()
	if r == nil || !r.state.Finished() && r.state != ledger.StateParked {
		return
	}
	before, arrivals := *r, len(w.bank.arrivals)
	w.led.purge()
	w.faultsLeft, w.steps = 0, w.sc.steps
	w.log = append(w.log, "the payload is purged, and the message is replayed")
	w.deliver(0)
	w.play()
	w.judgeReplay(&before, len(w.bank.arrivals)-arrivals)
}

func (w *world) deliver(place int) {
	p := w.host.process(place)
	w.mover = place
	d := &delivery{p: p, payload: w.payload, origin: job.Origin{Source: source, Route: routeName, PublishedAt: w.start, Deliveries: len(w.deliveries) + 1,
		TraceParent: fmt.Sprintf("d%d", len(w.deliveries))}}
	w.deliveries = append(w.deliveries, d)
	go p.worker.Handle(context.Background(), w.host.mutant.wrap(d))
	<-time.After(tick)
}

// play makes choices until the steps are spent, and drives the run to its end by the first choice of each fork.
func (w *world) play() {
	for ; w.steps < driven; w.steps++ {
		w.mu.Lock()
		moves := w.moves()
		w.mu.Unlock()
		if len(moves) == 0 {
			return
		}
		i := 0
		if w.steps < w.sc.steps {
			i = w.gen.Choose(len(moves))
		}
		w.log = append(w.log, moves[i].what)
		w.mu.Lock()
		again := moves[i].do()
		w.mu.Unlock()
		if again != nil {
			again()
		}
		<-time.After(tick)
	}
	w.fault("I12: after %d steps the operation is neither finished nor parked, or something is still under way", driven)
}

// move is one thing that may happen next. do runs while every worker stands still; what it returns runs after that.
type move struct {
	what string
	do   func() func()
}

func (w *world) row() *row { return w.led.ops[w.key] }

func (w *world) unfinished() bool {
	r := w.row()
	return r != nil && (r.state == ledger.StateOpen || r.state == ledger.StateClaimed)
}

// moves lists what may happen, the calm things first: the first of them leads an undisturbed run to its end.
func (w *world) moves() []move {
	var calm, frozen, wrong []move
	awake := false
	toBank := false
	for _, c := range w.host.waiting() {
		goes, faults := w.crossingMoves(c)
		switch {
		case w.frozen[c.proc.index]:
			frozen = append(frozen, goes)
		case c.kind == "settle": // commutes with everything but the end of its process
			return append([]move{goes}, w.disasters()...)
		default:
			awake = true
			calm = append(calm, goes)
		}
		toBank = toBank || c.kind == "send" || c.kind == "look_up"
		wrong = append(wrong, faults...)
		if w.steps == 0 {
			break // that the other process is the first is the same with names changed
		}
	}
	sweeper := w.sweeper()
	if m, ok := w.redelivery(sweeper); ok {
		calm = append(calm, m)
	}
	if sweeper >= 0 && w.row() != nil && len(w.led.due(partnerID, false)) > 0 && (w.host.procs[sweeper] == nil || w.host.procs[sweeper].idle()) {
		calm = append(calm, move{fmt.Sprintf("sweep by %c", 'A'+sweeper), func() func() { return func() { w.sweep(sweeper) } }})
	}
	if len(w.led.pauses) > 0 && !awake {
		calm = append(calm, move{"a person resumes", func() func() { return w.resume }})
	}
	if to, ok := w.nextTime(); ok && !awake && len(calm) == 0 || ok && !awake && w.pausedOnce(len(w.led.pauses) > 0, len(calm)) {
		calm = append(calm, move{"time passes", func() func() { return func() { w.passTo(to) } }})
	}
	wrong = append(wrong, w.slowCalls()...)
	for i := range w.bank.late {
		if !toBank && len(calm)+len(frozen) > 0 {
			break // nobody could tell when it was executed
		}
		calm = append(calm, move{"late execution", func() func() { w.bank.land(i); return nil }})
	}
	calm = append(calm, frozen...)
	return append(append(calm, wrong...), w.disasters()...)
}

// slowCalls: a call takes so long, within the partner's timeout, that the lease is renewed meanwhile.
func (w *world) slowCalls() []move {
	var moves []move
	for _, c := range w.host.waiting() {
		if !w.sc.renews || w.faultsLeft == 0 || w.steps >= w.sc.steps || c.slow || w.frozen[c.proc.index] || c.kind != "send" && c.kind != "look_up" {
			continue
		}
		moves = append(moves, move{fmt.Sprintf("%c %s takes long", 'A'+c.proc.index, c.kind), func() func() {
			w.faultsLeft--
			c.slow = true
			return func() { w.passTo(time.Now().Add(slowly)) }
		}})
	}
	return moves
}

// pausedOnce: while a partner is paused, one look at what the sweep does then.
func (w *world) pausedOnce(paused bool, calm int) bool {
	return paused && calm == 1 && w.pausedStep < 1
}

func (w *world) crossingMoves(c *crossing) (goes move, faults []move) {
	name := fmt.Sprintf("%c %s", 'A'+c.proc.index, c.kind)
	let := func(what string, do func()) move {
		return move{what, func() func() {
			w.frozen[c.proc.index], w.mover = false, c.proc.index
			do()
			c.leave()
			return nil
		}}
	}
	costs := func(what string, do func()) {
		faults = append(faults, let(what, func() { w.faultsLeft--; do() }))
	}
	if w.faultsLeft == 0 || w.steps >= w.sc.steps {
		costs = func(string, func()) {}
	}
	switch c.kind {
	case "send":
		acts := w.bank.acts(c.to, w.sc.acts)
		for _, a := range acts[1:] {
			costs(name+": "+string(a), func() { c.send(a) })
		}
		if c.to.InTime != nil && !c.to.InTime() { // it was stopped before the first byte, not after the last
			faults = append(faults, let(name+": too late to begin", c.hold))
		}
		return let(name+": "+string(acts[0]), func() { c.send(acts[0]) }), faults
	case "look_up":
		for _, f := range w.bank.finds(c.to)[1:] {
			costs(name+": "+string(f), func() { c.ask(f) })
		}
		return let(name, func() { c.ask(truth) }), faults
	case "settle":
		return let(name, c.apply), nil
	}
	if !w.sc.calmLedger {
		costs(name+", reply lost", func() { c.apply(); w.failed(c, errNoReply) })
		costs(name+" not reached", func() { w.failed(c, errAway) })
	}
	return let(name, c.apply), faults
}

// failed gives the caller an error, and remembers when a record is tried again.
func (w *world) failed(c *crossing, err error) {
	c.fail(err)
	if c.kind == "record" {
		w.wakes[c.token] = time.Now().Add(2 * time.Second << w.tries[c.token])
		w.tries[c.token]++
	}
}

// disasters are what befalls whole processes. That a process ends is chosen right after its own last step: later, with steps of others
// between, would be the same.
func (w *world) disasters() []move {
	if w.faultsLeft == 0 || w.steps >= w.sc.steps {
		return nil
	}
	var moves []move
	for i, p := range w.host.procs {
		if p == nil || w.frozen[i] || p.idle() || (w.steps > 0 && w.mover != i) {
			continue
		}
		moves = append(moves,
			move{fmt.Sprintf("%c is killed", 'A'+i), func() func() { w.faultsLeft--; return p.kill }},
			move{fmt.Sprintf("%c is stopped", 'A'+i), func() func() { w.faultsLeft--; w.frozen[i] = true; return nil }})
	}
	if r := w.row(); w.sc.stops && !w.truth.stopped && w.unfinished() {
		moves = append(moves, move{"its run is cancelled", func() func() {
			w.faultsLeft--
			w.truth.stopped = true
			w.led.stop(r)
			return nil
		}})
	}
	acknowledged := slices.ContainsFunc(w.deliveries, func(d *delivery) bool { return d.settled == "done" })
	if w.sc.failover && !w.failedOver && !acknowledged && w.standby != nil {
		moves = append(moves, move{"a standby without the last write is promoted", func() func() {
			w.faultsLeft--
			w.failedOver = true
			w.led.promote(w.standby)
			w.truth.promoted()
			return nil
		}})
	}
	return moves
}

// idle: nothing of the process stands at an interface.
func (p *process) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending) == 0
}

// sweeper is the process that sweeps: the first that is not stopped. A dead one is restarted.
func (w *world) sweeper() int {
	for i, p := range w.host.procs {
		if p != nil && !w.frozen[i] && p.idle() {
			return i
		}
	}
	for i, p := range w.host.procs {
		if p == nil {
			return i
		}
	}
	return -1
}

// sweep claims what is due, as one step with the choice of what happens to its reply made at its crossing.
func (w *world) sweep(i int) {
	w.mover = i
	p := w.host.process(i)
	for !p.sweep() {
		<-time.After(tick)
	}
}

// redelivery: a message that was not acknowledged comes again.
func (w *world) redelivery(place int) (move, bool) {
	if place < 0 || len(w.deliveries) > len(w.sc.places)+3 {
		return move{}, false
	}
	for _, d := range w.deliveries {
		if d.again || (d.settled != "retry" && !(d.settled == "" && (d.p.isDead() || w.frozen[d.p.index]))) {
			continue
		}
		return move{fmt.Sprintf("redelivery to %c", 'A'+place), func() func() {
			d.again = true
			return func() { w.deliver(place) }
		}}, true
	}
	return move{}, false
}

// nextTime is when something happens by itself.
func (w *world) nextTime() (time.Time, bool) {
	var next time.Time
	at := func(t time.Time) {
		if t.After(time.Now()) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, t := range w.wakes {
		at(t)
	}
	if w.unfinished() && !w.row().dueAt.IsZero() {
		at(w.row().dueAt)
	}
	if r := w.row(); r != nil && r.state == ledger.StateParked && w.truth.parkedLooks < 2 {
		at(time.Now().Add(min(w.sc.parkedEvery, parkedAgain) + tick))
	}
	return next, !next.IsZero()
}

// passTo lets time pass; requests that are under way arrive by their latest possible time.
func (w *world) passTo(to time.Time) {
	w.mu.Lock()
	if r := w.row(); r != nil && r.state == ledger.StateParked {
		w.truth.parkedLooks++
	}
	if len(w.led.pauses) > 0 {
		w.pausedStep++
	}
	w.mu.Unlock()
	for {
		first := -1
		for i, l := range w.bank.late {
			if l.by.Before(to) && (first < 0 || l.by.Before(w.bank.late[first].by)) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		<-time.After(max(0, time.Until(w.bank.late[first].by)))
		w.log = append(w.log, "late execution at the last moment")
		w.mu.Lock()
		w.bank.land(first)
		w.mu.Unlock()
	}
	w.arriveBefore(to)
	<-time.After(max(0, time.Until(to)) + tick)
}

// arriveBefore lets a stopped process send while the partner's profile still covers it: no promise reaches further.
func (w *world) arriveBefore(to time.Time) {
	for _, c := range w.host.waiting() {
		if c.kind != "send" {
			continue
		}
		until := c.at.Add(w.sc.profile.LatestArrival)
		if w.sc.profile.HonoursKeys && w.sc.profile.SerialisesDuplicates {
			until = w.start.Add(w.sc.profile.KeyWindow - 2*tick)
		}
		if !w.sc.profile.HonoursKeys {
			return // nothing is ever sent beside it
		}
		if until.After(to) {
			continue
		}
		<-time.After(max(0, time.Until(until)))
		w.log = append(w.log, fmt.Sprintf("%c sends at the last moment", 'A'+c.proc.index))
		w.mu.Lock()
		c.send(books)
		w.mu.Unlock()
		c.leave()
	}
}

// resume is what a person does after the cause was cured.
func (w *world) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.led.pauses)
	if r := w.row(); r != nil && r.held && r.dueAt.After(time.Now().Add(30*time.Second)) {
		r.dueAt = time.Now()
	}
}

// trail is what happened, for a person.
func (w *world) trail() string {
	var b strings.Builder
	for i, what := range w.log {
		fmt.Fprintf(&b, "  %2d %s\n", i+1, what)
	}
	if r := w.row(); r != nil {
		fmt.Fprintf(&b, "  operation: %s %q, in doubt %v, fence %d, transfer %q; executions %d\n", r.state, r.code, r.inDoubt, r.fence, r.transferID, len(w.bank.executions))
		for _, a := range r.attempts {
			fmt.Fprintf(&b, "  attempt under fence %d at %v\n", a.Fence, a.At.Sub(w.start))
		}
		for _, f := range r.facts {
			fmt.Fprintf(&b, "  %s under fence %d at %v: %s %s authoritative %v\n", f.Kind, f.Fence, f.At.Sub(w.start), f.Verdict, f.Code, f.Authoritative)
		}
	}
	return b.String()
}
