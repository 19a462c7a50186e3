package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/config"
)

// TestBanks_EchoesKeyIsThePartnersSetting: a plain connection is used again where the setting says that answers name their request, and only there.
func TestBanks_EchoesKeyIsThePartnersSetting(t *testing.T) {
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{}") // without a body the connection is never used again
	}))
	t.Cleanup(bank.Close)
	for _, echoes := range []bool{false, true} {
		c := workerConfig(t, "nats://127.0.0.1:1", "postgres://a@b/c", "")
		c.Partners["north"].BaseURL, c.Partners["north"].EchoesKey = config.URL(bank.URL), echoes
		all, err := Banks(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(all[0].Close)
		pr, err := all[0].Prepare(uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"), 0,
			bankclient.Transfer{Amount: "49.00", AmountMinor: 4900, Currency: "GBP", Beneficiary: bankclient.Beneficiary{Name: "A N Example"}})
		if err != nil {
			t.Fatal(err)
		}
		all[0].Send(t.Context(), pr)
		if again := all[0].Send(t.Context(), pr); again.Evidence.Reused != echoes || again.Evidence.Status != http.StatusCreated {
			t.Errorf("echoes_key %t: evidence %s", echoes, again.Evidence.JSON())
		}
	}
}
