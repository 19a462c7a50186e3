package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

const source = "wallet"

// patience bounds every wait of a cell: many times what it takes. It is a bound on hanging, not on speed.
const patience = 2 * time.Minute

// lane is where cells run one after the other, undisturbed by those of other lanes.
type lane struct {
	route, partner string
	urls           stack.DatabaseURLs
	witness        string // URL of the broker
	brokerAddress  string
	config         string
	bank           *arena.Bank
	pool           *pgxpool.Pool
	person         *ledger.Ledger
	publisher      *queue.Publisher
	log            *os.File
	other          string // program of another version; "" = this one stands in for it

	all proof.Publication

	mu      sync.Mutex
	sending map[string]bool // partner keys that the armed child is sending
}

func laneRoute(n int) string { return fmt.Sprintf("lane-%d", n) }

func newLane(t *testing.T, n int, nats *stack.NATS, roles stack.NATSRoles, publisher *queue.Publisher, echoes bool) *lane {
	t.Helper()
	witness, err := roles.Witness(nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	l := &lane{route: laneRoute(n), partner: fmt.Sprintf("bank-%d", n), urls: stack.Databases(t), witness: witness,
		brokerAddress: strings.TrimPrefix(nats.URL(), "nats://"), publisher: publisher, sending: map[string]bool{}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l.pool, err = pgxpool.New(t.Context(), l.urls.Superuser)
	check(err)
	t.Cleanup(l.pool.Close)
	_, err = l.pool.Exec(t.Context(), "CREATE INDEX crash_partner_key ON attempts (partner_key)")
	check(err)
	l.person, err = ledger.Open(t.Context(), l.urls.Owner, ledger.Options{MaxConns: 2})
	check(err)
	t.Cleanup(l.person.Close)
	l.bank, err = arena.StartBank(t.Context(), l.urls.Superuser, banksim.Options{Calm: true})
	check(err)
	t.Cleanup(func() {
		if err := l.bank.Stop(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	l.log, err = os.Create(filepath.Join(dir, "worker.log"))
	check(err)
	t.Cleanup(func() { _ = l.log.Close() })
	l.config, err = arena.Settings{BrokerURL: nats.URL(), Roles: roles, DatabaseURL: l.urls.Worker, Sources: []string{source},
		Partners: []arena.Partner{{ID: l.partner, Route: l.route, BaseURL: l.bank.URL, EchoesKey: echoes}}}.Write(dir)
	check(err)
	check(underfire.Provision(t.Context(), l.config, roles.Provisioner))
	return l
}

// start starts a worker of this lane.
func (l *lane) start(o order, hear func(string)) (*arena.Worker, error) {
	return l.startProgram("", o, hear)
}

// startBeside starts the worker of another version, or what stands in for it.
func (l *lane) startBeside() (*arena.Worker, error) {
	return l.startProgram(l.other, order{Newer: l.other == ""}, func(string) {})
}

func (l *lane) startProgram(program string, o order, hear func(string)) (*arena.Worker, error) {
	o.Partner, o.Route, o.Broker = l.partner, l.route, l.brokerAddress
	detail, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return arena.StartWorker(arena.Order{Config: l.config, Detail: string(detail), Program: program}, l.log, hear)
}

// publish publishes one key of a behaviour and arms the bank for it.
func (l *lane) publish(ctx context.Context, key uuid.UUID, b behaviour) error {
	partnerKey := bankclient.PartnerKey(key, l.partner, step, 0).String()
	for _, f := range b.faults {
		f.Key = partnerKey
		if _, err := l.bank.SetFault(f); err != nil {
			return err
		}
	}
	j := job.Job{Key: key, Source: source, Route: l.route, DebtorAccount: "cust-1", Amount: money.Amount{Minor: 4900, Currency: "GBP"},
		Beneficiary: job.Beneficiary{Name: "A N Example", SortCode: "200000", AccountNumber: "55779911"},
		Reference:   job.Sensitive("W" + strings.ToUpper(key.String()[19:23]+key.String()[24:36]))}
	p := proof.Published{Key: key, Reference: j.Reference.Reveal()}
	receipt, err := l.publisher.Enqueue(ctx, j)
	if err != nil {
		return err
	}
	p.Good = append(p.Good, receipt.Sequence)
	if b.conflict {
		j.Amount.Minor++
		if receipt, err = l.publisher.Enqueue(ctx, j); err != nil {
			return err
		}
		p.Conflicting = append(p.Conflicting, receipt.Sequence)
	}
	l.all.Keys = append(l.all.Keys, p)
	return nil
}

// errNotReached: nobody died, so nothing is shown. It is no fault of what was published: that is judged with all other keys at the end.
var errNotReached = errors.New("the point was never reached")

// run runs one cell and says what it did not keep.
func (l *lane) run(ctx context.Context, c cell) error {
	if c.beside && l.other == "" {
		c.behaviour = c.behaviour.beside()
	}
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	if _, err := l.pool.Exec(ctx, "DELETE FROM leases"); err != nil { // of relays of the cell before, who are all dead
		return err
	}
	attending, leave := context.WithCancel(ctx)
	var person sync.WaitGroup
	person.Go(func() { l.attend(attending) })
	defer person.Wait()
	defer leave()

	keys, err := l.die(ctx, c)
	if err != nil {
		return err
	}
	survivor, err := l.start(order{}, func(string) {}) // the killed one, started again
	if err != nil {
		return err
	}
	defer survivor.Kill()
	for _, key := range keys {
		if err := l.await(ctx, key, c.behaviour); err != nil {
			return err
		}
	}
	return nil
}

// die brings a worker to the point, and says which keys were published on the way.
func (l *lane) die(ctx context.Context, c cell) ([]uuid.UUID, error) {
	hit := make(chan struct{})
	var once sync.Once
	first := job.NewKey()
	o := order{Point: c.point, Key: first, Away: c.behaviour.away}
	if c.beside {
		o.Key = uuid.Nil
	}
	armed, err := l.start(o, func(line string) {
		if line == "hit "+c.point {
			once.Do(func() { close(hit) })
		} else if key, is := strings.CutPrefix(line, "sending "); is {
			l.mu.Lock()
			l.sending[key] = true
			l.mu.Unlock()
		}
	})
	if err != nil {
		return nil, err
	}
	defer armed.Kill()
	if c.point == "sent:arrived" {
		var struck atomic.Bool
		l.bank.OnArrival(func(partnerKey string) {
			if l.isSending(partnerKey) && !struck.Swap(true) {
				armed.Kill()
				once.Do(func() { close(hit) })
			}
		})
		defer l.bank.OnArrival(func(string) {})
	}
	if c.beside {
		if err := l.awaitRelay(ctx, hit); err != nil { // so that the armed one is the relay
			return nil, err
		}
		other, err := l.startBeside()
		if err != nil {
			return nil, err
		}
		defer other.Kill()
	}
	keys, err := l.feed(ctx, c, first, hit)
	if err != nil {
		return keys, err
	}
	if err := armed.Wait(); !arena.Killed(err) {
		return keys, fmt.Errorf("the worker ended otherwise than by SIGKILL: %w", err)
	}
	if c.beside { // the other one goes on alone for a while: it takes over what the dead one held
		for _, key := range keys {
			if err := l.await(ctx, key, c.behaviour); err != nil {
				return keys, err
			}
		}
	}
	return keys, nil
}

// feed publishes until the armed worker is dead: one key for it alone, more where two compete.
func (l *lane) feed(ctx context.Context, c cell, key uuid.UUID, hit <-chan struct{}) ([]uuid.UUID, error) {
	var keys []uuid.UUID
	deadline := time.After(patience)
	more := time.NewTicker(150 * time.Millisecond)
	defer more.Stop()
	for n := 0; ; n++ {
		if n == 0 || c.beside && n < 200 {
			if err := l.publish(ctx, key, c.behaviour); err != nil {
				return keys, err
			}
			keys = append(keys, key)
			key = job.NewKey()
		}
		select {
		case <-hit:
			return keys, nil
		case <-deadline:
			return keys, errNotReached
		case <-more.C:
		}
	}
}

func (l *lane) isSending(partnerKey string) bool {
	// What the child said before it sent may still be on its way to us.
	for range 100 {
		l.mu.Lock()
		is := l.sending[partnerKey]
		l.mu.Unlock()
		if is {
			return true
		}
		<-time.After(2 * time.Millisecond)
	}
	return false
}

// awaitRelay waits until somebody relays, or until the armed one is dead: what earlier cells left parked may bring it to its point at once.
func (l *lane) awaitRelay(ctx context.Context, hit <-chan struct{}) error {
	return l.until(ctx, func() (bool, error) {
		select {
		case <-hit:
			return true, nil
		default:
		}
		var held bool
		err := l.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM leases WHERE name = 'relay')").Scan(&held)
		return held, err
	})
}

// attend is the person who fills up the float, and looks after what is parked: sooner than people do.
func (l *lane) attend(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pauses, err := l.person.Pauses(ctx)
		if err != nil {
			continue
		}
		for _, p := range pauses {
			_ = l.person.Resume(ctx, p.Scope, p.Name, "cured", "crash") // otherwise the cell does not end
		}
		// Look-ups of parked operations are a day apart, and what was held comes back over half a minute.
		_, _ = l.pool.Exec(ctx, "UPDATE due SET due_at = now() WHERE due_at > now() + interval '3 s'")
	}
}

// await waits until a key is finished, and holds the bank's book against it.
func (l *lane) await(ctx context.Context, key uuid.UUID, b behaviour) error {
	var state string
	var evidence int
	err := l.until(ctx, func() (bool, error) {
		err := l.pool.QueryRow(ctx, `SELECT coalesce(max(o.state::text), 'nowhere'), count(b.*) FROM operations o
			LEFT JOIN observations b ON b.operation_id = o.id WHERE o.key = $1`, key).Scan(&state, &evidence)
		return err == nil && state != "open" && state != "claimed" && state != "nowhere", err
	})
	if err != nil {
		return fmt.Errorf("key %s is %s: %w", key, state, err)
	}
	if state != b.outcome && state != b.orElse {
		return fmt.Errorf("key %s is %s, want %s", key, state, b.outcome)
	}
	if state == "parked" && evidence == 0 {
		return fmt.Errorf("key %s is parked without evidence", key)
	}
	want := b.executions
	if b.refused && state == b.orElse {
		want = 0
	}
	history, _ := l.bank.History(bankclient.PartnerKey(key, l.partner, step, 0).String())
	if history.Executions != want {
		return fmt.Errorf("key %s is %s, the bank executed %d times, want %d", key, state, history.Executions, want)
	}
	return nil
}

func (l *lane) until(ctx context.Context, holds func() (bool, error)) error {
	deadline := time.After(patience)
	for {
		held, err := holds()
		if held {
			return nil
		}
		select {
		case <-deadline:
			return errors.Join(fmt.Errorf("waited %s", patience), err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// prove lets one more worker end what is left, and judges the whole lane.
func (l *lane) prove(ctx context.Context) (*proof.Judgement, error) {
	last, err := l.start(order{}, func(string) {})
	if err != nil {
		return nil, err
	}
	defer last.Kill()
	w, err := proof.Open(ctx, proof.Places{LedgerURL: l.urls.Superuser, BrokerURL: l.witness, Routes: []string{l.route}, BankURLs: []string{l.bank.ControlURL}})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	err = l.until(ctx, func() (bool, error) {
		now, err := w.Standing(ctx)
		return err == nil && now.Done(), err
	})
	if err != nil {
		return nil, fmt.Errorf("the lane does not come to rest: %w", err)
	}
	ev, err := w.Collect(ctx, l.all)
	if err != nil {
		return nil, err
	}
	return proof.Judge(l.all, ev), nil
}
