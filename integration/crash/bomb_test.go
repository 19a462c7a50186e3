package crash

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/outage/proxy"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// order is what a child of a cell is told.
type order struct {
	Point   string    `json:"point"`   // where it dies; "" = it lives
	Key     uuid.UUID `json:"key"`     // whose step it is; nil = anybody's
	Partner string    `json:"partner"` // the lane's
	Route   string    `json:"route"`   // the lane's
	Broker  string    `json:"broker"`  // host and port
	Newer   bool      `json:"newer"`   // new operations get a renderer that older programs do not know
	Away    bool      `json:"away"`    // the ledger is away when the key is claimed for the first time
	Stray   string    `json:"stray"`   // route of a job that no consumer covers, of whose dead letter it dies; "" = the lane's jobs
}

// bomb kills its own process at one point.
type bomb struct {
	order
	partnerKey string
	say        func(string)
	known      atomic.Bool // something about the key has been seen
	wasAway    atomic.Bool
	refs       sync.Map // outbox rows of the key
}

func prepare(detail string, say func(string)) (underfire.Around, error) {
	b := &bomb{say: say}
	if err := json.Unmarshal([]byte(detail), &b.order); err != nil {
		return underfire.Around{}, fmt.Errorf("read the cell: %w", err)
	}
	b.known.Store(b.Stray != "")
	b.partnerKey = bankclient.PartnerKey(b.Key, b.Partner, step, 0).String()
	around := underfire.Around{Options: impatient}
	if b.Newer {
		around.Adapter = func(_ string, a bankclient.Adapter) bankclient.Adapter { return newer{a} }
	}
	if b.Point == "" {
		return around, nil
	}
	wire, err := proxy.Start(b.Broker, proxy.Options{Before: b.before, After: b.after})
	if err != nil {
		return around, err
	}
	if err := os.Setenv("PAIDONCE_NATS_URL", (&url.URL{Scheme: "nats", Host: wire.Addr()}).String()); err != nil {
		return around, err
	}
	around.Ledger = func(l worker.Ledger) worker.Ledger { return ledgerBomb{l, b} }
	around.Bank = func(bank worker.Bank) worker.Bank { return bankBomb{bank, b} }
	around.Delivery = func(d worker.Delivery) worker.Delivery {
		if b.Key == uuid.Nil || bytes.Contains(d.Payload(), []byte(b.Key.String())) {
			b.known.Store(true)
			b.at("received")
		}
		return deliveryBomb{d, b}
	}
	around.Outbox = func(o queue.Outbox) queue.Outbox { return outboxBomb{o, b} }
	return around, nil
}

// impatient shortens what no setting shortens.
func impatient(o worker.Options) worker.Options {
	o.RetryInitial, o.ParkedEvery = 300*time.Millisecond, 200*time.Millisecond
	return o
}

// at is the end, if this is the point.
func (b *bomb) at(point string) {
	if b.Point != point {
		return
	}
	b.say("hit " + point)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal may take a moment; nothing more is done
}

// if concerned, at.
func (b *bomb) when(concerned bool, point string) {
	if concerned {
		b.known.Store(true)
		b.at(point)
	}
}

func (b *bomb) is(key uuid.UUID) bool { return b.Key == uuid.Nil || b.Key == key }

// wirePoints maps a point to what is seen on the wire when it is reached.
func (b *bomb) onWire(chunk []byte) string {
	text := string(chunk)
	switch {
	case strings.Contains(text, "HPUB withdrawals.dead."+cmp.Or(b.Stray, b.Route)+"."):
		return "dead_published"
	case strings.Contains(text, "+TERM"):
		return "terminated"
	case strings.Contains(text, "+ACK"):
		return "acknowledged"
	case strings.Contains(text, "-NAK"):
		return "handed_back"
	case strings.Contains(text, "+WPI"):
		return "in_progress"
	case strings.Contains(text, "HPUB withdrawals.events."+b.Route+".") && (b.Key == uuid.Nil || strings.Contains(text, b.Key.String())):
		return "event_published"
	case strings.Contains(text, "PUB withdrawals.recorded "):
		return "hint"
	}
	return ""
}

// isPull reports a request for jobs, the only step before anything is known of a key.
func isPull(chunk []byte) bool { return bytes.Contains(chunk, []byte("$JS.API.CONSUMER.MSG.NEXT.")) }

func (b *bomb) before(toBroker bool, chunk []byte) {
	if toBroker && isPull(chunk) {
		b.at("pull:before")
	}
	if toBroker && b.known.Load() && strings.HasSuffix(b.Point, ":before") {
		if point := b.onWire(chunk); point != "" {
			b.at(point + ":before")
		}
	}
}

func (b *bomb) after(toBroker bool, chunk []byte) {
	if toBroker && b.Point == "pull:after" && isPull(chunk) {
		<-time.After(10 * time.Millisecond) // a reset would overtake what is still on its way
		b.at("pull:after")
	}
	if toBroker && b.known.Load() && strings.HasSuffix(b.Point, ":after") {
		if point := b.onWire(chunk); point+":after" == b.Point {
			<-time.After(10 * time.Millisecond) // a reset would overtake what is still on its way
			b.at(point + ":after")
		}
	}
}

type ledgerBomb struct {
	worker.Ledger
	*bomb
}

func contains[T any](all []T, is func(*T) bool) bool {
	for i := range all {
		if is(&all[i]) {
			return true
		}
	}
	return false
}

