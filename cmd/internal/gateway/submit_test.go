package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

func TestSubmit_NewIsDurableBeforeTheAnswer(t *testing.T) {
	c := newCity(t)
	woken := make(chan struct{}, 1)
	g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) { o.Accepted = func() { woken <- struct{}{} } })
	key := newKey()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := g.post(strings.ToUpper(key), body, "traceparent", trace, "X-Request-Id", "req-1")
	a.want(t, http.StatusAccepted, "", false)
	if a.Key != key || a.State != "open" || a.Amount != "49.00" || a.header.Get("Location") != "/v1/withdrawals/"+key ||
		a.header.Get("X-Request-Id") != "req-1" || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Retry-After") == "" {
		t.Errorf("%v\n%s", a.header, a.text)
	}
	<-woken
	c.wantCount(1, "operations", `SELECT count(*) FROM operations WHERE key = $1 AND state = 'open' AND fence = 0 AND source = 'wallet'`, key)
	c.wantCount(1, "events", `SELECT count(*) FROM outbox WHERE type = 'accepted'`)
	c.wantCount(1, "due in the grace", `SELECT count(*) FROM due WHERE due_at > now() + interval '30 s' AND partner = 'northbank'`)
	jobs, err := c.ledger.UnpublishedJobs(context.Background(), 10, 0)
	if err != nil || len(jobs) != 1 || jobs[0].TraceParent != trace {
		t.Fatalf("jobs %+v, %v", jobs, err)
	}
	// The message that the relay publishes is the contract's, and its delivery has the fingerprint that was recorded.
	j, err := job.Decode(jobs[0].Source, jobs[0].Route, jobs[0].Payload)
	if err != nil || j.Key.String() != key {
		t.Fatal(j.Key, err)
	}
	sum := sha256.Sum256(jobs[0].Payload)
	if id := job.MsgID(jobs[0].Source, j.Key, jobs[0].Payload); id != "wallet:"+key+":"+hex.EncodeToString(sum[:8]) {
		t.Errorf("message id %s", id)
	}
	fingerprint := j.Fingerprint()
	c.wantCount(1, "fingerprints that equal the delivery's", `SELECT count(*) FROM operations WHERE fingerprint = $1 AND fingerprint_version = $2`,
		fingerprint.Sum[:], fingerprint.Version)
	c.record(ledger.Authorize(c.claim(key), "tr_1", fact("authorized")))
}

// TestSubmit_RepeatedByState is the table of answers to a known key (openapi.json), row by row.
func TestSubmit_RepeatedByState(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	for name, one := range map[string]struct {
		bring  func(key string)
		status int
		state  string
	}{
		"open":     {func(string) {}, http.StatusAccepted, "open"},
		"claimed":  {func(key string) { c.claim(key) }, http.StatusAccepted, "claimed"},
		"in doubt": {func(key string) { c.record(ledger.Schedule(c.claim(key), true, time.Hour, fact("unknown"))) }, http.StatusAccepted, "open"},
		"held": {func(key string) {
			c.record(ledger.Hold(c.claim(key), "paused", false, time.Hour, fact("not_executed")))
		}, http.StatusAccepted, "open"},
		"parked":     {func(key string) { c.record(ledger.Park(c.claim(key), "patience_over", true, fact("unknown"))) }, http.StatusAccepted, "parked"},
		"authorized": {func(key string) { c.record(ledger.Authorize(c.claim(key), "tr_7", fact("authorized"))) }, http.StatusOK, "authorized"},
		"rejected":   {func(key string) { c.record(ledger.Reject(c.claim(key), "account_closed", fact("rejected"))) }, http.StatusOK, "rejected"},
		"cancelled":  {func(key string) { c.record(ledger.Cancel(c.claim(key), "expired", fact("not_executed"))) }, http.StatusOK, "cancelled"},
	} {
		key := newKey()
		g.post(key, body).want(t, http.StatusAccepted, "", false)
		one.bring(key)
		for range 2 {
			a := g.post(key, body)
			a.want(t, one.status, "", true)
			finished := one.status == http.StatusOK
			if a.State != one.state || a.Key != key || (a.header.Get("Retry-After") == "") != finished || (a.OutcomeAt != "") != finished ||
				(a.TransferID == "tr_7") != (name == "authorized") || (a.HeldReason == "paused") != (name == "held") {
				t.Errorf("%s: %v\n%s", name, a.header, a.text)
			}
			read := g.must("GET", "/v1/withdrawals/"+key, wallet(""), "")
			if read.status != http.StatusOK || read.text != a.text {
				t.Errorf("%s: GET says %d %s, POST %s", name, read.status, read.text, a.text)
			}
			g.post(key, with("49.00", "49.01")).want(t, http.StatusUnprocessableEntity, "key_reused", false)
		}
	}
}

