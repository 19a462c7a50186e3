package bankclient

import (
	"net/url"
	"strings"
)

// judgeList judges the answer to a look-up by partner key. Only a transfer that names exactly our end-to-end id is ours: a
// partner that searches by prefix shows others beside it.
func (p *Partner) judgeList(r *Result, pr *Prepared, x *exchange) Answer {
	listing, ok := p.listing(r, x)
	if !ok {
		return p.judgeNotFound(r, x)
	}
	if len(listing.Transfers) == 0 {
		if listing.Next != "" {
			r.Evidence.Why = whyMorePages
			return NoAnswer
		}
		r.Evidence.Why = whyNotFound
		return NotFound
	}
	ours, unnamed := ownTransfers(pr, listing.Transfers)
	switch {
	case len(ours) > 1:
		r.Verdict, r.Evidence.Why = Mismatch, whySeveral
		for _, seen := range ours {
			r.Evidence.TransferIDs = append(r.Evidence.TransferIDs, identifier(seen.ID, maxTransferID))
		}
	case unnamed:
		r.Evidence.Why = whyEchoMissing
	case len(ours) == 0:
		r.Verdict, r.Evidence.Why, r.Evidence.Differs = Mismatch, whyForeign, []string{"end_to_end_id"}
	case listing.Next != "": // there may be a second one
		r.Evidence.Why = whyMorePages
		return NoAnswer
	default:
		p.judgeFound(r, pr, ours[0])
	}
	return Found
}

// ownTransfers picks those that name our end-to-end id; unnamed says that one names none, so that nothing is certain.
func ownTransfers(pr *Prepared, all []Seen) (ours []*Seen, unnamed bool) {
	for i := range all {
		switch id := all[i].EndToEndID; {
		case id == nil:
			unnamed = true
		case *id == pr.EndToEndID:
			ours = append(ours, &all[i])
		}
	}
	return ours, unnamed
}

// judgeOne judges the answer to a look-up of one transfer; id is the one that was asked for, "" if that is not known.
func (p *Partner) judgeOne(r *Result, pr *Prepared, x *exchange, id string) Answer {
	reading := p.reading(r, x)
	if x.status != 200 || !reading.HasTransfer {
		return p.judgeNotFound(r, x)
	}
	p.judgeTransfer(r, pr, reading)
	if id != "" && r.TransferID != id {
		r.Verdict, r.Evidence.Why = Mismatch, whyEcho
		r.Evidence.Differs = append(r.Evidence.Differs, "id")
	}
	return Found
}

// judgeFound judges one transfer of a list like an answer that shows only it.
func (p *Partner) judgeFound(r *Result, pr *Prepared, seen *Seen) {
	one := *seen
	one.ID, one.State = identifier(seen.ID, maxTransferID), identifier(seen.State, maxCode)
	one.Code = identifier(seen.Code, maxCode)
	r.TransferID, r.Code = one.ID, one.Code
	r.Evidence.TransferID, r.Evidence.State, r.Evidence.Code = one.ID, one.State, one.Code
	p.judgeTransfer(r, pr, Reading{HasTransfer: true, Transfer: one})
}

// judgeNotFound judges an answer that shows nothing: 404 in the partner's own schema is "not found", the rest is no answer.
func (p *Partner) judgeNotFound(r *Result, x *exchange) Answer {
	reading := p.reading(r, x)
	switch x.status {
	case 404:
		if reading.HasError {
			r.Evidence.Why = whyNotFound
			return NotFound
		}
	case 401, 403:
		if reading.HasError {
			r.Scope, r.Evidence.Why = ScopePartner, whyOwnRefusal
			return NoAnswer
		}
	}
	r.Evidence.Why = whyStatus
	if x.status == 200 {
		r.Evidence.Why = whyShape
	}
	return NoAnswer
}

func (p *Partner) listing(r *Result, x *exchange) (Listing, bool) {
	if x.status != 200 || !jsonType(r.Evidence.ContentType) {
		return Listing{}, false
	}
	return p.adapter.ReadList(Response{Status: x.status, Header: x.answer, Body: x.body})
}

// pathBelow turns a Location into a path below the base URL; false if it leads elsewhere.
func (p *Partner) pathBelow(location string) (string, bool) {
	u, err := url.Parse(location)
	if err != nil || u.Host != "" && u.Host != p.base.Host {
		return "", false
	}
	path, ok := strings.CutPrefix(u.EscapedPath(), p.base.EscapedPath())
	if !ok || !strings.HasPrefix(path, "/") || strings.Contains(path, "..") {
		return "", false
	}
	return path, true
}
