package enumerate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

// The calls that are made on both, the model and Postgres.

func (w *twins) claimBoth(ctx context.Context, wish ledger.Wish) {
	kind := "claim"
	switch w.rand.IntN(8) {
	case 0:
		wish.Fingerprint.Sum[0]++
		kind = "claim of another job"
	case 1:
		wish.Fingerprint.Version++
		kind = "claim of another version"
	case 2:
		wish.PublishedAt = time.Time{}
		kind = "claim of a job never published"
	case 3:
		wish.Refused = true
		kind = "claim of a refused job"
	case 4:
		wish.Refused, wish.Intention = true, ledger.Intention{}
		kind = "claim of a refused job that nobody serves"
	}
	w.made(kind)
	real := w.real.Claim(ctx, []ledger.Wish{wish})[0]
	model := w.model.claim(wish, w.model.mint())
	if real.Answer == ledger.Claimed && model.Answer == ledger.Claimed {
		w.grant(model.Claim, real.Claim)
	}
	strip := func(a ledger.ClaimAnswer) string {
		return fmt.Sprintf("%s state %q doubt %v fence %d held %q version %d err %v", answerNames()[a.Answer], a.State, a.InDoubt, a.Claim.Fence, a.HeldReason, a.Version, a.Err)
	}
	answer := "answered " + answerNames()[real.Answer]
	if real.InDoubt {
		answer += " in doubt"
	}
	w.made(answer)
	w.same(kind, strip(real), strip(model))
	if model.Answer == ledger.Held && len(w.model.pauses) > 0 { // and once nothing is paused any more
		w.resumeBoth()
		w.claimBoth(ctx, wish)
	}
}

func answerNames() map[ledger.Answer]string {
	return map[ledger.Answer]string{ledger.NoAnswer: "nothing", ledger.Claimed: "claimed", ledger.Finished: "finished", ledger.Parked: "parked", ledger.Busy: "busy",
		ledger.Scheduled: "scheduled", ledger.Held: "held", ledger.Conflict: "conflict", ledger.OtherVersion: "other version", ledger.NotOnRecord: "not on record"}
}

// acceptBoth puts an order on record before anybody has it, and takes its message for published.
func (w *twins) acceptBoth(ctx context.Context, wish ledger.Wish) {
	w.made("accept")
	switch w.rand.IntN(8) {
	case 0:
		wish.Fingerprint.Sum[0]++
	case 1:
		wish.Fingerprint.Version++
	}
	order := ledger.Order{Key: wish.Key, Fingerprint: wish.Fingerprint, Source: wish.Source, Route: wish.Route, Partner: w.partner, DebtorAccount: wish.DebtorAccount,
		Amount: wish.Amount, NotBefore: wish.NotBefore, NotAfter: wish.NotAfter, Payload: wish.Payload, Grace: time.Minute}
	real := w.real.Accept(ctx, []ledger.Order{order})[0]
	w.exec(`DELETE FROM unpublished_jobs`)
	answer, state, doubt := w.model.accept(wish, time.Minute)
	names := map[ledger.AcceptAnswer]string{ledger.NotAccepted: "not accepted", ledger.Accepted: "accepted", ledger.AcceptedBefore: "accepted before",
		ledger.AcceptConflict: "accept conflict", ledger.AcceptOtherVersion: "accept other version", ledger.AcceptRefused: "accept refused"}
	w.made(names[answer])
	w.same("accept", fmt.Sprint(names[real.Answer], real.Standing.State, real.Standing.InDoubt, real.Err), fmt.Sprint(names[answer], state, doubt, nil))
}

// grant keeps a claim, for what is done under it.
func (w *twins) grant(model, real ledger.Claim) {
	for _, c := range w.claims {
		if c.real.Key == real.Key && c.real.OperationID == real.OperationID && c.real.Fence == real.Fence {
			w.made("a fence is issued again")
		}
		if c.real.Key != real.Key && c.real.OperationID == real.OperationID {
			w.made("an id is issued again")
		}
	}
	w.claims = append(w.claims, pair{model, real})
}

