package enumerate

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
)

func splitWords(s string) []string { return strings.Fields(s) }

// mutant is paidonce broken on purpose, from outside: by a wrapper around an interface of the worker, or by a switch of the ledger's model.
type mutant struct {
	name     string
	in       string // the scenario that must notice
	switches switches
	options  func(*worker.Options)
	ledger   func(worker.Ledger) worker.Ledger
	bank     func(worker.Bank) worker.Bank
	delivery func(worker.Delivery) worker.Delivery
}

func (m *mutant) wrap(d worker.Delivery) worker.Delivery {
	if m.delivery == nil {
		return d
	}
	return m.delivery(d)
}

// brokenLedger changes what passes between a worker and its ledger.
type brokenLedger struct {
	worker.Ledger
	works    func([]ledger.Work)
	records  func([]ledger.Record)
	results  func([]ledger.RecordResult)
	claims   func([]ledger.ClaimAnswer)
	attempts func(context.Context, []ledger.Resend) []ledger.AttemptResult
	held     []ledger.Resend
}

func (b *brokenLedger) ClaimDue(ctx context.Context, partner string, limit int) ([]ledger.Work, error) {
	works, err := b.Ledger.ClaimDue(ctx, partner, limit)
	if b.works != nil {
		b.works(works)
	}
	return works, err
}

func (b *brokenLedger) Claim(ctx context.Context, wishes []ledger.Wish) []ledger.ClaimAnswer {
	answers := b.Ledger.Claim(ctx, wishes)
	if b.claims != nil {
		b.claims(answers)
	}
	return answers
}

func (b *brokenLedger) Record(ctx context.Context, records []ledger.Record) []ledger.RecordResult {
	if b.records != nil {
		records = slices.Clone(records)
		b.records(records)
	}
	results := b.Ledger.Record(ctx, records)
	if b.results != nil {
		b.results(results)
	}
	return results
}

func (b *brokenLedger) CommitAttempts(ctx context.Context, resends []ledger.Resend) []ledger.AttemptResult {
	if b.attempts != nil {
		return b.attempts(ctx, resends)
	}
	return b.Ledger.CommitAttempts(ctx, resends)
}

// brokenBank changes what passes between a worker and its partner.
type brokenBank struct {
	worker.Bank
	profile func(*bankclient.Profile)
	request func(*bankclient.Prepared)
	said    func(*bankclient.Result)
	found   func(*bankclient.Finding)
	twice   bool
	unasked bool
}

func (b *brokenBank) Profile() bankclient.Profile {
	p := b.Bank.Profile()
	if b.profile != nil {
		b.profile(&p)
	}
	return p
}

func (b *brokenBank) Send(ctx context.Context, pr bankclient.Prepared) bankclient.Result {
	if b.request != nil {
		b.request(&pr)
	}
	said := b.Bank.Send(ctx, pr)
	if b.twice && said.Verdict == bankclient.Unknown {
		said = b.Bank.Send(ctx, pr)
	}
	if b.said != nil {
		b.said(&said)
	}
	return said
}

func (b *brokenBank) LookUp(ctx context.Context, pr bankclient.Prepared) bankclient.Finding {
	if b.unasked {
		return bankclient.Finding{Answer: bankclient.NotFound}
	}
	found := b.Bank.LookUp(ctx, pr)
	if b.found != nil {
		b.found(&found)
	}
	return found
}

// hasty acknowledges when the payload is first read.
type hasty struct{ worker.Delivery }

func (h hasty) Payload() []byte {
	h.Delivery.Done()
	return h.Delivery.Payload()
}
func (h hasty) Done() {}

func viaLedger(change func(*brokenLedger)) func(worker.Ledger) worker.Ledger {
	return func(l worker.Ledger) worker.Ledger {
		b := &brokenLedger{Ledger: l}
		change(b)
		return b
	}
}

func viaBank(change func(*brokenBank)) func(worker.Bank) worker.Bank {
	return func(l worker.Bank) worker.Bank {
		b := &brokenBank{Bank: l}
		change(b)
		return b
	}
}

// forget drops what is on record of earlier attempts where drop says so.
func forget(drop func(*ledger.Work) bool) func(worker.Ledger) worker.Ledger {
	return viaLedger(func(b *brokenLedger) {
		b.works = func(works []ledger.Work) {
			for i := range works {
				if w := &works[i]; drop(w) {
					w.Attempts, w.Facts, w.InDoubt, w.FirstSentAt = nil, nil, false, time.Time{}
				}
			}
		}
	})
}

// says makes one verdict out of another.
func says(from, to bankclient.Verdict) func(worker.Bank) worker.Bank {
	return viaBank(func(b *brokenBank) {
		b.said = func(r *bankclient.Result) {
			if r.Verdict == from {
				r.Verdict, r.Authoritative, r.Code = to, to == bankclient.Rejected, "read_wrongly"
			}
		}
	})
}

