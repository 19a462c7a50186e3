package worker

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// operation is one withdrawal under our claim, with everything that is known of it.
type operation struct {
	job      job.Job
	partner  *partner
	claim    ledger.Claim
	prepared bankclient.Prepared
	unsound  bool   // the local check refused to prepare the request: nothing may be sent
	stopped  string // nothing more is sent, for this reason; "" = it may be
	refused  string // the policy of today refuses the job, with this code: nothing may be sent; "" = it does not
	epoch    int16

	attempts   []ledger.Attempt
	facts      []ledger.Fact
	known      int // so many of the facts are on record; the rest goes with the next record
	inDoubt    bool
	paused     bool // it may be asked after, not sent
	firstSent  time.Time
	unobserved int
	standing   Standing // as next saw it last

	claimedAt time.Duration // our clock before the claim statement
	now       time.Time     // the database's clock at the claim
	at        time.Duration // our clock when it was last read for this operation: before and after every exchange
	deadline  atomic.Int64  // our clock at the end of the lease
	spare     time.Duration // of the lease, beyond a call of full length and its record, at that reading
}

func (op *operation) leaseLeft(now time.Duration) time.Duration {
	return time.Duration(op.deadline.Load()) - now
}

// dbNow is the database's clock when ours was last read, or a little later: not_after may close early, never late.
func (op *operation) dbNow() time.Time { return op.now.Add(op.at - op.claimedAt) }

func (op *operation) expired() bool {
	return !op.job.NotAfter.IsZero() && !op.dbNow().Before(op.job.NotAfter)
}

// notYet is not_before, or zero if it was past when the claim was made: that time is surely not later than now.
func (op *operation) notYet() time.Time {
	if op.now.Before(op.job.NotBefore) {
		return op.job.NotBefore
	}
	return time.Time{}
}

// attempted reports whether an attempt is committed under our own claim.
func (op *operation) attempted() bool {
	n := len(op.attempts)
	return n > 0 && op.attempts[n-1].Token == op.claim.Token
}

// recall is an operation as the ledger remembers it.
func recall(p *partner, work *ledger.Work) *operation {
	return &operation{partner: p, claim: work.Claim, epoch: work.Epoch, attempts: work.Attempts, facts: work.Facts, known: len(work.Facts),
		inDoubt: work.InDoubt, paused: work.Paused, stopped: work.Stopped, firstSent: work.FirstSentAt, unobserved: int(work.UnobservedClaims), now: work.Now}
}

// hold takes over a claim and gives it to the lease keeper.
func (w *Worker) hold(op *operation, claim ledger.Claim, now time.Time, claimedAt time.Duration) {
	op.claim, op.now, op.claimedAt, op.at = claim, now, claimedAt, claimedAt
	op.deadline.Store(int64(claimedAt + w.opts.Lease))
	w.keeper.hold(op)
}

// decode decodes a delivery. What cannot be read on a route that nobody knows is no wrong job: nobody said how it should look.
func (w *Worker) decode(origin job.Origin, payload []byte) (job.Job, *job.Fault) {
	order, err := job.Decode(origin.Source, origin.Route, payload)
	if err == nil {
		return order, nil
	}
	if _, known := w.opts.Routes[origin.Route]; !known {
		return job.Job{}, unknownRoute()
	}
	return job.Job{}, asFault(err)
}

func unknownRoute() *job.Fault {
	return &job.Fault{Reason: job.ReasonUnknownRoute, Code: "unknown_route"}
}

// codePayloadDiffers is why an operation is parked whose payload on record is another job than the operation.
const codePayloadDiffers = "payload_differs"

// allowed checks a job against the policy of routes and sources.
func (w *Worker) allowed(order *job.Job) *job.Fault {
	route, known := w.opts.Routes[order.Route]
	switch {
	case !known:
		return unknownRoute()
	case !slices.Contains(w.opts.Sources[order.Source].Routes, order.Route):
		return &job.Fault{Reason: job.ReasonInvalid, Code: "route_not_allowed"}
	case !slices.Contains(route.Currencies, order.Amount.Currency):
		return &job.Fault{Reason: job.ReasonInvalid, Code: "currency_not_on_route", Path: "/currency"}
	}
	for _, limit := range route.MaxAmounts {
		if limit.Currency == order.Amount.Currency && order.Amount.Minor > limit.Minor {
			return &job.Fault{Reason: job.ReasonInvalid, Code: "amount_over_limit", Path: "/amount"}
		}
	}
	return nil
}

