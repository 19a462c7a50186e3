package bank

import (
	"net/http"
	"testing"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

func TestBank_AnswersAndStops(t *testing.T) {
	bank, err := Start(banksim.Options{Calm: true})
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(bank.ControlURL + "/oracle/summary")
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", response.StatusCode, err)
	}
	if err := bank.Stop(); err != nil {
		t.Error(err)
	}
}
