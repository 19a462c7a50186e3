package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
)

func TestWordsOfObservationsAreTheVerdictsNames(t *testing.T) {
	for word, verdict := range map[string]bankclient.Verdict{saysUnknown: bankclient.Unknown, saysAuthorized: bankclient.Authorized,
		saysRejected: bankclient.Rejected, saysNotExecuted: bankclient.NotExecuted, saysInFlight: bankclient.InFlight,
		saysKeyReused: bankclient.KeyReused, saysMismatch: bankclient.Mismatch} {
		if verdict.String() != word {
			t.Errorf("verdict %d is called %q, want %q", verdict, verdict, word)
		}
	}
}

// happening is one thing that can befall an operation: an attempt with what was observed of it, or a look-up.
type happening struct {
	name          string
	attempt       bool
	verdict       string // "" = not observed
	authoritative bool
	doubt         bool // leaves the operation in doubt by itself
}

func happenings() []happening {
	return []happening{
		{name: "unobserved", attempt: true, doubt: true},
		{name: "unknown", attempt: true, verdict: "unknown", doubt: true},
		{name: "in flight", attempt: true, verdict: "in_flight", doubt: true},
		{name: "key reused", attempt: true, verdict: "key_reused", doubt: true},
		{name: "not executed", attempt: true, verdict: "not_executed"},
		{name: "authorized", attempt: true, verdict: "authorized"},
		{name: "rejected, stored", attempt: true, verdict: "rejected", authoritative: true},
		{name: "rejected", attempt: true, verdict: "rejected"},
		{name: "mismatch", attempt: true, verdict: "mismatch"},
		{name: "look-up: not found", verdict: "not_found"},
		{name: "look-up: no answer", verdict: "no_answer"},
		{name: "look-up: authorized", verdict: "authorized"},
		{name: "look-up: rejected", verdict: "rejected", authoritative: true},
		{name: "look-up: in flight", verdict: "in_flight"},
	}
}

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// token is the claim token that goes with a fence where nothing was lost.
func token(fence int32) uuid.UUID { return uuid.UUID{0: 0x70, 15: byte(fence)} }

// history puts happenings on record, one second apart.
func history(happened []happening) History {
	var h History
	for i, e := range happened {
		at, fence := t0.Add(time.Duration(i)*time.Second), int32(i+1)
		kind := ledger.FactLookUp
		if e.attempt {
			kind = ledger.FactVerdict
			h.Attempts = append(h.Attempts, ledger.Attempt{Intention: ledger.Intention{PartnerKey: "k"}, Fence: fence, Token: token(fence), At: at})
		}
		if e.verdict != "" {
			h.Facts = append(h.Facts, ledger.Fact{Kind: kind, Verdict: e.verdict, Authoritative: e.authoritative, Fence: fence, Token: token(fence),
				At: at.Add(500 * time.Millisecond), TransferID: map[bool]string{true: "tr_1"}[e.verdict == "authorized"]})
		}
	}
	return h
}

func goodProfile() bankclient.Profile {
	return bankclient.Profile{HonoursKeys: true, SerialisesDuplicates: true, KeyWindow: 24 * time.Hour, LatestArrival: time.Minute,
		VisibilityBound: 5 * time.Second, LookUp: bankclient.LookUpByKey, LookUpConsistent: true}
}

func situation(profile *bankclient.Profile) Situation {
	return Situation{Profile: profile, Now: t0.Add(10 * time.Second), SameBytes: true, SameTerms: true, LookUpPatience: 5, PoisonClaims: 3,
		IdenticalReplays: 5}
}

func rules(profile *bankclient.Profile) FoldRules {
	return FoldRules{Profile: profile, Lease: time.Minute, NotFoundsNeeded: 2}
}

// sequences are all sequences of happenings up to a length.
func sequences(length int, yield func([]happening)) {
	var grow func(prefix []happening)
	grow = func(prefix []happening) {
		yield(prefix)
		if len(prefix) == length {
			return
		}
		for _, e := range happenings() {
			grow(append(prefix[:len(prefix):len(prefix)], e))
		}
	}
	grow(nil)
}