// TestA1_TwoHundredEqualRequestsAtTwoGateways: one operation, equal answers, one of them not marked as replayed.
func TestA1_TwoHundredEqualRequestsAtTwoGateways(t *testing.T) {
	c := newCity(t)
	gates := []*gate{c.newGate(c.open(ledger.Options{}), nil), c.newGate(c.open(ledger.Options{}), nil)}
	for round := range 3 {
		key := newKey()
		answers := gatesAsk(t, gates, 200, key)
		firsts := 0
		for _, a := range answers {
			if a.status != http.StatusAccepted || a.text != answers[0].text {
				t.Fatalf("answers differ: %d %s and %d %s", answers[0].status, answers[0].text, a.status, a.text)
			}
			if a.header.Get("Idempotent-Replayed") == "" {
				firsts++
			}
		}
		if firsts != 1 {
			t.Errorf("%d requests were told they are the first, want 1", firsts)
		}
		c.wantCount(round+1, "operations", `SELECT count(*) FROM operations`)
		c.wantCount(round+1, "jobs to publish", `SELECT count(*) FROM unpublished_jobs`)
		c.wantCount(round+1, "events", `SELECT count(*) FROM outbox`)
	}
}

// TestA1_TwoHundredThatWaitGetTheSameOutcome, at two gateways, of which none is told by a worker.
func TestA1_TwoHundredThatWaitGetTheSameOutcome(t *testing.T) {
	c := newCity(t)
	gates := []*gate{c.newGate(c.open(ledger.Options{}), nil), c.newGate(c.open(ledger.Options{}), nil)}
	key := newKey()
	var worked sync.WaitGroup
	worked.Go(func() {
		stack.Eventually(t, "accepted", func() bool {
			claim, err := claimOf(c.ledger, uuid.MustParse(key))
			if err != nil {
				return false
			}
			c.ledger.Record(context.Background(), []ledger.Record{ledger.Authorize(claim, "tr_9", fact("authorized"))})
			return true
		})
	})
	answers := gatesAsk(t, gates, 200, key, "Prefer", "wait=20")
	worked.Wait()
	waited := 0
	for _, a := range answers {
		if a.text != answers[0].text || a.State != "authorized" || a.TransferID != "tr_9" {
			t.Fatalf("answers differ: %s and %s", answers[0].text, a.text)
		}
		switch {
		case a.status == http.StatusCreated && a.header.Get("Preference-Applied") == "wait=20":
			waited++
		case a.status != http.StatusOK || a.header.Get("Idempotent-Replayed") != "true": // came when it was finished
			t.Errorf("status %d, %v", a.status, a.header)
		}
	}
	if waited == 0 {
		t.Error("nobody waited: the test proves nothing")
	}
	c.wantCount(1, "operations", `SELECT count(*) FROM operations`)
}

// gatesAsk sends n equal requests at once, spread over gateways.
func gatesAsk(t *testing.T, gates []*gate, n int, key string, more ...string) []answer {
	t.Helper()
	answers, errs := make([]answer, n), make([]error, n)
	var racers sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		racers.Go(func() {
			<-start
			answers[i], errs[i] = gates[i%len(gates)].ask("POST", "/v1/withdrawals", wallet(key, more...), body)
		})
	}
	close(start)
	racers.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return answers
}

func TestB13_AnotherAmountWhileTheFirstIsInFlight(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	key := newKey()
	g.post(key, body)
	claim := c.claim(key)
	for _, other := range []string{with("49.00", "50.00"), with("gbp-fps", "gbp-fps\",\"not_after\":\"2099-01-01T00:00:00Z"), with(canaryAccount, "cust-1"), with(canaryReference, "x")} {
		a := g.post(key, other)
		a.want(t, http.StatusUnprocessableEntity, "key_reused", false)
		for _, first := range []string{"49.00", "claimed", "gbp-fps", "northbank", "GBP"} {
			if strings.Contains(a.text, first) {
				t.Errorf("the conflict tells %q of the first: %s", first, a.text)
			}
		}
		if a.header.Get("Location") != "" {
			t.Error("the conflict tells where the first is")
		}
	}
	c.record(ledger.Authorize(claim, "tr_1", fact("authorized")))
	g.post(key, body).want(t, http.StatusOK, "", true)
}

