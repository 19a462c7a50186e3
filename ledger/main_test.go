package ledger_test

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

func TestMain(m *testing.M) { stack.Main(m) }

// open gives a ledger under the worker's role on a fresh database, and the owner's URL of the same.
func open(t testing.TB, opt ledger.Options) (*ledger.Ledger, string) {
	t.Helper()
	urls := stack.Databases(t)
	l, err := ledger.Open(context.Background(), urls.Worker, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, urls.Owner
}

// newWish is a wish for 49.00 GBP under a fresh key.
func newWish() ledger.Wish {
	key := uuid.Must(uuid.NewV7())
	return ledger.Wish{
		Key: key, Fingerprint: ledger.Fingerprint{Version: 1, Sum: sha256.Sum256(key[:])}, Source: "wallet", Route: "gbp-fps",
		DebtorAccount: "cust-4471", Amount: money.Amount{Minor: 4900, Currency: "GBP"}, Payload: []byte(`{"v":1}`),
		PublishedAt: time.Now(),
		Intention: ledger.Intention{Partner: "northbank", Credential: "2026-11", Endpoint: "POST http://127.0.0.1/v1/transfers", Renderer: 1,
			BodySHA256: sha256.Sum256([]byte("body")), PartnerKey: uuid.NewString(), EndToEndID: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
	}
}

func newWishes(n int) []ledger.Wish {
	wishes := make([]ledger.Wish, n)
	for i := range wishes {
		wishes[i] = newWish()
	}
	return wishes
}

// mustClaim claims one wish or ends the test.
func mustClaim(t testing.TB, l *ledger.Ledger, w ledger.Wish) ledger.Claim {
	t.Helper()
	a := l.Claim(context.Background(), []ledger.Wish{w})[0]
	if a.Err != nil || a.Answer != ledger.Claimed {
		t.Fatalf("claim: answer %s, err %v; want claimed", a.Answer, a.Err)
	}
	return a.Claim
}

// verdict is a fact as a worker would append it.
func verdict(v string) ledger.Fact {
	return ledger.Fact{Kind: ledger.FactVerdict, Verdict: v, Evidence: []byte(`{"status":201}`)}
}