// oracle says what the package's doc wants with a good partner within its window, by reading the sequence as a person would.
func oracle(happened []happening) StepKind {
	at := func(name string) int {
		return slices.IndexFunc(happened, func(e happening) bool { return e.name == name })
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return at(n) >= 0 })
	}
	lastDoubt := -1
	for i, e := range happened {
		if e.doubt {
			lastDoubt = i
		}
	}
	switch {
	case has("mismatch"):
		return Park
	case has("authorized", "look-up: authorized"):
		return Authorize
	case has("rejected, stored", "look-up: rejected"):
		return Reject
	case lastDoubt < 0 && has("rejected"):
		return Reject
	case lastDoubt < 0:
		return Send
	}
	var asked []string
	for _, e := range happened[lastDoubt+1:] {
		if !e.attempt {
			asked = append(asked, e.name)
		}
	}
	if slices.Contains(asked, "look-up: not found") && !has("look-up: in flight", "rejected") {
		return Send
	}
	return LookUp
}

func TestFoldEverySequenceUpToFour(t *testing.T) {
	profile := goodProfile()
	n := 0
	sequences(4, func(happened []happening) {
		n++
		s := Fold(history(happened), rules(&profile))
		if got, want := Next(s, situation(&profile)).Kind, oracle(happened); got != want {
			t.Errorf("%s: step %d, want %d", names(happened), got, want)
		}
	})
	if want := 1 + 14 + 14*14 + 14*14*14 + 14*14*14*14; n != want {
		t.Errorf("%d sequences were tried, want %d", n, want)
	}
}

func names(happened []happening) string {
	var all []string
	for _, e := range happened {
		all = append(all, e.name)
	}
	return fmt.Sprintf("%q", all)
}

// TestInvariant3_TheFoldNeverSendsInDoubtWithoutLeave tries every sequence under every weakness of partner and situation: what forbids a
// send forbids it, and nothing but proof ends an operation.
func TestInvariant3_TheFoldNeverSendsInDoubtWithoutLeave(t *testing.T) {
	weaknesses := map[string]func(*bankclient.Profile, *Situation){
		"honours no key":          func(p *bankclient.Profile, _ *Situation) { p.HonoursKeys = false },
		"executes duplicates":     func(p *bankclient.Profile, _ *Situation) { p.SerialisesDuplicates = false },
		"no window":               func(p *bankclient.Profile, _ *Situation) { p.KeyWindow = 0 },
		"half of the window over": func(p *bankclient.Profile, s *Situation) { s.Now = t0.Add(12*time.Hour + 4*time.Second) },
		"terms changed":           func(_ *bankclient.Profile, s *Situation) { s.SameTerms = false },
		"bytes changed":           func(_ *bankclient.Profile, s *Situation) { s.SameBytes = false },
		"not prepared":            func(_ *bankclient.Profile, s *Situation) { s.Unsendable = true },
		"expired":                 func(_ *bankclient.Profile, s *Situation) { s.NotAfter = s.Now },
		"paused":                  func(_ *bankclient.Profile, s *Situation) { s.Paused = true },
		"poison":                  func(_ *bankclient.Profile, s *Situation) { s.Unobserved = 3 },
	}
	for name, weaken := range weaknesses {
		profile := goodProfile()
		at := situation(&profile)
		weaken(&profile, &at)
		sequences(3, func(happened []happening) {
			s := Fold(history(happened), rules(&profile))
			step, strong := Next(s, at), oracle(happened)
			doubt := slices.ContainsFunc(happened, func(e happening) bool { return e.doubt })
			mayNever := name == "bytes changed" || name == "not prepared" || name == "expired" || name == "poison" || name == "paused"
			switch {
			case step.Kind == Send && (doubt || mayNever):
				t.Errorf("%s, %s: sends", name, names(happened))
			case step.Kind == Cancel && (doubt || name != "expired"):
				t.Errorf("%s, %s: cancels", name, names(happened))
			case (step.Kind == Authorize || step.Kind == Reject) != (strong == Authorize || strong == Reject):
				t.Errorf("%s, %s: step %d, where a good partner gives %d", name, names(happened), step.Kind, strong)
			case step.Kind == Send && strong != Send:
				t.Errorf("%s, %s: sends where a good partner would not be sent to", name, names(happened))
			}
		})
	}
}