// reread decodes the payload on record, and judges it by the policy of today: what that refuses may be asked after, not sent. A payload that is not
// the job that the operation was made for is a fault: it would pay somebody else, or another amount, under this key or under another.
func (w *Worker) reread(op *operation, work *ledger.Work) *job.Fault {
	order, err := job.Decode(work.Source, work.Route, work.Payload)
	if err != nil {
		return asFault(err)
	}
	print, known := order.FingerprintAs(work.Fingerprint.Version)
	if order.Key != work.Claim.Key || known && print != work.Fingerprint {
		return &job.Fault{Reason: job.ReasonInvalid, Code: codePayloadDiffers}
	}
	op.job = order
	if fault := w.allowed(&op.job); fault != nil {
		op.refused = fault.Code
	}
	return nil
}

func asFault(err error) *job.Fault {
	var fault *job.Fault
	if !errors.As(err, &fault) {
		panic("job.Decode returned an error that is no fault")
	}
	return fault
}

// prepare renders the request: with the renderer that earlier attempts under the same partner key used, else the newest.
func (w *Worker) prepare(op *operation) {
	transfer := transferOf(&op.job)
	prepared, err := op.partner.bank.Prepare(op.job.Key, op.epoch, transfer)
	if last := len(op.attempts) - 1; last >= 0 && (err != nil || op.attempts[last].PartnerKey == prepared.PartnerKey) {
		if renderer := op.attempts[last].Renderer; err != nil || renderer != prepared.Renderer {
			prepared, err = op.partner.bank.PrepareAs(renderer, op.job.Key, op.epoch, transfer)
		}
	}
	if err == nil {
		op.prepared = prepared
		return
	}
	w.log.Warn().Err(err).Stringer("key", op.job.Key).Str("partner", op.partner.id).Msg("request not prepared")
	op.unsound = true
	op.prepared = bankclient.Prepared{PartnerID: op.partner.id, CredentialID: op.partner.bank.CredentialID(), Endpoint: prepared.Endpoint,
		PartnerKey: prepared.PartnerKey, EndToEndID: prepared.EndToEndID, Transfer: transfer}
	if last := len(op.attempts) - 1; last >= 0 { // enough to look it up
		op.prepared.PartnerKey, op.prepared.EndToEndID = op.attempts[last].PartnerKey, op.attempts[last].EndToEndID
	}
}

// next folds what is known of the operation and decides the next step.
func (w *Worker) next(op *operation) Step {
	op.standing = Fold(History{PartnerKey: op.prepared.PartnerKey, Attempts: op.attempts, Facts: op.facts, Fence: op.claim.Fence, InDoubt: op.inDoubt,
		FirstSent: op.firstSent}, FoldRules{Profile: &op.partner.profile, Lease: w.opts.Lease, NotFoundsNeeded: w.opts.NotFoundsNeeded})
	return Next(op.standing, Situation{Profile: &op.partner.profile, Now: op.dbNow(), NotAfter: op.job.NotAfter, NotBefore: op.notYet(), Lease: w.opts.Lease,
		Paused: op.paused, Unobserved: op.unobserved, Unsendable: op.unsound, Refused: op.refused, Stopped: op.stopped, SameBytes: op.sameBytes(), SameTerms: op.sameCredential() && op.sameEndpoint(),
		LookUpPatience: len(op.partner.schedule.lookUps), PoisonClaims: w.opts.PoisonClaims, IdenticalReplays: w.opts.IdenticalReplays})
}

// neverRendered is the body hash of an attempt that the local check refused before there were bytes.
// global: a constant that Go cannot state, since an array has no constant form.
var neverRendered [32]byte

// sameBytes reports whether the prepared request is, byte for byte, that of every attempt under the same partner key (I8),
// and its partner key that of the latest attempt unless the epoch was raised (I7).
func (op *operation) sameBytes() bool {
	return op.everySame(func(a *ledger.Attempt) bool {
		return a.BodySHA256 == op.prepared.BodySHA256 || a.BodySHA256 == neverRendered
	}) &&
		(op.epoch > 0 || !slices.ContainsFunc(op.attempts, func(a ledger.Attempt) bool { return a.PartnerKey != op.prepared.PartnerKey }))
}

func (op *operation) sameCredential() bool {
	return op.everySame(func(a *ledger.Attempt) bool { return a.Credential == op.prepared.CredentialID })
}

