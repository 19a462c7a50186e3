package fake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
)

// Act is what the bank does with one request. The zero Act books it and says so.
type Act struct {
	NoBooking bool               // it is not executed
	BookAfter time.Duration      // it is executed so much later
	Say       *bankclient.Result // the answer; nil = what is stored under the key
	After     time.Duration      // the answer comes so much later; beyond the timeout it is Unknown
	Store     bool               // Say is stored under the key and said again
}

// Request is one request as it arrived.
type Request struct {
	PartnerKey string
	Credential string
	BodySHA256 [32]byte
	At         time.Time
}

// Bank keeps its word: it honours keys per credential and serialises duplicates, unless its profile says otherwise.
type Bank struct {
	mu       sync.Mutex
	profile  bankclient.Profile
	timeout  time.Duration
	owner    map[string]uuid.UUID // partner key -> operation
	stored   map[string]bankclient.Result
	running  map[string]int
	booked   map[uuid.UUID]int
	requests map[uuid.UUID][]Request
	acts     map[uuid.UUID][]Act
	finds    map[uuid.UUID][]bankclient.Finding
	lookUps  map[uuid.UUID]int
	traces   map[uuid.UUID]bankclient.Trace
	transfer int
	down     *Act
	OnSend   func(key uuid.UUID, pr bankclient.Prepared) // before anything else
}

// Profile is a partner that does everything right.
func Profile() bankclient.Profile {
	return bankclient.Profile{Adapter: "fake", Version: 1, HonoursKeys: true, SerialisesDuplicates: true, KeyWindow: 24 * time.Hour,
		LatestArrival: time.Minute, VisibilityBound: 5 * time.Second, LookUp: bankclient.LookUpByKey, LookUpConsistent: true}
}

// NewBank returns a calm bank.
func NewBank(profile bankclient.Profile, timeout time.Duration) *Bank {
	return &Bank{profile: profile, timeout: timeout, owner: map[string]uuid.UUID{}, stored: map[string]bankclient.Result{},
		running: map[string]int{}, booked: map[uuid.UUID]int{}, requests: map[uuid.UUID][]Request{}, acts: map[uuid.UUID][]Act{},
		finds: map[uuid.UUID][]bankclient.Finding{}, lookUps: map[uuid.UUID]int{}, traces: map[uuid.UUID]bankclient.Trace{}}
}

// Script says what happens to the next requests of one operation.
func (b *Bank) Script(key uuid.UUID, acts ...Act) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acts[key] = append(b.acts[key], acts...)
}

// ScriptLookUps says what the next look-ups of one operation are answered.
func (b *Bank) ScriptLookUps(key uuid.UUID, finds ...bankclient.Finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finds[key] = append(b.finds[key], finds...)
}

// Down makes every exchange end like this, nil lets it go on. Look-ups get no answer.
func (b *Bank) Down(act *Act) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = act
}

// Executions counts what was booked for an operation.
func (b *Bank) Executions(key uuid.UUID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.booked[key]
}

// Requests are the requests of an operation as they arrived.
func (b *Bank) Requests(key uuid.UUID) []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests[key])
}

// LookUps counts the look-ups of an operation.
func (b *Bank) LookUps(key uuid.UUID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lookUps[key]
}

// Client is one program's way to the bank.
type Client struct {
	Bank       *Bank
	Credential string
	Host       string
	Renderer   int16                // the newest it knows
	Renders    func(int16) string   // what a renderer adds to the body; default its number
	Refuses    func(uuid.UUID) bool // the local check
	Overruns   bool                 // it waits for the answer, whatever its timeout
}

// ID is the partner's id.
func (c *Client) ID() string { return "fake" }

// CredentialID names the credential.
func (c *Client) CredentialID() string { return c.Credential }

// Timeout bounds one call.
func (c *Client) Timeout() time.Duration { return c.Bank.timeout }

// Profile is what the bank declares.
func (c *Client) Profile() bankclient.Profile { return c.Bank.profile }

// Prepare renders with the newest renderer.
func (c *Client) Prepare(key uuid.UUID, epoch int16, t bankclient.Transfer) (bankclient.Prepared, error) {
	return c.PrepareAs(c.Renderer, key, epoch, t)
}

// PrepareAs renders with one renderer.
func (c *Client) PrepareAs(renderer int16, key uuid.UUID, epoch int16, t bankclient.Transfer) (bankclient.Prepared, error) {
	if c.Refuses != nil && c.Refuses(key) {
		return bankclient.Prepared{}, errors.New("reference is too long")
	}
	adds := fmt.Sprint(renderer)
	if c.Renders != nil {
		adds = c.Renders(renderer)
	}
	partnerKey := bankclient.PartnerKey(key, c.ID(), "create", epoch).String()
	body := []byte(partnerKey + t.Amount + t.Currency + adds)
	c.Bank.mu.Lock()
	c.Bank.owner[partnerKey] = key
	c.Bank.mu.Unlock()
	return bankclient.Prepared{PartnerID: c.ID(), CredentialID: c.Credential, Endpoint: "POST " + c.Host, Renderer: renderer, Body: body,
		BodySHA256: sha256.Sum256(body), PartnerKey: partnerKey, EndToEndID: "E2E", Transfer: t}, nil
}