// TestNextWithoutLookUp: such a partner is sent to again only where the key protects it.
func TestNextWithoutLookUp(t *testing.T) {
	profile := goodProfile()
	profile.LookUp, profile.MinResendDelay = bankclient.LookUpNone, 30*time.Second
	s := Fold(history([]happening{{attempt: true, verdict: "unknown"}}), rules(&profile))
	at := situation(&profile)
	if step := Next(s, at); step.Kind != WaitUntil || !step.At.Equal(t0.Add(30*time.Second)) {
		t.Errorf("step %+v before the minimum delay, want to wait until it", step)
	}
	at.Now = t0.Add(30 * time.Second)
	if step := Next(s, at); step.Kind != Send {
		t.Errorf("step %+v after the minimum delay, want send", step)
	}
	profile.HonoursKeys = false
	if step := Next(s, at); step.Kind != Park || step.Code != "in_doubt_no_look_up" {
		t.Errorf("step %+v where no key is honoured, want park", step)
	}
}

// TestNextPatience: look-ups go on until half of the window is over, but one is always tried after the latest doubt.
func TestNextPatience(t *testing.T) {
	profile := goodProfile()
	unknown, unanswered := happening{attempt: true, verdict: "unknown"}, happening{verdict: "no_answer"}
	asked := Fold(history([]happening{unknown, unanswered, unanswered, unanswered, unanswered, unanswered, unanswered}), rules(&profile))
	notAsked := Fold(history([]happening{unknown}), rules(&profile))
	at := situation(&profile)
	for _, c := range []struct {
		now    time.Duration
		window time.Duration
		s      Standing
		want   StepKind
	}{
		{12*time.Hour - time.Second, 24 * time.Hour, asked, LookUp},
		{12 * time.Hour, 24 * time.Hour, asked, Park},
		{12 * time.Hour, 24 * time.Hour, notAsked, LookUp},
		{time.Minute, 0, asked, Park},
		{time.Minute, 0, notAsked, LookUp},
	} {
		profile.KeyWindow, at.Now = c.window, t0.Add(c.now)
		if step := Next(c.s, at); step.Kind != c.want {
			t.Errorf("after %v of a window of %v: step %+v, want %d", c.now, c.window, step, c.want)
		}
	}
}