func (op *operation) sameEndpoint() bool {
	return op.everySame(func(a *ledger.Attempt) bool { return a.Endpoint == op.prepared.Endpoint })
}

func (op *operation) everySame(same func(*ledger.Attempt) bool) bool {
	for i := range op.attempts {
		if a := &op.attempts[i]; a.PartnerKey == op.prepared.PartnerKey && !same(a) {
			return false
		}
	}
	return true
}

// observe adds a fact, to be recorded at the end of the step.
func (w *Worker) observe(op *operation, fact ledger.Fact) {
	fact.Fence, fact.Token, fact.At = op.claim.Fence, op.claim.Token, op.dbNow()
	if !fact.AskedAt.IsZero() {
		fact.At = fact.AskedAt
	}
	op.facts = append(op.facts, fact)
}

// traceOf is what earlier answers named: a transfer that was not told to be ours, or where to look for it. The latest word counts. The Location
// of a redirect or of a gateway's page is no word of the partner about a transfer.
func traceOf(facts []ledger.Fact) bankclient.Trace {
	var trace bankclient.Trace
	for i := range facts {
		f := &facts[i]
		if f.Kind != ledger.FactVerdict && f.Kind != ledger.FactLate {
			continue
		}
		var evidence struct {
			Status     int    `json:"status"`
			TransferID string `json:"transfer_id"`
			Location   string `json:"location"`
		}
		_ = json.Unmarshal(f.Evidence, &evidence) // what is not to be read names nothing
		trace.TransferID = cmp.Or(f.TransferID, evidence.TransferID, trace.TransferID)
		switch evidence.Status {
		case http.StatusCreated, http.StatusAccepted, http.StatusConflict:
			trace.Location = cmp.Or(evidence.Location, trace.Location)
		}
	}
	return trace
}

// dueIn is how long an open operation waits for its next step.
func (w *Worker) dueIn(op *operation, did StepKind, next Step, said bankclient.Result) time.Duration {
	s := &op.partner.schedule
	var delay time.Duration
	switch {
	case next.Kind == WaitUntil:
		delay = max(0, next.At.Sub(op.dbNow()))
	case did == WaitUntil: // handed back
		return 0
	case next.Kind == LookUp, next.Kind == Send && op.standing.InDoubt && did == Send:
		delay = s.lookUp(op.standing.LookUps)
		if op.partner.profile.LookUp == bankclient.LookUpNone {
			delay = s.lookUp(op.standing.Attempts - 1)
		}
	case did == Send:
		delay = s.retry(op.standing.Attempts - 1)
	}
	return s.spread(max(delay, said.RetryAfter), w.rand())
}

// later is when to come back to a ledger that could not be reached, after n earlier tries.
func (w *Worker) later(n int) time.Duration {
	return w.schedule.spread(w.schedule.retry(n), w.rand())
}

// wait waits and reports whether it was not cut short.
func (w *Worker) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func transferOf(order *job.Job) bankclient.Transfer {
	b := &order.Beneficiary
	return bankclient.Transfer{
		Amount: order.Amount.Decimal(), Currency: order.Amount.Currency, AmountMinor: order.Amount.Minor,
		Beneficiary: bankclient.Beneficiary{Name: b.Name.Reveal(), IBAN: b.IBAN.Reveal(), BIC: b.BIC.Reveal(), SortCode: b.SortCode.Reveal(),
			AccountNumber: b.AccountNumber.Reveal(), RoutingNumber: b.RoutingNumber.Reveal(), PixKey: b.PixKey.Reveal()},
		Reference: order.Reference.Reveal(),
	}
}

func intention(pr *bankclient.Prepared) ledger.Intention {
	return ledger.Intention{Partner: pr.PartnerID, Credential: pr.CredentialID, Endpoint: pr.Endpoint, Renderer: pr.Renderer,
		BodySHA256: pr.BodySHA256, PartnerKey: pr.PartnerKey, EndToEndID: pr.EndToEndID}
}

func wish(op *operation, origin job.Origin, payload []byte) ledger.Wish {
	order := &op.job
	return ledger.Wish{Key: order.Key, Fingerprint: order.Fingerprint(), Source: order.Source, Route: order.Route,
		DebtorAccount: order.DebtorAccount.Reveal(), Amount: order.Amount, NotBefore: order.NotBefore, NotAfter: order.NotAfter,
		Payload: payload, TraceParent: origin.TraceParent, PublishedAt: origin.PublishedAt, Intention: intention(&op.prepared)}
}