// dueNow makes everything due, and perhaps lets every lease lapse.
func (w *twins) dueNow(lapse bool) {
	w.touch()
	now := time.Now()
	for _, r := range w.model.ops {
		if !r.dueAt.IsZero() {
			r.dueAt = now.Add(-time.Second)
		}
		if r.state == ledger.StateClaimed && lapse {
			r.leaseUntil = now.Add(-time.Second)
		}
	}
	w.exec(`UPDATE operations o SET lease_until = now() - interval '1 s' FROM due d WHERE $2 AND d.operation_id = o.id AND d.partner = $1 AND o.state = 'claimed'`, w.partner, lapse)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE partner = $1`, w.partner)
}

func (w *twins) sweepBoth(ctx context.Context) {
	w.made("claim due")
	w.touch()
	real, err := w.real.ClaimDue(ctx, w.partner, 100)
	model := w.model.claimDue(w.partner, 100, w.model.mint())
	w.sameWorks("claim due", real, err, model)
	for i := range min(len(real), len(model)) {
		if model[i].Paused {
			w.made("due while paused")
		}
		if model[i].Stopped != "" {
			w.made("due while stopped")
		}
		w.grant(model[i].Claim, real[i].Claim)
	}
}

func (w *twins) lookBoth(ctx context.Context) {
	w.made("look at parked")
	if w.rand.IntN(3) > 0 {
		w.dueNow(true)
	}
	w.touch()
	real, err := w.real.LookAtParked(ctx, w.partner, 100)
	model := w.model.lookAtParked(w.partner, 100)
	w.counts["looked at"] += len(model)
	w.sameWorks("look at parked", real, err, model)
}

// sameWorks sorts both as the wishes are, and compares them.
func (w *twins) sameWorks(what string, real []ledger.Work, err error, model []ledger.Work) {
	place := func(k ledger.Work) int {
		return slices.IndexFunc(w.wishes, func(wish ledger.Wish) bool { return wish.Key == k.Claim.Key })
	}
	inOrder := func(a, b ledger.Work) int { return cmp.Compare(place(a), place(b)) }
	slices.SortFunc(real, inOrder)
	slices.SortFunc(model, inOrder)
	strip := func(works []ledger.Work) (all []string) {
		for _, k := range works {
			all = append(all, fmt.Sprintf("%s fence %d token %v pinned %q key %q epoch %d doubt %v paused %v stopped %q sent %v unobserved %d attempts %d facts %d payload %s",
				k.State, k.Claim.Fence, k.Claim.Token != uuid.Nil, k.Pinned, k.PartnerKey, k.Epoch, k.InDoubt, k.Paused, k.Stopped, !k.FirstSentAt.IsZero(), k.UnobservedClaims,
				len(k.Attempts), len(k.Facts), k.Payload))
		}
		return all
	}
	w.same(what, fmt.Sprint(strip(real), err), fmt.Sprint(strip(model), nil))
}

func (w *twins) renewBoth(ctx context.Context) {
	if len(w.claims) == 0 {
		return
	}
	w.made("renew")
	c := w.pick()
	still, err := w.real.Renew(ctx, []ledger.Claim{c.real})
	model := w.model.renew(c.model)
	if model {
		w.made("renewed")
	} else {
		w.made("not renewed")
	}
	w.same("renew", fmt.Sprint(still, err), fmt.Sprint([]bool{model}, nil))
}

func (w *twins) pauseBoth(ctx context.Context) {
	w.made("pause")
	scopes := []struct {
		scope ledger.Scope
		name  string
	}{{ledger.ScopePartner, w.partner}, {ledger.ScopeRoute, routeName}, {ledger.ScopeSource, source}, {ledger.ScopeAll, ""}}
	at := scopes[w.rand.IntN(len(scopes))]
	w.model.pause(at.scope, at.name, "test")
	w.same("pause "+string(at.scope), w.real.Pause(ctx, at.scope, at.name, "test", "test"), nil)
}

// resumeBoth only ends the pause: what brings held operations back is a person's command.
func (w *twins) resumeBoth() {
	w.made("resume")
	clear(w.model.pauses)
	w.exec(`DELETE FROM pauses`)
	w.calls = append(w.calls, "resume")
}

// doubtBoth is what a recovery writes: claims until now may have been lost.
func (w *twins) doubtBoth() {
	w.made("doubt")
	w.model.doubtBefore = time.Now().Add(time.Minute)
	var since *time.Time
	if w.rand.IntN(2) == 0 {
		w.model.lostSince = time.Now().Add(-time.Hour)
		since = &w.model.lostSince
	}
	w.exec(`UPDATE ledger_identity SET doubt_before = $1, lost_since = coalesce($2, lost_since)`, w.model.doubtBefore, since)
	w.calls = append(w.calls, fmt.Sprint("doubt ", since != nil))
}

// stopBoth is what a cancelled batch run leaves of what it cannot end.
func (w *twins) stopBoth(key uuid.UUID) {
	w.made("stop")
	r := w.model.ops[key]
	if r == nil || r.state.Finished() || r.state == ledger.StateOpen && !r.inDoubt {
		return
	}
	r.stopped = "run_cancelled"
	w.exec(`INSERT INTO stops (operation_id, code) SELECT id, 'run_cancelled' FROM operations WHERE key = $1 ON CONFLICT DO NOTHING`, key)
	w.calls = append(w.calls, "stop")
}

func (w *twins) purgeBoth(ctx context.Context) {
	w.made("purge")
	w.touch()
	w.exec(`SELECT pg_sleep(0.002)`) // what ended just now is older than a millisecond
	w.model.purge()
	_, err := w.desk.PurgePayloads(ctx, ledger.Purge{OlderThan: time.Millisecond, Ease: -1})
	w.same("purge", err, nil)
}

// pick prefers the claims that hold, and of the others, which are stale, the latest.
func (w *twins) pick() pair {
	if len(w.claims) == 0 {
		return pair{}
	}
	switch n := w.rand.IntN(8); {
	case n == 0 && len(w.lost) > 0:
		return w.lost[w.rand.IntN(len(w.lost))]
	case n < 4:
		for _, c := range slices.Backward(w.claims) {
			if w.model.holds(c.model) != nil {
				return c
			}
		}
	}
	return w.claims[len(w.claims)-1-w.rand.IntN(min(len(w.claims), 1+w.rand.IntN(5)))]
}

func (w *twins) wishOf(c pair) ledger.Wish {
	i := slices.IndexFunc(w.wishes, func(wish ledger.Wish) bool { return wish.Key == c.real.Key })
	return w.wishes[i]
}

func (w *twins) attemptBoth(ctx context.Context, c pair) {
	if len(w.claims) == 0 {
		return
	}
	w.made("commit attempt")
	w.touched[c.real.Key] = true
	in := w.wishOf(c).Intention
	switch w.rand.IntN(12) {
	case 0:
		in.BodySHA256[0]++
	case 1:
		in.Credential = "2026-12"
	case 2:
		in.PartnerKey = uuid.NewString()
	case 3:
		in.Endpoint += "/v2"
	}
	real := w.real.CommitAttempts(ctx, []ledger.Resend{{Claim: c.real, Intention: in}})[0]
	model := w.model.commitAttempt(ledger.Resend{Claim: c.model, Intention: in})
	w.made(map[ledger.AttemptAnswer]string{ledger.AttemptCommitted: "attempt committed", ledger.AttemptFenced: "attempt fenced", ledger.AttemptDiffers: "attempt differs",
		ledger.AttemptStopped: "attempt stopped"}[model])
	w.same("commit attempt", fmt.Sprint(real.Answer, real.Err), fmt.Sprint(model, nil))
}

func (w *twins) draw() ledger.Record {
	id := fmt.Sprintf("tr_%d", w.rand.IntN(3))
	fact := func(verdict string) ledger.Fact {
		return ledger.Fact{Kind: ledger.FactVerdict, Verdict: verdict, Evidence: []byte(`{}`)}
	}
	authorized := fact("authorized")
	authorized.TransferID = id
	doubt := w.rand.IntN(2) == 0
	switch w.rand.IntN(11) {
	case 0:
		return ledger.Record{Next: ledger.StateAuthorized, TransferID: id, Facts: []ledger.Fact{authorized}}
	case 1:
		return ledger.Record{Next: ledger.StateRejected, Code: "account_closed", Facts: []ledger.Fact{fact("rejected")}, InDoubt: doubt}
	case 2:
		return ledger.Record{Next: ledger.StateCancelled, Code: "expired"}
	case 3:
		return ledger.Record{Next: ledger.StateParked, Code: "mismatch", InDoubt: true, Facts: []ledger.Fact{fact("mismatch"), authorized}}
	case 4:
		return ledger.Record{Next: ledger.StateOpen, Held: true, Code: "over_limit", DueIn: time.Hour, Facts: []ledger.Fact{fact("not_executed")}}
	case 5:
		return ledger.Record{Next: ledger.StateOpen, RaiseEpoch: true, InDoubt: w.rand.IntN(4) == 0, Facts: []ledger.Fact{fact("rejected")}}
	case 6:
		return ledger.Record{Next: ledger.StateAuthorized, Facts: []ledger.Fact{fact("authorized")}} // no transfer id
	case 7:
		return ledger.Record{Next: ledger.StateParked, InDoubt: doubt} // no code
	case 8:
		return ledger.Record{Next: ledger.StateParked, Code: "in_doubt", InDoubt: doubt, Facts: []ledger.Fact{authorized}}
	}
	return ledger.Record{Next: ledger.StateOpen, InDoubt: doubt, DueIn: time.Duration(w.rand.IntN(2)) * time.Hour, Facts: []ledger.Fact{fact("unknown")}}
}

func (w *twins) recordBoth(ctx context.Context, c pair) {
	if len(w.claims) == 0 {
		return
	}
	w.made("record")
	w.touched[c.real.Key] = true
	rec := w.draw()
	rec.Claim = c.real
	real := w.real.Record(ctx, []ledger.Record{rec})[0]
	rec.Claim = c.model
	model := w.model.record(rec)
	strip := func(r ledger.RecordResult) string {
		return fmt.Sprintf("%s %q refused %v", recordNames()[r.Answer], r.State, r.Err != nil)
	}
	w.made(recordNames()[model.Answer])
	w.same(fmt.Sprintf("record %s doubt %v epoch %v", rec.Next, rec.InDoubt, rec.RaiseEpoch), strip(real), strip(model))
	if model.Answer == ledger.Recorded && w.rand.IntN(3) == 0 { // and the message comes again
		w.claimBoth(ctx, w.wishOf(c))
	}
}

func recordNames() map[ledger.RecordAnswer]string {
	return map[ledger.RecordAnswer]string{ledger.NotRecorded: "refused", ledger.Recorded: "recorded", ledger.Fenced: "fenced", ledger.LateAuthorized: "late authorized",
		ledger.LateContradicted: "late contradicted", ledger.Stray: "stray"}
}

func (w *twins) appendBoth(ctx context.Context, key uuid.UUID) {
	w.made("append")
	rec := w.draw()
	var holder pair
	switch w.rand.IntN(4) {
	case 0: // which may decide, or contradict
		rec = ledger.Record{Facts: []ledger.Fact{{Verdict: "authorized", TransferID: fmt.Sprintf("tr_%d", w.rand.IntN(3)), Evidence: []byte(`{}`)}}}
	case 1: // which takes a claim from its holder
		rec = ledger.Record{Facts: []ledger.Fact{{Verdict: "mismatch", Evidence: []byte(`{}`)}}}
		for _, c := range slices.Backward(w.claims) {
			if w.model.holds(c.model) != nil {
				key, holder = c.real.Key, c
				break
			}
		}
	}
	w.touched[key] = true
	for i := range rec.Facts {
		rec.Facts[i].Kind = ledger.FactLookUp
	}
	real := w.real.Append(ctx, []ledger.Late{{Key: key, Facts: rec.Facts}})[0]
	model := w.model.keepEvidence(ledger.Claim{Key: key, Token: w.model.mint()}, rec.Facts, false)
	w.made(recordNames()[model.Answer])
	w.same("append", fmt.Sprint(recordNames()[real.Answer], real.State, real.Err), fmt.Sprint(recordNames()[model.Answer], model.State, model.Err))
	if holder.real.Key != uuid.Nil && w.rand.IntN(2) == 0 { // who does not know of it
		w.recordBoth(ctx, holder)
	}
}