// TestFoldAbsence: (d) needs spaced answers after the latest arrival and the visibility bound, at a consistent partner.
func TestFoldAbsence(t *testing.T) {
	profile := goodProfile()
	h := history([]happening{{attempt: true, verdict: "unknown"}}) // observed at t0+0.5s: arrival until 60.5s, visible until 65.5s
	at := func(d time.Duration) ledger.Fact {
		return ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found", Fence: 2, Token: token(2), At: t0.Add(d)}
	}
	seen := ledger.Fact{Kind: ledger.FactLookUp, Verdict: "in_flight", Fence: 2, Token: token(2), At: t0.Add(70 * time.Second)}
	for _, c := range []struct {
		name  string
		facts []ledger.Fact
		want  bool
	}{
		{"too early", []ledger.Fact{at(10 * time.Second), at(65 * time.Second), at(66 * time.Second)}, false},
		{"not spaced", []ledger.Fact{at(66 * time.Second), at(67 * time.Second), at(70 * time.Second)}, false},
		{"spaced", []ledger.Fact{at(66 * time.Second), at(71 * time.Second)}, true},
		{"seen once", []ledger.Fact{at(66 * time.Second), seen, at(71 * time.Second)}, false},
	} {
		with := h
		with.Facts = append(slices.Clone(h.Facts), c.facts...)
		if got := Fold(with, rules(&profile)).Absent; got != c.want {
			t.Errorf("%s: absent %v, want %v", c.name, got, c.want)
		}
	}
	h.Facts = []ledger.Fact{at(66 * time.Second), at(71 * time.Second)} // unobserved: it may be sent until the lease ends
	if Fold(h, rules(&profile)).Absent {
		t.Error("an unobserved attempt was taken for absent before its lease was over")
	}
	profile.LookUpConsistent = false
	h.Facts = append(h.Facts, at(10*time.Minute), at(20*time.Minute))
	if Fold(h, rules(&profile)).Absent {
		t.Error("a partner that is not consistent proved absence")
	}
	profile.LookUpConsistent, profile.SerialisesDuplicates = true, false
	s, now := Fold(h, rules(&profile)), situation(&profile)
	now.Now = t0.Add(21 * time.Minute)
	if step := Next(s, now); step.Kind != Send {
		t.Errorf("step %+v after proof of absence within the window, want send", step)
	}
	profile.HonoursKeys = false
	if step := Next(s, now); step.Kind != Park || step.Code != "absent_not_resendable" {
		t.Errorf("step %+v after proof of absence where no key is honoured, want park", step)
	}
}

// TestFoldEarlierEpochDecidesNothing: a rejection stored under the key of an earlier epoch clears that key and no more.
func TestFoldEarlierEpochDecidesNothing(t *testing.T) {
	profile := goodProfile()
	h := history([]happening{{attempt: true, verdict: "unknown"}, {attempt: true, verdict: "rejected", authoritative: true}})
	h.PartnerKey = "k2"
	s := Fold(h, rules(&profile))
	if s.InDoubt || s.Rejected {
		t.Errorf("standing %+v, want neither in doubt nor rejected", s)
	}
	h.Attempts = append(h.Attempts, ledger.Attempt{Intention: ledger.Intention{PartnerKey: "k2"}, Fence: 3, Token: token(3), At: t0.Add(time.Hour)})
	s = Fold(h, rules(&profile))
	if !s.InDoubt || s.Rejected || !s.FirstSent.Equal(t0.Add(time.Hour)) {
		t.Errorf("standing %+v, want in doubt under the new key from its own first send", s)
	}
}