func TestB14_PermutedMembersAndEscapesAreTheSameRequest(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	key := newKey()
	g.post(key, body).want(t, http.StatusAccepted, "", false)
	for _, same := range []string{
		"  " + strings.ReplaceAll(body, ",", " ,\n\t") + "\n",
		`{"reference":"` + canaryReference + `","beneficiary":{"iban":"` + canaryIBAN + `","name":"` + canaryName + `"},"currency":"GBP","amount":"49.00","debtor_account":"` + canaryAccount + `","route":"gbp-fps"}`,
		with(canaryName, `\u0043anary Beneficiary`),
		with(`"amount"`, `"\u0061mount"`),
		with(`{"route"`, `{"metadata":{"ticket":"1"},"route"`), // metadata does not say what is paid
	} {
		g.post(key, same).want(t, http.StatusAccepted, "", true)
	}
	c.wantCount(1, "operations", `SELECT count(*) FROM operations`)
}

func TestB15_TwoHonestEqualWithdrawalsAreTwo(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	g.post(newKey(), body).want(t, http.StatusAccepted, "", false)
	g.post(newKey(), body).want(t, http.StatusAccepted, "", false)
	c.wantCount(2, "operations", `SELECT count(*) FROM operations`)
}

func TestB16_AnotherSourceSeesNothing(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	key := newKey()
	g.post(key, body).want(t, http.StatusAccepted, "", false)
	a := g.post(key, body, "Authorization", "Bearer "+casinoToken)
	a.want(t, http.StatusUnprocessableEntity, "key_reused", false)
	if strings.Contains(a.text, "wallet") || strings.Contains(a.text, "49.00") {
		t.Errorf("told of the first: %s", a.text)
	}
	casino := wallet("", "Authorization", "Bearer "+casinoToken)
	g.must("GET", "/v1/withdrawals/"+key, casino, "").want(t, http.StatusNotFound, "not_found", false)
	g.must("POST", "/v1/withdrawals/"+key+"/cancel", casino, "").want(t, http.StatusNotFound, "not_found", false)
	unknown := g.must("GET", "/v1/withdrawals/"+newKey(), casino, "")
	if known := g.must("GET", "/v1/withdrawals/"+key, casino, ""); known.text != unknown.text {
		t.Errorf("the key of another source and an unknown key look different: %s, %s", known.text, unknown.text)
	}
	g.must("GET", "/v1/withdrawals/"+key, wallet(""), "").want(t, http.StatusOK, "", false)
}

func TestKeys_RequireRefusesWarnMakesOneAndCounts(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	g.post("", body).want(t, http.StatusBadRequest, "key_missing", false)
	c.wantCount(0, "operations", `SELECT count(*) FROM operations`)
	shop := func(key string) answer { return g.post(key, body, "Authorization", "Bearer "+shopToken) }
	wantMetric(t, g, `paidonce_keyless_total{source="shop"} 0`)
	one, two := shop(""), shop("")
	for _, a := range []answer{one, two} {
		a.want(t, http.StatusAccepted, "", false)
		if a.header.Get("Idempotency-Key") != a.Key || a.header.Get("Location") != "/v1/withdrawals/"+a.Key || uuid.MustParse(a.Key).Version() != 7 {
			t.Errorf("%v\n%s", a.header, a.text)
		}
	}
	if one.Key == two.Key {
		t.Error("two requests without a key have one key")
	}
	shop(one.Key).want(t, http.StatusAccepted, "", true) // from now on as with any other key
	wantMetric(t, g, `paidonce_keyless_total{source="shop"} 2`)
}

// hiding commits an order and keeps the answer to itself, once.
type hiding struct {
	gateway.Intake
	once sync.Once
}

func (h *hiding) Do(ctx context.Context, o ledger.Order) (ledger.Acceptance, error) {
	a, err := h.Intake.Do(ctx, o)
	h.once.Do(func() { a, err = ledger.Acceptance{}, context.DeadlineExceeded })
	return a, err
}

