package bankclient

import (
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// What decided, as Evidence.Why tells it.
const (
	whyLocal       = "local check failed, nothing was sent"
	whyNoConn      = "no connection"
	whySecure      = "tls refused"
	whyUnwritten   = "headers not written"
	whyLate        = "too late to begin"
	whyUnanswered  = "no answer to a request that was written"
	whyCut         = "body cut short"
	whyTooLarge    = "body too large"
	whyEarly       = "answered before asked"
	whyShape       = "not in the partner's shape"
	whyStatus      = "status proves nothing"
	whyUnlisted    = "code not listed"
	whyListed      = "code listed"
	whyOwnRefusal  = "refused in the partner's own schema"
	whyByStatus    = "by status"
	whyReplayed    = "replayed, a look-up decides"
	whyEcho        = "echo disagrees"
	whyEchoMissing = "echo incomplete"
	whyOtherKey    = "answer to another partner key"
	whyNameless    = "names no request, on a connection used before"
	whyState       = "state listed"
	whyNoState     = "state not listed"
	whyNoID        = "no transfer id"
	whyNotDurable  = "accepted, but that is no promise"
	whyNotFound    = "not found"
	whySeveral     = "several transfers under one partner key"
	whyForeign     = "none of the transfers found is ours"
	whyMorePages   = "answer is not complete"
	whyNoLookUp    = "no look-up of this kind"
)

// judge turns one exchange into a verdict. This is the table of conditions; what is not in it is Unknown.
func (p *Partner) judge(pr *Prepared, x *exchange) Result {
	r := Result{Evidence: p.evidence(x)}
	if !p.judgeTransport(&r, x) {
		return r
	}
	echoed := p.echoed(x)
	if echoed != "" && echoed != pr.PartnerKey {
		r.Verdict, r.Evidence.Why = Mismatch, whyOtherKey // what it names is another's
		return r
	}
	reading := p.reading(&r, x)
	if echoed == "" && p.cfg.EchoesKey && x.reused && !created(x.status) {
		r.Evidence.Why = whyNameless // what it names is kept: it may be ours
		return r
	}
	switch x.status {
	case 200, 201:
		p.judgeTransfer(&r, pr, reading)
	case 202:
		p.judgeAccepted(&r, pr, reading)
	case 400, 402, 404, 422:
		p.judgeListed(&r, reading)
	case 401, 403:
		p.judgeRefusal(&r, reading)
	case 405, 406, 413, 414, 415, 431:
		p.judgeRefusal(&r, reading)
	case 409:
		p.judgeConflict(&r, reading)
	case 423:
		r.Verdict, r.Evidence.Why = InFlight, whyByStatus
	case 425:
		r.Verdict, r.Evidence.Why = NotExecuted, whyByStatus
	case 429, 503:
		p.judgeLimiter(&r, reading)
	default: // 1xx, 203 to 206, every 3xx, 408, 410, 424, 500, 501, 502, 504, 520 to 527 and whatever else there is
		r.Evidence.Why = whyStatus
	}
	return r
}

// echoed is the partner key that an answer names in its header, "" if it names none.
func (p *Partner) echoed(x *exchange) string {
	if p.fixed.keyHeader == "" {
		return ""
	}
	return first(x.answer, p.fixed.keyHeader)
}

// judgeTransport judges what did not come to a complete answer; true if there is one.
func (p *Partner) judgeTransport(r *Result, x *exchange) bool {
	switch {
	case x.status == 0:
		p.judgeUnanswered(r, x)
	case x.err != nil:
		r.Evidence.Why = whyCut
	case x.tooLarge:
		r.Evidence.Why = whyTooLarge
	case x.early.Load():
		r.Evidence.Why = whyEarly
	default:
		return true
	}
	return false
}

// judgeUnanswered judges an exchange that brought no status line, by the phase that it reached.
func (p *Partner) judgeUnanswered(r *Result, x *exchange) {
	phase := x.seal()
	r.Evidence.Phase = phase.String()
	switch {
	case x.late.Load() && x.watched != nil && x.watched.refused(x):
		r.Verdict, r.Evidence.Why = NotExecuted, whyLate
	case phase == PhaseNone && secureFailure(x.err):
		r.Verdict, r.Scope, r.Evidence.Why = NotExecuted, ScopePartner, whySecure
	case phase == PhaseNone:
		r.Verdict, r.Evidence.Why = NotExecuted, whyNoConn
	case phase < PhaseFirstByte && !x.reused && accessAlert(x.err):
		// TLS 1.3: the client's handshake is over before the server has looked at its certificate.
		r.Verdict, r.Scope, r.Evidence.Why = NotExecuted, ScopePartner, whySecure
	case phase == PhaseConnected && !p.profile.AllowsHTTP2:
		r.Verdict, r.Evidence.Why = NotExecuted, whyUnwritten
	default:
		r.Evidence.Why = whyUnanswered
	}
}

// reading has the adapter read the answer, if its content type says that it can be read, and notes what it names.
func (p *Partner) reading(r *Result, x *exchange) Reading {
	if !jsonType(r.Evidence.ContentType) || len(x.body) == 0 {
		return Reading{}
	}
	reading := p.adapter.Read(Response{Status: x.status, Header: x.answer, Body: x.body})
	reading.Code = identifier(reading.Code, maxCode)
	reading.TransferID = identifier(reading.TransferID, maxTransferID)
	seen := &reading.Transfer
	seen.ID, seen.State = identifier(seen.ID, maxTransferID), identifier(seen.State, maxCode)
	seen.Code = identifier(seen.Code, maxCode)
	if reading.HasTransfer {
		r.TransferID, r.Evidence.State = seen.ID, seen.State
		reading.Code = seen.Code
	} else {
		r.TransferID = reading.TransferID
	}
	r.Code, r.Evidence.Code, r.Evidence.TransferID = reading.Code, reading.Code, r.TransferID
	if r.Evidence.Location == "" && reading.Location != "" {
		r.Evidence.Location = pathOf(reading.Location)
	}
	return reading
}

// judgeTransfer judges an answer that should show our transfer.
func (p *Partner) judgeTransfer(r *Result, pr *Prepared, reading Reading) {
	if !reading.HasTransfer {
		// With a Location, a look-up of it decides; without, the ordinary look-up does.
		r.Evidence.Why = whyShape
		return
	}
	seen := &reading.Transfer
	differs, missing := compare(pr, seen)
	if len(differs) > 0 {
		r.Verdict, r.Evidence.Why, r.Evidence.Differs = Mismatch, whyEcho, differs
		return
	}
	rule, listed := p.profile.state(seen.State)
	switch {
	case missing:
		r.Evidence.Why = whyEchoMissing
	case seen.ID == "":
		r.Evidence.Why = whyNoID
	case !listed:
		r.Evidence.Why = whyNoState
	default:
		r.Verdict, r.Evidence.Why = rule.Verdict, whyState
		r.Settled, r.Authoritative = rule.Settled, rule.StoredUnderKey
		if rule.Verdict == Rejected {
			if r.Cause = p.profile.causeOf(seen.Code); r.Cause != CauseNone {
				r.Scope = ScopePartner
			}
		}
	}
}

// judgeAccepted judges 202.
func (p *Partner) judgeAccepted(r *Result, pr *Prepared, reading Reading) {
	p.judgeTransfer(r, pr, reading)
	if r.Verdict != Mismatch && !p.profile.AcceptedIsDurable {
		r.Verdict, r.Scope, r.Cause, r.Authoritative, r.Settled = Unknown, ScopeOperation, CauseNone, false, false
		r.Evidence.Why = whyNotDurable
	}
}

// judgeListed judges a status of which only listed codes prove anything.
func (p *Partner) judgeListed(r *Result, reading Reading) {
	rule, ok := CodeRule{}, false
	if reading.HasError {
		rule, ok = p.profile.code(r.Evidence.Status, reading.Code)
	}
	if !ok {
		r.Evidence.Why = whyUnlisted
		return
	}
	r.Evidence.Why = whyListed
	switch rule.Means {
	case MeansRejected:
		r.Verdict, r.Authoritative = Rejected, rule.StoredUnderKey
	case MeansKeyReused:
		r.Verdict = KeyReused
	case MeansInFlight:
		r.Verdict = InFlight
	case MeansReplayed:
		r.Evidence.Why = whyReplayed
	case MeansNotExecuted:
		r.Verdict, r.Scope = NotExecuted, rule.Scope
	}
	if rule.Cause != CauseNone {
		r.Scope, r.Cause = ScopePartner, rule.Cause
	}
}

// judgeRefusal judges a status that proxies send as well: only the partner's own words count.
func (p *Partner) judgeRefusal(r *Result, reading Reading) {
	p.judgeListed(r, reading)
	if r.Evidence.Why == whyListed {
		if r.Verdict == NotExecuted {
			r.Scope = ScopePartner
		}
		return
	}
	if reading.HasError && reading.Code != "" && p.profile.OwnSchemaIsRefusal {
		r.Verdict, r.Scope, r.Evidence.Why = NotExecuted, ScopePartner, whyOwnRefusal
	}
}

// judgeConflict judges 409. It is never Rejected.
func (p *Partner) judgeConflict(r *Result, reading Reading) {
	switch {
	case reading.HasTransfer:
		r.Evidence.Why = whyReplayed
	case reading.HasError && reading.Code != "":
		p.judgeListed(r, reading)
	default:
		r.Verdict, r.Evidence.Why = InFlight, whyByStatus
	}
}

// judgeLimiter judges 429 and 503: not executed only where the profile lists that the limiter comes first.
func (p *Partner) judgeLimiter(r *Result, reading Reading) {
	p.judgeListed(r, reading)
	if r.Evidence.Why != whyListed {
		r.Verdict, r.Evidence.Why = InFlight, whyByStatus
	}
}

// compare holds what the partner shows against what we asked for. Missing says that something we must see was not there.
func compare(pr *Prepared, seen *Seen) (differs []string, missing bool) {
	t := &pr.Transfer
	check := func(name string, told *string, asked string, needed bool) {
		switch {
		case told == nil:
			missing = missing || needed
		case *told != asked && norm.NFC.String(*told) != asked:
			differs = append(differs, name)
		}
	}
	check("amount", seen.Amount, t.Amount, true)
	check("currency", seen.Currency, t.Currency, true)
	check("reference", seen.Reference, t.Reference, t.Reference != "")
	check("end_to_end_id", seen.EndToEndID, pr.EndToEndID, true)
	check("partner_key", seen.PartnerKey, pr.PartnerKey, false)
	switch {
	case seen.Beneficiary == nil:
		missing = true
	case *seen.Beneficiary != t.Beneficiary && composed(*seen.Beneficiary) != t.Beneficiary:
		differs = append(differs, "beneficiary")
	}
	return differs, missing
}

// composed is a beneficiary as the partner shows it, in the form in which it was told: a bank may store text decomposed.
func composed(b Beneficiary) Beneficiary {
	b.Name = norm.NFC.String(b.Name)
	return b
}

// evidence notes what the exchange itself shows.
func (p *Partner) evidence(x *exchange) Evidence {
	phase := Phase(min(x.phase.Load(), uint32(PhaseComplete)))
	e := Evidence{
		Phase: phase.String(), Status: x.status, Error: errorWords(x.err),
		Reused: x.reused, BodyBytes: len(x.body), ElapsedMS: x.elapsed.Milliseconds(),
	}
	if x.answer == nil {
		return e
	}
	e.ContentType = mediaType(first(x.answer, "Content-Type"))
	e.Location = pathOf(first(x.answer, "Location"))
	if name := p.fixed.requestID; name != "" {
		e.RequestID = identifier(first(x.answer, name), maxRequestID)
	}
	if name := p.fixed.replay; name != "" {
		e.Replayed = strings.EqualFold(first(x.answer, name), "true")
	}
	return e
}

// pathOf keeps the path of a Location: its query could hold anything, its host is not ours to trust.
func pathOf(location string) string {
	if location == "" {
		return ""
	}
	u, err := url.Parse(location)
	if err != nil {
		return ""
	}
	return identifier(u.EscapedPath(), maxLocation)
}

// mediaType keeps the media type of a Content-Type.
func mediaType(text string) string {
	text, _, _ = strings.Cut(text, ";")
	return identifier(strings.ToLower(strings.TrimSpace(text)), maxCode)
}

func jsonType(media string) bool {
	return media == "application/json" ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

// delayed says whether a status may come with a delay that we honour.
func delayed(status int) bool {
	return status >= http.StatusMultipleChoices || status == http.StatusAccepted
}
