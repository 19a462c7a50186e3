package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
)

func TestMain(m *testing.M) {
	if runChild() || stack.RunChild() {
		return
	}
	stack.Beside(4)
	stack.Main(m)
}

// Everything that no answer, log line or error may show. The tokens are long enough.
const (
	canaryAccount   = "cust-canary-4471"
	canaryName      = "Canary Beneficiary"
	canaryIBAN      = "GB33BUKB20201555555555"
	canaryReference = "Canary reference"
	walletToken     = "canary-token-of-the-wallet"
	casinoToken     = "canary-token-of-the-casino"
	shopToken       = "canary-token-of-the-shop"
)

// body is the request of all tests.
const body = `{"route":"gbp-fps","debtor_account":"` + canaryAccount + `","amount":"49.00","currency":"GBP",` +
	`"beneficiary":{"name":"` + canaryName + `","iban":"` + canaryIBAN + `"},"reference":"` + canaryReference + `"}`

// with replaces one part of the body.
func with(old, replacement string) string {
	if strings.Count(body, old) != 1 {
		panic("part does not stand once in the body: " + old)
	}
	return strings.Replace(body, old, replacement, 1)
}

// city is one database with gateways before it.
type city struct {
	t      *testing.T
	urls   stack.DatabaseURLs
	ledger *ledger.Ledger // of a worker
	conn   *pgx.Conn      // the owner's
	api    *document
	log    *stack.Log
	client *http.Client
	around func(gateway.Intake) gateway.Intake // of gateways made after it is set; nil = nothing

	mu   sync.Mutex
	said strings.Builder // every answer, to be searched
}

