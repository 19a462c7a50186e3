package bankclient

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Send makes exactly one exchange: the request leaves at most once, whatever happens. It never returns an error; what it
// could not find out is Unknown. A call that does not pass Check is not sent, and is NotExecuted.
func (p *Partner) Send(ctx context.Context, pr Prepared) Result {
	if err := p.Check(pr); err != nil {
		return Result{Verdict: NotExecuted, Evidence: Evidence{Phase: PhaseNone.String(), Why: whyLocal}}
	}
	x := p.do(ctx, request{method: http.MethodPost, url: p.create, key: pr.PartnerKey, body: pr.Body, inTime: pr.InTime})
	r := p.judge(&pr, x)
	p.delay(&r, x)
	p.pool.put(x)
	return r
}

// LookUp asks the partner what it did: by the partner key, and where that finds nothing, for the transfer that an earlier answer named. Two
// exchanges at most. "Not found" needs both to say so: a transfer that was named once may be there although it is not listed yet.
func (p *Partner) LookUp(ctx context.Context, pr Prepared) Finding {
	if p.profile.LookUp != LookUpByKey && p.profile.LookUp != LookUpByReference {
		return nothing(whyNoLookUp)
	}
	byKey := p.ask(ctx, p.adapter.KeyPath(pr), func(r *Result, x *exchange) Answer { return p.judgeList(r, &pr, x) })
	if byKey.Answer == Found || pr.Trace == (Trace{}) {
		return byKey
	}
	named := p.lookUpTrace(ctx, pr)
	switch {
	case named.Answer == Found:
		return named
	case named.Answer != NotFound:
		byKey.Answer = NoAnswer
	}
	return byKey
}

func (p *Partner) lookUpTrace(ctx context.Context, pr Prepared) Finding {
	if pr.Trace.TransferID != "" {
		return p.LookUpID(ctx, pr, pr.Trace.TransferID)
	}
	return p.LookUpLocation(ctx, pr, pr.Trace.Location)
}

// LookUpID asks for one transfer by its id, in one exchange.
func (p *Partner) LookUpID(ctx context.Context, pr Prepared, transferID string) Finding {
	if identifier(transferID, maxTransferID) == "" {
		return nothing(whyNoLookUp)
	}
	return p.ask(ctx, p.adapter.IDPath(transferID), func(r *Result, x *exchange) Answer {
		return p.judgeOne(r, &pr, x, transferID)
	})
}

// LookUpLocation asks for the transfer that a Location named, in one exchange. Only its path is used: the partner's host
// is the configured one, whatever a header says.
func (p *Partner) LookUpLocation(ctx context.Context, pr Prepared, location string) Finding {
	path, ok := p.pathBelow(location)
	if !ok {
		return nothing(whyNoLookUp)
	}
	return p.ask(ctx, path, func(r *Result, x *exchange) Answer { return p.judgeOne(r, &pr, x, "") })
}

// Statement reads one page of the partner's own list of what was created in [from, to); next is "" after the last page.
func (p *Partner) Statement(ctx context.Context, from, to time.Time, cursor string) (page []Seen, next string, err error) {
	var listing Listing
	f := p.ask(ctx, p.adapter.ListPath(from, to, cursor), func(r *Result, x *exchange) Answer {
		var ok bool
		if listing, ok = p.listing(r, x); !ok {
			return NoAnswer
		}
		return Found
	})
	if f.Answer != Found {
		e := f.Result.Evidence
		return nil, "", fmt.Errorf("read statement of %s: %s (status %d, phase %s)", p.cfg.ID, e.Why, e.Status, e.Phase)
	}
	return listing.Transfers, listing.Next, nil
}

// ask makes one exchange that reads. net/http may repeat a GET by itself on a dead connection; that moves no money.
func (p *Partner) ask(ctx context.Context, path string, judge func(*Result, *exchange) Answer) Finding {
	u, err := below(p.base, path)
	if err != nil {
		return nothing(whyNoLookUp)
	}
	x := p.do(ctx, request{method: http.MethodGet, url: u})
	f := Finding{Result: Result{Evidence: p.evidence(x)}}
	if p.judgeTransport(&f.Result, x) {
		f.Answer = judge(&f.Result, x)
	}
	if f.Answer != Found {
		// No call to move money was made here: what a look-up does not find says nothing about an operation.
		f.Result.Verdict, f.Result.TransferID = Unknown, ""
	}
	p.delay(&f.Result, x)
	p.pool.put(x)
	return f
}

func nothing(why string) Finding {
	return Finding{Result: Result{Evidence: Evidence{Phase: PhaseNone.String(), Why: why}}}
}

func (p *Partner) delay(r *Result, x *exchange) {
	if delayed(x.status) {
		r.RetryAfter = retryAfter(x.answer, p.cfg.Clock(), p.cfg.MaxDelay)
	}
}