// A keyless withdrawal may be recorded while its answer is lost: the 503 names the key, and the repetition is the same withdrawal.
func TestKeys_AnAnswerThatIsLateNamesTheKeyThatWasMade(t *testing.T) {
	c := newCity(t)
	c.around = func(in gateway.Intake) gateway.Intake { return &hiding{Intake: in} }
	g := c.newGate(c.open(ledger.Options{}), nil)
	shop := func(key string) answer { return g.post(key, body, "Authorization", "Bearer "+shopToken) }
	first := shop("")
	first.want(t, http.StatusServiceUnavailable, "try_again", false)
	wantMetric(t, g, `paidonce_keyless_total{source="shop"} 1`)
	key := first.header.Get("Idempotency-Key")
	if key == "" || !strings.Contains(first.text, "the key in this answer's header Idempotency-Key") {
		t.Fatalf("%v\n%s", first.header, first.text)
	}
	again := shop(key)
	again.want(t, http.StatusAccepted, "", true)
	if again.Key != key {
		t.Errorf("key %s, want %s", again.Key, key)
	}
	c.wantCount(1, "operations", `SELECT count(*) FROM operations`)
}

func TestKeys_Forms(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	key := newKey()
	g.post(`"`+key+`"`, body).want(t, http.StatusAccepted, "", false)
	g.post(key, body).want(t, http.StatusAccepted, "", true)
	g.post(uuid.NewString(), body).want(t, http.StatusAccepted, "", false) // version 4
	for text, code := range map[string]string{
		"x": "key_form", `"` + key: "key_form", key + "0": "key_form", "{" + key + "}": "key_form", strings.ReplaceAll(key, "-", ""): "key_form",
		"urn:uuid:" + key: "key_form", `""`: "key_form", "00000000-0000-0000-0000-000000000000": "key_reserved",
		"FFFFFFFF-ffff-ffff-ffff-ffffffffffff": "key_reserved",
	} {
		g.post(text, body).want(t, http.StatusBadRequest, code, false)
	}
	request, err := http.NewRequest("POST", g.url+"/v1/withdrawals", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer " + walletToken}, "Idempotency-Key": {newKey(), newKey()}}
	response, err := c.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("two keys: %d", response.StatusCode)
	}
	c.wantCount(2, "operations", `SELECT count(*) FROM operations`)
}