// TestFoldLostClaim: doubt that no attempt explains is kept, and only proof of absence allows a send: two answers later than
// 130 s, the first observation and then lease, latest arrival and visibility bound.
func TestFoldLostClaim(t *testing.T) {
	profile := goodProfile()
	h := History{PartnerKey: "k", InDoubt: true, FirstSent: t0}
	at := situation(&profile)
	if step := Next(Fold(h, rules(&profile)), at); step.Kind != LookUp {
		t.Errorf("step %+v, want a look-up first", step)
	}
	for i, d := range []time.Duration{5 * time.Second, 100 * time.Second, 131 * time.Second, 137 * time.Second} {
		h.Facts = append(h.Facts, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found", Fence: 1, Token: token(1), At: t0.Add(d)})
		at.Now = t0.Add(d)
		if step, want := Next(Fold(h, rules(&profile)), at), []StepKind{LookUp, LookUp, LookUp, Send}[i]; step.Kind != want {
			t.Errorf("after %d not-founds: step %+v, want %d", i+1, step, want)
		}
	}
}

// TestFoldFenceIssuedAgain: what is said under a claim that a failover lost is not about the attempt that got the same fence since.
func TestFoldFenceIssuedAgain(t *testing.T) {
	profile := goodProfile()
	h := History{PartnerKey: "k", InDoubt: true, FirstSent: t0, Attempts: []ledger.Attempt{
		{Intention: ledger.Intention{PartnerKey: "k"}, Fence: 1, Token: token(1), At: t0}}}
	for _, kind := range []ledger.FactKind{ledger.FactLate, ledger.FactVerdict} {
		for _, verdict := range []string{"not_executed", "rejected"} {
			for _, authoritative := range []bool{false, true} {
				h.Facts = []ledger.Fact{{Kind: kind, Verdict: verdict, Authoritative: authoritative, Fence: 1, Token: token(9), At: t0.Add(time.Second)}}
				if s := Fold(h, rules(&profile)); !s.InDoubt || s.Rejected {
					t.Errorf("%s %s of a lost attempt: standing %+v, want in doubt and not rejected", kind, verdict, s)
				}
				h.Facts[0].Token = token(1)
				if s := Fold(h, rules(&profile)); s.InDoubt {
					t.Errorf("%s %s of the attempt itself left it in doubt", kind, verdict)
				}
			}
		}
	}
	// Five lost sends that ended alike are no replays of the one on record.
	h.Facts = []ledger.Fact{{Kind: ledger.FactVerdict, Verdict: "unknown", Fence: 1, Token: token(9), At: t0}}
	if s := Fold(h, rules(&profile)); s.Replays != 0 {
		t.Errorf("%d replays, want none", s.Replays)
	}
	// A partner's own record speaks for the key, under whatever token it was written down.
	h.Facts = []ledger.Fact{{Kind: ledger.FactLookUp, Verdict: "rejected", Authoritative: true, Token: token(9), At: t0.Add(time.Second)}}
	if s := Fold(h, rules(&profile)); s.InDoubt || !s.Final {
		t.Errorf("standing %+v after a look-up outside of a claim, want rejected for good", s)
	}
}

// TestFoldAmbiguityOfOneAttemptWins: two things are said of one attempt; the ambiguous one stays.
func TestFoldAmbiguityOfOneAttemptWins(t *testing.T) {
	profile := goodProfile()
	h := history([]happening{{attempt: true, verdict: "not_executed"}})
	for _, kind := range []ledger.FactKind{ledger.FactVerdict, ledger.FactLate} {
		for _, verdict := range []string{"unknown", "in_flight", "key_reused"} {
			with := h
			with.Facts = append(slices.Clone(h.Facts), ledger.Fact{Kind: kind, Verdict: verdict, Fence: 1, Token: token(1), At: t0.Add(time.Hour)})
			if !Fold(with, rules(&profile)).InDoubt {
				t.Errorf("%s %s beside not executed left no doubt", kind, verdict)
			}
		}
	}
}

// TestK1_OrderOfNewsDoesNotMatter: every permutation of what is on record gives one standing.
func TestK1_OrderOfNewsDoesNotMatter(t *testing.T) {
	profile := goodProfile()
	sequences(3, func(happened []happening) {
		if len(happened) < 2 {
			return
		}
		h := history(happened)
		want := Fold(h, rules(&profile))
		permute(h.Facts, func(facts []ledger.Fact) {
			shuffled := h
			shuffled.Facts = facts
			if got := Fold(shuffled, rules(&profile)); got != want {
				t.Errorf("%s: standing %+v in another order, want %+v", names(happened), got, want)
			}
		})
	})
	accepted := ledger.Fact{Kind: ledger.FactVerdict, Verdict: "authorized", TransferID: "tr_1", Fence: 2, Token: token(2), At: t0}
	settled := ledger.Fact{Kind: ledger.FactWebhook, Verdict: "authorized", TransferID: "tr_1", At: t0.Add(time.Hour)}
	failedBefore := ledger.Fact{Kind: ledger.FactLate, Verdict: "rejected", Fence: 1, Token: token(1), At: t0.Add(2 * time.Hour)}
	h := history([]happening{{attempt: true}, {attempt: true}})
	permute([]ledger.Fact{accepted, settled, failedBefore}, func(facts []ledger.Fact) {
		h.Facts = facts
		if step := Next(Fold(h, rules(&profile)), situation(&profile)); step.Kind != Authorize || step.TransferID != "tr_1" {
			t.Errorf("step %+v, want authorize tr_1", step)
		}
	})
}

func permute(facts []ledger.Fact, yield func([]ledger.Fact)) {
	var grow func(prefix, rest []ledger.Fact)
	grow = func(prefix, rest []ledger.Fact) {
		if len(rest) == 0 {
			yield(prefix)
			return
		}
		for i := range rest {
			grow(append(slices.Clone(prefix), rest[i]), slices.Concat(rest[:i], rest[i+1:]))
		}
	}
	grow(nil, facts)
}

// TestFoldIsMonotone: more news never takes back proof, and never clears doubt without proof.
func TestFoldIsMonotone(t *testing.T) {
	profile := goodProfile()
	all := happenings()
	rapid.Check(t, func(t *rapid.T) {
		happened := rapid.SliceOfN(rapid.SampledFrom(all), 0, 8).Draw(t, "happened")
		more := rapid.SampledFrom(all).Draw(t, "more")
		before := Fold(history(happened), rules(&profile))
		after := Fold(history(append(slices.Clone(happened), more)), rules(&profile))
		if (before.Mismatch && !after.Mismatch) || (before.Authorized && !after.Authorized) || (before.Seen && !after.Seen && after.InDoubt) ||
			(before.Final && !after.Final) {
			t.Fatalf("%q took back proof: %+v, then %+v", more.name, before, after)
		}
		clears := slices.Contains([]string{"authorized", "look-up: authorized", "rejected, stored", "look-up: rejected"}, more.name)
		if before.InDoubt && !after.InDoubt && !clears {
			t.Fatalf("%q cleared the doubt of %s", more.name, names(happened))
		}
		if more.doubt && !after.InDoubt && !after.Authorized && !after.Final {
			t.Fatalf("%q after %s left no doubt", more.name, names(happened))
		}
	})
}

// TestInvariant9_TimeAloneProvesNothing: for what is on record, a later hour never brings an outcome and never newly allows a send
// while in doubt, except when a minimum delay is over.
func TestInvariant9_TimeAloneProvesNothing(t *testing.T) {
	profile := goodProfile()
	sequences(3, func(happened []happening) {
		s := Fold(history(happened), rules(&profile))
		at := situation(&profile)
		early := Next(s, at)
		for _, hours := range []int{1, 13, 25, 24 * 365} {
			at.Now = t0.Add(time.Duration(hours) * time.Hour)
			late := Next(s, at)
			if late.Kind != early.Kind && (!s.InDoubt || late.Kind != Park && late.Kind != LookUp) {
				t.Errorf("%s: step %d became %d after %d hours", names(happened), early.Kind, late.Kind, hours)
			}
		}
	})
}

func BenchmarkFold(b *testing.B) {
	profile := goodProfile()
	h := history([]happening{{attempt: true, verdict: "authorized"}})
	r, at := rules(&profile), situation(&profile)
	b.ReportAllocs()
	for b.Loop() {
		if Next(Fold(h, r), at).Kind != Authorize {
			b.Fatal("not authorized")
		}
	}
}

func TestTraceIsTheLatestWordOfAnAnswer(t *testing.T) {
	facts := []ledger.Fact{
		{Kind: ledger.FactVerdict, Verdict: "unknown", Evidence: bankclient.Evidence{Status: 201, Location: "/v1/transfers/tr_7"}.JSON()},
		{Kind: ledger.FactLookUp, Verdict: "not_found", Evidence: bankclient.Evidence{Status: 201, Location: "/not/this", TransferID: "tr_9"}.JSON()},
		{Kind: ledger.FactVerdict, Verdict: "unknown", Evidence: bankclient.Evidence{Status: 409, TransferID: "tr_8"}.JSON()},
		{Kind: ledger.FactVerdict, Verdict: "unknown", Evidence: bankclient.Evidence{Status: 307, Location: "/v1/transfers"}.JSON()},
		{Kind: ledger.FactNote},
	}
	if got, want := traceOf(facts), (bankclient.Trace{TransferID: "tr_8", Location: "/v1/transfers/tr_7"}); got != want {
		t.Errorf("trace %+v, want %+v", got, want)
	}
}