func (l ledgerBomb) Claim(ctx context.Context, wishes []ledger.Wish) []ledger.ClaimAnswer {
	ours := contains(wishes, func(w *ledger.Wish) bool { return l.is(w.Key) })
	l.when(ours, "claim:before")
	if l.Away && ours && !l.wasAway.Swap(true) {
		answers := make([]ledger.ClaimAnswer, len(wishes))
		for i := range answers {
			answers[i].Err = errors.New("away")
		}
		return answers
	}
	answers := l.Ledger.Claim(ctx, wishes)
	l.when(ours, "claim:after")
	return answers
}

func (l ledgerBomb) ClaimDue(ctx context.Context, partner string, limit int) ([]ledger.Work, error) {
	l.when(l.known.Load(), "claim_due:before")
	works, err := l.Ledger.ClaimDue(ctx, partner, limit)
	l.when(contains(works, func(w *ledger.Work) bool { return l.is(w.Claim.Key) }), "claim_due:after")
	return works, err
}

func (l ledgerBomb) LookAtParked(ctx context.Context, partner string, limit int) ([]ledger.Work, error) {
	l.when(l.known.Load(), "look_at_parked:before")
	works, err := l.Ledger.LookAtParked(ctx, partner, limit)
	l.when(contains(works, func(w *ledger.Work) bool { return l.is(w.Claim.Key) }), "look_at_parked:after")
	return works, err
}

func (l ledgerBomb) CommitAttempts(ctx context.Context, resends []ledger.Resend) []ledger.AttemptResult {
	ours := contains(resends, func(r *ledger.Resend) bool { return l.is(r.Claim.Key) })
	l.when(ours, "attempt:before")
	results := l.Ledger.CommitAttempts(ctx, resends)
	l.when(ours, "attempt:after")
	return results
}

func (l ledgerBomb) Record(ctx context.Context, records []ledger.Record) []ledger.RecordResult {
	ours := contains(records, func(r *ledger.Record) bool { return l.is(r.Claim.Key) })
	l.when(ours, "record:before")
	results := l.Ledger.Record(ctx, records)
	l.when(ours, "record:after")
	return results
}

func (l ledgerBomb) Renew(ctx context.Context, claims []ledger.Claim) ([]bool, error) {
	ours := contains(claims, func(c *ledger.Claim) bool { return l.is(c.Key) })
	l.when(ours, "renew:before")
	held, err := l.Ledger.Renew(ctx, claims)
	l.when(ours, "renew:after")
	return held, err
}

func (l ledgerBomb) Append(ctx context.Context, late []ledger.Late) []ledger.RecordResult {
	ours := contains(late, func(e *ledger.Late) bool { return l.is(e.Key) })
	l.when(ours, "append:before")
	results := l.Ledger.Append(ctx, late)
	l.when(ours, "append:after")
	return results
}

func (l ledgerBomb) Pause(ctx context.Context, scope ledger.Scope, name, reason, by string) error {
	l.when(l.known.Load(), "pause:before")
	err := l.Ledger.Pause(ctx, scope, name, reason, by)
	l.when(l.known.Load(), "pause:after")
	return err
}

type bankBomb struct {
	worker.Bank
	*bomb
}

func (k bankBomb) ours(pr bankclient.Prepared) bool {
	return k.Key == uuid.Nil || pr.PartnerKey == k.partnerKey
}

func (k bankBomb) Send(ctx context.Context, pr bankclient.Prepared) bankclient.Result {
	k.when(k.ours(pr), "send:before")
	if k.Point == "sent:arrived" {
		k.say("sending " + pr.PartnerKey)
	}
	said := k.Bank.Send(ctx, pr)
	k.when(k.ours(pr), "send:after")
	return said
}

func (k bankBomb) LookUp(ctx context.Context, pr bankclient.Prepared) bankclient.Finding {
	k.when(k.ours(pr), "look_up:before")
	said := k.Bank.LookUp(ctx, pr)
	k.when(k.ours(pr), "look_up:after")
	return said
}

type deliveryBomb struct {
	worker.Delivery
	*bomb
}

func (d deliveryBomb) Done() {
	d.when(d.known.Load(), "done:before")
	d.Delivery.Done()
}

func (d deliveryBomb) Retry(after time.Duration) {
	d.when(d.known.Load(), "retry:before")
	d.Delivery.Retry(after)
}

func (d deliveryBomb) Dead(reason job.Reason, detail string) {
	d.when(d.known.Load(), "dead:before")
	d.Delivery.Dead(reason, detail)
}

type outboxBomb struct {
	queue.Outbox
	*bomb
}

func (o outboxBomb) Unpublished(ctx context.Context, most int) ([]queue.Event, error) {
	o.when(o.known.Load(), "outbox_read:before")
	events, err := o.Outbox.Unpublished(ctx, most)
	ours := false
	for _, e := range events {
		if o.Key == uuid.Nil || strings.HasPrefix(e.ID, o.Key.String()) {
			o.refs.Store(e.Ref, nil)
			ours = true
		}
	}
	o.when(ours, "outbox_read:after")
	return events, err
}

func (o outboxBomb) MarkPublished(ctx context.Context, refs []int64) error {
	ours := contains(refs, func(ref *int64) bool { _, known := o.refs.Load(*ref); return known })
	o.when(ours, "mark_published:before")
	err := o.Outbox.MarkPublished(ctx, refs)
	o.when(ours, "mark_published:after")
	return err
}

// newer stands in for another version: it renders new operations in a way that the other program has never heard of. Old ones it renders
// as they were.
type newer struct{ bankclient.Adapter }

func (n newer) Renderer() int16 { return 2 }

func (n newer) Render(renderer int16, in bankclient.Rendering) ([]byte, error) {
	body, err := n.Adapter.Render(1, in)
	if renderer == 1 || err != nil {
		return body, err
	}
	return append(body, '\n'), nil
}