// Send is one request.
func (c *Client) Send(ctx context.Context, pr bankclient.Prepared) bankclient.Result {
	b := c.Bank
	b.mu.Lock()
	key := b.owner[pr.PartnerKey]
	hook := b.OnSend
	b.mu.Unlock()
	if hook != nil {
		hook(key, pr)
	}
	said, after := b.arrive(key, c.Credential+"/"+pr.PartnerKey, pr)
	if after > 0 {
		limit := min(after, b.timeout)
		if c.Overruns {
			limit = after
		}
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			said = bankclient.Result{}
		}
		if after > limit {
			said = bankclient.Result{Code: "timeout"}
		}
	}
	b.mu.Lock()
	b.running[c.Credential+"/"+pr.PartnerKey]--
	b.mu.Unlock()
	return said
}

func (b *Bank) arrive(key uuid.UUID, slot string, pr bankclient.Prepared) (said bankclient.Result, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[slot]++
	if b.down != nil && b.down.Say != nil && b.down.Say.Verdict == bankclient.NotExecuted {
		return *b.down.Say, b.down.After // it never arrives
	}
	b.requests[key] = append(b.requests[key], Request{PartnerKey: pr.PartnerKey, Credential: pr.CredentialID, BodySHA256: pr.BodySHA256, At: time.Now()})
	var act Act
	if b.down != nil {
		act = *b.down
	} else if acts := b.acts[key]; len(acts) > 0 {
		act, b.acts[key] = acts[0], acts[1:]
	}
	if b.running[slot] > 1 && b.profile.SerialisesDuplicates {
		return bankclient.Result{Verdict: bankclient.InFlight, Code: "request_in_progress"}, 0
	}
	switch {
	case act.NoBooking && act.Store:
		if _, known := b.stored[slot]; !known || !b.profile.HonoursKeys {
			b.stored[slot] = *act.Say
		}
	case act.NoBooking:
	case act.BookAfter > 0:
		time.AfterFunc(act.BookAfter, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.book(key, slot)
		})
	default:
		b.book(key, slot)
	}
	if act.Say != nil {
		return *act.Say, act.After
	}
	return b.stored[slot], act.After
}

// book executes once per key, where keys are honoured.
// Trace is what the latest look-up of a key was told to follow.
func (b *Bank) Trace(key uuid.UUID) bankclient.Trace {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.traces[key]
}

func (b *Bank) book(key uuid.UUID, slot string) {
	if _, known := b.stored[slot]; known && b.profile.HonoursKeys {
		return
	}
	b.transfer++
	b.booked[key]++
	b.stored[slot] = bankclient.Result{Verdict: bankclient.Authorized, TransferID: fmt.Sprintf("tr_%d", b.transfer)}
}

// LookUp finds what is stored under the key.
func (c *Client) LookUp(_ context.Context, pr bankclient.Prepared) bankclient.Finding {
	b := c.Bank
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.owner[pr.PartnerKey]
	b.lookUps[key]++
	b.traces[key] = pr.Trace
	if b.down != nil {
		return bankclient.Finding{}
	}
	if finds := b.finds[key]; len(finds) > 0 {
		b.finds[key] = finds[1:]
		return finds[0]
	}
	said, known := b.stored[c.Credential+"/"+pr.PartnerKey]
	if !known || (said.Verdict != bankclient.Authorized && said.Verdict != bankclient.Rejected) {
		return bankclient.Finding{Answer: bankclient.NotFound}
	}
	return bankclient.Finding{Answer: bankclient.Found, Result: said}
}

// Gate bounds nothing but slots, and keeps what it was told.
type Gate struct {
	slots chan struct{}

	mu       sync.Mutex
	Reported []bankclient.Result
}

// NewGate returns a gate with n slots.
func NewGate(n int) *Gate { return &Gate{slots: make(chan struct{}, n)} }

// Acquire takes 1 to most slots.
func (g *Gate) Acquire(ctx context.Context, most int) (int, error) {
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n := 1; n < most; n++ {
		select {
		case g.slots <- struct{}{}:
		default:
			return n, nil
		}
	}
	return most, nil
}

// Release gives slots back.
func (g *Gate) Release(n int) {
	for range n {
		<-g.slots
	}
}

// Take never waits.
func (g *Gate) Take(ctx context.Context) error { return ctx.Err() }

// Report keeps what the worker reports.
func (g *Gate) Report(r bankclient.Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Reported = append(g.Reported, r)
}

// InUse counts the slots taken.
func (g *Gate) InUse() int { return len(g.slots) }