func newCity(t *testing.T) *city {
	t.Helper()
	t.Parallel() // each has a database of its own
	c := &city{t: t, urls: stack.Databases(t), api: readDocument(t), log: &stack.Log{},
		client: &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
	c.ledger = c.open(ledger.Options{})
	conn, err := pgx.Connect(t.Context(), c.urls.Owner)
	if err != nil {
		t.Fatal(err)
	}
	c.conn = conn
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	t.Cleanup(func() {
		c.client.CloseIdleConnections()
		for _, canary := range []string{canaryAccount, canaryName, canaryIBAN, canaryReference, walletToken, casinoToken, shopToken} {
			if strings.Contains(c.said.String(), canary) {
				t.Errorf("an answer shows %q", canary)
			}
			if strings.Contains(c.log.String(), canary) {
				t.Errorf("the log shows %q", canary)
			}
		}
	})
	return c
}

func (c *city) open(opt ledger.Options) *ledger.Ledger {
	c.t.Helper()
	return openLedger(c.t, c.urls.Worker, opt)
}

func openLedger(t *testing.T, url string, opt ledger.Options) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(context.Background(), url, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// gate is one gateway of the city.
type gate struct {
	*gateway.Gateway
	city *city
	url  string
}

// newGate starts a gateway on a ledger of its own; change may be nil.
func (c *city) newGate(l *ledger.Ledger, change func(*gateway.Options)) *gate {
	c.t.Helper()
	tokens, err := gateway.NewTokens(map[string][]string{"wallet": {walletToken}, "casino": {casinoToken}, "shop": {shopToken}})
	if err != nil {
		c.t.Fatal(err)
	}
	opts := gateway.Options{
		Sources:  map[string]gateway.Source{"wallet": {}, "casino": {}, "shop": {MakeKeys: true}},
		Partners: map[string]string{"gbp-fps": "northbank"}, Tokens: tokens, Log: zerolog.New(zerolog.SyncWriter(c.log)), Grace: time.Minute,
		Allowed: func(j *job.Job) *job.Fault {
			if j.Route != "gbp-fps" {
				return &job.Fault{Reason: job.ReasonInvalid, Code: "route_not_allowed", Path: "/route", Detail: "this source has no such route"}
			}
			return nil
		},
	}
	if change != nil {
		change(&opts)
	}
	intake := worker.NewBatcher(256, l.Accept)
	intake.Start(context.Background(), 2)
	var door gateway.Intake = intake
	if c.around != nil {
		door = c.around(intake)
	}
	g, err := gateway.New(door, l, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	server := httptest.NewServer(g)
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
		server.Close()
		intake.Close()
	})
	return &gate{Gateway: g, city: c, url: server.URL}
}

// answer is what came back, checked against the document already.
type answer struct {
	status int
	header http.Header
	text   string
	withdrawal
	problem
}

type withdrawal struct {
	Key        string `json:"key"`
	State      string `json:"state"`
	InDoubt    bool   `json:"in_doubt"`
	HeldReason string `json:"held_reason"`
	Amount     string `json:"amount"`
	TransferID string `json:"transfer_id"`
	Code       string `json:"code"`
	OutcomeAt  string `json:"outcome_at"`
}

type problem struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// ask makes one request. Every answer is checked against the published document.
func (g *gate) ask(method, path string, header map[string]string, text string) (answer, error) {
	request, err := http.NewRequest(method, g.url+path, strings.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := g.city.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, header: response.Header, text: string(raw)}
	g.city.mu.Lock()
	fmt.Fprintln(&g.city.said, response.Header, a.text)
	g.city.mu.Unlock()
	if err := g.city.api.check(method, path, text, &a); err != nil {
		return a, err
	}
	if len(raw) > 0 && strings.Contains(response.Header.Get("Content-Type"), "json") {
		err = errors.Join(json.Unmarshal(raw, &a.withdrawal), json.Unmarshal(raw, &a.problem))
	}
	return a, err
}

func (g *gate) must(method, path string, header map[string]string, text string) answer {
	g.city.t.Helper()
	a, err := g.ask(method, path, header, text)
	if err != nil {
		g.city.t.Fatal(err)
	}
	return a
}

// post submits as the wallet.
func (g *gate) post(key, text string, more ...string) answer {
	g.city.t.Helper()
	return g.must("POST", "/v1/withdrawals", wallet(key, more...), text)
}

// wallet are the headers of the wallet; more are name and value, one after the other.
func wallet(key string, more ...string) map[string]string {
	header := map[string]string{"Authorization": "Bearer " + walletToken, "Content-Type": "application/json"}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	for i := 0; i < len(more); i += 2 {
		header[more[i]] = more[i+1]
	}
	return header
}

// want compares status, code of a problem ("" = none) and whether the answer is marked as replayed.
func (a answer) want(t testing.TB, status int, code string, replayed bool) {
	t.Helper()
	kind := "application/json"
	if code != "" {
		kind = "application/problem+json"
	}
	if a.status != status || (code != "" && a.Code != code) || a.header.Get("Content-Type") != kind || (a.header.Get("Idempotent-Replayed") == "true") != replayed {
		t.Errorf("answer %d %q, %s, replayed %q; want %d %q, replayed %v\n%s", a.status, a.Code, a.header.Get("Content-Type"),
			a.header.Get("Idempotent-Replayed"), status, code, replayed, a.text)
	}
}

func newKey() string { return job.NewKey().String() }

// claim takes an accepted operation as its delivery would.
func (c *city) claim(key string) ledger.Claim {
	c.t.Helper()
	claim, err := claimOf(c.ledger, uuid.MustParse(key))
	if err != nil {
		c.t.Fatal(err)
	}
	return claim
}

func claimOf(l *ledger.Ledger, key uuid.UUID) (ledger.Claim, error) {
	e, err := l.Explain(context.Background(), key)
	if err != nil {
		return ledger.Claim{}, err
	}
	j, err := job.Decode(e.Source, e.Route, e.Payload)
	if err != nil {
		return ledger.Claim{}, err
	}
	a := l.Claim(context.Background(), []ledger.Wish{{
		Key: j.Key, Fingerprint: j.Fingerprint(), Source: j.Source, Route: j.Route, DebtorAccount: j.DebtorAccount.Reveal(), Amount: j.Amount,
		Payload: e.Payload, PublishedAt: time.Now(), Intention: ledger.Intention{Partner: "northbank", Credential: "c1", Endpoint: "POST http://x", Renderer: 1,
			PartnerKey: "k-" + key.String(), EndToEndID: "E2E"},
	}})[0]
	if a.Err != nil || a.Answer != ledger.Claimed {
		return a.Claim, fmt.Errorf("claim of what was accepted: %s, %w", a.Answer, a.Err)
	}
	return a.Claim, nil
}

func (c *city) record(r ledger.Record) {
	c.t.Helper()
	if result := c.ledger.Record(context.Background(), []ledger.Record{r})[0]; result.Err != nil || result.Answer != ledger.Recorded {
		c.t.Fatalf("record: %s, %v", result.Answer, result.Err)
	}
}

func fact(verdict string) ledger.Fact { return ledger.Fact{Kind: ledger.FactVerdict, Verdict: verdict} }

func (c *city) wantCount(want int, what, sql string, args ...any) {
	c.t.Helper()
	var got int
	if err := c.conn.QueryRow(context.Background(), sql, args...).Scan(&got); err != nil {
		c.t.Fatal(err)
	}
	if got != want {
		c.t.Errorf("%s: %d, want %d", what, got, want)
	}
}