func notAfterPattern() *regexp.Regexp { return regexp.MustCompile(`,"not_after":"[^"]*"`) }

// mutants are the deliberate breakages. Each must make at least one leaf of its scenario fail.
func mutants() []mutant {
	n := 0 // of requests rendered so far
	all := []mutant{
		{name: "the fence is skipped", in: "reference", switches: switches{skipFence: true}},
		{name: "the token is skipped", in: "failover_two_deliveries", switches: switches{skipToken: true}},
		{name: "the lease is skipped", in: "reference", switches: switches{skipLease: true}},
		{name: "busy is answered as claimed", in: "two_deliveries", switches: switches{busyIsClaimed: true}},
		{name: "finished is answered as claimed", in: "two_deliveries", switches: switches{resurrects: true}},
		{name: "a late Rejected overwrites", in: "reference", switches: switches{lateRejectedDecides: true}},
		{name: "a parked operation is swept", in: "keys_ignored_no_look_up", switches: switches{sweepsParked: true}},
		{name: "a lapsed lease is forgotten", in: "reference", switches: switches{lapsedForgotten: true}},
		{name: "an outcome has no event", in: "reference", switches: switches{noEvent: true}},
		{name: "one side of the journal is missing", in: "reference", switches: switches{oneEntry: true}},
		{name: "a lease is renewed for whoever asks", in: "leases_renewed", switches: switches{renewsUnasked: true}},
		{name: "a purge takes the key", in: "reference", switches: switches{purgeTakesKey: true}},
		{name: "a purge takes the fingerprint", in: "reference", switches: switches{purgeTakesPrint: true}},
		{name: "the fold is skipped", in: "reference", ledger: forget(func(*ledger.Work) bool { return true })},
		{name: "the fold is skipped where keys are not honoured", in: "keys_not_honoured", ledger: forget(func(*ledger.Work) bool { return true })},
		{name: "time clears doubt", in: "keys_ignored_no_look_up", ledger: forget(func(w *ledger.Work) bool { return w.Now.Sub(w.CreatedAt) > 30*time.Second })},
		{name: "acknowledged on receipt", in: "reference", delivery: func(d worker.Delivery) worker.Delivery { return hasty{d} }},
		{name: "acknowledged before the record", in: "reference", ledger: viaLedger(func(b *brokenLedger) {
			b.claims = func(answers []ledger.ClaimAnswer) {
				for i := range answers {
					if answers[i].Answer == ledger.Claimed {
						answers[i].Answer = ledger.Busy
					}
				}
			}
		})},
		{name: "the attempt is committed after the send", in: "no_look_up", ledger: viaLedger(func(b *brokenLedger) {
			b.attempts = func(_ context.Context, resends []ledger.Resend) []ledger.AttemptResult {
				b.held = slices.Clone(resends)
				return slices.Repeat([]ledger.AttemptResult{{Answer: ledger.AttemptCommitted}}, len(resends))
			}
			b.records = func([]ledger.Record) {
				if b.held != nil {
					b.Ledger.CommitAttempts(context.Background(), b.held)
					b.held = nil
				}
			}
		})},
		{name: "ambiguous observations are dropped and doubt with them", in: "keys_not_honoured", ledger: viaLedger(func(b *brokenLedger) {
			b.records = func(records []ledger.Record) {
				for i := range records {
					r := &records[i]
					r.Facts = slices.Clone(r.Facts)
					for k := range r.Facts {
						if r.Facts[k].Verdict == "unknown" {
							r.Facts[k].Verdict, r.InDoubt = "not_executed", false
						}
					}
				}
			}
		})},
		{name: "observations are dropped", in: "reference", ledger: viaLedger(func(b *brokenLedger) {
			b.records = func(records []ledger.Record) {
				for i := range records {
					records[i].Facts = nil
				}
			}
		})},
		{name: "sent again after the window", in: "short_window_no_look_up", bank: viaBank(func(b *brokenBank) {
			b.profile = func(p *bankclient.Profile) { p.KeyWindow *= 1000 }
		})},
		{name: "sent again before the minimum delay", in: "no_look_up", bank: viaBank(func(b *brokenBank) {
			b.profile = func(p *bankclient.Profile) { p.MinResendDelay = 0 }
		})},
		{name: "one not found is trusted as a rejection", in: "reference", bank: viaBank(func(b *brokenBank) {
			b.found = func(f *bankclient.Finding) {
				if f.Answer == bankclient.NotFound {
					*f = bankclient.Finding{Answer: bankclient.Found, Result: bankclient.Result{Verdict: bankclient.Rejected, Code: "absent"}}
				}
			}
		})},
		{name: "no answer is taken for not found", in: "reference", bank: viaBank(func(b *brokenBank) {
			b.found = func(f *bankclient.Finding) {
				if f.Answer == bankclient.NoAnswer {
					f.Answer = bankclient.NotFound
				}
			}
		})},
		{name: "sent again before looking up", in: "reference", bank: viaBank(func(b *brokenBank) {
			b.profile = func(p *bankclient.Profile) { p.LookUp = bankclient.LookUpNone }
		})},
		{name: "the look-up is made up", in: "duplicates_not_serialised", bank: viaBank(func(b *brokenBank) { b.unasked = true })},
		{name: "duplicates are thought serialised", in: "duplicates_not_serialised", bank: viaBank(func(b *brokenBank) {
			b.profile = func(p *bankclient.Profile) { p.SerialisesDuplicates = true }
		})},
		{name: "keys are thought honoured", in: "keys_ignored_no_look_up", bank: viaBank(func(b *brokenBank) {
			b.profile = func(p *bankclient.Profile) {
				p.HonoursKeys, p.SerialisesDuplicates, p.KeyWindow = true, true, time.Hour
			}
		})},
		{name: "the body is rendered anew", in: "no_look_up", bank: viaBank(func(b *brokenBank) {
			b.request = func(pr *bankclient.Prepared) { n++; pr.Body = fmt.Appendf(slices.Clone(pr.Body), " at %d", n) }
		})},
		{name: "a new partner key per attempt", in: "no_look_up", bank: viaBank(func(b *brokenBank) {
			b.request = func(pr *bankclient.Prepared) {
				n++
				pr.PartnerKey = bankclient.PartnerKey(uuid.UUID{byte(n), byte(n >> 8), byte(n >> 16), 1}, partnerID, "create", 0).String()
			}
		})},
		{name: "the client sends twice by itself", in: "no_look_up", bank: viaBank(func(b *brokenBank) { b.twice = true })},
		{name: "unknown is taken for a rejection", in: "reference", bank: says(bankclient.Unknown, bankclient.Rejected)},
		{name: "unknown is taken for not executed", in: "keys_not_honoured", bank: says(bankclient.Unknown, bankclient.NotExecuted)},
		{name: "in flight is taken for not executed", in: "keys_ignored_no_look_up", bank: says(bankclient.InFlight, bankclient.NotExecuted)},
		{name: "not executed is taken for authorized", in: "reference", bank: says(bankclient.NotExecuted, bankclient.Authorized)},
		{name: "key reused is taken for a rejection", in: "reference", bank: says(bankclient.KeyReused, bankclient.Rejected)},
		{name: "a mismatch is taken for unknown", in: "reference", bank: says(bankclient.Mismatch, bankclient.Unknown)},
		{name: "a mismatch is taken for in flight", in: "keys_not_honoured", bank: says(bankclient.Mismatch, bankclient.InFlight)},
		{name: "key reused is taken for not executed", in: "reference", bank: says(bankclient.KeyReused, bankclient.NotExecuted)},
		{name: "a transfer found unfinished is taken for not found", in: "reference", bank: viaBank(func(b *brokenBank) {
			b.found = func(f *bankclient.Finding) {
				if f.Answer == bankclient.Found && f.Result.Verdict == bankclient.InFlight {
					*f = bankclient.Finding{Answer: bankclient.NotFound}
				}
			}
		})},
		{name: "look-ups are thought consistent", in: "neither_serialised_nor_consistent", bank: viaBank(func(b *brokenBank) {
			b.profile = func(p *bankclient.Profile) { p.LookUpConsistent = true }
		})},
		{name: "absence is believed of look-ups that are not consistent", in: "parked_is_watched", bank: viaBank(func(b *brokenBank) {
			b.profile = func(p *bankclient.Profile) { p.LookUpConsistent = true }
		})},
		{name: "one not found is enough", in: "duplicates_not_serialised", options: func(o *worker.Options) { o.NotFoundsNeeded = 1 }},
		{name: "claims that killed their workers are not counted", in: "poison", ledger: viaLedger(func(b *brokenLedger) {
			b.works = func(works []ledger.Work) {
				for i := range works {
					works[i].UnobservedClaims = 0
				}
			}
		})},
		{name: "pauses are not obeyed", in: "no_look_up", ledger: viaLedger(func(b *brokenLedger) {
			b.works = func(works []ledger.Work) {
				for i := range works {
					works[i].Paused = false
				}
			}
		})},
		{name: "a stop is not obeyed", in: "run_cancelled", switches: switches{stopsUnheeded: true}, ledger: viaLedger(func(b *brokenLedger) {
			b.works = func(works []ledger.Work) {
				for i := range works {
					works[i].Stopped = ""
				}
			}
		})},
		{name: "a lapsed lease is not noticed before a call", in: "no_look_up", options: func(o *worker.Options) { o.Clock = func() time.Duration { return 0 } }},
		{name: "not_after is not obeyed", in: "expires", ledger: viaLedger(func(b *brokenLedger) {
			b.works = func(works []ledger.Work) {
				for i := range works {
					works[i].Payload = []byte(notAfterPattern().ReplaceAllString(string(works[i].Payload), ""))
				}
			}
		})},
	}
	return all
}