// TestH_StrictBodies: what the decoder refuses is refused here with its code and place, and nothing is recorded.
func TestH_StrictBodies(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	amount := func(text string) string { return with(`"49.00"`, text) }
	for name, one := range map[string]struct {
		text   string
		status int
		code   string
		path   string
	}{
		"H1 amount and Amount":     {with(`"currency"`, `"Amount":"50.00","currency"`), 400, "case_variant_name", "/amount"},
		"H1 amount twice":          {with(`"currency"`, `"amount":"50.00","currency"`), 400, "duplicate_name", "/amount"},
		"H1 twice in beneficiary":  {with(`"iban"`, `"name":"x","iban"`), 400, "duplicate_name", "/beneficiary/name"},
		"H1 the Kelvin sign":       {with(`"iban"`, "\"pix_\u212aey\""), 400, "case_variant_name", "/beneficiary/pix_key"},
		"H1 the long s":            {with(`"iban"`, `"ſort_code"`), 400, "case_variant_name", "/beneficiary/sort_code"},
		"H2 two objects":           {body + body, 400, "trailing_data", ""},
		"H2 a bracket":             {body + "]", 400, "trailing_data", ""},
		"H2 a NUL byte":            {body + "\x00", 400, "nul_byte", ""},
		"H2 a BOM":                 {"\ufeff" + body, 400, "bom", ""},
		"H2 half a document":       {body[:40], 400, "truncated", "/debtor_account"},
		"nothing":                  {"", 400, "empty", ""},
		"H7 1.0":                   {amount(`"1.0"`), 422, "amount_digits", "/amount"},
		"H7 01.00":                 {amount(`"01.00"`), 422, "amount_form", "/amount"},
		"H7 1":                     {amount(`"1"`), 422, "amount_digits", "/amount"},
		"H7 +1.00":                 {amount(`"+1.00"`), 422, "amount_form", "/amount"},
		"H7 1e2":                   {amount(`"1e2"`), 422, "amount_form", "/amount"},
		"H7 1_000":                 {amount(`"1_000"`), 422, "amount_form", "/amount"},
		"H7 0x10":                  {amount(`"0x10"`), 422, "amount_form", "/amount"},
		"H7 NaN":                   {amount(`"NaN"`), 422, "amount_form", "/amount"},
		"H7 a number":              {amount(`49.00`), 422, "wrong_type", "/amount"},
		"I5 null":                  {amount(`null`), 422, "null_value", "/amount"},
		"I5 zero":                  {amount(`"0.00"`), 422, "amount_zero", "/amount"},
		"an unknown name":          {with(`"reference"`, `"memo"`), 422, "unknown_name", "/memo"},
		"a source in the body":     {with(`{"route"`, `{"source":"casino","route"`), 422, "unknown_name", "/source"},
		"a key in the body":        {with(`{"route"`, `{"key":"`+newKey()+`","route"`), 422, "unknown_name", "/key"},
		"a version in the body":    {with(`{"route"`, `{"v":1,"route"`), 422, "unknown_name", "/v"},
		"no route":                 {with(`"route":"gbp-fps",`, ``), 422, "missing", "/route"},
		"a route of nobody":        {with(`gbp-fps`, `eur-sepa`), 422, "route_not_allowed", "/route"},
		"a route of two tokens":    {with(`gbp-fps`, `gbp.fps`), 422, "route_name", "/route"},
		"a wrong check digit":      {with(canaryIBAN, "GB34BUKB20201555555555"), 422, "iban_check_digits", "/beneficiary/iban"},
		"a body of 64 KiB and one": {body + strings.Repeat(" ", job.MaxBytes+1-len(body)), 413, "too_large", ""},
		"a body of 5 MB":           {strings.Repeat("x", 5<<20), 413, "too_large", ""},
	} {
		a, err := g.ask("POST", "/v1/withdrawals", wallet(newKey()), one.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a.status != one.status || a.Code != one.code || a.Path != one.path || a.Type != "urn:paidonce:problem:"+one.code {
			t.Errorf("%s: %d %s at %q, want %d %s at %q", name, a.status, a.Code, a.Path, one.status, one.code, one.path)
		}
	}
	c.wantCount(0, "operations", `SELECT count(*) FROM operations`)
	g.post(newKey(), body+strings.Repeat(" ", job.MaxBytes-len(body))).want(t, http.StatusAccepted, "", false)
	g.post(newKey(), body+" \n\t\r ").want(t, http.StatusAccepted, "", false)
}

// TestH3_NeighboursBeyondFloatsDiffer: numbers that a float cannot tell apart are two amounts, on the way in, in the ledger and on the way out.
func TestH3_NeighboursBeyondFloatsDiffer(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	yen := func(amount string) string { return strings.Replace(with(`"49.00"`, amount), `"GBP"`, `"JPY"`, 1) }
	first, second := newKey(), newKey()
	g.post(first, yen(`"9007199254740993"`)).want(t, http.StatusAccepted, "", false)
	g.post(second, yen(`"9007199254740992"`)).want(t, http.StatusAccepted, "", false)
	g.post(first, yen(`"9007199254740992"`)).want(t, http.StatusUnprocessableEntity, "key_reused", false)
	for key, amount := range map[string]string{first: "9007199254740993", second: "9007199254740992"} {
		if a := g.must("GET", "/v1/withdrawals/"+key, wallet(""), ""); a.Amount != amount {
			t.Errorf("%s: %s, want %s", key, a.Amount, amount)
		}
		c.wantCount(1, "rows of "+amount, `SELECT count(*) FROM operations WHERE key = $1 AND amount_minor = `+amount, key)
		if e, err := c.ledger.Explain(context.Background(), uuid.MustParse(key)); err != nil || !strings.Contains(string(e.Payload), `"`+amount+`"`) {
			t.Errorf("the job of %s: %v", amount, err)
		}
	}
	for _, number := range []string{"9007199254740993", "9007199254740993.0", "9.007199254740993e15"} {
		g.post(newKey(), yen(number)).want(t, http.StatusUnprocessableEntity, "wrong_type", false)
	}
	g.post(newKey(), with(`"reference"`, `"metadata":{"ticket":9007199254740993},"reference"`)).want(t, http.StatusUnprocessableEntity, "wrong_type", false)
}

// TestI1I2_MinorUnitsAreThoseOfTheCurrency, as rows and as answers, against constants.
func TestI1I2_MinorUnitsAreThoseOfTheCurrency(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	for _, one := range []struct {
		currency, amount string
		minor            int
	}{{"JPY", "500", 500}, {"KWD", "18.600", 18600}, {"BHD", "0.001", 1}, {"GBP", "18.60", 1860}} {
		key := newKey()
		g.post(key, strings.Replace(with("49.00", one.amount), `"GBP"`, `"`+one.currency+`"`, 1)).want(t, http.StatusAccepted, "", false)
		c.wantCount(one.minor, one.currency, `SELECT amount_minor::int FROM operations WHERE key = $1`, key)
		if a := g.must("GET", "/v1/withdrawals/"+key, wallet(""), ""); a.Amount != one.amount {
			t.Errorf("%s: %s, want %s", one.currency, a.Amount, one.amount)
		}
	}
	for _, wrong := range [][2]string{{"JPY", "500.00"}, {"KWD", "18.60"}, {"GBP", "18.600"}} {
		g.post(newKey(), strings.Replace(with("49.00", wrong[1]), `"GBP"`, `"`+wrong[0]+`"`, 1)).want(t, http.StatusUnprocessableEntity, "amount_digits", false)
	}
}

func TestH5_TextReachesTheJobUnchanged(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	key := newKey()
	g.post(key, with(canaryName, `A & B <C> \"é\" 𠮷`)).want(t, http.StatusAccepted, "", false)
	e, err := c.ledger.Explain(context.Background(), uuid.MustParse(key))
	if err != nil {
		t.Fatal(err)
	}
	j, err := job.Decode(e.Source, e.Route, e.Payload)
	if err != nil || j.Beneficiary.Name.Reveal() != `A & B <C> "é" 𠮷` {
		t.Errorf("%q, %v", j.Beneficiary.Name.Reveal(), err)
	}
}

func TestSubmit_ContentTypes(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	for kind, status := range map[string]int{"": 202, "application/json; charset=utf-8": 202, "APPLICATION/JSON": 202, "text/plain": 415,
		"application/x-www-form-urlencoded": 415, "application/json; =": 415} {
		if a := g.post(newKey(), body, "Content-Type", kind); a.status != status {
			t.Errorf("%q: %d, want %d", kind, a.status, status)
		}
	}
}

// TestSubmit_PostgresAway: 503 with a time, and nothing is stored as an answer.
func TestSubmit_PostgresAway(t *testing.T) {
	c := newCity(t)
	away := openLedger(t, "postgres://nobody@127.0.0.1:1/none?connect_timeout=1", ledger.Options{})
	g := c.newGate(away, nil)
	key := newKey()
	for _, a := range []answer{
		g.post(key, body), g.post(key, body, "Prefer", "wait=1"), g.must("GET", "/v1/withdrawals/"+key, wallet(""), ""),
		g.must("POST", "/v1/withdrawals/"+key+"/cancel", wallet(""), ""),
	} {
		a.want(t, http.StatusServiceUnavailable, "try_again", false)
		if a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	g.post("", body).want(t, http.StatusBadRequest, "key_missing", false) // what needs no ledger is answered
	c.newGate(c.open(ledger.Options{}), nil).post(key, body).want(t, http.StatusAccepted, "", false)
}

func TestD7_APoolOfOneServesTwentyCallers(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{MaxConns: 1}), nil)
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for range 10 {
				key := newKey()
				for _, want := range []int{202, 202} {
					if a, err := g.ask("POST", "/v1/withdrawals", wallet(key), body); err != nil || a.status != want {
						t.Errorf("status %d, %v", a.status, err)
					}
				}
				if a, err := g.ask("GET", "/v1/withdrawals/"+key, wallet(""), ""); err != nil || a.status != 200 {
					t.Errorf("status %d, %v", a.status, err)
				}
			}
		})
	}
	callers.Wait()
	c.wantCount(200, "operations", `SELECT count(*) FROM operations`)
}

func TestSubmit_TooManyAtOnceAreToldSo(t *testing.T) {
	c := newCity(t)
	hold, held := make(chan struct{}), make(chan struct{})
	g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) {
		o.MaxRequests = 1
		o.Allowed = func(*job.Job) *job.Fault { held <- struct{}{}; <-hold; return nil }
	})
	var first sync.WaitGroup
	first.Go(func() {
		if a, err := g.ask("POST", "/v1/withdrawals", wallet(newKey()), body); err != nil || a.status != 202 {
			t.Errorf("%d, %v", a.status, err)
		}
	})
	<-held
	a := g.post(newKey(), body)
	a.want(t, http.StatusServiceUnavailable, "busy", false)
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	close(hold)
	first.Wait()
}

func TestSubmit_APanicIsAnsweredAndShowsNothing(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) {
		o.Allowed = func(j *job.Job) *job.Fault { panic(fmt.Sprint(j.Beneficiary.Name.Reveal())) }
	})
	g.post(newKey(), body).want(t, http.StatusInternalServerError, "internal", false)
	if !strings.Contains(c.log.String(), "request panicked") {
		t.Error("the log does not say so")
	}
}
